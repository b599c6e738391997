"""Rate generated questions by every score of the folder `scores`, from their gradients and other data.

Takes one backward pass per question: slow, but independent of the engine's probe. Shape suffix: _N parameters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infuser_core.algorithm.advantage import centre
from infuser_core.algorithm.score import cosine
from infuser_core.config.optimizers import DEFAULT
from infuser_core.cotrain.phases.training import ObjectiveSettings, by_group
from infuser_core.errors import CheckpointError
from infuser_core.evaluation.resumable_sampling import SavedRows
from infuser_core.plugins import Registry
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Rollout, ScoreStatus

VERSION = 2
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
    saved_rows: SavedRows[NamedScore] | None = None,
    progress: Progress = no_progress,
) -> list[NamedScore]:
    """Compute every score of every question with a gradient; a score that cannot rate all of them is left out.

    Questions in `saved_rows` are not computed again. Raises CheckpointError if the solver's optimizer has no second
    moments.
    """
    groups, rows = by_group(rollouts), questions_with_direction(scores)
    topics, label_of = {row.subdomain for row in dev}, {row.question_id: row for row in labels}
    if all(row.key == "unknown" for row in labels):
        label_of = {}
    constants = objective.constants(groups[row.question_id] for row in rows)
    # In fp64: a sum over all parameters of products that span many orders of magnitude.
    dev_N, root_N = load_flat(reference), _load_root(checkpoint)
    solver.load(checkpoint)
    file, results = workspace / "question.safetensors", saved_rows.rows() if saved_rows else []
    saved_ids = {row.question_id for row in results}
    for count, row in enumerate(rows, 1):
        if row.question_id in saved_ids:
            continue
        group = groups[row.question_id]
        solver.zero_grad()
        train = objective.train_group(group, centre([answer.reward for answer in group]))
        solver.forward_backward([train], constants, denominator=1)
        solver.keep_gradient(file)
        label = label_of.get(row.question_id)
        candidate = Candidate(
            stored=row,
            tokens=sum(len(answer.token_ids) for answer in group) / len(group),
            on_target=label.topic in topics if label else None,
            right_key=label.key == "sound" if label else None,
            gradient_N=load_flat(file),
            dev_N=dev_N,
            root_N=root_N,
        )
        new = _rate(candidate)
        results += new
        if saved_rows:
            saved_rows.add(new)
        progress(count, len(rows), 0)
    solver.zero_grad()
    file.unlink(missing_ok=True)
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


def load_flat(path: Path, prefix: str = "") -> np.ndarray:
    """Load the tensors of a file or its shards whose names have the prefix, as one vector sorted by name [N]."""
    from safetensors.numpy import load_file

    from infuser_core.engines.training.checkpoint import shards_of

    stored = {name: each for file in shards_of(path) for name, each in load_file(file).items()}
    pieces = [stored[name].ravel() for name in sorted(stored) if name.startswith(prefix)]
    if not pieces:
        raise CheckpointError(f"{path} has no second moments", hint="study a run whose optimizer is AdamW")
    return np.concatenate(pieces).astype(np.float64)


def _load_root(checkpoint: Checkpoint) -> np.ndarray:
    """Compute `Candidate.root_N` from a checkpoint's AdamW state."""
    from infuser_core.engines.training.checkpoint import MOMENTS, read_state

    folder = Path(checkpoint.path)
    state = read_state(folder)
    if (name := state.optimizer.get("name", DEFAULT)) != DEFAULT:
        raise CheckpointError(f"{folder} was trained with {name}", hint="study a run whose optimizer is adamw")
    correction = 1 - state.optimizer["beta2"] ** state.step if state.step else 1.0
    root_N: np.ndarray = np.sqrt(load_flat(folder / MOMENTS, "v.") / correction) + state.optimizer["eps"]
    return root_N
