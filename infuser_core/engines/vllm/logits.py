"""Logits processors that make vLLM report log-probabilities as `Completion.logprobs` defines them.

With `processed_logits`, vLLM returns the sampled token's value after temperature, top-k and top-p. Subtracting the
log-sum before top-k and top-p makes that value the log-probability, and changes no draw, since adding a constant to a
row never does. One processor works before the temperature, for greedy rows, which skip it; the other after it.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, LogitsProcessor

from infuser_core.engines.service.server import FORCED


class NormaliseRaw(LogitsProcessor):
    """Turns logits into log-probabilities at temperature 1, as greedy rows report them."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory

    def apply(self, logits: Tensor) -> Tensor:
        """Normalise logits [rows, vocabulary], fp32."""
        return logits.log_softmax(dim=-1)

    def is_argmax_invariant(self) -> bool:
        """Return False, for which vLLM runs the processor before the temperature."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Do nothing: the processor has no state between steps."""


class NormaliseScaled(NormaliseRaw):
    """Turns logits divided by the temperature into log-probabilities at that temperature."""

    def is_argmax_invariant(self) -> bool:
        """Return True, for which vLLM runs the processor after the temperature, before top-k and top-p."""
        return True


class Forced(AdapterLogitsProcessor):
    """Forces the fixed tokens of a request: makes all others impossible, after the normalisation."""

    def is_argmax_invariant(self) -> bool:
        """Return True, for which vLLM runs the processor after NormaliseScaled."""
        return True

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], Tensor], Tensor] | None:
        """Create the processor of a request with FORCED tokens; None for any other request."""
        tokens = (params.extra_args or {}).get(FORCED)
        if not tokens:
            return None

        def force(before: list[int], logits: Tensor) -> Tensor:
            logprob = logits[tokens[len(before)]].clone()
            logits.fill_(float("-inf"))
            logits[tokens[len(before)]] = logprob
            return logits

        return force
