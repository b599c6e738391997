"""GradAlign's score (arXiv 2602.21492) in the form of its public code: padded rows, stock model, one gradient each.

A question's responses are padded to the longest, each with the prompt in front, `ROWS` of them a pass; logits are
taken of every position; the gradient is copied, divided by its norm and multiplied with the dev gradient parameter by
parameter. It recomputes activations, which no option of its commands turns off; `recompute` does here. The loss is
ours, so that the raw cosines can be compared. Shapes: _R responses, _L tokens of the longest row.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from infuser_core.algorithm.objective import clipped_objective
from infuser_core.algorithm.preset import Objective
from infuser_core.protocols import TrainGroup, TrainRow

ROWS = 8
"""Responses of a pass: `--minibatch_size` in its README."""


class PublicForm:
    """A checkpoint's questions scored against a reference, one after the other."""

    def __init__(self, folder: Path, reference: Path, objective: Objective, *, recompute: bool) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
        if recompute:
            self._model.gradient_checkpointing_enable()
        self._reference, self._objective = load_file(reference), objective

    def cosines(self, groups: Sequence[TrainGroup]) -> list[float]:
        """Cosine of every question's ascent direction with the reference."""
        dev = self._divided({name: each.clone() for name, each in self._reference.items()})
        return [-sum(float((dev[name] * each).sum()) for name, each in self._gradient(g).items()) for g in groups]

    def _gradient(self, group: TrainGroup) -> dict[str, Tensor]:
        self._model.zero_grad()
        for start in range(0, len(group.rows), ROWS):
            self._loss(group, group.rows[start : start + ROWS]).backward()
        return self._divided({name: each.grad.clone() for name, each in self._model.named_parameters()})

    def _divided(self, gradient: dict[str, Tensor]) -> dict[str, Tensor]:
        norm = torch.stack([(each**2).sum() for each in gradient.values()]).sum().sqrt()
        return {name: each / norm for name, each in gradient.items()}

    def _loss(self, group: TrainGroup, rows: Sequence[TrainRow]) -> Tensor:
        prompt = list(group.prompt_token_ids)
        longest = max(len(row.token_ids) for row in rows)
        lengths = torch.tensor([len(row.token_ids) for row in rows])
        tokens_RL = torch.tensor([[*prompt, *row.token_ids, *[0] * (longest - len(row.token_ids))] for row in rows])
        real_RL = torch.arange(len(prompt) + longest) < len(prompt) + lengths[:, None]
        logits = self._model(input_ids=tokens_RL, attention_mask=real_RL.long(), use_cache=False).logits[:, :-1]
        logprobs = torch.log_softmax(logits / self._objective.temperature, -1)
        chosen_RL = logprobs.gather(-1, tokens_RL[:, 1:, None])[..., 0]
        of_response = real_RL[:, 1:].clone()
        of_response[:, : len(prompt) - 1] = False
        return clipped_objective(
            chosen_RL[of_response],
            advantages_S=torch.tensor([row.advantage for row in rows]).repeat_interleave(lengths),
            weights_S=torch.full((int(lengths.sum()),), 1.0 / len(group.rows)),
            sampler_logprobs_S=torch.tensor([value for row in rows for value in row.sampler_logprobs]),
            objective=self._objective,
        ).loss
