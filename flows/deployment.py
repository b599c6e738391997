"""The Prefect server: the one already running, a private one per run, or `infuser serve` with its deployment."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import typer

from infuser_core import settings
from infuser_core.errors import EngineError, UsageError

HOST = "127.0.0.1"
DEFAULT_PORT = 4200
_RESTARTS = 3
_LOOK = 0.5
_QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_CLI_PROMPT": "false",
    # A server that is gone costs a run half a minute, not two.
    "PREFECT_CLIENT_MAX_RETRIES": "4",
    "PREFECT_API_REQUEST_TIMEOUT": "30",
}
# A private server serves one run: nothing is scheduled, nothing reacts to events, and no block is used.
_IDLE_SERVICES = ("SCHEDULER", "LATE_RUNS", "TRIGGERS", "FOREMAN", "PAUSE_EXPIRATIONS", "CANCELLATION_CLEANUP")
PRIVATE = {
    **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _IDLE_SERVICES},
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    # A transaction for each state of every task costs the server a fifth of its time; a second's delay disturbs nobody.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}


def prepare_environment(root: Path) -> None:
    """Prefect's home inside the store, telemetry off, console quiet; what the user set himself stays."""
    home = root / "prefect"
    for name, value in {
        **_QUIET,
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    }.items():
        os.environ.setdefault(name, value)


@contextmanager
def server(root: Path) -> Iterator[str]:
    """The API's address: `PREFECT_API_URL`, a running `infuser serve`, or a private server that ends with us."""
    given = os.environ.get("PREFECT_API_URL")
    found = given or announced(root)
    if found:
        os.environ["PREFECT_API_URL"] = found
        yield found
        return
    port = free_port()
    private = _Private(port)
    os.environ["PREFECT_API_URL"] = address(port)
    # Log lines that are still queued when a private server ends would be complained about.
    os.environ.setdefault("PREFECT_LOGGING_TO_API_ENABLED", "false")
    try:
        yield address(port)
    finally:
        del os.environ["PREFECT_API_URL"]
        private.stop()


class _Private:
    """A server of one command, started again where somebody ends it: its states lie in its database."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process = start(port, extra=PRIVATE)
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="Prefect server", daemon=True)
        self._watching.start()

    def stop(self) -> None:
        """End the server."""
        self._ended.set()
        self._watching.join()
        stop(self._process)

    def _watch(self) -> None:
        for _ in range(_RESTARTS):
            while self._process.poll() is None:
                if self._ended.wait(_LOOK):
                    return
            self._process = start(self._port, extra=PRIVATE)
        # The kernel ends a server with the thread that started it.
        self._ended.wait()


def start(port: int, *, extra: dict[str, str], ui: bool = False) -> subprocess.Popen[bytes]:
    """Start a server process; it dies with this one."""
    environment = {
        **os.environ,
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_UI_API_URL": address(port),
        # Its own address: a settings file in the working folder may name another server.
        "PREFECT_API_URL": address(port),
        "PREFECT_SERVER_UI_ENABLED": "true" if ui else "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        **extra,
    }
    # -P: the folder that the user stands in may hold a `flows` of its own.
    command = [sys.executable, "-P", "-m", "uvicorn", "--factory", "flows.deployment:create_app"]
    command += ["--host", HOST, "--port", str(port), "--log-level", "critical", "--lifespan", "on"]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def create_app() -> Any:
    """Prefect's server, with two habits that SQLite needs.

    A transaction takes the write lock when it begins: one that reads first fails as soon as another writes, and the
    client then waits for seconds. And servers that share a database start one after the other, migrations included.
    """
    from prefect.server.api.server import create_app as prefect_app
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def begin_writing(self: Any, session: Any, with_for_update: bool = False) -> AsyncIterator[Any]:
        async with begin(self, session, with_for_update=True) as transaction:
            yield transaction

    setattr(AioSqliteConfiguration, begin.__name__, begin_writing)
    app = prefect_app()
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def start_alone(app: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            with _start_lock():
                state = await stack.enter_async_context(lifespan(app))
            yield state

    app.router.lifespan_context = start_alone
    return app


@contextmanager
def _start_lock() -> Iterator[None]:
    from prefect.settings import get_current_settings

    home = get_current_settings().home
    home.mkdir(parents=True, exist_ok=True)
    with (home / "start.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def why_down(url: str) -> str:
    """Nothing once the API answers; why not, where it does not in time."""
    try:
        wait_until_up(url)
    except EngineError as error:
        return error.message
    return ""


def wait_until_up(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Return when the API answers. Raises EngineError when it does not in time."""
    patience = settings.server_seconds()
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            break
        if is_up(url):
            return
        time.sleep(0.05)
    raise EngineError(
        f"the Prefect server at {url} did not answer within {patience:.0f} s",
        hint="wait longer with INFUSER_SERVER_SECONDS, or look at its database in the store's prefect/ folder",
    )


