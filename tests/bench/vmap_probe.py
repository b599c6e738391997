"""Scores of questions by torch.func: one vmap of gradients over padded questions, every prompt with each response.

The form that a reader of torch's documentation would write, beside which the fast probe is timed.
Shapes: _Q questions of a chunk, _R responses, _L tokens of the longest row.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.func import functional_call, grad, vmap
from transformers import AutoModelForCausalLM

from infuser_core.algorithm.influence import Elementwise, direction, partial_sums
from infuser_core.algorithm.objective import clipped_objective
from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.protocols import TrainGroup

Padded = tuple[Tensor, Tensor, Tensor, Tensor]
"""Tokens, sampler's log-probabilities, advantages and weights of predictions, [Q, R, L] and [Q, R, L - 1]."""


class VmapProbe:
    """A checkpoint's questions scored against a reference, `chunk` of them at a time."""

    def __init__(self, folder: Path, reference: Path, objective: Objective, *, chunk: int) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        self._model = model.requires_grad_(False).eval()
        self._parameters = dict(model.named_parameters())
        self._reference, state = load_file(reference), load_file(folder / "optimizer.safetensors")
        self._second = {name: state[f"v.{name}"] for name in self._parameters}
        self._objective, self._chunk = objective, chunk

    def sums(self, groups: Sequence[TrainGroup], *, step: int) -> Tensor:
        """[<ref, Gamma>, <ref, g>, |Gamma|^2, |g|^2] of every question, g its ascent direction, [questions, 4]."""
        gradients = vmap(grad(self._loss), in_dims=(None, (0, 0, 0, 0)), chunk_size=self._chunk)
        found = gradients(self._parameters, _padded(groups, self._objective.length_norm))
        options = AdamWOptions()
        form = Elementwise.of_adamw(step=step, beta2=options.beta2, eps=options.eps)
        return torch.stack([self._sums_of(found, place, form) for place in range(len(groups))])

    def _sums_of(self, found: dict[str, Tensor], place: int, form: Elementwise) -> Tensor:
        parts = []
        for name, gradients in found.items():
            g, v = -gradients[place].flatten(), self._second[name].flatten()
            parts.append(partial_sums(g, self._reference[name].flatten(), direction(g, v, form)))
        return torch.stack(parts).sum(0)

    def _loss(self, parameters: dict[str, Tensor], padded: Padded) -> Tensor:
        tokens_RL, sampler_S, advantages_S, weights_S = padded
        logits = functional_call(self._model, parameters, (tokens_RL,), {"use_cache": False}).logits[:, :-1]
        logprobs = torch.log_softmax(logits / self._objective.temperature, -1)
        chosen = logprobs.gather(-1, tokens_RL[:, 1:, None])[..., 0]
        given = {"advantages_S": advantages_S, "weights_S": weights_S, "sampler_logprobs_S": sampler_S}
        return clipped_objective(chosen, objective=self._objective, **given).loss


def _padded(groups: Sequence[TrainGroup], length_norm: float) -> Padded:
    """All rows at the length of the longest; predictions of prompt and padding weigh nothing."""
    rows = max(len(group.rows) for group in groups)
    length = max(len(group.prompt_token_ids) + len(row.token_ids) for group in groups for row in group.rows)
    tokens = torch.zeros(len(groups), rows, length, dtype=torch.long)
    sampler, advantages, weights = (torch.zeros(len(groups), rows, length - 1) for _ in range(3))
    for q, group in enumerate(groups):
        for r, row in enumerate(group.rows):
            start = len(group.prompt_token_ids)
            end = start + len(row.token_ids)
            tokens[q, r, :end] = torch.tensor([*group.prompt_token_ids, *row.token_ids])
            sampler[q, r, start - 1 : end - 1] = torch.tensor(row.sampler_logprobs)
            advantages[q, r, start - 1 : end - 1] = row.advantage
            weights[q, r, start - 1 : end - 1] = 1.0 / (len(group.rows) * length_norm)
    return tokens, sampler, advantages, weights
