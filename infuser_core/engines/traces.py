"""Traces of a start's first optimizer steps and scoring micro-batches, for Perfetto or chrome://tracing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infuser_core.engines.step_costs import SCORING, STEP
from infuser_core.protocols import Progress
from infuser_core.system.durable import write_errors


class TraceWriter:
    """Traces `number` optimizer steps and as many scoring micro-batches into gzipped files of a folder."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.files: list[Path] = []
        """Files written so far."""
        self._left = {STEP: number, SCORING: number}
        self._profile: Any = None
        self._count = 1

    def begin(self, work: str) -> None:
        """Begin to trace a pass of this kind, unless enough are traced; what an interrupted pass left is dropped."""
        self.drop()
        self._count = 1
        if self._left[work]:
            from torch.profiler import profile

            self._profile = profile()
            self._profile.start()

    def drop(self) -> None:
        """End a trace without writing it."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def end(self, work: str) -> None:
        """Write the trace of a pass, and count its units."""
        if self._profile is None:
            return
        self._profile.stop()
        self._left[work] -= self._count
        path = self.folder / f"{work}-{sum(file.name.startswith(work) for file in self.files) + 1}.json.gz"
        with write_errors(self.folder, hint="free some space; or run without --profile"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._profile.export_chrome_trace(str(path))
        self._profile = None
        self.files.append(path)

    def begin_micro_batches(self, work: str, progress: Progress) -> Progress:
        """Begin to trace a pass whose units are micro-batches; returns a `Progress` that counts them.

        The trace ends with the last that is wanted, or with `end` after a shorter pass.
        """
        self.begin(work)
        self._count = 0

        def report(rows: int, total: int, tokens: int) -> None:
            self._count += 1
            if self._count == self._left[work]:
                self.end(work)
            progress(rows, total, tokens)

        return report


_writer: TraceWriter | None = None


def current() -> TraceWriter | None:
    """The writer of the `traced` block around this code."""
    return _writer


@contextmanager
def traced(folder: Path, number: int) -> Iterator[TraceWriter]:
    """Trace the first passes of trainers of this process within the block."""
    global _writer
    _writer = TraceWriter(folder, number)
    try:
        yield _writer
    finally:
        _writer.drop()
        _writer = None
