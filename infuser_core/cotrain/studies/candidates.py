"""Questions with all that a score may know of them, and the values of every score in the folder `scores`.

One backward pass per question: slow, and independent of the engine's probe. Legend: _N parameters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infuser_core.algorithm.advantage import centre
from infuser_core.algorithm.score import cosine
from infuser_core.cotrain.phases.training import ObjectiveSettings, by_group
from infuser_core.errors import CheckpointError
from infuser_core.evaluation.drawing import Kept
from infuser_core.plugins import Registry
from infuser_core.protocols import Progress, Trainer, no_progress
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Rollout, ScoreStatus

VERSION = 2
SCORES = Registry(kind="score", package="infuser_core.cotrain.studies.scores", outside="my_package.my_score")
"""`score(question)` of a Candidate; None for a question of which it can say nothing."""
PAPER = "preconditioned_cosine"
"""The paper's score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scored question."""

    stored: InfluenceScore
    """The run's own score and its parts."""
    tokens: float
    """Mean length of its answers."""
    on_target: bool | None
    """Whether its topic is one of the dev questions'; None where nobody labelled it."""
    right_key: bool | None
    """Whether its reference answer is right; None where nobody knows."""
    gradient_N: np.ndarray
    """Gradient of its objective, ascent direction."""
    dev_N: np.ndarray
    """The dev gradient."""
    root_N: np.ndarray
    """sqrt(v / (1 - b2^t)) + eps of the solver's AdamW state, which the question itself does not change."""


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
    """Kind of the question as an oracle knows it, such as `target, right key`; empty where nobody labelled it."""


def cosine_of(left_N: np.ndarray, right_N: np.ndarray) -> float:
    """Cosine of two vectors; 0 where one has no length."""
    return cosine(float(left_N @ right_N), float(np.linalg.norm(left_N)), float(np.linalg.norm(right_N)))


def scored(scores: Sequence[InfluenceScore]) -> list[InfluenceScore]:
    """The questions that have a direction, in their order."""
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
    kept: Kept[NamedScore] | None = None,
    progress: Progress = no_progress,
) -> list[NamedScore]:
    """Every score of every question with a direction; a score that is silent on one of them is left out. Questions of
    which `kept` holds the scores are not computed again.

    Raises CheckpointError where the solver's optimizer has no second moments.
    """
    groups, rows = by_group(rollouts), scored(scores)
    topics, labelled = {row.subdomain for row in dev}, {row.question_id: row for row in labels}
    if all(row.key == "unknown" for row in labels):
        labelled = {}
    constants = objective.constants(groups[row.question_id] for row in rows)
    # In fp64: a sum over all parameters of products that span many orders of magnitude.
    dev_N, root_N = flat(reference), _root(checkpoint)
    solver.load(checkpoint)
    file, found = workspace / "question.safetensors", kept.rows() if kept else []
    known = {row.question_id for row in found}
    for done, row in enumerate(rows, 1):
        if row.question_id in known:
            continue
        group = groups[row.question_id]
        solver.zero_grad()
        train = objective.train_group(group, centre([answer.reward for answer in group]))
        solver.forward_backward([train], constants, denominator=1)
        solver.keep_gradient(file)
        label = labelled.get(row.question_id)
        candidate = Candidate(
            stored=row,
            tokens=sum(len(answer.token_ids) for answer in group) / len(group),
            on_target=label.topic in topics if label else None,
            right_key=label.key == "sound" if label else None,
            gradient_N=flat(file),
            dev_N=dev_N,
            root_N=root_N,
        )
        own = _values(candidate)
        found += own
        if kept:
            kept.add(own)
        progress(done, len(rows), 0)
    solver.zero_grad()
    file.unlink(missing_ok=True)
    spoken = Counter(row.name for row in found)
    return [row for row in found if spoken[row.name] == len(rows)]


def _values(question: Candidate) -> list[NamedScore]:
    """The scores that say something of the question."""
    name, cell = question.stored.question_id, _cell(question)
    values = {each: SCORES.find(each, "score")[1](question) for each in SCORES.names()}
    return [NamedScore(question_id=name, name=n, value=v, cell=cell) for n, v in values.items() if v is not None]


def by_name(rows: Sequence[NamedScore]) -> dict[str, dict[str, float]]:
    """Values of every question by score."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.name, {})[row.question_id] = row.value
    return found


def within(values: Sequence[float], cells: Sequence[str]) -> list[float]:
    """Ranks of the values within their cell, from -1/2 to 1/2: what is left where the cell is known."""
    from scipy.stats import rankdata

    ranks = np.zeros(len(values))
    for cell in {*cells}:
        places = [place for place, other in enumerate(cells) if other == cell]
        ranks[places] = (rankdata([values[place] for place in places]) - 0.5) / len(places) - 0.5
    return [float(rank) for rank in ranks]


def _cell(question: Candidate) -> str:
    if question.on_target is None or question.right_key is None:
        return ""
    return f"{'target' if question.on_target else 'other'}, {'right' if question.right_key else 'wrong'} key"


def flat(path: Path, prefix: str = "") -> np.ndarray:
    """Tensors of the file, or of the shards that stand for it, whose names have the prefix, joined by name [N]."""
    from safetensors.numpy import load_file

    from infuser_core.engines.training.checkpoint import shards_of

    stored = {name: each for file in shards_of(path) for name, each in load_file(file).items()}
    found = [stored[name].ravel() for name in sorted(stored) if name.startswith(prefix)]
    if not found:
        raise CheckpointError(f"{path} has no second moments", hint="study a run whose optimizer is AdamW")
    return np.concatenate(found).astype(np.float64)


def _root(checkpoint: Checkpoint) -> np.ndarray:
    from infuser_core.engines.training.checkpoint import MOMENTS, read_state

    folder = Path(checkpoint.path)
    state = read_state(folder)
    correction = 1 - state.optimizer["beta2"] ** state.step if state.step else 1.0
    root_N: np.ndarray = np.sqrt(flat(folder / MOMENTS, "v.") / correction) + state.optimizer["eps"]
    return root_N
