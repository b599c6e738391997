"""Rate generated questions by every score of the folder `scores`, from their gradients and other data.

Takes one backward pass per question or more: slow, but independent of the engine's probe. Shape suffix: _N parameters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infuser_core.algorithm.score import cosine
from infuser_core.cotrain.phases.training import ObjectiveSettings, by_group
from infuser_core.cotrain.studies.question_gradients import QuestionGradients, load_flat, load_root
from infuser_core.cotrain.studies.rivals import RivalData, Rivals
from infuser_core.evaluation.resumable_sampling import SavedRows
from infuser_core.plugins import Registry
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Rollout, ScoreStatus

VERSION = 3
SCORES = Registry(kind="score", package="infuser_core.cotrain.studies.scores", outside="my_package.my_score")
"""Registry of scores, each a function `score(question)` of a Candidate; None if the score cannot rate it."""
PAPER = "preconditioned_cosine"
"""The paper's score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A question with the data that scores may use."""

    stored: InfluenceScore
    """The run's own score and its parts."""
    tokens: float
    """Mean length of its answers."""
    on_target: bool | None
    """Whether its topic is one of the dev questions'; None without a label."""
    right_key: bool | None
    """Whether its reference answer is right; None without a label."""
    gradient_N: np.ndarray
    """Gradient of its objective, ascent direction."""
    dev_N: np.ndarray
    """The dev gradient."""
    root_N: np.ndarray
    """sqrt(v / (1 - b2^t)) + eps of the solver's AdamW state, without the question's own gradient."""
    question: Question
    questions: Sequence[Question]
    """All candidates."""
    dev: Sequence[Question]
    """The dev questions."""
    rival: RivalData | None
    """Data of costly scores; None if they are not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedScore:
    """One score of one question."""

    question_id: str
    """Question scored."""
    name: str
    """Name of the score."""
    value: float
    """Higher is better."""
    cell: str
    """Kind of the question by its labels, such as `target, right key`; empty without labels."""


def cosine_of(left_N: np.ndarray, right_N: np.ndarray) -> float:
    """Cosine of two vectors; 0 if one has length 0."""
    return cosine(float(left_N @ right_N), float(np.linalg.norm(left_N)), float(np.linalg.norm(right_N)))


def questions_with_direction(scores: Sequence[InfluenceScore]) -> list[InfluenceScore]:
    """Scores of the questions that have a gradient direction (status `scored`), in order."""
    return [row for row in scores if row.status == ScoreStatus.SCORED]


def named_scores(
    questions: Sequence[Question],
    scores: Sequence[InfluenceScore],
    rollouts: Sequence[Rollout],
    dev: Sequence[Question],
    labels: Sequence[QuestionLabel],
    solver: Trainer,
    checkpoint: Checkpoint,
    objective: ObjectiveSettings,
    *,
    reference: Path,
    workspace: Path,
    old_rollouts: Sequence[Rollout] = (),
    saved_rows: SavedRows[NamedScore] | None = None,
    progress: Progress = no_progress,
) -> list[NamedScore]:
    """Compute every score of every question with a gradient; a score that cannot rate all of them is left out.

    With `old_rollouts`, the anchor's answers to the same questions, also the costly scores: one more backward pass per
    answer. Questions in `saved_rows` are not computed again. Raises CheckpointError if the solver's optimizer has no
    second moments.
    """
    groups, rows = by_group(rollouts), questions_with_direction(scores)
    topics, label_of = {row.subdomain for row in dev}, {row.question_id: row for row in labels}
    if all(row.key == "unknown" for row in labels):
        label_of = {}
    constants = objective.constants(groups[row.question_id] for row in rows)
    # In fp64: a sum over all parameters of products that span many orders of magnitude.
    dev_N, root_N = load_flat(reference), load_root(checkpoint)
    solver.load(checkpoint)
    file = workspace / "question.safetensors"
    gradients = QuestionGradients(solver=solver, objective=objective, constants=constants, file=file)
    question_of = {row.question_id: row for row in questions}
    candidates = [question_of[row.question_id] for row in rows]
    old_groups = by_group(old_rollouts)
    rivals = Rivals.prepare(rows, question_of, dev, groups, old_groups, gradients, checkpoint) if old_groups else None
    results = saved_rows.rows() if saved_rows else []
    saved_ids = {row.question_id for row in results}
    for count, row in enumerate(rows, 1):
        if row.question_id in saved_ids:
            continue
        group = groups[row.question_id]
        label = label_of.get(row.question_id)
        candidate = Candidate(
            stored=row,
            tokens=sum(len(answer.token_ids) for answer in group) / len(group),
            on_target=label.topic in topics if label else None,
            right_key=label.key == "sound" if label else None,
            gradient_N=gradients.of(group),
            dev_N=dev_N,
            root_N=root_N,
            question=question_of[row.question_id],
            questions=candidates,
            dev=dev,
            rival=rivals.of(row.question_id, dev_N) if rivals else None,
        )
        new = _rate(candidate)
        results += new
        if saved_rows:
            saved_rows.add(new)
        progress(count, len(rows), 0)
    gradients.close()
    counts = Counter(row.name for row in results)
    return [row for row in results if counts[row.name] == len(rows)]


def _rate(question: Candidate) -> list[NamedScore]:
    """The scores of one question, without those that cannot rate it."""
    cell = ""
    if question.on_target is not None and question.right_key is not None:
        cell = f"{'target' if question.on_target else 'other'}, {'right' if question.right_key else 'wrong'} key"
    values = {name: SCORES.find(name, "score")[1](question) for name in SCORES.names()}
    return [
        NamedScore(question_id=question.stored.question_id, name=name, value=value, cell=cell)
        for name, value in values.items()
        if value is not None
    ]


def values_by_score(rows: Sequence[NamedScore]) -> dict[str, dict[str, float]]:
    """Values of all questions, by score name and question id."""
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        values.setdefault(row.name, {})[row.question_id] = row.value
    return values


def ranks_within(values: Sequence[float], cells: Sequence[str]) -> list[float]:
    """Ranks of the values within their cell, from -1/2 to 1/2: the part of a score that the cell does not explain."""
    from scipy.stats import rankdata

    ranks = np.zeros(len(values))
    for cell in {*cells}:
        places = [place for place, other in enumerate(cells) if other == cell]
        ranks[places] = (rankdata([values[place] for place in places]) - 0.5) / len(places) - 0.5
    return [float(rank) for rank in ranks]
