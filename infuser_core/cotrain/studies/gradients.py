"""Quality of the generator's gradient: its cosine with the true gradient, with the questions' real effects as rewards.

The gradient is linear in the advantages, so the inner products of one gradient per rollout suffice for any reward,
advantage and batch of documents. The true gradient is computed on the documents outside of the batch.
Shape suffixes: _R generator rollouts, _N parameters, _B batches, _D documents.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infuser_core.algorithm.advantage import advantages, centre
from infuser_core.cotrain.phases.training import ObjectiveSettings, by_group, train_group
from infuser_core.cotrain.reward import find_reward
from infuser_core.cotrain.studies.question_gradients import load_flat
from infuser_core.evaluation.statistics.bootstrap import Z
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, Rollout
from infuser_core.seeding import seed_of

VERSION = 1
# Normalising by the batch scales its gradient without changing the direction: mean_centred covers that, too.
NORMALISERS = ("dugrpo", "group_std", "mean_centred")
REWARDS = ("influence", "variance", "uncertainty")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSettings:
    """Settings of the study: the generator's loss, and the size and number of batches."""

    objective: ObjectiveSettings
    """The generator's loss."""
    documents: int
    """Documents of a batch."""
    batches: int
    """Batches drawn."""
    invalid: float
    """Reward of a text that is not a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientQuality:
    """Gradient quality under one reward and one advantage estimator."""

    reward: str
    """Name of the generator's reward; `effect` is the measured change after a step on the question."""
    advantage: str
    """Name of the advantage."""
    cosine: float
    """Mean over batches of the cosine of the batch's gradient and the true one."""
    low: float
    """Lower end of its 95% interval, by the jackknife over documents."""
    high: float
    """Upper end."""
    behind: float
    """Share of batches in which the first row's cosine is higher."""


def inner_products(
    rollouts: Sequence[Rollout],
    generator: Trainer,
    checkpoint: Checkpoint,
    objective: ObjectiveSettings,
    *,
    workspace: Path,
    progress: Progress = no_progress,
) -> np.ndarray:
    """Inner products [R, R] of the gradients of all rollouts' log-probabilities; gradients are stored in a file."""
    generator.load(checkpoint)
    constants = objective.constants(by_group(rollouts).values())
    file, gradients_RN = workspace / "rollout.safetensors", None
    for place, row in enumerate(rollouts):
        generator.zero_grad()
        generator.forward_backward([train_group([row], [1.0])], constants, denominator=1)
        generator.keep_gradient(file)
        gradient_N = load_flat(file)
        if gradients_RN is None:
            shape = (len(rollouts), gradient_N.size)
            gradients_RN = np.memmap(workspace / "gradients", dtype=np.float32, mode="w+", shape=shape)
        gradients_RN[place] = gradient_N
        progress(place + 1, len(rollouts), 0)
    generator.zero_grad()
    assert gradients_RN is not None
    return np.asarray(gradients_RN @ gradients_RN.T, dtype=np.float64)


def gradient_quality(
    rollouts: Sequence[Rollout],
    questions: Sequence[Question],
    scores: Sequence[InfluenceScore],
    effects: Mapping[str, float],
    products_RR: np.ndarray,
    settings: GradientSettings,
    *,
    seed: int,
) -> list[GradientQuality]:
    """Rate every reward with every advantage on the same batches; a question without a measured effect counts as 0."""
    score_of = {row.question_id: row for row in scores}
    generated = [row for row in questions if row.rollout_id]
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rollouts):
        places.setdefault(row.group_id, []).append(place)
    true = _by_rollout(rollouts, {row.rollout_id: effects.get(row.question_id, 0.0) for row in generated}, 0.0)
    rewards = {}
    for name in REWARDS:
        values = find_reward(name).of([score_of[row.question_id] for row in generated], generated)
        own = {row.rollout_id: value for row, value in zip(generated, values, strict=True)}
        rewards[name] = _by_rollout(rollouts, own, settings.invalid)
    rewards["effect"] = true
    truth_R = np.zeros(len(rollouts))
    for own_places in places.values():
        truth_R[own_places] = centre([true[place] for place in own_places])
    documents, count = sorted(places), min(settings.documents, len(places) // 2)
    batches = [
        random.Random(seed_of(seed, "gradients", draw)).sample(documents, count) for draw in range(settings.batches)
    ]
    cosines = {
        (reward, advantage): np.array(
            [_cosine(values, [places[name] for name in batch], advantage, truth_R, products_RR) for batch in batches]
        )
        for reward, values in rewards.items()
        for advantage in NORMALISERS
    }
    first_B = next(iter(cosines.values()))
    used_BD = np.array([[name in batch for name in documents] for batch in map(set, batches)])
    return [_quality_row(*names, cosines_B, first_B, used_BD) for names, cosines_B in cosines.items()]


def _by_rollout(rollouts: Sequence[Rollout], values: Mapping[str, float], invalid: float) -> list[float]:
    return [values.get(row.rollout_id, invalid) for row in rollouts]


def _cosine(
    rewards: Sequence[float],
    batch: Sequence[Sequence[int]],
    advantage: str,
    truth_R: np.ndarray,
    products_RR: np.ndarray,
) -> float:
    """Cosine of a batch's gradient and the true one of all other documents; 0 if either has length 0."""
    mine_R, other_R = np.zeros_like(truth_R), truth_R.copy()
    credits = advantages([[rewards[place] for place in own] for own in batch], normaliser=advantage)
    for own, values in zip(batch, credits, strict=True):
        mine_R[own], other_R[own] = values, 0.0
    left, right = mine_R @ products_RR @ mine_R, other_R @ products_RR @ other_R
    return float(mine_R @ products_RR @ other_R / math.sqrt(left * right)) if left > 0 and right > 0 else 0.0


def _quality_row(
    reward: str, advantage: str, cosines_B: np.ndarray, first_B: np.ndarray, used_BD: np.ndarray
) -> GradientQuality:
    """Mean cosine with its jackknife interval; `used_BD` says which documents are in which batch."""
    mean = float(cosines_B.mean())
    without_D = np.array([cosines_B[~used_B].mean() for used_B in used_BD.T])
    count = without_D.size
    error = Z * math.sqrt((count - 1) / count * float(((without_D - without_D.mean()) ** 2).sum()))
    return GradientQuality(
        reward=reward,
        advantage=advantage,
        cosine=mean,
        low=mean - error,
        high=mean + error,
        behind=float((first_B > cosines_B).mean()),
    )
