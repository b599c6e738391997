"""Input and output of every converter of documents.

A converter gets its settings and resources, and returns a page row (`schemas.Page`): the Markdown of a whole source, or
the reason for its rejection.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from corpus.read.printed import RemovedText
from infuser_core.config.corpus import ConvertSettings
from infuser_core.errors import DocumentError
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import Page
from infuser_core.system import child

Resource = TypeVar("Resource")


class SharedResources(ExitStack):
    """Resources that a converter reuses between books, such as its model servers; the worker process closes them."""

    def __init__(self) -> None:
        super().__init__()
        self._resources: dict[Any, Any] = {}

    def once(self, begin: Callable[[], AbstractContextManager[Resource]]) -> Resource:
        """Return the resource that `begin` opens; later calls return the same one."""
        if begin not in self._resources:
            self._resources[begin] = self.enter_context(begin())
        resource: Resource = self._resources[begin]
        return resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionJob:
    """Settings of a conversion, and the resources that the converter may use."""

    settings: ConvertSettings = field(default_factory=ConvertSettings)
    work: Path | None = None
    """Folder where a converter may store finished parts, so that they survive a kill; None stores nothing."""
    resources: SharedResources | None = None
    """Resources that the worker shares between books; if None, a converter opens its own for each book."""
    progress: Progress = no_progress
    """Receives the finished pages of a book that takes minutes; must be picklable for workers in other processes."""

    @property
    def limits(self) -> child.Limits:
        """Limits of the child process that reads one file."""
        seconds = self.settings.seconds
        return child.Limits(wall_seconds=seconds, cpu_seconds=int(seconds) + 1)


def page_of(
    source_id: str,
    text: str = "",
    *,
    converter: str,
    reason: str = "",
    num_pages: int = 0,
    chosen: str = "",
    page_starts: Sequence[int] = (),
    removed: Sequence[RemovedText] = (),
) -> Page:
    """Build the page row of a whole source: rejected if a reason is given, otherwise converted."""
    return Page(
        source_id=source_id,
        markdown=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        num_pages=num_pages,
        converter=converter,
        status="rejected" if reason else "converted",
        reason=reason,
        chosen=chosen,
        page_starts=list(page_starts),
        removed=[row.text for row in removed],
        removed_for=[row.reason for row in removed],
        removed_pages=[row.page for row in removed],
    )


def reason_of(error: DocumentError) -> str:
    """Rejection reason for a file that could not be parsed: encrypted or unreadable."""
    if "password" in error.message.lower():
        return "encrypted: the file needs a password"
    return f"unreadable: {error.message}"
