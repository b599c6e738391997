"""Most memory that any accelerator of this machine has held, read from nvidia-smi while a rehearsal's steps run.

A driver's own count holds what every process of every engine takes, libraries and graphs included, and asking it makes
no context on a device.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from types import TracebackType

PERIOD = 200
"""Milliseconds between two readings."""
COMMAND = ["--query-gpu=index,memory.used", "--format=csv,noheader,nounits", f"--loop-ms={PERIOD}"]


class Meter:
    """Reads the driver's count again and again; says nothing where there is no nvidia-smi."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._first: dict[int, float] = {}
        self._most: dict[int, float] = {}

    def __enter__(self) -> "Meter":
        if self._program is not None:
            # Into a pipe a program may keep its lines back until a block of them is full; to a terminal none does.
            ours, its = os.openpty()
            self._child = subprocess.Popen([self._program, *COMMAND], stdout=its, stderr=subprocess.DEVNULL)
            os.close(its)
            self._reader = Thread(target=self._read, args=(ours,), daemon=True)
            self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._program is not None:
            self._child.kill()
            self._child.wait()
            self._reader.join()

    def _read(self, terminal: int) -> None:
        # A terminal whose last writer is gone is an error to read from.
        with os.fdopen(terminal, encoding="utf-8") as lines, suppress(OSError):
            for line in lines:
                with suppress(ValueError):  # "[N/A]": a device that keeps no count
                    place, _, mebibytes = line.partition(",")
                    device, size = int(place), float(mebibytes) * 2**20
                    self._first.setdefault(device, size)
                    self._most[device] = max(self._most.get(device, 0.0), size)

    @contextmanager
    def step(self) -> Iterator[list[float]]:
        """A list that has, once the block ends, the most that one device held beyond the first reading, GB."""
        found: list[float] = []
        self._most.clear()
        try:
            yield found
        finally:
            held = [size - self._first[device] for device, size in dict(self._most).items()]
            found += [max(held) / 1e9] if held else []
