"""How much memory a device has left, and how much some work took at its peak."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_CGROUP = Path("/sys/fs/cgroup")
_PEAK = "5"
"""What resets the peak of the resident set."""


class MemoryReader(Protocol):
    """Reads one device's memory."""

    def free(self) -> int:
        """Bytes that this process could still take."""
        ...

    def growth(self, work: Callable[[], object], *, tokens: int) -> int | None:
        """Bytes that `work` on a micro-batch of `tokens` takes at its peak; None where nobody counts them."""
        ...


class DeviceMemory:
    """An accelerator's memory, as the driver and torch's allocator count it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        """What the driver has left, and what the allocator holds unused."""
        held = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return int(torch.cuda.mem_get_info(self._device)[0]) + held

    def growth(self, work: Callable[[], object], *, tokens: int) -> int | None:
        """By the allocator's own peak."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_allocated(self._device)) - before


class HostMemory:
    """The host's memory, as the Linux kernel counts it, within the limit of a container."""

    def free(self) -> int:
        """What is available to new work."""
        try:
            found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        except OSError:
            found = None
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = int(found[1]) * 1024 if found else pages // 2
        return min(free, _contained())

    def growth(self, work: Callable[[], object], *, tokens: int) -> int | None:
        """By the peak of the resident set; None where the kernel does not let it be reset."""
        try:
            _CLEAR.write_text(_PEAK)
            before = _resident("VmRSS")
            work()
            return max(0, _resident("VmHWM") - before)
        except OSError:
            return None


class ScriptedMemory:
    """A device of a given size on which work takes `fixed` bytes and `per_token` for every token: for tests."""

    def __init__(self, *, free: int, per_token: int, fixed: int = 0) -> None:
        self._free, self._per_token, self._fixed = free, per_token, fixed
        self.measured: list[int] = []
        """Tokens of every micro-batch that was measured."""

    def free(self) -> int:
        """As given."""
        return self._free

    def growth(self, work: Callable[[], object], *, tokens: int) -> int | None:
        """Does the work, and answers by the formula."""
        work()
        self.measured.append(tokens)
        return self._fixed + self._per_token * tokens


def memory_of(device: torch.device) -> MemoryReader:
    """The reader of a device."""
    return DeviceMemory(device) if device.type == "cuda" else HostMemory()


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text())
    if found is None:
        raise OSError(f"{_STATUS} has no {name}")
    return int(found[1]) * 1024


def _contained() -> int:
    """What the container's limit leaves; nothing limits where there is none."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return 1 << 62
    return max(0, int(limit) - int(used)) if limit.isdigit() else 1 << 62
