"""The generator's gradient is compared with that of real effects: from inner products alone, batch by batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_tiny import make_checkpoint, objective_settings
from stock_engines import local_trainer
from test_influence_study import rollouts, score

from infuser_core.cotrain.phases.training import train_group
from infuser_core.cotrain.studies.candidates import load_flat
from infuser_core.cotrain.studies.gradients import GradientSettings, gradient_quality, inner_products
from infuser_core.schemas import Question

OBJECTIVE = objective_settings(tis_cap=None, max_tokens=1)
SETTINGS = GradientSettings(objective=OBJECTIVE, documents=2, batches=60, invalid=0.0)
ROWS = [
    replace(row, rollout_id=f"{place}/{row.rollout_id}", group_id=f"{place}/{row.group_id}")
    for place in range(4)
    for row in rollouts("doc", seed=place)
]
QUESTIONS = [
    Question(question_id=row.rollout_id, text="", choices=[], answer="", verifier="choice", rollout_id=row.rollout_id)
    for row in ROWS
]
RNG = np.random.default_rng(0)
EFFECTS = {row.rollout_id: float(value) for row, value in zip(ROWS, RNG.normal(size=len(ROWS)), strict=True)}


def test_inner_products_are_those_of_the_trainers_gradients(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    trainer = local_trainer()
    found = inner_products(ROWS[:3], trainer, checkpoint, OBJECTIVE, workspace=tmp_path)
    vectors = []
    for row in ROWS[:3]:
        trainer.zero_grad()
        trainer.forward_backward([train_group([row], [1.0])], OBJECTIVE.constants([]), denominator=1)
        trainer.keep_gradient(tmp_path / "one.safetensors")
        vectors.append(load_flat(tmp_path / "one.safetensors"))
    assert found == pytest.approx(np.array(vectors) @ np.array(vectors).T, rel=1e-4)


def test_a_reward_that_knows_the_effects_comes_first_and_noise_points_nowhere() -> None:
    # One direction of the generator that is good: a text's share in it is its effect.
    good_R = np.array([EFFECTS[row.rollout_id] for row in ROWS])
    features_RN = np.column_stack([good_R, 0.3 * RNG.normal(size=(len(ROWS), 3))])
    scores = [
        replace(score(row.rollout_id), score=float(noise))
        for row, noise in zip(ROWS, RNG.normal(size=40), strict=False)
    ]
    found = gradient_quality(ROWS, QUESTIONS, scores, EFFECTS, features_RN @ features_RN.T, SETTINGS, seed=0)
    by_name = {(row.reward, row.advantage): row for row in found}
    best, blind = by_name["effect", "mean_centred"], by_name["influence", "mean_centred"]
    assert best.cosine > 0.8 > blind.cosine and best.low < best.cosine < best.high
    # Everybody has the same pass rate: a reward for it credits nothing.
    assert by_name["variance", "dugrpo"].cosine == 0.0


def test_without_effects_there_is_no_true_direction() -> None:
    scores = [score(row.rollout_id) for row in ROWS]
    found = gradient_quality(ROWS, QUESTIONS, scores, {}, np.eye(len(ROWS)), SETTINGS, seed=0)
    assert {row.cosine for row in found} == {0.0}
