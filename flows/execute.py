"""One run of the pipeline from a terminal: server, flow, and errors that people can read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows import server
from infuser_core import settings
from infuser_core.config import RunConfig
from infuser_core.errors import InfuserError


def execute(config: RunConfig, name: str, *, quiet: bool = False) -> None:
    """Run, or go on with, the named run. Raises InfuserError with what a person should know."""
    root = settings.writable_store_root()
    server.prepare_environment(root)
    with server.server(root) as url:
        # Importing the flow takes as long as the server needs to start.
        from prefect import tags

        from flows.full_pipeline import infuser
        from flows.settle import store_tag
        from infuser_core.errors import StageError

        server.wait_until_up(url)
        try:
            with _without_heartbeats(), tags(store_tag(root)):
                infuser(name=name, settings=config.model_dump(mode="json"), quiet=quiet)
        except InfuserError:
            raise
        except Exception as error:  # the process boundary: recorded in the journal, named for the person
            hint = f"finished stages are kept: `infuser resume {name}` goes on from here"
            raise StageError(f"run {name} failed: {type(error).__name__}: {error}", hint=hint) from error


@contextmanager
def _without_heartbeats() -> Iterator[None]:
    """No flow-run heartbeats: joining their thread costs up to a second per sub-flow, and nobody listens here."""
    from prefect.context import SettingsContext, get_settings_context

    context = get_settings_context()
    flows = context.settings.flows.model_copy(update={"heartbeat_frequency": None})
    changed = context.settings.model_copy(update={"flows": flows})
    with SettingsContext(profile=context.profile, settings=changed):
        yield


def spawn(arguments: list[str], *, log: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """`infuser ARGUMENTS` as another process, its output in a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {**os.environ, **(environment or {})}
    with log.open("wb") as handle:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments], stdout=handle, stderr=subprocess.STDOUT, env=values
        )
