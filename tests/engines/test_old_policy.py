"""The old policy of an update: what the scoring pass computed is taken, what it left out is computed here."""

from pathlib import Path

import pytest
from places import CONFIGS

from infuser_core.config.overlays import load
from infuser_core.engines.fake import FakeTrainer, fake_anchor
from infuser_core.phases.update_solver import settings_of, update_solver
from infuser_core.schemas import Checkpoint, Question, Rollout, TrainerLogprobs, Update

NANO = CONFIGS / "nano.yaml"
SETTINGS = settings_of(load([NANO], ["cotrain.solver.minibatch=1", "cotrain.solver.learning_rate=0.5"]), iteration=0)
NAMES = ["q1", "q2", "q3", "q4"]


def question(name: str) -> Question:
    return Question(
        question_id=name, text="?", choices=[], answer="7", verifier="integer", domain="", subdomain="",
        document_id=name, rollout_id="", reasoning="",
    )  # fmt: skip


def rollouts(name: str) -> list[Rollout]:
    return [
        Rollout(
            rollout_id=f"{name}/{index}", group_id=name, sample_index=index, role="solver", checkpoint_id="c",
            prompt_token_ids=[1], token_ids=[2 + index, int(name[1])], sampler_logprobs=[-2.0, -2.0], text="",
            finish_reason="stop", verdict="correct" if index else "wrong", reward=float(index), malformed_reason="",
        )
        for index in (0, 1)
    ]  # fmt: skip


def updated(tmp_path: Path, name: str, known: list[TrainerLogprobs]) -> list[Update]:
    trainer = loaded(tmp_path)
    (tmp_path / name).mkdir()
    return update_solver(
        [question(name) for name in NAMES], [row for name in NAMES for row in rollouts(name)], trainer, SETTINGS,
        workspace=tmp_path / name, first_step=0, old_logprobs=known,
    ).updates  # fmt: skip


def loaded(tmp_path: Path) -> FakeTrainer:
    if not (tmp_path / "anchor").exists():
        fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(Checkpoint(checkpoint_id="a", role="solver", path=str(tmp_path / "anchor"), step=0))
    return trainer


@pytest.mark.parametrize("scored", [["q1"], ["q2", "q4"], NAMES])
def test_a_part_of_the_old_policy_is_completed(tmp_path: Path, scored: list[str]):
    every = updated(tmp_path, "none", [])
    assert any(abs(step.mean_ratio - 1) > 1e-3 for step in every), "later steps must move away from the old policy"
    uniform = 2.772588722239781  # the fake anchor's policy over its 16 buckets
    known = [
        TrainerLogprobs(rollout_id=row.rollout_id, logprobs=[-uniform] * 2) for name in scored for row in rollouts(name)
    ]
    some = updated(tmp_path, "some", known)
    assert [step.mean_ratio for step in some] == pytest.approx([step.mean_ratio for step in every], abs=1e-6)
