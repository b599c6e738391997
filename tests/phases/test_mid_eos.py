"""A response that stops without an answer costs the solver, in its update alone: no length cap, no other verdict."""

from dataclasses import replace
from pathlib import Path

import pytest
from places import CONFIGS

from infuser_core.algorithm.shaping import mid_eos_shaped
from infuser_core.config.overlays import load
from infuser_core.engines.fake import FakeTrainer, fake_anchor
from infuser_core.errors import ConfigError
from infuser_core.phases.dev_gradient import dev_gradient
from infuser_core.phases.dev_gradient import settings_of as gradient_of
from infuser_core.phases.update_solver import settings_of, update_solver
from infuser_core.schemas import Checkpoint, Question, Rollout, Update

NANO = CONFIGS / "nano.yaml"
CONFIG = load([NANO])
STOPPED, CUT, WRONG = ("no_answer", "stop"), ("no_answer", "length"), ("wrong", "stop")


def rollout(index: int, verdict: str, finish_reason: str) -> Rollout:
    return Rollout(
        rollout_id=f"q/{index}", group_id="q", sample_index=index, role="solver", checkpoint_id="c",
        prompt_token_ids=[1], token_ids=[2 + index, 3], sampler_logprobs=[-2.0, -2.0], text="",
        finish_reason=finish_reason, verdict=verdict, reward=float(verdict == "correct"), malformed_reason="",
    )  # fmt: skip


def updated(tmp_path: Path, ends: list[tuple[str, str]], penalty: float) -> list[Update]:
    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    out = tmp_path / f"out{penalty}"
    out.mkdir()
    question = Question(
        question_id="q", text="?", choices=[], answer="7", verifier="integer", domain="", subdomain="",
        document_id="d", rollout_id="", reasoning="",
    )  # fmt: skip
    rows = [rollout(index, *end) for index, end in enumerate(ends)]
    settings = replace(settings_of(CONFIG, iteration=0), mid_eos_penalty=penalty)
    return update_solver([question], rows, trainer, settings, workspace=out, first_step=0).updates


@pytest.mark.parametrize(
    ("verdict", "finish_reason", "reward", "shaped"),
    [
        ("no_answer", "stop", 0.0, -0.5),
        ("no_answer", "length", 0.0, 0.0),
        ("no_answer", "prompt_too_long", 0.0, 0.0),
        ("wrong", "stop", 0.0, 0.0),
        ("unverified", "stop", 0.0, 0.0),
        ("correct", "stop", 1.0, 1.0),
    ],
)
def test_the_penalty_is_for_stopping_without_an_answer(verdict: str, finish_reason: str, reward: float, shaped: float):
    assert mid_eos_shaped(reward, verdict, finish_reason, penalty=-0.5) == shaped


def test_the_penalty_is_added():
    assert mid_eos_shaped(-0.25, "no_answer", "stop", penalty=-0.5) == -0.75


def test_shaping_comes_before_flat_groups_are_removed(tmp_path: Path):
    assert updated(tmp_path, [STOPPED, WRONG, CUT, WRONG], 0.0) == []
    (step,) = updated(tmp_path, [STOPPED, WRONG, CUT, WRONG], -0.5)
    assert step.num_groups == 1 and step.gradient_norm > 0


def test_a_group_that_only_stops_early_stays_flat(tmp_path: Path):
    assert updated(tmp_path, [STOPPED] * 4, -0.5) == []


def test_the_dev_gradient_knows_nothing_of_it(tmp_path: Path):
    shaped = load([NANO], ["cotrain.mid_eos_penalty=-0.5"])
    assert gradient_of(shaped) == gradient_of(CONFIG)
    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    rows = [rollout(0, *STOPPED), rollout(1, *WRONG)]
    assert dev_gradient(rows, trainer, gradient_of(shaped), workspace=tmp_path).norm == 0
    right = [replace(rows[0], verdict="correct", reward=1.0), rows[1]]
    assert dev_gradient(right, trainer, gradient_of(shaped), workspace=tmp_path).norm > 0


def test_a_shared_backward_pass_has_no_room_for_it():
    with pytest.raises(ConfigError, match="mid_eos_penalty 0"):
        load([NANO], ["cotrain.mid_eos_penalty=-0.5", "cotrain.one_backward=true", "cotrain.solver.minibatch=64"])
