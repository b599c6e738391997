"""The same bits twice: torch's repeatable kernels, for a whole process."""

import os

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable without which cuBLAS refuses to promise repeatable sums."""


def repeat_exactly(wanted: bool) -> None:
    """From now on, repeatable kernels or an error; False leaves the process as it is."""
    if not wanted:
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # Nothing reads memory before it is written, so that filling it first would only take time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
