"""Scores and advantages in another trainer are those of production: of a loop in plain torch, and of TRL's GRPOTrainer.

The tests of TRL need it in the environment: `.venv/bin/pip install trl==1.16.0`, then
`.venv/bin/pytest tests/system/test_trl_example.py`. Scores are compared in float64.
"""

import contextlib
import runpy
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, make_checkpoint, make_groups, plain_loss, trainer
from objectives import objective
from places import ROOT
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from infuser_core.algorithm.advantage import dugrpo, dugrpo_advantages
from infuser_core.algorithm.influence import influence_score
from infuser_core.algorithm.preset import Objective
from infuser_core.algorithm.score import cosine
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.hf.norms import compute_in_own_dtype
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.training.checkpoint import TrainerState, write_checkpoint
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.errors import ConfigError
from infuser_core.protocols import TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint

EXAMPLE = ROOT / "examples" / "with_trl" / "score_grpo.py"


def store_state(source: Path, folder: Path, model: nn.Module, optimizer: Any) -> Checkpoint:
    """Checkpoint of a model and its torch AdamW, with the other files of the anchor `source`."""
    shutil.copytree(source, folder)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    states = {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}
    (step,) = {int(state["step"]) for state in states.values()}
    moments = ({name: state[key] for name, state in states.items()} for key in ("exp_avg", "exp_avg_sq"))
    state = TrainerState(step=step, optimizer=AdamWOptions().to_json())
    write_checkpoint(folder, weights=weights, moments=named_moments(*moments), state=state)
    return Checkpoint(checkpoint_id="other", role="solver", path=str(folder), step=step)


def production_scores(
    checkpoint: Checkpoint, groups: Sequence[TrainGroup], dev: Sequence[TrainGroup], constants: Objective
) -> list[float]:
    engine = trainer(checkpoint, dtype="float64")
    engine.forward_backward(dev, constants, denominator=len(dev))
    path = Path(checkpoint.path) / "reference.safetensors"
    engine.keep_gradient(path)
    engine.zero_grad()
    rows = engine.probe(groups, constants, path).similarities
    return [cosine(row.dot, row.direction_norm, row.reference_norm) for row in rows]


@pytest.mark.parametrize("steps", [0, 2])
def test_scores_of_a_plain_loop_are_those_of_production(tmp_path: Path, steps: int) -> None:
    anchor = make_checkpoint(tmp_path)
    # Its default attention: the eager one rounds to float32.
    model = AutoModelForCausalLM.from_pretrained(anchor.path, dtype=torch.float64)
    compute_in_own_dtype(model)
    parameters = [*model.parameters()]
    adamw = torch.optim.AdamW(parameters, lr=1e-2)
    for seed in range(steps):
        adamw.zero_grad()
        plain_loss(model, make_groups(SHAPES[:4], seed=seed)).backward()
        adamw.step()
    before = [parameter.detach().clone() for parameter in parameters]
    groups, dev = make_groups(SHAPES, seed=7), make_groups(SHAPES[:4], seed=9)
    references = torch.autograd.grad(plain_loss(model, dev), parameters)
    scores = [
        influence_score(torch.autograd.grad(plain_loss(model, [group]), parameters), references, parameters, adamw)
        for group in groups
    ]
    checkpoint = store_state(Path(anchor.path), tmp_path / "other", model, adamw) if steps else anchor
    assert scores == pytest.approx(production_scores(checkpoint, groups, dev, OBJECTIVE), abs=1e-9)
    assert min(map(abs, scores)) > 1e-4 and len(adamw.state) == (len(parameters) if steps else 0)
    assert all(torch.equal(*pair) for pair in zip(before, parameters, strict=True))


@pytest.mark.parametrize("optimizer", ["sgd", "amsgrad", "other"])
def test_scores_need_the_moments_of_adam(optimizer: str) -> None:
    weight, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    kinds = {
        "sgd": (torch.optim.SGD([weight], lr=0.1), "settings"),
        "amsgrad": (torch.optim.AdamW([weight], amsgrad=True), "amsgrad"),
        "other": (torch.optim.AdamW([other]), "shape"),
    }
    with pytest.raises(ConfigError, match=kinds[optimizer][1]):
        influence_score([torch.ones(2)], [torch.ones(2)], [weight], kinds[optimizer][0])


