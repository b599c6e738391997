"""How far presets agree on the same answers: accuracies side by side, and every kind of changed verdict counted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infuser_core.evaluation.plan import Plan
from infuser_core.evaluation.results import aligned, averages, percent, shown_means
from infuser_core.evaluation.saved import Scored
from infuser_core.evaluation.scores import scores_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetScore:
    """One benchmark under one preset."""

    benchmark: str
    """Benchmark label."""
    preset: str
    """The preset."""
    accuracy: float
    """Mean over questions; unverified and unanswered count as wrong."""
    low: float
    """Lower end of the 95% interval."""
    high: float
    """Upper end of the 95% interval."""
    answered: float
    """Share of responses with an answer."""
    unverified: int
    """Responses that could not be verified."""
    responses: int
    """Responses scored."""
    differing: int
    """Responses whose verdict is another one than under the first preset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Responses that two presets judge differently, in the same way."""

    benchmark: str
    """Benchmark label."""
    before: str
    """The first preset."""
    after: str
    """The other preset."""
    before_verdict: str
    """Verdict of the first."""
    after_verdict: str
    """Verdict of the other."""
    before_reason: str
    """Rule that decided in the first."""
    after_reason: str
    """Rule that decided in the other."""
    rows: int
    """Responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """All presets on one set of answers."""

    scores: list[PresetScore]
    """Benchmark by benchmark, presets in their order."""
    changes: list[Change]
    """Most frequent first."""
    changed: int
    """Responses whose verdict is not the same under all presets."""
    responses: int
    """Responses scored."""
    averages: dict[str, dict[str, float]]
    """Preset to category averages."""


def agreement(plan: Plan, scored: Sequence[Scored]) -> Agreement:
    """Compare presets; the first is the one that the others are held against."""
    changes = [change for other in scored[1:] for change in _changes(scored[0], other)]
    differing: Counter[tuple[str, str]] = Counter()
    for change in changes:
        differing[change.benchmark, change.after] += change.rows
    rows = zip(*(one.verdicts for one in scored), strict=True)
    changed = sum(len({row.verdict for row in verdicts}) > 1 for verdicts in rows)
    scores: list[PresetScore] = []
    means = {}
    for one in scored:
        found = scores_of(plan, one.questions, checkpoint_id="")
        means[one.preset] = averages(found)
        counts = Counter(row.benchmark for row in one.verdicts)
        for sheet in found:
            facts = {name: getattr(sheet.score, name) for name in ("accuracy", "low", "high", "answered", "unverified")}
            label = sheet.sheet.label
            scores.append(
                PresetScore(
                    benchmark=label,
                    preset=one.preset,
                    responses=counts[label],
                    differing=differing[label, one.preset],
                    **facts,
                )
            )
    order = {sheet.label: place for place, sheet in enumerate(plan.sheets)}
    return Agreement(
        scores=sorted(scores, key=lambda row: order[row.benchmark]),
        changes=sorted(changes, key=lambda row: (-row.rows, row.benchmark, row.after, row.after_reason)),
        changed=changed,
        responses=len(scored[0].verdicts),
        averages=means,
    )


def _changes(first: Scored, other: Scored) -> list[Change]:
    kinds: Counter[tuple[str, str, str, str, str]] = Counter()
    for before, after in zip(first.verdicts, other.verdicts, strict=True):
        if before.verdict != after.verdict:
            kinds[before.benchmark, before.verdict, after.verdict, before.reason, after.reason] += 1
    return [
        Change(
            benchmark=benchmark,
            before=first.preset,
            after=other.preset,
            before_verdict=old,
            after_verdict=new,
            before_reason=old_reason,
            after_reason=new_reason,
            rows=rows,
        )
        for (benchmark, old, new, old_reason, new_reason), rows in kinds.items()
    ]


def as_json(name: str, found: Agreement) -> dict[str, Any]:
    """The comparison as one JSON object."""
    return {
        "answers": name,
        "responses": found.responses,
        "changed": found.changed,
        "scores": [asdict(row) for row in found.scores],
        "averages": found.averages,
        "changes": [asdict(row) for row in found.changes],
    }


SHOWN = 12
"""Kinds of change that a terminal shows; JSON has all."""


def terminal(name: str, found: Agreement) -> str:
    """The comparison for a terminal."""
    columns = ("benchmark", "preset", "accuracy", "95% interval", "answered", "unverified", "responses", "differing")
    rows = [
        [
            row.benchmark,
            row.preset,
            percent(row.accuracy),
            f"{percent(row.low)} - {percent(row.high)}",
            percent(row.answered, 1),
            str(row.unverified),
            str(row.responses),
            str(row.differing),
        ]
        for row in found.scores
    ]
    for preset, means in found.averages.items():
        shown = shown_means(means)
        rows += [[f"mean: {category}", preset, percent(value), "", "", "", "", ""] for category, value in shown.items()]
    lines = [f"{name}: {found.responses:,} responses; percentages", aligned(columns, rows)]
    lines.append(f"{found.changed:,} responses change their verdict between presets")
    if found.changes:
        kinds = ("benchmark", "from", "to", "verdicts", "reasons", "responses")
        lines.append(aligned(kinds, [_change_row(change) for change in found.changes[:SHOWN]]))
    hidden = sum(change.rows for change in found.changes[SHOWN:])
    return "\n".join(
        [*lines, f"and {hidden:,} more in {len(found.changes) - SHOWN} kinds (--json)"] if hidden else lines
    )


def _change_row(change: Change) -> list[str]:
    return [
        change.benchmark,
        change.before,
        change.after,
        f"{change.before_verdict} -> {change.after_verdict}",
        f"{change.before_reason} -> {change.after_reason}",
        str(change.rows),
    ]
