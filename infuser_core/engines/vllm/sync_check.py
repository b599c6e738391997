"""Check after every change of weights that a sampler's log-probabilities belong to its checkpoint.

A few fixed prompts are continued by the sampler, and a plain model of the checkpoint's own files scores the very
tokens. Temperature, top-p and top-k are set, so that their conversion is checked along with the weights.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from infuser_core.engines.hf.causal_lm import read_config, read_model
from infuser_core.engines.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.errors import EngineError

PARAMS = SamplingParams(temperature=0.7, top_p=0.9, top_k=50, max_tokens=12)
"""How the fixed prompts are continued."""

PROMPTS = 4
PROMPT_TOKENS = 12

LIMITS = {"float32": (1e-3, 1e-2), "bfloat16": (0.1, 1.0)}
"""Largest mean and single difference, nats, by the sampler's dtype. Other weights are off by whole nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Distance of a sampler's log-probabilities from the checkpoint's own."""

    tokens: int
    """Tokens compared."""
    mean: float
    """Mean absolute difference, nats."""
    largest: float
    """Largest absolute difference, nats."""


def fixed_groups(vocabulary: int) -> list[PromptGroup]:
    """The fixed prompts: tokens spread over the vocabulary, two samples each."""
    return [
        PromptGroup(
            group_id=f"check/{place}",
            token_ids=[(7 + 1009 * place + 7919 * token) % vocabulary for token in range(PROMPT_TOKENS)],
            seeds=[2 * place, 2 * place + 1],
        )
        for place in range(PROMPTS)
    ]


class Reference:
    """The plain model of a checkpoint folder, on the CPU in fp32; it loads while engines start."""

    def __init__(self, folder: Path) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._model: Future[PreTrainedModel] = self._executor.submit(_plain_model, folder)
        self._folder = folder

    def close(self) -> None:
        """Let go of the model."""
        self._executor.shutdown()
        del self._model

    def check(
        self, name: str, groups: Sequence[PromptGroup], drawn: Sequence[Sequence[Completion]], dtype: str
    ) -> Agreement:
        """Distance of `drawn` from the plain model. Raises EngineError naming the sampler where it is too far."""
        model = self._model.result()
        found = compare(model, groups, drawn)
        mean, largest = LIMITS[dtype]
        # Written so that a NaN fails.
        if not (found.mean <= mean and found.largest <= largest):
            raise EngineError(
                f"{name} does not hold the weights of {self._folder}: log-probabilities of {found.tokens} sampled "
                f"tokens differ from the checkpoint's by {found.mean:.3g} nats on average and {found.largest:.3g} at "
                f"most (limits {mean:g} and {largest:g} for {dtype})",
                hint="the engines were fresh, so this build of vllm computes something else: try another version",
            )
        return found


@torch.inference_mode()
def compare(model: PreTrainedModel, groups: Sequence[PromptGroup], drawn: Sequence[Sequence[Completion]]) -> Agreement:
    """Differences of the log-probabilities in `drawn`, sampled with PARAMS, from those of `model`."""
    gaps: list[torch.Tensor] = []
    for group, completions in zip(groups, drawn, strict=True):
        for completion in completions:
            ids = torch.tensor([[*group.token_ids, *completion.token_ids]])
            logits = model(ids, use_cache=False).logits[0, len(group.token_ids) - 1 : -1].float() / PARAMS.temperature
            targets = torch.tensor(completion.token_ids)[:, None]
            expected = torch.log_softmax(logits, -1).gather(1, targets)[:, 0]
            gaps.append((expected - torch.tensor(completion.logprobs)).abs())
    every = torch.cat(gaps)
    return Agreement(tokens=len(every), mean=float(every.mean()), largest=float(every.max()))


def _plain_model(folder: Path) -> PreTrainedModel:
    return read_model(folder, read_config(folder), dtype=torch.float32, attention="sdpa").eval()
