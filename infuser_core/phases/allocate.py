"""Before phase 2a: how many documents each arm gives to the batch, by the influence of the last iterations' questions.

An option of ours for what the paper leaves to future work; the algorithm box has no such phase.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from infuser_core.algorithm.budget import Arm, bandit, quotas, whole
from infuser_core.config.run import RunConfig
from infuser_core.errors import DocumentError
from infuser_core.phases.batch import Budget, Portion, arms_of, offset_of
from infuser_core.schemas import Allocation, Document, InfluenceScore, Question, ScoreStatus

VERSION = 1
_MEASURED = (ScoreStatus.SCORED, ScoreStatus.ZERO_VARIANCE)
"""A question that every answer agrees on moves nothing, and counts with its score of 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateSettings:
    """Settings that the shares depend on."""

    by: str
    """Field of Document whose values are the arms."""
    documents: int
    """B."""
    exploration: float
    """Width of the bounds, in deviations of the rewards."""
    floor: float
    """Least share of an arm."""
    fixed: Mapping[str, float]
    """Arms with a constant share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Allocations, questions and scores of one earlier iteration."""

    allocations: Sequence[Allocation]
    """How it was shared."""
    questions: Sequence[Question]
    """Valid questions."""
    scores: Sequence[InfluenceScore]
    """Their scores."""


def settings_of(config: RunConfig) -> AllocateSettings:
    """The sub-configuration that the phase is a function of."""
    budget = config.cotrain.budget
    return AllocateSettings(
        by=budget.by,
        documents=config.cotrain.documents,
        exploration=budget.exploration,
        floor=budget.floor,
        fixed=budget.shares,
    )


def allocate(
    pool: Sequence[Document], recent: Sequence[Recent], settings: AllocateSettings, *, seed: int, iteration: int
) -> list[Allocation]:
    """One row per arm, by name. `recent` are the iterations of the window, the last one last.

    Raises DocumentError for a constant share of an arm that the pool does not have.
    """
    arms = arms_of(pool, settings.by)
    absent = sorted({*settings.fixed} - {*arms})
    if absent:
        raise DocumentError(
            f"cotrain.budget.shares: {settings.by} {absent[0]!r} is not in the pool",
            hint=f"arms of the pool: {', '.join(map(repr, arms))}",
        )
    known = _known(arms, recent)
    shares = bandit(
        known, settings.documents, exploration=settings.exploration, floor=settings.floor, fixed=settings.fixed
    )
    room = {name: len(documents) for name, documents in arms.items()}
    exact = quotas({name: each.share for name, each in shares.items()}, room, settings.documents)
    counts = whole(exact, offset_of(seed, iteration))
    before = {row.arm: row.drawn + row.count for row in recent[-1].allocations} if recent else {}
    return [
        Allocation(
            arm=name,
            share=shares[name].share,
            count=counts[name],
            drawn=before.get(name, 0),
            documents=room[name],
            pulls=len(known[name].rewards),
            mean=shares[name].mean,
            bound=shares[name].bound,
        )
        for name in arms
    ]


def budget_of(rows: Sequence[Allocation], by: str) -> Budget:
    """The rows as the draw wants them."""
    portions = {row.arm: Portion(share=row.share, count=row.count, drawn=row.drawn) for row in rows}
    return Budget(by=by, portions=portions)


def _known(arms: Mapping[str, Sequence[Document]], recent: Sequence[Recent]) -> dict[str, Arm]:
    arm_of = {document.document_id: name for name, documents in arms.items() for document in documents}
    rewards: dict[str, list[float]] = {name: [] for name in arms}
    for one in recent:
        for document, values in _by_document(one).items():
            if document in arm_of:
                rewards[arm_of[document]].append(fmean(values))
    drawn = {row.arm for one in recent for row in one.allocations if row.count}
    return {
        name: Arm(room=len(documents), rewards=rewards[name], silent=name in drawn and not rewards[name])
        for name, documents in arms.items()
    }


def _by_document(one: Recent) -> dict[str, list[float]]:
    """Measured influence scores of the questions of each document."""
    written = {question.question_id: question.document_id for question in one.questions}
    found: dict[str, list[float]] = {}
    for row in one.scores:
        if row.status in _MEASURED and math.isfinite(row.score):
            found.setdefault(written[row.question_id], []).append(row.score)
    return found
