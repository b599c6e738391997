"""The Prefect server: finding the one that runs, and `infuser serve` with its deployment."""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import IO

import typer

from infuser_core import settings
from infuser_core.errors import EngineError, UsageError
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
# A transaction for each state of every task costs the server a fifth of its time; a second's delay disturbs nobody.
_BATCHES = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
_PATIENCE = 120.0
WITHOUT = "the run goes on without it, and `infuser serve` shows it later"
"""End of warnings about a server."""


def prepare_environment(root: Path) -> None:
    """Prefect's home inside the store, telemetry off, console quiet; what the user set himself stays."""
    home = root / "prefect"
    for name, value in {
        **_QUIET,
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    }.items():
        os.environ.setdefault(name, value)
    # The announcement is for Prefect's own commands; here it is read with care, and handed on by the environment.
    if os.environ.get("PREFECT_PROFILES_PATH") in (None, str(announcement(root))):
        os.environ["PREFECT_PROFILES_PATH"] = f"{os.environ['PREFECT_HOME']}/profiles.toml"


def find_server(root: Path) -> str | None:
    """The API's address: `PREFECT_API_URL`, or the store's living `infuser serve`. None where there is neither."""
    given = os.environ.get("PREFECT_API_URL")
    found = announced(root)
    if found and given in (None, found.url):
        os.environ["PREFECT_API_URL"], os.environ[_PASSWORD] = found.url, found.password
        return found.url
    if given and not is_up(given):
        typer.echo(f"infuser: warning: the Prefect server at {given} does not answer; {WITHOUT}", err=True)
        return None
    return given


def listen(port: int = 0) -> socket.socket:
    """A socket of loopback for `start`, on a free port by default. Raises UsageError where the port is taken."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        # At once: a port that is bound and no more can still be taken.
        listening.listen()
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot listen on port {port} of {HOST}: {error.strerror}",
            hint=f"choose another, e.g. `infuser serve --port {free_port()}`",
        ) from error
    return listening


def password() -> str:
    """The secret that this process, its children and its server share: the user's own, or a random one."""
    given = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or secrets.token_urlsafe(32)
    return os.environ.setdefault(_PASSWORD, given)


