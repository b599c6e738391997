"""A question of a transformer's packed pass whose numbers are not finite leaves it; its neighbours stay."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, objective_settings
from safetensors.torch import load_file, save_file
from solver_rows import question
from stock_engines import local_trainer
from test_influence_study import DEV, OBJECTIVE, rollouts

from infuser_core.config.roles import OptimizerSettings
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases import score_influence as score_phase
from infuser_core.cotrain.phases import update_solver
from infuser_core.cotrain.phases.dev_gradient import dev_gradient
from infuser_core.cotrain.phases.score_influence import ScoreSettings, ScoringResult
from infuser_core.cotrain.phases.training import UpdateSettings
from infuser_core.cotrain.phases.update_solver import SolverSettings, SolverUpdate
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint, Rollout, ScoreStatus


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("model"))


def four() -> list[Rollout]:
    return [*rollouts("a", seed=0), *rollouts("b", seed=2)]


def scored(anchor: Checkpoint, folder: Path, rows: list[Rollout], *, probe: str) -> ScoringResult:
    folder.mkdir()
    trainer = local_trainer(probe=probe)
    trainer.load(anchor)
    facts, _ = dev_gradient(rollouts("d", seed=1), trainer, DEV, workspace=folder)
    return score_phase.score_influence(
        [question(name) for name in dict.fromkeys(row.group_id for row in rows)], rows, trainer,
        ScoreSettings(objective=OBJECTIVE, mode="preconditioned_cosine", probe=True),
        reference=folder / gradient_phase.FILE, reference_norm=facts.norm, workspace=folder,
    )  # fmt: skip


@pytest.mark.parametrize("probe", ["fast", "reference"])
def test_one_question_of_a_packed_pass_is_lost_and_no_other(anchor: Checkpoint, tmp_path: Path, probe: str):
    rows = four()
    name = rows[0].group_id
    spoiled = [
        replace(row, sampler_logprobs=[math.nan] * len(row.token_ids)) if row is rows[1] else row for row in rows
    ]
    found = scored(anchor, tmp_path / "found", spoiled, probe=probe)
    without = scored(anchor, tmp_path / "without", [row for row in rows if row.group_id != name], probe=probe)
    assert found.scores[1:] == without.scores and found.logprobs == without.logprobs
    assert [row.status for row in found.scores] == [ScoreStatus.NOT_FINITE] + [ScoreStatus.SCORED] * 3
    assert [(row.group_id, row.quantity) for row in found.not_finite] == [(name, "loss")] and found.not_finite[0].tensor


UNKNOWN = 63
"""A token whose embedding is broken."""


def without_unknown(tokens: list[int]) -> list[int]:
    return [2 if token == UNKNOWN else token for token in tokens]


def updated(anchor: Checkpoint, folder: Path, rows: list[Rollout]) -> SolverUpdate:
    folder.mkdir()
    trainer = local_trainer()
    trainer.load(anchor)
    step = UpdateSettings(
        learning_rate=1e-2, minibatch=1, advantage="mean_centred",
        objective=objective_settings(), optimizer=OptimizerSettings(),
    )  # fmt: skip
    return update_solver.update_solver(
        [question(name) for name in dict.fromkeys(row.group_id for row in rows)], rows, trainer,
        SolverSettings(step=step, band=None, ranks=False, mid_eos_penalty=0.0, left_out=[]), workspace=folder,
        before=anchor,
    )  # fmt: skip


@pytest.mark.parametrize("place", [0, 1])
def test_a_prompt_that_the_model_cannot_read_spoils_no_other_question(tmp_path: Path, place: int):
    broken = make_checkpoint(tmp_path, tied=False)
    spoil(broken, "model.embed_tokens.weight", UNKNOWN)
    rows = [
        replace(row, prompt_token_ids=without_unknown(row.prompt_token_ids), token_ids=without_unknown(row.token_ids))
        for row in four()
    ]
    name = list(dict.fromkeys(row.group_id for row in rows))[place]
    others = [row for row in rows if row.group_id != name]
    odd = [
        replace(row, prompt_token_ids=[UNKNOWN, *row.prompt_token_ids[1:]]) if row.group_id == name else row
        for row in rows
    ]
    found, without = updated(broken, tmp_path / "found", odd), updated(broken, tmp_path / "without", others)
    assert [row.group_id for row in found.not_finite] == [name]
    assert found.updates == without.updates and len(found.updates) == 3


def spoil(checkpoint: Checkpoint, tensor: str, row: int) -> None:
    weights = load_file(f"{checkpoint.path}/model.safetensors")
    weights[tensor][row] = torch.nan
    save_file(weights, f"{checkpoint.path}/model.safetensors", metadata={"format": "pt"})


def test_broken_weights_are_named(anchor: Checkpoint, tmp_path: Path):
    broken = make_checkpoint(tmp_path)
    spoil(broken, "model.layers.1.mlp.down_proj.weight", 0)
    trainer = local_trainer()
    trainer.load(broken)
    with pytest.raises(EngineError, match=r"itself is not finite in model.layers.1.mlp.down_proj.weight of"):
        dev_gradient(four(), trainer, DEV, workspace=tmp_path)
