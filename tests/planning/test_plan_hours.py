"""Hours of a plan: tokens and FLOPs by formula, one utilisation per kind of work, and phases side by side."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from infuser_core.config.overlays import load
from infuser_core.engines.training.optimizers.muon import MuonOptions, scale_orthogonal
from infuser_core.memory.shape import Shape
from infuser_core.planning.answer import plan_as_json
from infuser_core.planning.hours import (
    SAMPLING,
    SCORING,
    TRAINING,
    GroupWork,
    assumed_utilisations,
    iteration_seconds,
    phase_work,
)
from infuser_core.planning.setup import Setup

SHARDED = ["engine.trainer=deepspeed", "engine.ranks=4", "engine.sampler=vllm"]
SMALL = Shape(
    name="small", layers=2, hidden=48, ffn=80, heads=6, kv_heads=3, head_dim=16, vocabulary=64, tied=True, window=0,
    windowed_layers=0,
)  # fmt: skip


def setup(*changes: str, name: str = "qwen3-8b", gpus: str = "8xH100") -> Setup:
    return Setup.of(load([Path(f"configs/{name}.yaml")], list(changes)), gpus)


def flops(*changes: str) -> dict[str, dict[str, float]]:
    return {phase.name: dict(phase.flops) for phase in setup(*changes).phases}


def test_a_forward_pass_counts_weights_and_attention_and_every_prompt_once():
    work = GroupWork(groups=3, rows=2, prompt=10, response=5)
    assert work.tokens == 3 * (10 + 2 * 5)
    # A response's tokens see the prompt and, on average, half of the response.
    pairs = 3 * (10 * 10 / 2 + 2 * (5 * 10 + 5 * 5 / 2))
    expected = 2 * SMALL.matrix_parameters * work.tokens + 4 * 6 * 16 * 2 * pairs
    assert work.forward(SMALL) == pytest.approx(expected)


def test_rows_of_an_iteration_follow_from_the_settings_and_shares():
    here = setup()
    config, lengths = here.config.cotrain, here.lengths
    rows = {phase.name: phase.work.groups * phase.work.rows for phase in here.phases}
    assert rows["generate_questions"] == rows["update_generator"] == config.documents * config.group_size
    assert rows["rollout_questions"] == pytest.approx(rows["generate_questions"] * lengths.valid * config.group_size)
    for name in ("score_influence", "update_solver"):
        assert rows[name] == pytest.approx(rows["rollout_questions"] * lengths.varied_questions)
    assert rows["dev_gradient"] == pytest.approx(rows["rollout_dev"] * lengths.varied_dev)


def test_training_is_three_forward_passes_and_one_more_to_recompute_and_one_fewer_with_adapters():
    answers = setup().phases[0]
    one = answers.work.forward(setup().shape) * setup().lengths.varied_dev
    for passes, changes in (
        (3, ["engine.gradient_checkpointing=false"]),
        (4, ["engine.gradient_checkpointing=true"]),
        (2, ["engine.gradient_checkpointing=false", "cotrain.adapter.type=lora"]),
    ):
        assert flops(*changes)["dev_gradient"][TRAINING] == pytest.approx(passes * one)


def test_log_probabilities_are_forward_passes_where_steps_need_them():
    plain, anchored = flops(), flops("cotrain.loss.kl=0.01")
    assert plain["update_generator"][SCORING] > 0 and plain["update_solver"][SCORING] == 0
    assert anchored["update_generator"][SCORING] == pytest.approx(2 * plain["update_generator"][SCORING])
    assert anchored["update_solver"][SCORING] > 0


def test_a_measured_score_is_a_gradient_per_step_and_a_pass_over_the_dev_answers_per_question():
    plain = ["engine.gradient_checkpointing=false", "cotrain.influence=measured"]
    once, twice = (flops(*plain, f"cotrain.influence_steps={steps}") for steps in (1, 2))
    # The solver trains on the questions that were scored: one gradient of each.
    gradients = once["update_solver"][TRAINING]
    assert twice["score_influence"][SCORING] - once["score_influence"][SCORING] == pytest.approx(gradients)
    scored = next(phase for phase in setup().phases if phase.name == "score_influence")
    passes = scored.work.groups * once["dev_gradient"][TRAINING] / 3
    assert once["score_influence"][SCORING] == pytest.approx(gradients + passes)


def test_a_models_name_decides_nothing_but_its_lengths():
    here = setup()
    renamed = replace(here.shape, name="somebody-elses")
    assert phase_work(here.config, renamed, here.lengths) == here.phases


def test_seconds_are_flops_over_the_rate_of_the_gpus_that_do_the_work():
    config = setup(*SHARDED)
    plan = plan_as_json(config, {"sampling": (0.1, ""), "scoring": (0.2, ""), "training": (0.3, "")})
    seconds = {phase["phase"]: phase["seconds"] for phase in plan["phases"]}
    work = {phase.name: phase.flops for phase in config.phases}
    assert seconds["rollout_dev"] == pytest.approx(work["rollout_dev"][SAMPLING] / (4 * 989e12 * 0.1), rel=1e-4)
    assert seconds["dev_gradient"] == pytest.approx(work["dev_gradient"][TRAINING] / (4 * 989e12 * 0.3), rel=1e-4)
    assert plan["totals"]["gpu_hours"] == pytest.approx(8 * plan["totals"]["hours"], rel=1e-3)


def test_assumptions_name_their_source_and_samplers_other_than_vllm_are_slower():
    fast, slow = assumed_utilisations("vllm"), assumed_utilisations("hf")
    assert set(fast) == set(slow) == {SAMPLING, SCORING, TRAINING}
    assert all(source.startswith("assumption: ") for _, source in fast.values())
    assert slow[SAMPLING][0] < fast[SAMPLING][0] and slow[TRAINING] == fast[TRAINING]


@pytest.mark.parametrize(("name", "published"), [("qwen3-4b", 1730), ("qwen3-8b", 2761)])
def test_the_papers_iterations_come_out_within_a_factor_of_three(name: str, published: float):
    config = load([Path(f"configs/{name}.yaml"), Path("configs/engine/eight-gpus.yaml")])
    seconds = plan_as_json(Setup.of(config, "8xH100"), {})["totals"]["seconds_per_iteration"]
    assert published / 3 < seconds < published, "the paper's trainer reaches a third of the assumed utilisation"


PACE = {SAMPLING: 1e-15, SCORING: 1e-15, TRAINING: 1e-15}


def saved(pace: dict[str, float]) -> tuple[float, dict[str, float]]:
    """Seconds that overlap saves in an iteration, and those of the phases."""
    phases = setup().phases
    alone, together = (iteration_seconds(phases, pace, overlap=overlap) for overlap in (False, True))
    seconds = {phase.name: phase.seconds(pace) for phase in phases}
    assert alone == pytest.approx(sum(seconds.values()))
    return alone - together, seconds


def test_a_short_dev_gradient_costs_nothing():
    gain, seconds = saved(PACE | {TRAINING: 1e-18})
    assert gain == pytest.approx(seconds["dev_gradient"])


def test_a_long_dev_gradient_hides_what_is_sampled_meanwhile():
    gain, seconds = saved(PACE)
    assert seconds["rollout_dev"] > seconds["generate_questions"], "which end before there is a dev gradient"
    assert gain == pytest.approx(seconds["rollout_questions"])


@pytest.mark.parametrize("changes", [["engine.overlap=true", "engine.ranks=8"], ["engine.placement=colocated"]])
def test_nothing_is_hidden_where_phases_take_turns(changes: list[str]):
    plan: dict[str, Any] = plan_as_json(setup(*SHARDED, *changes), {})
    total = sum(phase["seconds"] for phase in plan["phases"])
    assert plan["totals"]["seconds_per_iteration"] == pytest.approx(total, rel=1e-4)


def orthogonalising(shape: Shape) -> float:
    return shape.layers * sum(MuonOptions.direction_flops(*sides) for sides in shape.hidden_matrices)


def test_muon_orthogonalises_every_questions_gradient():
    sizes = [(96, 48), (48, 48), (48, 48), (48, 96), (80, 48), (80, 48), (48, 80)]
    with FlopCounterMode(display=False) as counted:
        for size in sizes * SMALL.layers:
            scale_orthogonal(torch.randn(size))
    assert counted.get_total_flops() == orthogonalising(SMALL)
    plain, muon = (flops(f"cotrain.optimizer.name={name}")["score_influence"][SCORING] for name in ("adamw", "muon"))
    groups = next(phase.work.groups for phase in setup().phases if phase.name == "score_influence")
    assert muon - plain == pytest.approx(groups * orthogonalising(setup().shape))
