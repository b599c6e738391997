"""Free memory, and a micro-batch's token budget, which is predicted from free memory and halved when memory runs out.

An automatic budget depends on the machine, and changes only rounding. It is rounded down to a power of two, so that two
starts on one machine predict the same.
"""

from pathlib import Path
from typing import Any, Literal

import torch

from infuser_core.errors import EngineError
from infuser_core.memory.hardware import free_host_memory
from infuser_core.memory.shape import read_shape
from infuser_core.memory.sizes import (
    CHUNK,
    INPUTS,
    LAYERS,
    LEAST,
    LOGIT_CELLS,
    PRODUCTS,
    Checkpointing,
    activation_bytes_per_token,
    kept_tokens,
)

SHARE = 0.85
"""Share of the free memory to plan with; the rest covers fragmentation and what the formula leaves out."""
STATE = 16
"""Bytes per parameter of weights, gradient and both moments."""
PREPARED = 12
"""Bytes per parameter of the weights and both moments of a first checkpoint."""

BudgetSetting = int | Literal["auto"]


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process can still take, of an accelerator or of main memory."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    return free_host_memory()


def require_memory(weights: int, width: float, *, free: int, purpose: str, adapters: int = 0) -> None:
    """Raise EngineError if `width` bytes per weight and the training state of the adapters exceed `free` bytes."""
    needed = width * weights + STATE * adapters
    if needed > free:
        raise EngineError(
            f"the model has {weights:,} weights: {purpose} takes {needed / 1e9:,.1f} GB of memory, "
            f"{width:.3g} bytes each, and {free / 1e9:,.1f} GB are free",
            hint="choose a smaller model or a larger machine; `infuser plan` says what training takes",
        )


class TokenBudget:
    """Token budget of a trainer's micro-batches: configured or predicted, and halved when memory runs out."""

    def __init__(self, setting: BudgetSetting, *, most: int, checkpointing: Checkpointing = False) -> None:
        self.automatic = setting == "auto"
        self.tokens: int = most if setting == "auto" else setting
        self.kept_tokens = most if checkpointing == "auto" else kept_tokens(checkpointing)
        """Most tokens of a micro-batch that keeps its matrix products."""
        self._most, self._checkpointing = most, checkpointing
        self._origin = "" if setting == "auto" else "configured"
        self._is_predicted, self._halved = False, list[str]()

    @property
    def is_known(self) -> bool:
        """Whether nothing is left to predict."""
        return self._is_predicted or not (self.automatic or self._checkpointing == "auto")

    def limits(self) -> dict[str, Any]:
        """Return the fields of a Packer that the budget decides; after a halving, a longer response is not refused."""
        return {
            "token_budget": self.tokens,
            "kept_tokens": self.kept_tokens,
            "stretches": self.automatic or bool(self._halved),
        }

    def predict(
        self, folder: Path, *, free: float, width: int, master: int, adapters: int = 0, cells: int = LOGIT_CELLS
    ) -> None:
        """Predict the budget for which `free` bytes suffice in addition to a loaded model (formulas of memory.sizes).

        A configured budget does not change, only the tokens of micro-batches that keep their matrix products.
        `width`, `master`: bytes of a compute and of a master weight. `adapters`: trained weights; 0 if all are trained.
        `cells`: logits that the output layer keeps.
        """
        shape = read_shape(folder)
        trained = float(adapters or shape.parameters)
        # Temporary in every micro-batch: masters in the compute dtype, logits of one chunk.
        temporary = (width * trained if width < master else 0.0) + 12.0 * cells
        # During scoring: the reference, and the direction of a chunk of a question's gradient.
        scoring = master * trained + 4.0 * min(CHUNK, trained)
        room = max(0.0, SHARE * free - temporary - scoring)
        self._is_predicted = True
        fitting = int(room / activation_bytes_per_token(shape, width=width, retained=PRODUCTS))
        self.kept_tokens = min(self.kept_tokens, fitting)
        if not self.automatic:
            return
        retained = LAYERS if self._checkpointing is False else INPUTS
        fitting = int(room / activation_bytes_per_token(shape, width=width, retained=retained))
        tokens = max(LEAST, min(self._most, fitting))
        self.tokens, self._origin = 1 << (tokens.bit_length() - 1), "predicted"

    def halve(self, error: Exception, *, place: str, longest: int) -> None:
        """Halve the budget after memory ran out in a pass.

        Raises EngineError if nothing can be divided further: the budget is at its minimum, or not above the `longest`
        response with its prompt.
        """
        if self.tokens <= max(LEAST, longest) and not self.kept_tokens:
            raise EngineError(
                f"a micro-batch of {max(self.tokens, longest):,} tokens does not fit into the memory: "
                f"{str(error).splitlines()[0]}",
                hint="set engine.gradient_checkpointing true, or give the trainer more GPUs (`infuser plan`)",
            ) from error
        self._halved.append(f"{self.tokens} tokens in {place}")
        self.tokens, self.kept_tokens = max(LEAST, self.tokens // 2), self.kept_tokens // 2

    def facts(self) -> dict[str, Any]:
        """Return the budget, its origin and its halvings, for an artifact's record."""
        facts: dict[str, Any] = {"token_budget": self.tokens, "token_budget_from": self._origin or "not yet known"}
        if self.kept_tokens:
            facts["kept_tokens"] = self.kept_tokens
        if self._halved:
            facts["ran_out_of_memory"] = list(self._halved)
        return facts
