"""A part of a benchmark: stratified by domain, a function of the seed and of the questions' names alone."""

from collections.abc import Sequence
from fractions import Fraction

from infuser_core.schemas import Question
from infuser_core.seeding import seed_of


def draw(questions: Sequence[Question], limit: int | None, *, seed: int, label: str) -> list[Question]:
    """`limit` of the questions in their order, every domain with its share (largest remainders); all without one."""
    if limit is None or limit >= len(questions):
        return list(questions)
    strata: dict[str, list[int]] = {}
    for place, question in enumerate(questions):
        strata.setdefault(question.domain, []).append(place)
    chosen: set[int] = set()
    for domain, count in quotas({domain: len(places) for domain, places in strata.items()}, limit).items():
        ranked = sorted(strata[domain], key=lambda place: (_rank(questions[place], seed, label), place))
        chosen.update(ranked[:count])
    return [questions[place] for place in sorted(chosen)]


def quotas(sizes: dict[str, int], total: int) -> dict[str, int]:
    """`total` shared out in proportion to `sizes`; what whole numbers leave over goes to the largest remainders."""
    shares = {name: Fraction(size * total, sum(sizes.values())) for name, size in sizes.items()}
    counts = {name: int(share) for name, share in shares.items()}
    by_remainder = sorted(shares, key=lambda name: (counts[name] - shares[name], name))
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def _rank(question: Question, seed: int, label: str) -> int:
    return seed_of(seed, "limit", label, question.question_id)
