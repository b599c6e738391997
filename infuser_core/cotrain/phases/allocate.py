"""Draw an iteration's B documents: from the pool in seeded passes, or split among arms by fixed shares or influence.

An arm is a value of one field of Document, such as a domain.
"""

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from infuser_core.algorithm.budget import Arm, bandit, quotas, round_quotas
from infuser_core.config.run import RunConfig
from infuser_core.errors import DocumentError
from infuser_core.schemas import Allocation, Document, InfluenceScore, Question, ScoreStatus
from infuser_core.seeding import seed_of

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateSettings:
    """Settings that the bandit's shares depend on."""

    by: str
    """Field of Document whose values are the arms."""
    documents: int
    """B: documents of a batch."""
    exploration: float
    """Width of the bounds, in deviations of the rewards."""
    floor: float
    """Least share of an arm."""
    fixed: Mapping[str, float]
    """Arms with a constant share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIteration:
    """Allocations, valid questions and their scores of one earlier iteration."""

    allocations: Sequence[Allocation]
    questions: Sequence[Question]
    scores: Sequence[InfluenceScore]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The part of a batch that one arm contributes."""

    share: float
    """Weight by which the arm makes up for an exhausted one."""
    count: int
    """Documents in this batch."""
    start: int
    """Documents that earlier iterations drew from the arm: its passes continue there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Shares of a batch by arm; arms of the pool without a portion contribute nothing."""

    by: str
    """Field of Document whose values are the arms."""
    portions: Mapping[str, Portion]


def settings_of(config: RunConfig) -> AllocateSettings:
    """Settings of a run that this phase depends on."""
    budget = config.cotrain.budget
    return AllocateSettings(
        by=budget.by,
        documents=config.cotrain.documents,
        exploration=budget.exploration,
        floor=budget.floor,
        fixed=budget.shares,
    )


def allocate(
    pool: Sequence[Document], window: Sequence[PastIteration], settings: AllocateSettings, *, seed: int, iteration: int
) -> list[Allocation]:
    """Split the next batch among the arms by the bandit; one row per arm, sorted by name.

    `window` holds the past iterations that the bandit learns from, oldest first.
    Raises DocumentError for a constant share of an arm that the pool does not have.
    """
    documents_by_arm = group_by_arm(pool, settings.by)
    absent = sorted({*settings.fixed} - {*documents_by_arm})
    if absent:
        raise DocumentError(
            f"cotrain.budget.shares: {settings.by} {absent[0]!r} is not in the pool",
            hint=f"arms of the pool: {', '.join(map(repr, documents_by_arm))}",
        )
    arms = _measure_arms(documents_by_arm, window)
    shares = bandit(
        arms, settings.documents, exploration=settings.exploration, floor=settings.floor, fixed=settings.fixed
    )
    room = {name: len(documents) for name, documents in documents_by_arm.items()}
    exact = quotas({name: each.share for name, each in shares.items()}, room, settings.documents)
    counts = round_quotas(exact, rounding_offset(seed, iteration))
    starts = {row.arm: row.drawn + row.count for row in window[-1].allocations} if window else {}
    return [
        Allocation(
            arm=name,
            share=shares[name].share,
            count=counts[name],
            drawn=starts.get(name, 0),
            documents=room[name],
            pulls=len(arms[name].rewards),
            mean=shares[name].mean,
            bound=shares[name].bound,
        )
        for name in documents_by_arm
    ]


def _measure_arms(
    documents_by_arm: Mapping[str, Sequence[Document]], window: Sequence[PastIteration]
) -> dict[str, Arm]:
    """Room and rewards of every arm; the reward of a document is the mean influence of its questions."""
    arm_of = {document.document_id: name for name, documents in documents_by_arm.items() for document in documents}
    rewards: dict[str, list[float]] = {name: [] for name in documents_by_arm}
    for past in window:
        document_of = {question.question_id: question.document_id for question in past.questions}
        scores_by_document: dict[str, list[float]] = {}
        for row in past.scores:
            # A question whose answers all have the same reward has no gradient, and counts with its score of 0.
            if row.status in (ScoreStatus.SCORED, ScoreStatus.ZERO_VARIANCE) and math.isfinite(row.score):
                scores_by_document.setdefault(document_of[row.question_id], []).append(row.score)
        for document_id, scores in scores_by_document.items():
            if document_id in arm_of:
                rewards[arm_of[document_id]].append(fmean(scores))
    used = {row.arm for past in window for row in past.allocations if row.count}
    return {
        name: Arm(room=len(documents), rewards=rewards[name], silent=name in used and not rewards[name])
        for name, documents in documents_by_arm.items()
    }


