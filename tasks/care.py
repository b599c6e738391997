"""What the store's care shows a person while it looks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from infuser_core.store.verify import Progress
from infuser_core.terminal import Console

_MEGABYTE = 1_000_000


@contextmanager
def meter(label: str) -> Iterator[Progress]:
    """A live line for bytes looked at, with the time that is left; gone at the end."""
    console = Console(enabled=sys.stderr.isatty())
    console.start(f"{label}, MB", -1)
    try:
        yield lambda done, total: console.progress(done // _MEGABYTE, total // _MEGABYTE, 0)
    finally:
        console.clear()
