"""Sampler and trainer compute what transformers' own model computes, sliding windows included."""

from pathlib import Path

import pytest
import torch
from engine_family import WINDOW, make_family
from engine_tiny import make_groups
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import Objective, PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

MODELS = {
    "qwen3": ("qwen3", {}),
    "olmo3": ("olmo3", WINDOW),
    "olmo3, window of one": ("olmo3", {"sliding_window": 1}),
    "mistral": ("mistral", WINDOW),
}
SHAPES = [(5, [4, 17, 1]), (19, [3, 3]), (7, [6, 2, 22, 5]), (17, [11, 4, 8]), (3, [1, 1])]
OBJECTIVE = Objective(length_norm=16.0, temperature=0.7)


@pytest.fixture(scope="module", params=list(MODELS))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    family, changes = MODELS[request.param]
    return make_family(tmp_path_factory.mktemp("family"), family, **changes)


def plain(checkpoint: Checkpoint) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float64, attn_implementation="eager")


def expected(model: PreTrainedModel, prompt: list[int], response: list[int]) -> Tensor:
    logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1] / 0.7
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0]


def test_sampled_log_probabilities_are_the_models(checkpoint: Checkpoint) -> None:
    model, sampler = plain(checkpoint), HFSampler(device="cpu")
    sampler.load(checkpoint)
    groups = [
        PromptGroup(
            group_id=str(place), token_ids=[2 + token % 60 for token in range(length)], seeds=[place, 50 + place]
        )
        for place, length in enumerate([3, 9, 20, 20])
    ]
    drawn = sampler.sample(groups, SamplingParams(temperature=0.7, max_tokens=40))
    assert max(len(each.token_ids) for samples in drawn for each in samples) > 20
    for group, samples in zip(groups, drawn, strict=True):
        for each in samples:
            wanted = expected(model, group.token_ids, each.token_ids)
            assert each.logprobs == pytest.approx(wanted.tolist(), abs=1e-4)


@pytest.mark.parametrize("budget", [48, 4096])
def test_trained_log_probabilities_and_gradients_are_the_models(checkpoint: Checkpoint, budget: int) -> None:
    model, trainer = plain(checkpoint), LocalTrainer(device="cpu", dtype="float64", token_budget=budget)
    trainer.load(checkpoint)
    groups = make_groups(SHAPES)
    loss = torch.zeros(())
    found = trainer.logprobs(groups, temperature=0.7)
    for group, rows in zip(groups, found, strict=True):
        for row, values in zip(group.rows, rows, strict=True):
            wanted = expected(model, group.prompt_token_ids, row.token_ids)
            assert values == pytest.approx(wanted.tolist(), abs=1e-5)
            weight = (wanted.detach() - torch.tensor(row.sampler_logprobs, dtype=torch.float64)).exp().clamp(max=2.0)
            loss = loss - (weight * (wanted - wanted.detach()).exp() * row.advantage).sum() / (len(group.rows) * 16.0)
    loss.backward()
    trainer.forward_backward(groups, OBJECTIVE, denominator=1)
    # Stock norms compute in fp32, whatever the model's dtype: agreement ends there.
    for name, view in trainer._flat.views(trainer._flat.gradient).items():
        wanted = model.get_parameter(name).grad
        assert float((view - wanted).norm()) <= 1e-5 * float(wanted.norm()) + 1e-12, name


def test_the_fast_probe_is_the_plain_one(checkpoint: Checkpoint, tmp_path: Path) -> None:
    engines = [LocalTrainer(device="cpu", dtype="float64", probe=probe) for probe in ("fast", "reference")]
    scores = []
    for engine in engines:
        engine.load(checkpoint)
        engine.forward_backward(make_groups(SHAPES, seed=3), OBJECTIVE, denominator=4)
        engine.optim_step(1e-2)
        engine.zero_grad()
        engine.forward_backward(make_groups(SHAPES, seed=4), OBJECTIVE, denominator=4)
        engine.keep_gradient(tmp_path / "g.safetensors")
        scores.append(engine.probe(make_groups(SHAPES), OBJECTIVE, tmp_path / "g.safetensors"))
    for one, other in zip(*scores, strict=True):
        assert one.dot == pytest.approx(other.dot, rel=1e-6, abs=1e-10)
        assert one.direction_norm == pytest.approx(other.direction_norm, rel=1e-6)
