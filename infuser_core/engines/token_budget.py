"""How many tokens a micro-batch has: as configured, or what the free memory holds; halved where memory runs out.

A budget found here depends on the machine. It changes rounding alone, and is rounded down to a power of two so that
two starts on one machine find the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from infuser_core.capacity.memory import LOGIT_CELLS, PIECE, kept_per_token
from infuser_core.capacity.shape import from_folder
from infuser_core.engines.memory import MemoryReader
from infuser_core.errors import EngineError

SHARE = 0.85
"""Share of the free memory that is planned with: the rest goes to fragments and to what the model leaves out."""
LEAST = 256
"""Fewest tokens of a micro-batch."""
PROBED = 2048
"""Most tokens of the measured micro-batch."""
BELIEVED = (0.5, 4.0)
"""Bounds of measured over predicted bytes per token: a measurement beyond them is taken for one of something else."""
STATE = 16
"""Bytes per parameter of weights, gradient and both moments."""

Asked = int | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes that a trainer takes beyond its state."""

    per_token: float
    """For every token of a micro-batch."""
    passing: float
    """Once in every micro-batch: weights in the compute dtype, logits of one chunk."""
    scoring: float
    """While it scores: the reference and the pieces of a question's gradient."""


def need_of(folder: Path, *, width: int, master: int, checkpointing: bool) -> Need:
    """By the planner's formulas (see capacity.memory). `width`, `master`: bytes of a compute and a master weight."""
    shape = from_folder(folder)
    parameters = float(shape.parameters)
    return Need(
        per_token=kept_per_token(shape, width=width, checkpointing=checkpointing),
        passing=(width * parameters if width < master else 0.0) + 12.0 * LOGIT_CELLS,
        scoring=master * parameters + 12.0 * min(PIECE, parameters),
    )


class TokenBudget:
    """The budget in force, and where it comes from."""

    def __init__(self, asked: Asked, *, most: int) -> None:
        self.automatic = asked == "auto"
        self.tokens: int = most if asked == "auto" else asked
        self._most = most
        self._origin = "" if asked == "auto" else "configured"
        self._halved: list[str] = []

    @property
    def settled(self) -> bool:
        """Whether it is known."""
        return bool(self._origin)

    def settle(self, need: Need, memory: MemoryReader, probe: Callable[[int], object], *, reserved: float) -> None:
        """Predict, measure one small micro-batch (`probe(tokens)`), and keep what comes of both from now on.

        `reserved` bytes are left to engines that are still to come.
        """
        room = SHARE * memory.free() - reserved - need.passing - need.scoring
        tokens = min(PROBED, max(LEAST // 4, self._fitting(room, need) // 8))
        grown = memory.growth(lambda: probe(tokens), tokens=tokens)
        self._origin = "predicted"
        if grown is not None:
            low, high = (factor * need.per_token for factor in BELIEVED)
            measured = min(high, max(low, (grown - need.passing) / tokens))
            need, self._origin = replace(need, per_token=measured), "measured"
        self.tokens = self._fitting(room, need)

    def halve(self, error: Exception, *, place: str) -> None:
        """Memory ran out. Raises EngineError where the budget is at its least already."""
        if self.tokens <= LEAST:
            raise EngineError(
                f"a micro-batch of {self.tokens} tokens does not fit into the memory: {str(error).splitlines()[0]}",
                hint="set engine.gradient_checkpointing true, or give the trainer more GPUs (`infuser plan`)",
            ) from error
        self._halved.append(f"{self.tokens} tokens in {place}")
        self.tokens = max(LEAST, self.tokens // 2)

    def facts(self) -> dict[str, Any]:
        """What stands in an artifact's record."""
        found: dict[str, Any] = {"token_budget": self.tokens, "token_budget_from": self._origin or "not yet known"}
        return found | ({"ran_out_of_memory": list(self._halved)} if self._halved else {})

    def _fitting(self, room: float, need: Need) -> int:
        tokens = max(LEAST, min(self._most, int(room / need.per_token)))
        return 1 << (tokens.bit_length() - 1)
