"""What this host's processor does: two measurements of some hundredths of a second, by numpy alone."""

import os
import time
from collections.abc import Callable

SIZE = 512
"""Rows and columns of the matrices."""
SWEPT = 1 << 24
"""Bytes that are copied: more than a core's caches hold."""
TURNS = 5
"""Repeats; the fastest counts, for other work only slows down."""


def matrix_rate() -> float:
    """FLOP/s of a square fp32 product."""
    import numpy as np

    left = np.ones((SIZE, SIZE), dtype=np.float32)
    return 2.0 * SIZE**3 / _fastest(lambda: left @ left)


def sweep_rate() -> float:
    """Bytes/s read and written by a copy."""
    import numpy as np

    source = np.ones(SWEPT, dtype=np.uint8)
    target = np.empty_like(source)
    return 2.0 * SWEPT / _fastest(lambda: np.copyto(target, source))


def memory() -> float:
    """Bytes of the host's memory."""
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest turn: of all threads together."""
    best = float("inf")
    for _ in range(TURNS + 1):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return max(best, 1e-9)
