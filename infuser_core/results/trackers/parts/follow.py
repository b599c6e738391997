"""Trackers beside a run: each in a process of its own that follows `metrics.jsonl`, so that none can disturb the run.

A process reads what the run has written, and remembers how far it came; the next attempt goes on from there. It ends
with its run: told to, or because that is gone.
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
    """The run that a tracker shows."""

    name: str
    """Name of the run."""
    folder: Path
    """Folder of this tracker in the run's folder: files that it keeps belong here."""
    settings: Mapping[str, Any]
    """The run's settings by dotted names, without secrets."""

    def remembered(self, name: str, make: Callable[[], str]) -> str:
        """A word that this tracker made in the first attempt and knows in later ones, such as a run's number."""
        path = self.folder / f"{name}.txt"
        if not path.is_file():
            path.write_text(make())
        return path.read_text()


Track = Callable[[Tracked, Iterable[Point]], None]
"""Shows a run's points as they come, until there are no more."""


def find_tracker(name: str) -> Track:
    """The tracker called `name`. Raises ConfigError if there is none, or its package is not installed."""
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
    """The trackers of a run, as its process sees them. Each that fails costs one warning."""

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
        # What this process can import, that one can, and no file of the working folder hides a package.
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
        """Tell of trackers that have ended before their time."""
        for name, process in list(self._at_work.items()):
            if process.poll() is not None:
                self._drop(name)

    def end(self) -> None:
        """Let every tracker finish; after the time that they have in all, they are killed."""
        deadline = time.monotonic() + settings.track_seconds()
        try:
            for process in self._at_work.values():
                assert process.stdin is not None
                with suppress(OSError):
                    # Not by closing alone: a process forked from this one may hold the pipe.
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
        # What it started ends with it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            # One that waits for a lost disk does not even die.
            process.wait(_LOOK)
        why = f"was not done {settings.track_seconds():g} s after the run and was killed" if late else self._why(name)
        left = self._folder / METRICS
        self._tell(f"tracker {name} {why}; the numbers are in {left}, and the run's next attempt hands them on")

    def _why(self, name: str) -> str:
        with suppress(OSError):
            return f"failed: {(_own_folder(self._folder, name) / _FAILED).read_text()}"
        return "ended before the run did"


def _own_folder(folder: Path, name: str) -> Path:
    return folder / _FOLDER / name.replace(":", ".")


class Tail:
    """Points of a file that grows, from where the last reader stopped, until the run is over."""

    def __init__(self, path: Path, kept: Path, over: threading.Event) -> None:
        self._path, self._kept, self._over = path, kept, over

    def __iter__(self) -> Iterator[Point]:
        position = self._position()
        while True:
            # Asked before reading: whatever was written before the end is read.
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
    """The process of a tracker."""
    os.nice(_NICE)
    over, own = threading.Event(), _own_folder(Path(folder), name)
    threading.Thread(target=_watch, args=(int(parent), over), daemon=True).start()
    try:
        tracked = Tracked(name=Path(folder).name, folder=own, settings=_settings(Path(folder)))
        find_tracker(name)(tracked, Tail(Path(folder) / METRICS, own / _POSITION, over))
    except BaseException as error:  # the boundary of the process: recorded for the run, which tells it
        with suppress(OSError):
            (own / _FAILED).write_text(redacted(f"{type(error).__name__}: {error}")[:500])
        raise


def _watch(parent: int, over: threading.Event) -> None:
    """The run says that it is over, or is gone. Who is not done by then and some time later has waited too long."""
    while not select.select([sys.stdin], [], [], _LOOK)[0] and os.getppid() == parent:
        pass
    over.set()
    time.sleep(settings.track_seconds() + _LOOK)
    os.killpg(0, signal.SIGKILL)


def _settings(folder: Path) -> dict[str, Any]:
    """The settings in the run's record. Raises OSError or ValueError where there are none."""
    found: dict[str, Any] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}.{key}".lstrip("."))
        elif isinstance(value, str):
            found[name] = "***" if is_secret(name.rpartition(".")[2]) else redacted(value)
        else:
            found[name] = value

    walk(json.loads((folder / "run.json").read_text())["config"], "")
    return found
