"""Tokens per micro-batch that the free memory holds, by the planner's formula; halved where it runs out all the same.

A token budget found here depends on the machine. It changes rounding alone, and is rounded down to a power of two so
that two starts on one machine find the same.
"""

import os
import re
from pathlib import Path
from typing import Any, Literal

import torch

from infuser_core.errors import EngineError
from infuser_core.memory.shape import read_shape
from infuser_core.memory.sizes import (
    INPUTS,
    LAYERS,
    LEAST,
    LOGIT_CELLS,
    PIECE,
    PRODUCTS,
    Checkpointing,
    activation_bytes_per_token,
    kept_tokens,
)

SHARE = 0.85
"""Share of the free memory that is planned with: the rest goes to fragments and to what the formula leaves out."""
STATE = 16
"""Bytes per parameter of weights, gradient and both moments."""
PREPARED = 12
"""Bytes per parameter of weights and both moments, which a first checkpoint is written from."""

Asked = int | Literal["auto"]

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 62


def free_memory(device: torch.device) -> int:
    """Bytes that this process could still take: on an accelerator, or of main memory within a container's limit."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    return free_host_memory()


def free_host_memory() -> int:
    """Bytes of main memory that this process could still take."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(int(found[1]) * 1024 if found else pages // 2, _contained())


def _contained() -> int:
    """Memory left by the container's limit; nothing limits where there is none."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return _UNLIMITED
    return max(0, int(limit) - int(used)) if limit.isdigit() else _UNLIMITED


def require_memory(weights: int, each: int, *, free: int, purpose: str, adapters: int = 0) -> None:
    """Raises EngineError where `free` bytes do not hold `each` byte of every weight, and the state of the adapters."""
    needed = each * weights + STATE * adapters
    if needed > free:
        raise EngineError(
            f"the model has {weights:,} weights: {purpose} takes {needed / 1e9:,.1f} GB of memory, "
            f"{each} bytes each, and {free / 1e9:,.1f} GB are free",
            hint="choose a smaller model or a larger machine; `infuser plan` says what training takes",
        )


class TokenBudget:
    """The budget in force, and where it comes from."""

    def __init__(self, asked: Asked, *, most: int, checkpointing: Checkpointing = False) -> None:
        self.automatic = asked == "auto"
        self.tokens: int = most if asked == "auto" else asked
        self.kept = kept_tokens(checkpointing)
        """Tokens up to which a micro-batch keeps its matrix products."""
        self._most, self._checkpointing = most, checkpointing
        self._origin = "" if asked == "auto" else "configured"
        self._halved: list[str] = []

    @property
    def settled(self) -> bool:
        """Whether it is known."""
        return bool(self._origin)

    def settle(self, folder: Path, *, free: float, width: int, master: int, adapters: int = 0) -> None:
        """Predict the tokens for which `free` bytes suffice next to a loaded model (formulas of memory.sizes).

        `width`, `master`: bytes of a compute and a master weight. `adapters`: trained weights, where they are not all.
        """
        shape = read_shape(folder)
        trained = float(adapters or shape.parameters)
        # Once in every micro-batch: masters in the compute dtype, logits of one chunk.
        passing = (width * trained if width < master else 0.0) + 12.0 * LOGIT_CELLS
        # While it scores: the reference and the pieces of a question's gradient.
        scoring = master * trained + 12.0 * min(PIECE, trained)
        room = max(0.0, SHARE * free - passing - scoring)
        self.kept = min(self.kept, int(room / activation_bytes_per_token(shape, width=width, retained=PRODUCTS)))
        kept = LAYERS if self._checkpointing is False else INPUTS
        tokens = max(LEAST, min(self._most, int(room / activation_bytes_per_token(shape, width=width, retained=kept))))
        self.tokens, self._origin = 1 << (tokens.bit_length() - 1), "predicted"

    def halve(self, error: Exception, *, place: str) -> None:
        """Memory ran out. Raises EngineError where the budget is at its least already."""
        if self.tokens <= LEAST:
            raise EngineError(
                f"a micro-batch of {self.tokens} tokens does not fit into the memory: {str(error).splitlines()[0]}",
                hint="set engine.gradient_checkpointing true, or give the trainer more GPUs (`infuser plan`)",
            ) from error
        self._halved.append(f"{self.tokens} tokens in {place}")
        self.tokens, self.kept = max(LEAST, self.tokens // 2), self.kept // 2

    def facts(self) -> dict[str, Any]:
        """Facts for an artifact's record."""
        found: dict[str, Any] = {"token_budget": self.tokens, "token_budget_from": self._origin or "not yet known"}
        found |= {"kept_tokens": self.kept} if self.kept else {}
        return found | ({"ran_out_of_memory": list(self._halved)} if self._halved else {})
