"""Prefect servers: find a running one, start one (`infuser serve`), and serve the deployment of full runs."""

import base64
import fcntl
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

import typer

from infuser_core import settings
from infuser_core.errors import EngineError, UsageError
from infuser_core.results.lineage.addresses import UI
from infuser_core.store import lease
from infuser_core.system import durable

HOST = "127.0.0.1"
_PASSWORD = "PREFECT_API_AUTH_STRING"
_QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_CLI_PROMPT": "false",
}
# Record task states in batches: one transaction per state costs a fifth of the server's time. States appear 1 s later.
_BATCHES = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
_PATIENCE = 120.0
"""Seconds to wait until a new server answers."""
WITHOUT = "the run continues without it, and `infuser serve` shows it later"
"""Ending of warnings that a server cannot be reached."""


def prepare_environment(root: Path) -> None:
    """Set Prefect's home to a folder of the store, and switch off telemetry and console; variables of the user stay."""
    home = root / "prefect"
    for name, value in {
        **_QUIET,
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    }.items():
        os.environ.setdefault(name, value)
    # The announcement is a profile for Prefect's own commands; INFUSER reads it itself and sets the variables.
    if os.environ.get("PREFECT_PROFILES_PATH") in (None, str(announcement(root))):
        os.environ["PREFECT_PROFILES_PATH"] = f"{os.environ['PREFECT_HOME']}/profiles.toml"


def find_server(root: Path) -> str | None:
    """Find the API address: `PREFECT_API_URL`, or the store's running `infuser serve`. None without a server.

    Sets the environment variables that let Prefect's clients use the store's server.
    """
    url = os.environ.get("PREFECT_API_URL")
    server = running_server(root)
    if server and url in (None, server.url):
        os.environ.update(server.variables)
        return server.url
    if url and not is_up(url):
        typer.echo(f"infuser: warning: the Prefect server at {url} does not answer; {WITHOUT}", err=True)
        return None
    return url


def listen(port: int = 0) -> socket.socket:
    """Open a listening socket on loopback, by default on a free port. Raises UsageError if the port is taken."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        # Listen immediately: another process can still take a port that is only bound.
        listening.listen()
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot listen on port {port} of {HOST}: {error.strerror}",
            hint=f"choose another, e.g. `infuser serve --port {free_port()}`",
        ) from error
    return listening


def password() -> str:
    """The API password shared by this process, its children and its server: the user's, or a random one."""
    secret = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or secrets.token_urlsafe(32)
    return os.environ.setdefault(_PASSWORD, secret)