def is_up(url: str) -> bool:
    """Whether the API answers."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server process."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def address(port: int) -> str:
    """The API of a loopback server."""
    return f"http://{HOST}:{port}/api"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def announce(root: Path, url: str) -> Path:
    """Let later commands find this server."""
    path = root / "server.json"
    path.write_text(json.dumps({"api": url, "pid": os.getpid()}))
    return path


def announced(root: Path) -> str:
    """Address of the living `infuser serve` of this store, or nothing."""
    path = root / "server.json"
    if not path.is_file():
        return ""
    url = str(json.loads(path.read_text())["api"])
    return url if is_up(url) else ""


def _die_with_parent() -> None:
    import ctypes

    # 1 is PR_SET_PDEATHSIG: a killed run must not leave a server behind, and one that ends in peace takes a minute.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


DEPLOYMENT = "full-pipeline"
_EXAMPLE = """--param configs='["configs/nano.yaml"]' --param overrides='{"cotrain": {"iterations": 4}}'"""


def serve(root: Path, port: int) -> None:
    """Serve until interrupted. Raises UsageError when the port or the store is taken."""
    prepare_environment(root)
    # Flow runs are processes of their own: they must find the same store.
    os.environ["INFUSER_STORE"] = str(root)
    os.environ.setdefault("PREFECT_RUNNER_POLL_FREQUENCY", "2")
    # 30 s is the shortest that Prefect allows.
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    url = address(port)
    _check_free(root, port)
    signal.signal(signal.SIGTERM, _interrupt)
    process = start(port, extra={}, ui=True)
    announcement = None
    try:
        os.environ["PREFECT_API_URL"] = url
        wait_until_up(url, process)
        announcement = announce(root, url)
        _print_how_to(url, port)
        _serve_deployment(root, process)
    finally:
        if announcement is not None:
            announcement.unlink(missing_ok=True)
        stop(process)


def _check_free(root: Path, port: int) -> None:
    other = announced(root)
    if other:
        raise UsageError(
            f"this store is served already, at {other}", hint="use that server, stop it, or set another INFUSER_STORE"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on port {port} of {HOST}: {error.strerror}",
                hint=f"choose another, e.g. `infuser serve --port {free_port()}`",
            ) from error


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _print_how_to(url: str, port: int) -> None:
    here = "" if port == DEFAULT_PORT else f"  export PREFECT_API_URL={url}\n"
    typer.echo(
        f"Prefect UI    http://{HOST}:{port}\n"
        f"Prefect API   {url}  (from anywhere: export PREFECT_API_URL={url})\n"
        f"deployment    infuser/{DEPLOYMENT}; Ctrl-C ends everything\n"
        f"\nIn another terminal, `infuser run ...` shows up here by itself, or\n{here}"
        f"  prefect deployment run infuser/{DEPLOYMENT}\n"
        f"  prefect deployment run infuser/{DEPLOYMENT} {_EXAMPLE}"
    )
    sys.stdout.flush()


def _serve_deployment(root: Path, process: subprocess.Popen[bytes]) -> None:
    from prefect.flows import EntrypointType

    from flows.crashed_runs import expect_heartbeats, keep_settling, settle_at_start, store_tag
    from flows.full_pipeline import infuser

    expect_heartbeats()
    settle_at_start(root, runner_is_gone=True)

    ended = threading.Event()
    threading.Thread(target=_watch, args=(process, ended), daemon=True).start()
    threading.Thread(target=keep_settling, args=(root, ended), daemon=True).start()
    try:
        infuser.serve(
            name=DEPLOYMENT,
            description=infuser.description,
            tags=[store_tag(root)],
            entrypoint_type=EntrypointType.MODULE_PATH,
            print_starting_message=False,
        )
    finally:
        stopped = process.poll()
        ended.set()
    if stopped is not None:
        raise EngineError(f"the Prefect server ended with code {stopped}", hint="start `infuser serve` again")


def _watch(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """Without its server the runner would poll for ever."""
    while not ended.wait(1.0):
        if process.poll() is not None:
            os.kill(os.getpid(), signal.SIGINT)
            return
