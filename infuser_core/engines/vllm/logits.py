"""Logits processors that make vLLM report log-probabilities as `Completion.logprobs` means them.

Asked for processed logits, vLLM returns the sampled token's value after temperature, top-k and top-p. Subtracting the
log-sum before top-k and top-p changes no draw, since adding a constant to a row never does, and makes that value the
log-probability. One processor works before the temperature, which greedy rows never see; the other after it.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, LogitsProcessor

from infuser_core.engines.service.server import FORCED


class NormaliseRaw(LogitsProcessor):
    """Logits become log-probabilities at temperature 1: what a greedy row reports."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory

    def apply(self, logits: Tensor) -> Tensor:
        """[rows, vocabulary] in fp32."""
        return logits.log_softmax(dim=-1)

    def is_argmax_invariant(self) -> bool:
        """False sends vLLM here before the temperature."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Nothing is kept between steps."""


class NormaliseScaled(NormaliseRaw):
    """Logits divided by the temperature become log-probabilities at that temperature."""

    def is_argmax_invariant(self) -> bool:
        """True sends vLLM here after the temperature, before top-k and top-p."""
        return True


class Forced(AdapterLogitsProcessor):
    """Given tokens of requests that ask for them: all others become impossible, after the normalisation."""

    def is_argmax_invariant(self) -> bool:
        """True sends vLLM here after NormaliseScaled."""
        return True

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], Tensor], Tensor] | None:
        """For a request that asks for them; none for any other."""
        tokens = (params.extra_args or {}).get(FORCED)
        if not tokens:
            return None

        def force(before: list[int], logits: Tensor) -> Tensor:
            kept = logits[tokens[len(before)]].clone()
            logits.fill_(float("-inf"))
            logits[tokens[len(before)]] = kept
            return logits

        return force
