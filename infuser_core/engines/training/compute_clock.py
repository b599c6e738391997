"""Measures how long the device of a trainer computes, and the most memory that it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from infuser_core.memory.hardware import peak_resident

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Use of a device since the last reading."""

    seconds: float
    """Time in which a forward pass, a backward pass or an optimizer step was in progress."""
    peak_memory: float
    """GB of tensors at most on an accelerator; on a CPU those of the process at most since its start."""


class ComputeClock:
    """Adds up the time that a device computes.

    On an accelerator an event marks either end of a block, for which the host does not wait.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time of this block, unless it fails."""
        if self._device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            yield
            end.record()
            self._events.append((start, end))
        else:
            begin = perf_counter()
            yield
            self._seconds += perf_counter() - begin

    def take(self) -> DeviceUse:
        """Return the use since the last call; waits until the device has finished the last block."""
        seconds, self._seconds = self._seconds, 0.0
        if self._events:
            self._events[-1][1].synchronize()
            seconds += sum(start.elapsed_time(end) for start, end in self._events) / 1e3
            self._events.clear()
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            peak = peak_resident()
        return DeviceUse(seconds=seconds, peak_memory=peak / GB)
