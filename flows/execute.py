"""Executes one run: in Prefect where a server is, directly elsewhere; exit codes, and errors that people can read."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from infuser_core import settings
from infuser_core.errors import BusyRunError, InfuserError, StageError, Terminated, UsageError, shown
from infuser_core.store import runs
from infuser_core.terminal import printable

if TYPE_CHECKING:
    from infuser_core.config.run import RunConfig

_PATH_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES}
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_LINE = 2000
_WHOLE: Mapping[str, str] = {}


def execute(
    config: "RunConfig",
    name: str,
    *,
    wait: bool = False,
    page: bool = True,
    asked: Mapping[str, str] = _WHOLE,
    record: Callable[[], None] | None = None,
) -> None:
    """Execute the named run, or continue it. Raises InfuserError with what a person should know.

    `asked` are places: `again` to compute from there on, `until` to stop after, `only` for that alone. If another
    living process executes the run, wait for its end or raise BusyRunError with its name. Without `page` nobody waits
    for the page of its report, unless Prefect shows it. `record` writes the record of a variant once its questions are
    checked.
    """
    root = settings.writable_store_root()
    with _terminable(name):
        while True:
            if wait:
                runs.wait_until_free(root, name)
            # Better said before a server starts; who holds the run is decided inside.
            runs.refuse_held(root, name)
            try:
                _require_apart(config, name, root, again=asked.get("again", ""))
                if record is not None:
                    record()
                _execute(config, name, root, page=page, asked=asked)
                return
            except BusyRunError:
                if not wait:
                    raise


def _require_apart(config: "RunConfig", name: str, root: Path, *, again: str) -> None:
    """Raises ConfigError for sets of questions that overlap; a complete run computes nothing and may have any."""
    from infuser_core.planning.split import load_sets, require_apart
    from infuser_core.store.journal import Journal

    if again or not Journal(root, name).is_finished():
        require_apart(config, load_sets(config))


def _execute(config: "RunConfig", name: str, root: Path, *, page: bool, asked: Mapping[str, str]) -> None:
    # Imported here: every command imports this module, few execute a run.
    from flows import deployment
    from flows.pipeline import pipeline
    from infuser_core.planning.place import parse_places
    from infuser_core.planning.room import require_room

    places: dict[str, Any] = dict(asked)
    require_room(config, name, parse_places(**places))
    try:
        server = deployment.find_server(root)
        if server is None or not _published(config, name, root, places=places):
            pipeline(config, name, page=page, **places)
    except InfuserError:
        raise
    except Exception as error:  # the process boundary: recorded in the journal, named for the person
        hint = f"finished stages are kept: `infuser resume {name}` continues from here"
        raise StageError(f"run {name} failed: {type(error).__name__}: {error}", hint=hint) from error


def _published(config: "RunConfig", name: str, root: Path, *, places: dict[str, Any]) -> bool:
    """Execute the run as a flow of Prefect. Returns whether it came to its end: its server may be lost."""
    from flows import deployment

    deployment.prepare_environment(root)
    # When a server goes, every flow that is open asks it as often, one after the other.
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "1")
    os.environ.setdefault("PREFECT_API_REQUEST_TIMEOUT", "10")
    import httpx
    from prefect import tags

    from flows.full_pipeline import infuser
    from flows.server.crashed_runs import settle_at_start, store_tag
    from tasks.run import without_heartbeats

    settle_at_start(root)
    try:
        with without_heartbeats(), tags(store_tag(root)):
            infuser(name=name, settings=config.model_dump(mode="json"), **places)
    except httpx.HTTPError as error:
        # Stages raise errors of ours: this one is from showing them.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        print_warning(f"the Prefect server was lost: {why}; {deployment.WITHOUT}")
        return False
    return True


@contextmanager
def _terminable(name: str) -> Iterator[None]:
    """SIGTERM ends the run with a line and an exit code of its own. Inside the flow Prefect hears it first."""

    def stop(*_: object) -> None:
        raise Terminated("stopped by SIGTERM", hint=f"`infuser resume {name}` continues from the last completed stage")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def exit_code(command: Callable[[], object]) -> int:
    """Call a command and return its exit code; an error becomes one line and a hint on standard error."""
    try:
        command()
    except InfuserError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except OSError as error:
        # A file that an argument or a setting names; a disk that fails is something else.
        if error.filename is None or error.errno not in _PATH_ERRORS:
            raise
        print_error(f"{shown(str(error.filename))}: {error.strerror}", "correct the path")
        return UsageError.exit_code
    except KeyboardInterrupt:
        print_error("interrupted", "finished work is kept: run the same command again, or `infuser resume`")
        return INTERRUPTED
    return 0


def print_error(message: str, hint: str) -> None:
    """Print an error and its remedy."""
    typer.echo(printable(f"infuser: {' '.join(message.splitlines())[:_LINE]}"), err=True)
    if hint:
        typer.echo(printable(f"  hint: {hint}"), err=True)


def print_warning(line: str) -> None:
    """Print a warning."""
    typer.echo(printable(f"infuser: warning: {line}"), err=True)


def spawn(arguments: list[str], *, log: Path) -> subprocess.Popen[bytes]:
    """`infuser ARGUMENTS` as another process, its output in a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "flows.cli.main", *arguments]
    with log.open("wb") as handle:
        return subprocess.Popen(command, stdout=handle, stderr=subprocess.STDOUT)
