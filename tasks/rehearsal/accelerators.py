"""Peak memory of this machine's accelerators, read from nvidia-smi during the steps of a rehearsal.

The driver counts the memory of all processes, including libraries and graphs; reading it needs no device context.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from types import TracebackType

PERIOD = 200
"""Milliseconds between readings."""
COMMAND = ["--query-gpu=index,memory.used", "--format=csv,noheader,nounits", f"--loop-ms={PERIOD}"]


class Meter:
    """Reads used memory from the driver in a thread; measures nothing without nvidia-smi."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._first: dict[int, float] = {}
        self._most: dict[int, float] = {}

    def __enter__(self) -> "Meter":
        if self._program is not None:
            # A terminal, because programs buffer their lines in a pipe.
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
        # Reading fails once the last writer has closed the terminal.
        with os.fdopen(terminal, encoding="utf-8") as lines, suppress(OSError):
            for line in lines:
                with suppress(ValueError):  # "[N/A]": a device without a count
                    place, _, mebibytes = line.partition(",")
                    device, size = int(place), float(mebibytes) * 2**20
                    self._first.setdefault(device, size)
                    self._most[device] = max(self._most.get(device, 0.0), size)

    @contextmanager
    def step(self) -> Iterator[list[float]]:
        """Measure a block: the yielded list gets, at its end, the peak of one device above the first reading, GB."""
        peak: list[float] = []
        self._most.clear()
        try:
            yield peak
        finally:
            gains = [size - self._first[device] for device, size in dict(self._most).items()]
            peak += [max(gains) / 1e9] if gains else []