def start(listening: socket.socket, store: Path, *, hosts: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a server for those who know the password, which shows the store's runs and dies with this process.

    `hosts` are names of a reverse proxy.
    """
    environment = {
        **_BATCHES,
        **os.environ,
        "PREFECT_SERVER_API_AUTH_STRING": password(),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "",
        # Of the page's own place, by whatever name it was opened.
        "PREFECT_SERVER_UI_API_URL": "/api",
        # Its own address: a settings file in the working folder may name another server.
        "PREFECT_API_URL": address(listening),
        "PREFECT_SERVER_UI_ENABLED": "true",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    # -P: the folder that the user stands in may hold a `flows` of its own.
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
    """Return when the API of this process answers. Raises EngineError when it does not in time."""
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
    """Whether the API answers."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException, ValueError):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server process."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def address(listening: socket.socket) -> str:
    """The API of a server of this socket."""
    return f"http://{HOST}:{listening.getsockname()[1]}/api"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A server that people can speak with."""

    url: str
    """Its API."""
    password: str
    """Prefect's `PREFECT_API_AUTH_STRING`."""


def announcement(root: Path) -> Path:
    """The store's file with the address and the password of its `infuser serve`, in the form of a Prefect profile."""
    return root / "server.toml"


def announced(root: Path) -> Announced | None:
    """The living `infuser serve` of this store, where there is one that this user may speak with."""
    path = announcement(root)
    try:
        with path.open("rb") as file:
            # Without the lock of a living owner, whoever listens there now would be told the password.
            if not _is_held(file) or not (content := file.read()):
                return None
        values = tomllib.loads(content.decode())["profiles"]["infuser"]
        found = Announced(url=values["PREFECT_API_URL"], password=values[_PASSWORD])
    except (FileNotFoundError, PermissionError):
        return None
    except (ValueError, KeyError, TypeError):
        typer.echo(f"infuser: warning: {path} is damaged: `infuser serve` writes it anew when it starts", err=True)
        return None
    return found if is_up(found.url) else None


def tell_viewer(root: Path, address: str) -> None:
    """Keep the address of the store's `infuser view`, without its token, for links on Prefect's pages, if it can be."""
    with suppress(OSError):
        durable.write(root / "viewer", address.partition("/?")[0])


def viewer_at(root: Path) -> str:
    """Address of the `infuser view` that was started last over the store, if anything answers there, else empty."""
    try:
        port = int((root / "viewer").read_text(encoding="utf-8").removeprefix(f"http://{HOST}:"))
        socket.create_connection((HOST, port), timeout=1).close()
    except (OSError, ValueError, OverflowError):
        return ""
    return f"http://{HOST}:{port}"


@contextmanager
def _claimed(root: Path) -> Iterator[IO[bytes]]:
    """The store's announcement, ours until this process ends. Raises UsageError where the store is served already."""
    path = announcement(root)
    with durable.write_errors(path, hint="remove it, or set another INFUSER_STORE"):
        path.touch(mode=0o600)
        path.chmod(0o600)
    with path.open("r+b") as file:
        if not lease.locked(file):
            other = announced(root)
            raise UsageError(
                f"this store is served already{f', at {other.url}' if other else ''}",
                hint="use that server, stop it, or set another INFUSER_STORE",
            )
        file.truncate()
        try:
            yield file
        finally:
            file.truncate(0)


def _is_held(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _announce(file: IO[bytes], url: str) -> None:
    """Let later commands find this server, and Prefect's own: the announcement is a profile of Prefect."""
    values = {"PREFECT_API_URL": url, _PASSWORD: password()}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    file.write("\n".join(['active = "infuser"', "[profiles.infuser]", *lines, ""]).encode())
    file.flush()


def _die_with_parent() -> None:
    import ctypes

    # 1 is PR_SET_PDEATHSIG: a killed run must not leave a server behind, and one that ends in peace takes a minute.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


DEPLOYMENT = "full-pipeline"
_EXAMPLE = """--param configs='["configs/nano.yaml"]' --param overrides='{"cotrain": {"iterations": 4}}'"""


def serve(root: Path, port: int, *, allow_plugins: bool = False) -> None:
    """Serve until interrupted. Raises UsageError when the port or the store is taken."""
    prepare_environment(root)
    # Flow runs are processes of their own: they must find the same store, and load no code that a parameter names.
    os.environ["INFUSER_STORE"] = str(root)
    os.environ["INFUSER_PLUGINS"] = "any" if allow_plugins else "shipped"
    # They are started in the folder that the user stands in, which may hold modules of any name.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("PREFECT_RUNNER_POLL_FREQUENCY", "2")
    # 30 s is the shortest that Prefect allows.
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    hosts = settings.serve_hosts()
    with _claimed(root) as file, listen(port) as listening:
        url = os.environ["PREFECT_API_URL"] = address(listening)
        signal.signal(signal.SIGTERM, _interrupt)
        process = start(listening, root, hosts=hosts)
        try:
            wait_until_up(url, process)
            _announce(file, url)
            _print_how_to(root, url)
            _serve_deployment(root, process)
        finally:
            stop(process)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _print_how_to(root: Path, url: str) -> None:
    path = announcement(root)
    typer.echo(
        f"Prefect UI    {url.removesuffix('/api')}  (its password is {_PASSWORD} in {path}, which only you can read)\n"
        f"Prefect API   {url}\n"
        f"deployment    infuser/{DEPLOYMENT}; Ctrl-C ends everything\n"
        f"\nIn another terminal, `infuser run ...` shows up here by itself, or\n"
        f"  export PREFECT_PROFILES_PATH={shlex.quote(str(path))}\n"
        f"  prefect deployment run infuser/{DEPLOYMENT}\n"
        f"  prefect deployment run infuser/{DEPLOYMENT} {_EXAMPLE}"
    )
    sys.stdout.flush()


def _serve_deployment(root: Path, process: subprocess.Popen[bytes]) -> None:
    from prefect.flows import EntrypointType

    from flows.full_pipeline import infuser
    from flows.server.crashed_runs import install_automations, keep_settling, settle_at_start, store_tag

    since = datetime.now(UTC)
    install_automations()
    settle_at_start(root, since=since)

    ended = threading.Event()
    threading.Thread(target=_watch, args=(process, ended), daemon=True).start()
    threading.Thread(target=keep_settling, args=(root, ended), kwargs={"since": since}, daemon=True).start()
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