def test_weights_in_bf16_are_scored_in_fp32() -> None:
    gradient, reference = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    scores = []
    for dtype in (torch.bfloat16, torch.float32):
        weight = torch.nn.Parameter(torch.ones(64, dtype=dtype))
        scores.append(
            influence_score([gradient.to(dtype)], [reference.to(dtype)], [weight], torch.optim.AdamW([weight]))
        )
    assert scores[0] == scores[1] != 0


def test_advantages_of_rows_in_any_order_are_those_of_the_groups() -> None:
    groups = {"a": [0.1, 0.4, -0.2], "b": [0.3, 0.3], "c": [0.5]}
    expected = dugrpo([*groups.values()], "all", "zero")
    rows = [
        (reward, name, value)
        for (name, rewards), values in zip(groups.items(), expected, strict=True)
        for reward, value in zip(rewards, values, strict=True)
    ]
    rewards, names, values = zip(*rows[::2], *rows[1::2], strict=True)
    assert dugrpo_advantages(rewards, names) == list(values)
    numbers = torch.tensor([ord(name) for name in names])
    assert dugrpo_advantages(torch.tensor(rewards, dtype=torch.float64), numbers) == list(values)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Variables of the example after its run, its solver in float64."""
    pytest.importorskip("trl", reason="TRL is no dependency; the docstring of this file says how to install it")
    with contextlib.chdir(tmp_path_factory.mktemp("trl")):
        variables = runpy.run_path(str(EXAMPLE))
    model = variables["solver"].model.eval().double()
    compute_in_own_dtype(model)
    for state in variables["solver"].optimizer.state.values():
        state.update({key: state[key].double() for key in ("exp_avg", "exp_avg_sq")})
    return variables


def train_groups(batch: dict[str, Tensor], size: int) -> list[TrainGroup]:
    """Groups of TRL's batch: prompts padded on the left, answers on the right."""
    prompts, answers = (
        [ids[mask.bool()].tolist() for ids, mask in zip(batch[f"{part}_ids"], batch[f"{part}_mask"], strict=True)]
        for part in ("prompt", "completion")
    )
    rows = [
        TrainRow(token_ids=tokens, advantage=advantage, sampler_logprobs=[0.0] * len(tokens))
        for tokens, advantage in zip(answers, batch["advantages"].tolist(), strict=True)
    ]
    return [
        TrainGroup(group_id=f"g{start}", prompt_token_ids=prompts[start], rows=rows[start : start + size])
        for start in range(0, len(rows), size)
    ]


def test_scores_in_trl_are_those_of_production(example: dict[str, Any], tmp_path: Path) -> None:
    solver, size = example["solver"], example["N"]
    batches = [solver._prepare_inputs([row for row in example[part] for _ in range(size)]) for part in ("train", "dev")]
    scores = example["influences"](*batches)
    prepare_anchor(example["NANO"], tmp_path / "anchor")
    checkpoint = store_state(tmp_path / "anchor", tmp_path / "other", solver.model, solver.optimizer)
    # C is the longest answer. TRL samples with the weights it trains: no truncated importance weights.
    constants = objective(length_norm=24.0, temperature=1.0, tis_cap=None)
    expected = production_scores(checkpoint, *(train_groups(batch, size) for batch in batches), constants, "fast")
    # TRL rounds log-probabilities to float32.
    assert scores == pytest.approx(expected, abs=1e-6)
    assert len({*scores}) > 6


def test_trl_trains_the_generator_on_advantages_of_dugrpo(example: dict[str, Any]) -> None:
    advantages = torch.tensor([*example["generator"]._logs["advantages"]])
    rewards = torch.tensor([*example["generator"]._logs["rewards"]["dugrpo"]])
    assert rewards.abs().max() > 0.1
    assert advantages.tolist() == pytest.approx(rewards.tolist(), abs=1e-6)
