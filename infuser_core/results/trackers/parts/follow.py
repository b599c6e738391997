"""Trackers of a run: each follows `metrics.jsonl` in a separate process, so that none can disturb the run.

Each process records its position in the file, where the next attempt continues. It ends when its run asks, or
when the run's process is gone.
"""

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infuser_core import settings
from infuser_core.errors import ConfigError
from infuser_core.plugins import TRACKERS
from infuser_core.results.trackers.parts.files import is_secret, point_of, redacted
from infuser_core.results.trackers.parts.points import Point
from infuser_core.store.runs import METRICS

_LOOK = 0.5
_NICE = 19
_FOLDER, _POSITION, _FAILED = "track", "position.txt", "failed.txt"
_MAIN = "import sys; from infuser_core.results.trackers.parts.follow import main; main(*sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """The run that a tracker shows: name, folder and settings."""

    name: str
    folder: Path
    """Folder of this tracker's files, inside the run's folder."""
    settings: Mapping[str, Any]
    """The run's settings by dotted names, without secrets."""

    def remembered(self, name: str, make: Callable[[], str]) -> str:
        """A text that the first attempt creates and stores for later ones, such as the run's id at the service."""
        path = self.folder / f"{name}.txt"
        if not path.is_file():
            path.write_text(make())
        return path.read_text()


Track = Callable[[Tracked, Iterable[Point]], None]
"""Type of a tracker: a function that shows a run's points as they arrive, until there are no more."""


def find_tracker(name: str) -> Track:
    """Find the tracker called `name`. Raises ConfigError if there is none, or its package is not installed."""
    module, plugin = TRACKERS.find(name, "track")
    if not callable(plugin):
        raise ConfigError(
            f"tracker {name!r} is not a function", hint="see infuser_core/results/trackers/tensorboard.py"
        )
    package = getattr(module, "PACKAGE", "")
    if package and importlib.util.find_spec(package) is None:
        hint = f"pip install 'infuser[{name}]', or take it out of `track`"
        raise ConfigError(f"tracker {name!r} needs the package {package}, which is not installed", hint=hint)
    return cast(Track, plugin)


class Followers:
    """Starts, watches and ends the tracker processes of a run. Each failure gives one warning."""

    def __init__(self, folder: Path, names: Sequence[str], tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._at_work: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        for name in dict.fromkeys(names):
            try:
                self._at_work[name] = self._start(name)
            except OSError as error:
                tell(f"tracker {name} did not start: {error.strerror or error}")

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        own = _own_folder(self._folder, name)
        own.mkdir(parents=True, exist_ok=True)
        (own / _FAILED).unlink(missing_ok=True)
        # The child can import what this process can; -P: no file of the working folder hides a package.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, name, str(self._folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )

    def look(self) -> None:
        """Report trackers that ended before the run."""
        for name, process in list(self._at_work.items()):
            if process.poll() is not None:
                self._drop(name)

    def end(self) -> None:
        """Let every tracker finish, and kill those that take too long."""
        deadline = time.monotonic() + settings.track_seconds()
        try:
            for process in self._at_work.values():
                assert process.stdin is not None
                with suppress(OSError):
                    # Closing alone is not enough: a process forked from this one may also hold the pipe.
                    process.stdin.write(b".")
                    process.stdin.close()
            for name, process in list(self._at_work.items()):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                    if process.returncode == 0:
                        self._at_work.pop(name)
        finally:
            for name in list(self._at_work):
                self._drop(name)

    def _drop(self, name: str) -> None:
        process = self._at_work.pop(name)
        late = process.poll() is None
        # Kill its child processes, too.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            # A process that waits for a lost disk survives SIGKILL.
            process.wait(_LOOK)
        why = f"was not done {settings.track_seconds():g} s after the run and was killed" if late else self._why(name)
        file = self._folder / METRICS
        self._tell(f"tracker {name} {why}; the numbers are in {file}, and the run's next attempt sends them")

    def _why(self, name: str) -> str:
        with suppress(OSError):
            return f"failed: {(_own_folder(self._folder, name) / _FAILED).read_text()}"
        return "ended before the run did"


def _own_folder(folder: Path, name: str) -> Path:
    return folder / _FOLDER / name.replace(":", ".")


class Tail:
    """Iterates over the points of a growing file, from the last recorded position until the run is over."""

    def __init__(self, path: Path, position_file: Path, over: threading.Event) -> None:
        self._path, self._kept, self._over = path, position_file, over

    def __iter__(self) -> Iterator[Point]:
        position = self._position()
        while True:
            # Checked before reading, so that everything written before the end is read.
            over, began = self._over.is_set(), position
            for line in self._lines(position):
                position += len(line)
                point = point_of(line)
                if point is not None:
                    yield point
            if position != began:
                self._kept.write_text(str(position))
            if over:
                return
            self._over.wait(_LOOK)

    def _position(self) -> int:
        with suppress(OSError, ValueError):
            position = int(self._kept.read_text())
            return position if position <= self._path.stat().st_size else 0
        return 0

    def _lines(self, position: int) -> Iterator[bytes]:
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(position)
            for line in file:
                if line.endswith(b"\n"):
                    yield line


def main(name: str, folder: str, parent: str) -> None:
    """Main function of a tracker's process: show the run's points until the run is over."""
    os.nice(_NICE)
    over, own = threading.Event(), _own_folder(Path(folder), name)
    threading.Thread(target=_watch, args=(int(parent), over), daemon=True).start()
    try:
        tracked = Tracked(name=Path(folder).name, folder=own, settings=_settings(Path(folder)))
        find_tracker(name)(tracked, Tail(Path(folder) / METRICS, own / _POSITION, over))
    except BaseException as error:  # the boundary of the process: recorded for the run, which reports it
        with suppress(OSError):
            (own / _FAILED).write_text(redacted(f"{type(error).__name__}: {error}")[:500])
        raise


def _watch(parent: int, over: threading.Event) -> None:
    """Wait for the end of the run or the death of its process; kill this process if it does not finish in time."""
    while not select.select([sys.stdin], [], [], _LOOK)[0] and os.getppid() == parent:
        pass
    over.set()
    time.sleep(settings.track_seconds() + _LOOK)
    os.killpg(0, signal.SIGKILL)


def _settings(folder: Path) -> dict[str, Any]:
    """Read the settings in the run's record, by dotted name. Raises OSError or ValueError if it cannot be read."""
    leaves: dict[str, Any] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}.{key}".lstrip("."))
        elif isinstance(value, str):
            leaves[name] = "***" if is_secret(name.rpartition(".")[2]) else redacted(value)
        else:
            leaves[name] = value

    walk(json.loads((folder / "run.json").read_text())["config"], "")
    return leaves