def group_by_arm(pool: Sequence[Document], by: str) -> dict[str, list[Document]]:
    """Documents by arm, sorted by the arms' names; within an arm in the pool's order."""
    arms: dict[str, list[Document]] = {}
    for document in pool:
        arms.setdefault(str(getattr(document, by)), []).append(document)
    return {name: arms[name] for name in sorted(arms)}


def rounding_offset(seed: int, iteration: int) -> float:
    """Seeded offset in [0, 1) with which an iteration rounds its quotas."""
    return random.Random(seed_of(seed, "budget", iteration)).random()


# --- the batch -------------------------------------------------------------------------------------------------------


def allocated_budget(rows: Sequence[Allocation], by: str) -> Budget:
    """Convert the rows of `allocate` into the budget of a batch."""
    portions = {row.arm: Portion(share=row.share, count=row.count, start=row.drawn) for row in rows}
    return Budget(by=by, portions=portions)


def fixed_budget(
    pool: Sequence[Document], count: int, weights: Mapping[str, float], *, by: str, seed: int, iteration: int
) -> Budget:
    """Build an iteration's budget from constant shares; a weight of 0 leaves an arm out.

    Raises DocumentError unless every arm of the pool has a weight, and every positive weight an arm.
    """
    arms = group_by_arm(pool, by)
    weights = {name: weight for name, weight in weights.items() if weight or name in arms}
    differing = sorted({*arms} ^ {*weights})
    if differing:
        what = "has no weight" if differing[0] in arms else "is not in the pool"
        raise DocumentError(
            f"cotrain.budget.shares: {by} {differing[0]!r} {what}",
            hint=f"give a weight, 0 to leave it out, to each of {', '.join(map(repr, arms))}",
        )
    exact = quotas(weights, {name: len(arms[name]) for name in arms}, count)
    counts = [round_quotas(exact, rounding_offset(seed, number)) for number in range(iteration + 1)]
    portions = {
        name: Portion(
            share=weights[name], count=counts[iteration][name], start=sum(each[name] for each in counts[:iteration])
        )
        for name in arms
    }
    return Budget(by=by, portions=portions)


def draw_batch(
    pool: Sequence[Document],
    count: int,
    *,
    seed: int,
    iteration: int,
    exclude: Collection[str] = (),
    budget: Budget | None = None,
) -> list[Document]:
    """Draw an iteration's batch without excluded documents, from the entire pool or by the arms of a budget.

    If exclusions leave an arm short, the other arms make up for it by their shares.
    """
    if budget is None:
        return draw_documents(pool, count, seed=seed, iteration=iteration, exclude=exclude)
    arms = group_by_arm(pool, budget.by)
    portions = {name: portion for name, portion in budget.portions.items() if name in arms}
    available = {name: sum(document.document_id not in exclude for document in arms[name]) for name in portions}
    counts = {name: min(portion.count, available[name]) for name, portion in portions.items()}
    missing = sum(portion.count for portion in portions.values()) - sum(counts.values())
    room = {name: available[name] - counts[name] for name in portions}
    extra = round_quotas(quotas({name: portion.share for name, portion in portions.items()}, room, missing), 0.5)
    batch = [
        document
        for name, portion in portions.items()
        for document in _draw_in_passes(
            arms[name],
            counts[name] + extra[name],
            names=(seed, "documents", budget.by, name),
            start=portion.start,
            exclude=exclude,
        )
    ]
    # Minibatches are consecutive slices of the batch, and should mix the arms.
    random.Random(seed_of(seed, "batch", iteration)).shuffle(batch)
    return batch


def draw_documents(
    pool: Sequence[Document], count: int, *, seed: int, iteration: int, exclude: Collection[str] = ()
) -> list[Document]:
    """Draw an iteration's documents in passes over the pool in seeded order, none twice in one batch.

    The next documents of the order replace excluded ones, so that batches without excluded documents do not change.
    """
    count = min(count, len(pool))
    return _draw_in_passes(pool, count, names=(seed, "documents"), start=iteration * count, exclude=exclude)


def _draw_in_passes(
    pool: Sequence[Document], count: int, *, names: tuple[int | str, ...], start: int, exclude: Collection[str]
) -> list[Document]:
    """`count` documents from position `start` of endless passes, each in an order seeded by `names` and its number."""
    batch: list[Document] = []
    orders: dict[int, list[int]] = {}
    position = start
    available = sum(document.document_id not in exclude for document in pool)
    while len(batch) < min(count, available):
        number, place = divmod(position, len(pool))
        if number not in orders:
            orders[number] = list(range(len(pool)))
            random.Random(seed_of(*names, number)).shuffle(orders[number])
        document = pool[orders[number][place]]
        if document not in batch and document.document_id not in exclude:
            batch.append(document)
        position += 1
    return batch
