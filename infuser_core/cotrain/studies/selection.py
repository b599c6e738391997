"""Effect of selecting questions by score: equal training on the best, worst and random ones, and the held-out gain.

An arm is one selection. All arms start from one checkpoint, train on the answers that were scored, and are measured on
the same held-out questions. An arm selects only questions whose answers differ in reward: the others have no gradient
and would put random arms at a disadvantage. Shape suffix: _Q held-out questions.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from infuser_core.algorithm.advantage import centre
from infuser_core.config.recorded import Mark
from infuser_core.cotrain.phases.parts.real_steps import Measure
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, logprobs_by_rollout, train_group
from infuser_core.cotrain.studies.candidates import PAPER, NamedScore, values_by_score
from infuser_core.evaluation.resumable_sampling import SavedRows
from infuser_core.evaluation.statistics.bootstrap import estimate
from infuser_core.evaluation.statistics.correlation import RankCorrelation, rank_correlations
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, Rollout
from infuser_core.seeding import seed_of

VERSION = 4
BEFORE, RANDOM, WORST = "before", "random", f"{PAPER} reversed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSettings:
    """Settings of the study: optimizer, share of questions, steps and number of random arms."""

    step: UpdateSettings
    """The solver's own optimizer and objective."""
    share: float
    """Share of the scored questions that an arm trains on."""
    steps: int
    """Optimizer steps of an arm, each on all of its questions."""
    draws: int
    """Random arms."""
    samples: int
    """Answers per held-out question; 0 if the probability of the right reply is known exactly."""
    ranked: bool
    """Whether there are arms by scores in addition to the random ones."""
    leave_out: Annotated[bool, Mark.NEUTRAL] = False
    """Whether an arm trains on all questions except those that it selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPlan:
    """Plan of one arm: the questions that it selects."""

    arm: str
    """Name of a score, the paper's reversed, or random."""
    draw: int
    """Number of a random arm; 0 for others."""
    questions: Sequence[str]
    """Selected questions, in the order of the scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionArm:
    """Result of one arm: held-out accuracy after its steps, and the change."""

    arm: str
    """Rule of the selection; `before` is the checkpoint itself."""
    draw: int
    """Number of a random arm; 0 for others."""
    questions: list[str]
    """Questions trained on."""
    accuracy: float
    """On the held-out questions, after the steps."""
    change: float
    """Difference from the checkpoint's accuracy."""
    change_low: float
    """2.5% quantile of the change over resampled held-out questions."""
    change_high: float
    """97.5% quantile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Values of the held-out questions after an arm's steps."""

    questions: list[str]
    """Questions trained on; empty for the checkpoint itself."""
    values_Q: list[float]
    """Value of each held-out question."""


def select_questions(scores: Sequence[NamedScore], settings: SelectionSettings, *, seed: int) -> list[ArmPlan]:
    """Plan the arms, each with the same number of questions; a seeded draw breaks ties."""
    values = values_by_score(scores)
    names = list(values[PAPER])
    count = max(1, round(settings.share * len(names)))
    lot = {name: random.Random(seed_of(seed, "selection", name)).random() for name in names}
    rules = values | {WORST: {name: -value for name, value in values[PAPER].items()}}
    arms: list[tuple[str, int, set[str]]] = []
    for arm, own in rules.items() if settings.ranked else []:
        best = {*sorted(names, key=lambda name: (-own[name], lot[name]))[:count]}
        arms.append((arm, 0, best))
    for draw in range(settings.draws):
        places = random.Random(seed_of(seed, "selection", "random", draw)).sample(range(len(names)), count)
        arms.append((RANDOM, draw, {names[place] for place in places}))
    return [
        ArmPlan(arm=arm, draw=draw, questions=[name for name in names if (name in selection) != settings.leave_out])
        for arm, draw, selection in arms
    ]


def run_arms(
    scores: Sequence[NamedScore],
    rollouts: Sequence[Rollout],
    solver: Trainer,
    checkpoint: Checkpoint,
    measure: Measure,
    settings: SelectionSettings,
    *,
    seed: int,
    saved_rows: SavedRows[Reached],
    progress: Progress = no_progress,
) -> list[SelectionArm]:
    """Measure the checkpoint itself, then train and measure every arm; arms in `saved_rows` are not trained again."""
    groups = by_group(rollouts)
    # Keyed by questions: without moments, several scores may select the same ones.
    values = {tuple(row.questions): row.values_Q for row in saved_rows.rows()}
    arms = [ArmPlan(arm=BEFORE, draw=0, questions=[]), *select_questions(scores, settings, seed=seed)]
    for count, arm in enumerate(arms):
        names = tuple(arm.questions)
        if names not in values:
            solver.load(checkpoint)
            if names:
                _train_arm(solver, [groups[name] for name in names], settings)
            values[names] = measure(solver).tolist()
            saved_rows.add([Reached(questions=[*names], values_Q=values[names])])
        progress(count, len(arms) - 1, 0)
    before_Q = np.array(values[()])
    return [_arm_row(arm, np.array(values[tuple(arm.questions)]), before_Q) for arm in arms]


def _train_arm(solver: Trainer, groups: Sequence[Sequence[Rollout]], settings: SelectionSettings) -> None:
    constants = settings.step.objective.constants(groups)
    plain = [train_group(rows, [0.0] * len(rows)) for rows in groups]
    old = logprobs_by_rollout(groups, solver.logprobs(plain, temperature=constants.temperature))
    train = [settings.step.objective.train_group(rows, centre([row.reward for row in rows]), old) for rows in groups]
    for _ in range(settings.steps):
        solver.zero_grad()
        solver.forward_backward(train, constants, denominator=len(train))
        solver.optim_step(settings.step.learning_rate)


def _arm_row(arm: ArmPlan, after_Q: np.ndarray, before_Q: np.ndarray) -> SelectionArm:
    gain = estimate(after_Q - before_Q)
    return SelectionArm(
        arm=arm.arm,
        draw=arm.draw,
        questions=[*arm.questions],
        accuracy=float(after_Q.mean()),
        change=gain.value,
        change_low=gain.low,
        change_high=gain.high,
    )


def datamodelling(rows: Sequence[SelectionArm], scores: Sequence[NamedScore]) -> list[RankCorrelation]:
    """Linear datamodelling score: over random arms, rank correlation of the summed scores with the accuracy reached.

    After Park et al., "TRAK: Attributing Model Behavior at Scale" (2023).
    """
    arms = [row for row in rows if row.arm == RANDOM]
    values = values_by_score(scores)
    sums = {name: [sum(own[question] for question in row.questions) for row in arms] for name, own in values.items()}
    return rank_correlations(sums, {"held_out": [row.accuracy for row in arms]})


def summary(rows: Sequence[SelectionArm]) -> Iterator[dict[str, object]]:
    """Summary rows, one per selection rule: random arms are averaged, with their lowest and highest change."""
    for arm in dict.fromkeys(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        changes = [row.change for row in own]
        alone = len(own) == 1
        yield {
            "arm": arm,
            "arms": len(own),
            "questions": len(own[0].questions),
            "accuracy": round(sum(row.accuracy for row in own) / len(own), 4),
            "change": round(sum(changes) / len(own), 4),
            "low": round(own[0].change_low if alone else min(changes), 4),
            "high": round(own[0].change_high if alone else max(changes), 4),
        }
