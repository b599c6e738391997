"""Execute a run, in Prefect if a server is running, and turn errors into messages and exit codes."""

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
from infuser_core.errors import BusyRunError, InfuserError, StageError, Terminated, UsageError, abbreviate
from infuser_core.store import runs
from infuser_core.terminal import printable

if TYPE_CHECKING:
    from infuser_core.config.run import RunConfig

_PATH_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES}
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_LINE = 2000
"""Characters of an error message that are printed."""
_WHOLE: Mapping[str, str] = {}


def execute(
    config: "RunConfig",
    name: str,
    *,
    wait: bool = False,
    page: bool = True,
    places: Mapping[str, str] = _WHOLE,
    record: Callable[[], None] | None = None,
    profile: int = 0,
) -> None:
    """Start or continue the named run. Raises InfuserError.

    `places`: `again` recomputes from a stage on, `until` stops after it, `only` runs it alone. If another living
    process executes the run, wait for its end or raise BusyRunError. Without `page`, the report's page is not
    written, unless the run is shown in Prefect. `record` records a new variant once its questions are checked.
    `profile`: number of optimizer steps and of scoring micro-batches to trace, into the run's folder.
    """
    from infuser_core.planning.split import load_sets, require_apart
    from infuser_core.store.journal import Journal

    root = settings.writable_store_root()
    with _terminable(name):
        while True:
            if wait:
                runs.wait_until_free(root, name)
            # Fail early, before a server starts; the lock itself is taken later.
            runs.refuse_if_held(root, name)
            try:
                # A complete run computes nothing: overlapping question sets do no harm.
                if places.get("again") or not Journal(root, name).is_finished():
                    require_apart(config, load_sets(config))
                if record is not None:
                    record()
                with _traced(config, name, root, profile):
                    _execute(config, name, root, page=page, places=dict(places))
                return
            except BusyRunError:
                if not wait:
                    raise


@contextmanager
def _traced(config: "RunConfig", name: str, root: Path, profile: int) -> Iterator[None]:
    """Trace the block's first optimizer steps and scoring micro-batches, and say where the files are."""
    if not profile:
        yield
        return
    from tasks.run import trace_run

    with trace_run(config, name, root, profile) as writer:
        yield
    if writer.files:
        typer.echo(f"infuser: traces in {writer.folder}: {', '.join(file.name for file in writer.files)}", err=True)
    else:
        print_warning("no trace: this start took no optimizer step and scored no question")


def _execute(config: "RunConfig", name: str, root: Path, *, page: bool, places: dict[str, Any]) -> None:
    # Imported here: every command imports this module, but few execute a run.
    from flows import deployment
    from flows.pipeline import pipeline
    from infuser_core.planning.place import parse_places
    from infuser_core.planning.room import require_room

    require_room(config, name, parse_places(**places))
    try:
        server = deployment.find_server(root)
        if server is None or not _run_in_prefect(config, name, root, places=places):
            pipeline(config, name, page=page, **places)
    except InfuserError:
        raise
    except Exception as error:  # the process boundary: journalled, and reported with its type
        hint = f"finished stages are kept: `infuser resume {name}` continues from here"
        raise StageError(f"run {name} failed: {type(error).__name__}: {error}", hint=hint) from error


def _run_in_prefect(config: "RunConfig", name: str, root: Path, *, places: dict[str, Any]) -> bool:
    """Execute the run as a Prefect flow. Returns False if the server was lost before its end."""
    from flows import deployment

    deployment.prepare_environment(root)
    # Keep retries short: after the loss of a server, every open flow retries in turn.
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
            infuser(configs=[], name=name, settings=config.model_dump(mode="json"), **places)
    except httpx.HTTPError as error:
        # Stages raise InfuserError: this error comes from Prefect's client.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        print_warning(f"the Prefect server was lost: {why}; {deployment.WITHOUT}")
        return False
    return True


@contextmanager
def _terminable(name: str) -> Iterator[None]:
    """Make SIGTERM end the run with a message and a separate exit code. Inside a flow, Prefect receives it first."""

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
    """Call a command and return its exit code; print an error as one line and a hint on standard error."""
    try:
        command()
    except InfuserError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except OSError as error:
        # Handle only errors about a file that an argument or a setting names, not those of a failing disk.
        if error.filename is None or error.errno not in _PATH_ERRORS:
            raise
        print_error(f"{abbreviate(str(error.filename))}: {error.strerror}", "correct the path")
        return UsageError.exit_code
    except KeyboardInterrupt:
        print_error("interrupted", "finished work is kept: run the same command again, or `infuser resume`")
        return INTERRUPTED
    return 0


def print_error(message: str, hint: str) -> None:
    """Print an error and its hint on standard error."""
    typer.echo(printable(f"infuser: {' '.join(message.splitlines())[:_LINE]}"), err=True)
    if hint:
        typer.echo(printable(f"  hint: {hint}"), err=True)


def print_warning(line: str) -> None:
    """Print a warning on standard error."""
    typer.echo(printable(f"infuser: warning: {line}"), err=True)


def spawn(arguments: list[str], root: Path, *, log: Path, apart: bool = False) -> subprocess.Popen[bytes]:
    """Start `infuser ARGUMENTS` on the store at `root` as another process, with its output in a file.

    With `apart`, Ctrl-C in this terminal does not reach it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "INFUSER_STORE": str(root)}
    command = [sys.executable, "-P", "-m", "flows.cli.main", *arguments]
    with log.open("wb") as handle:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=apart,
        )


def describe_failure(code: int, log: Path) -> str:
    """Cause of a failure: the signal that killed the process, else the last error in its output, else the last line."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = log.read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("infuser:")] or lines[-1:] or ["no output"]
    return errors[-1].removeprefix("infuser: ")