def start(listening: socket.socket, store: Path, *, hosts: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a password-protected server that shows the store's runs and ends with this process.

    `hosts` are names of a reverse proxy.
    """
    environment = {
        **_BATCHES,
        **os.environ,
        "PREFECT_SERVER_API_AUTH_STRING": password(),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "",
        # Address of the API relative to the page's address.
        "PREFECT_SERVER_UI_API_URL": "/api",
        # Set explicitly, because a settings file in the working folder may name another server.
        "PREFECT_API_URL": address(listening),
        "PREFECT_SERVER_UI_ENABLED": "true",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    # -P: the working folder may contain another `flows`.
    command = [sys.executable, "-P", "-m", "flows.server.app", str(listening.fileno()), str(store), *hosts]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[listening.fileno()],
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the API of a server process answers. Raises EngineError on timeout."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if is_up(url):
            return
        time.sleep(0.05)
    raise EngineError(
        f"the Prefect server at {url} did not answer within {_PATIENCE:.0f} s",
        hint="start it again; if that does not help, move the store's prefect/ folder away: no run depends on it",
    )


def is_up(url: str) -> bool:
    """Whether the API at this address answers."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException, ValueError):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server process; kill it after 5 s."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def address(listening: socket.socket) -> str:
    """The API address of a server on this socket."""
    return f"http://{HOST}:{listening.getsockname()[1]}/api"


def free_port() -> int:
    """An unused port of loopback."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """Address and password of a running `infuser serve`."""

    url: str
    """Address of the server's API."""
    password: str
    """Prefect's `PREFECT_API_AUTH_STRING`."""

    @property
    def pages(self) -> str:
        """Address of the viewer, below which Prefect's UI is."""
        return self.url.removesuffix("/api")

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables by which Prefect's commands find the server."""
        return {
            "PREFECT_API_URL": self.url,
            "PREFECT_UI_URL": f"{self.pages}{UI}",
            _PASSWORD: self.password,
        }

    def login_link(self) -> str:
        """A new address that logs a browser in to Prefect's UI and to the viewer, once."""
        headers = {"Authorization": f"Basic {base64.b64encode(self.password.encode()).decode()}"}
        request = urllib.request.Request(f"{self.pages}/login/link", headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return f"{self.pages}{answer.read().decode()}"


def announcement(root: Path) -> Path:
    """Path of the store's file with address and password of its `infuser serve`, in the form of a Prefect profile."""
    return root / "server.toml"


def running_server(root: Path) -> RunningServer | None:
    """Find the running `infuser serve` of this store; None if there is none or this user may not read its password."""
    path = announcement(root)
    try:
        with path.open("rb") as file:
            # Valid only while its owner holds the lock: else another process on that port would receive the password.
            if not _is_locked(file) or not (content := file.read()):
                return None
        values = tomllib.loads(content.decode())["profiles"]["infuser"]
        server = RunningServer(url=values["PREFECT_API_URL"], password=values[_PASSWORD])
    except (FileNotFoundError, PermissionError):
        return None
    except (ValueError, KeyError, TypeError):
        typer.echo(f"infuser: warning: {path} is damaged: `infuser serve` writes it again when it starts", err=True)
        return None
    return server if is_up(server.url) else None


def require_server(root: Path) -> RunningServer:
    """The running `infuser serve` of this store. Raises UsageError if there is none."""
    server = running_server(root)
    if server is None:
        raise UsageError(
            f"no `infuser serve` that you may use runs over the store {root}",
            hint="start it in another terminal, or set INFUSER_STORE to the store that is served",
        )
    return server


def shell_lines(root: Path) -> str:
    """Lines for a shell, after which Prefect's commands find the store's server from any folder."""
    require_server(root)
    # The profile, not its values: it stays valid when the server starts again, and shows no password.
    exports = {"INFUSER_STORE": root, "PREFECT_PROFILES_PATH": announcement(root), "DO_NOT_TRACK": 1}
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in exports.items()]
    return "\n".join([f"unset PREFECT_PROFILE PREFECT_API_URL PREFECT_UI_URL {_PASSWORD}", *lines])


@contextmanager
def _claim(root: Path) -> Iterator[IO[bytes]]:
    """Lock the announcement file while the server runs. Raises UsageError if the store is already being served."""
    path = announcement(root)
    with durable.write_errors(path, hint="remove it, or set another INFUSER_STORE"):
        path.touch(mode=0o600)
        path.chmod(0o600)
    with path.open("r+b") as file:
        if not lease.try_lock(file):
            other = running_server(root)
            raise UsageError(
                f"this store is served already{f', at {other.url}' if other else ''}",
                hint="use that server, stop it, or set another INFUSER_STORE",
            )
        file.truncate()
        try:
            yield file
        finally:
            file.truncate(0)


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _announce(file: IO[bytes], server: RunningServer) -> None:
    """Write the announcement, a Prefect profile, so that INFUSER's and Prefect's commands find this server."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in server.variables.items()]
    file.write("\n".join(['active = "infuser"', "[profiles.infuser]", *lines, ""]).encode())
    file.flush()


def _die_with_parent() -> None:
    import ctypes

    # 1 is PR_SET_PDEATHSIG: kill the server with its parent; a graceful end would take a minute.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


DEPLOYMENT = "full-pipeline"
_EXAMPLE = """--param overrides='{"cotrain.iterations": 4}'"""


def serve(root: Path, port: int, *, allow_plugins: bool = False) -> None:
    """Run the Prefect server and the deployment until interrupted. Raises UsageError if the port or store is taken."""
    prepare_environment(root)
    # Flow runs are separate processes: they must find the same store, and load no code that a parameter names.
    os.environ["INFUSER_STORE"] = str(root)
    os.environ["INFUSER_PLUGINS"] = "any" if allow_plugins else "shipped"
    # Flow runs start in the working folder, which may contain modules of any name.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("PREFECT_RUNNER_POLL_FREQUENCY", "2")
    # The minimum that Prefect allows.
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    hosts = settings.serve_hosts()
    with _claim(root) as file, listen(port) as listening:
        url = address(listening)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A shell script starts background jobs with an ignored SIGINT, which ends the runner here.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = start(listening, root, hosts=hosts)
        try:
            wait_until_up(url, process)
            server = RunningServer(url=url, password=password())
            os.environ.update(server.variables)
            _announce(file, server)
            _print_how_to(server)
            _serve_deployment(root, process)
        finally:
            stop(process)


def _stop_runner(runner: Any, *_: object) -> None:
    """End Prefect's runner and its flow runs; a second signal ends it at once.

    Prefect's own handler makes the coroutine first, and leaves it behind if the loop ends before it can begin.
    """
    if not runner.started or runner.stopping:
        raise KeyboardInterrupt
    loop = runner._loop
    loop.call_soon_threadsafe(lambda: loop.create_task(runner.astop()))


def _print_how_to(server: RunningServer) -> None:
    # A file may have other readers.
    link = server.login_link() if sys.stdout.isatty() else "`infuser serve --login` prints a link"
    typer.echo(
        f"log in        {link}; it works once, for both pages\n"
        f"Prefect UI    {server.pages}{UI}\n"
        f"viewer        {server.pages}\n"
        f"deployment    infuser/{DEPLOYMENT}; Ctrl-C ends everything\n"
        f"\nIn another terminal, `infuser run ...` shows up here by itself, or\n"
        '  eval "$(infuser serve --env)"\n'
        f"  prefect deployment run infuser/{DEPLOYMENT}\n"
        f"  prefect deployment run infuser/{DEPLOYMENT} {_EXAMPLE}"
    )
    sys.stdout.flush()


def _serve_deployment(root: Path, process: subprocess.Popen[bytes]) -> None:
    from prefect.flows import EntrypointType
    from prefect.runner import Runner

    from flows.full_pipeline import infuser
    from flows.server.crashed_runs import install_automations, keep_settling, settle_at_start, store_tag

    setattr(Runner, Runner.handle_sigterm.__name__, _stop_runner)
    since = datetime.now(UTC)
    install_automations()
    settle_at_start(root, since=since)

    finished = threading.Event()
    threading.Thread(target=_end_with_server, args=(process, finished), daemon=True).start()
    threading.Thread(target=keep_settling, args=(root, finished), kwargs={"since": since}, daemon=True).start()
    try:
        infuser.serve(
            name=DEPLOYMENT,
            description=infuser.description,
            tags=[store_tag(root)],
            entrypoint_type=EntrypointType.MODULE_PATH,
            print_starting_message=False,
        )
    finally:
        code = process.poll()
        finished.set()
    if code is not None:
        raise EngineError(f"the Prefect server ended with code {code}", hint="start `infuser serve` again")


def _end_with_server(process: subprocess.Popen[bytes], finished: threading.Event) -> None:
    """Interrupt this process when the server ends; otherwise Prefect's runner would poll forever."""
    while not finished.wait(1.0):
        if process.poll() is not None:
            os.kill(os.getpid(), signal.SIGINT)
            return
