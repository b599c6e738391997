"""The documents of one iteration: B of the pool in seeded passes, or shared among arms by constants or by influence."""

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from infuser_core.algorithm.budget import Arm, bandit, quotas, whole
from infuser_core.config.run import RunConfig
from infuser_core.errors import DocumentError
from infuser_core.schemas import Allocation, Document, InfluenceScore, Question, ScoreStatus
from infuser_core.seeding import seed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The part of a batch that one arm contributes."""

    share: float
    """Weight with which it takes over what an exhausted arm lacks."""
    count: int
    """Documents."""
    drawn: int
    """Documents drawn from it in earlier iterations: where its passes go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Settings for sharing a batch among arms."""

    by: str
    """Field of Document whose values are the arms."""
    portions: Mapping[str, Portion]
    """By arm; arms of the pool that are not here contribute nothing."""


def draw_batch(
    pool: Sequence[Document],
    count: int,
    *,
    seed: int,
    iteration: int,
    exclude: Collection[str] = (),
    budget: Budget | None = None,
) -> list[Document]:
    """The iteration's batch, from the whole pool or by arms."""
    if budget is None:
        return draw_documents(pool, count, seed=seed, iteration=iteration, exclude=exclude)
    arms = arms_of(pool, budget.by)
    portions = {name: portion for name, portion in budget.portions.items() if name in arms}
    counts = _possible(arms, portions, exclude)
    batch = [
        document
        for name, portion in portions.items()
        for document in _drawn(
            arms[name], counts[name], names=(seed, "documents", budget.by, name), start=portion.drawn, exclude=exclude
        )
    ]
    # Minibatches are cut from the batch in order: they shall be as mixed as it is.
    random.Random(seed_of(seed, "batch", iteration)).shuffle(batch)
    return batch


def draw_documents(
    pool: Sequence[Document], count: int, *, seed: int, iteration: int, exclude: Collection[str] = ()
) -> list[Document]:
    """Passes over the pool in seeded order, never the same document twice in one batch.

    The next documents of the order take the place of excluded ones, so that batches without them stay as they were.
    """
    count = min(count, len(pool))
    return _drawn(pool, count, names=(seed, "documents"), start=iteration * count, exclude=exclude)


def arms_of(pool: Sequence[Document], by: str) -> dict[str, list[Document]]:
    """Documents by arm, in the order of the arms' names; within an arm in the pool's order."""
    found: dict[str, list[Document]] = {}
    for document in pool:
        found.setdefault(str(getattr(document, by)), []).append(document)
    return {name: found[name] for name in sorted(found)}


def fixed_budget(
    pool: Sequence[Document], count: int, weights: Mapping[str, float], *, by: str, seed: int, iteration: int
) -> Budget:
    """Constant shares: every arm has a weight (0 needs no arm), and every weight an arm.

    Raises DocumentError unless every arm of the pool has a weight, and every weight an arm.
    """
    arms = arms_of(pool, by)
    weights = {name: weight for name, weight in weights.items() if weight or name in arms}
    differing = sorted({*arms} ^ {*weights})
    if differing:
        what = "has no weight" if differing[0] in arms else "is not in the pool"
        raise DocumentError(
            f"cotrain.budget.shares: {by} {differing[0]!r} {what}",
            hint=f"give a weight, 0 to leave it out, to each of {', '.join(map(repr, arms))}",
        )
    exact = quotas(weights, {name: len(arms[name]) for name in arms}, count)
    counts = [whole(exact, offset_of(seed, number)) for number in range(iteration + 1)]
    portions = {
        name: Portion(
            share=weights[name], count=counts[iteration][name], drawn=sum(each[name] for each in counts[:iteration])
        )
        for name in arms
    }
    return Budget(by=by, portions=portions)


def offset_of(seed: int, iteration: int) -> float:
    """Start of the rounding of an iteration's quotas."""
    return random.Random(seed_of(seed, "budget", iteration)).random()


def _possible(
    arms: Mapping[str, Sequence[Document]], portions: Mapping[str, Portion], exclude: Collection[str]
) -> dict[str, int]:
    """The counts, or what exclusions leave of them; the other arms take over what is lacking."""
    room = {name: sum(document.document_id not in exclude for document in arms[name]) for name in portions}
    counts = {name: min(portion.count, room[name]) for name, portion in portions.items()}
    lacking = sum(portion.count for portion in portions.values()) - sum(counts.values())
    left = {name: room[name] - counts[name] for name in portions}
    more = whole(quotas({name: portion.share for name, portion in portions.items()}, left, lacking), 0.5)
    return {name: counts[name] + more[name] for name in portions}


def _drawn(
    pool: Sequence[Document], count: int, *, names: tuple[int | str, ...], start: int, exclude: Collection[str]
) -> list[Document]:
    batch: list[Document] = []
    orders: dict[int, list[int]] = {}
    position = start
    left = sum(document.document_id not in exclude for document in pool)
    while len(batch) < min(count, left):
        number, place = divmod(position, len(pool))
        if number not in orders:
            orders[number] = list(range(len(pool)))
            random.Random(seed_of(*names, number)).shuffle(orders[number])
        document = pool[orders[number][place]]
        if document not in batch and document.document_id not in exclude:
            batch.append(document)
        position += 1
    return batch


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
