"""The compose file's services without containers: their own commands and environment, on loopback."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from places import ROOT

PASSWORD = "fake0database0password"
BIN = Path(sys.executable).parent


def services(*overlays: str) -> dict[str, Any]:
    """Services of compose.yaml; with overlays, merged one level into each service."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    for name in overlays:
        for service, values in yaml.safe_load((ROOT / "docker" / name).read_text())["services"].items():
            found[service] |= values
    return found


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(probe: Callable[[], Any], seconds: float, what: str = "") -> Any:
    """The first true value of the probe."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(0.2)
    return value


def postgres_programs() -> Path | None:
    """Folder with initdb and postgres, as Debian installs them; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A Postgres server on loopback."""

    port: int
    """Where it listens."""
    programs: Path
    """Folder of its programs."""

    def dump(self) -> str:
        """Everything in it, as SQL."""
        done = self._run("pg_dump", "--username", "prefect", "prefect")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_ready(self) -> bool:
        """What the compose file's health check asks."""
        return self._run("pg_isready", "--username", "prefect", "--dbname", "prefect").returncode == 0

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / program), "--host", "127.0.0.1", "--port", str(self.port), *arguments]
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@contextmanager
def postgres(environment: dict[str, str], programs: Path) -> Iterator[Database]:
    """A database as the image `postgres` makes it from this environment; gone afterwards."""
    account = _account()
    # Postgres refuses root, and its own user may not enter the tests' folder.
    folder = Path(tempfile.mkdtemp(prefix="infuser-postgres-"))
    shutil.chown(folder, account) if account else None
    as_user: dict[str, Any] = {"user": account, "cwd": folder} if account else {"cwd": folder}
    secret = folder / "secret"
    secret.write_text(environment["POSTGRES_PASSWORD"])
    shutil.chown(secret, account) if account else None
    port = free_port()
    user, base = environment["POSTGRES_USER"], environment["POSTGRES_DB"]
    made = subprocess.run(
        [programs / "initdb", "--username", user, "--pwfile", secret, "--auth", "scram-sha-256", folder / "data"],
        capture_output=True, text=True, **as_user,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    command = [programs / "postgres", "-D", folder / "data", "-h", "127.0.0.1", "-p", str(port), "-k", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user)
    database = Database(port=port, programs=programs)
    try:
        eventually(database.is_ready, 60, "Postgres")
        done = database._run("createdb", "--username", user, base)
        assert done.returncode == 0, done.stderr
        yield database
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> str | None:
    """The user that Postgres runs as; None for our own."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def command_of(service: dict[str, Any]) -> list[str]:
    """What a container of this service runs, without the init process that only containers need."""
    words = [*service["entrypoint"], *service["command"]]
    return words[words.index("--") + 1 :] if words[0] == "tini" else words


def environment_of(service: dict[str, Any], replaced: dict[str, str]) -> dict[str, str]:
    """The service's environment, with some text replaced; what has no value is taken from outside where it is set."""
    values = {}
    for name, value in service["environment"].items():
        text = os.environ.get(name) if value is None else str(value)
        if text is not None:
            for old, new in replaced.items():
                text = text.replace(old, new)
            values[name] = text
    return values


def outer() -> dict[str, str]:
    """This process's environment without Prefect's variables, and with the programs of its Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
