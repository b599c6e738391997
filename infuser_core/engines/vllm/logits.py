"""The logits processor that draws the tokens of a vLLM engine, by the same random numbers as the sampler `hf`.

With a seed per row vLLM itself would draw row by row. Here every row is greedy to vLLM, and the processor leaves one
token possible in it: the drawn one, with its log-probability as `Completion.logprobs` defines it for a logit. Shapes:
_R rows, _V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from infuser_core.engines.draws import pick_tokens, uniforms
from infuser_core.engines.service.server import FORCED
from infuser_core.protocols import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A response that the engine computes."""

    seed: int
    """Seed of its random numbers."""
    sampling: SamplingParams
    """How one of its tokens is drawn."""
    forced: Sequence[int]
    """Fixed tokens, of which only the log-probability is wanted; empty if tokens are to be drawn."""
    tokens: Sequence[int]
    """Tokens so far, to which vLLM appends."""


class DrawTokens(LogitsProcessor):
    """Draws one token per row, by a hash of the request's seed and the token's position.

    All requests of a batch must have equal `sampling`, and tokens to draw or fixed ones.
    """

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        del vllm_config
        self._device, self._is_pinned = device, is_pin_memory
        self._by_row: dict[int, Request] = {}
        self._requests: list[Request] = []
        self._seeds_R = self._upload([])

    def is_argmax_invariant(self) -> bool:
        """Return False, for which vLLM runs the processor on greedy rows."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow the requests that join, leave and change rows."""
        if process_dict_updates(self._by_row, batch_update, _request):
            self._requests = [self._by_row[row] for row in sorted(self._by_row)]
            self._seeds_R = self._upload([request.seed for request in self._requests])

    def apply(self, logits_RV: Tensor) -> Tensor:
        """Replace fp32 logits: the log-probability of the row's token, and -inf for all others."""
        sampling, positions = self._requests[0].sampling, [len(request.tokens) for request in self._requests]
        if self._requests[0].forced:
            pairs = zip(self._requests, positions, strict=True)
            tokens_R = self._upload([request.forced[position] for request, position in pairs])
            logprobs_RV = (logits_RV / sampling.temperature).log_softmax(dim=-1)
            logprobs_R = logprobs_RV.gather(1, tokens_R[:, None])[:, 0]
        else:
            tokens_R, logprobs_R = pick_tokens(logits_RV, uniforms(self._seeds_R, self._upload(positions)), sampling)
        return logits_RV.fill_(float("-inf")).scatter_(1, tokens_R[:, None], logprobs_R[:, None])

    def _upload(self, values: list[int]) -> Tensor:
        # From pinned memory, so that the host does not wait for the accelerator.
        return torch.tensor(values, dtype=torch.int64, pin_memory=self._is_pinned).to(self._device, non_blocking=True)


def _request(params: Any, prompt: list[int] | None, tokens: list[int]) -> Request:
    """Read a request from vLLM's parameters."""
    del prompt
    values = dict(params.extra_args)
    seed, forced = values.pop("seed"), values.pop(FORCED)
    return Request(seed=seed, sampling=SamplingParams(**values, max_tokens=1), forced=forced, tokens=tokens)
