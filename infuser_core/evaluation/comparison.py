"""Saved answers under several presets: accuracies, every kind of changed verdict counted, and pass@k curves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.plan import Plan
from infuser_core.evaluation.results import aligned, averages, percent, shown_means
from infuser_core.evaluation.saved import Scored
from infuser_core.evaluation.scores import scores_of
from infuser_core.schemas import QuestionScore
from infuser_core.statistics.passk import PassPoint, pass_curve, powers_of_two
from infuser_core.statistics.tally import from_scores

SHOWN = 12
"""Kinds of change that a terminal shows; JSON has all."""
MOST = 128
"""Largest k of a curve whose points nobody named."""
Curves = dict[str, list[PassPoint]]
"""Benchmark label to points."""


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


def agreement_json(name: str, found: Agreement) -> dict[str, Any]:
    """The comparison as one JSON object."""
    return {
        "answers": name,
        "responses": found.responses,
        "changed": found.changed,
        "scores": [asdict(row) for row in found.scores],
        "averages": found.averages,
        "changes": [asdict(row) for row in found.changes],
    }


def agreement_table(name: str, found: Agreement) -> str:
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


def curves(plan: Plan, questions: Sequence[QuestionScore], ks: Sequence[int] | None, *, seed: int = 0) -> Curves:
    """Every benchmark's curve at the given k, or at the powers of two up to its number of samples.

    Raises UsageError naming benchmark and number of samples for a k above it.
    """
    found: Curves = {}
    for sheet in plan.sheets:
        tally = from_scores([row for row in questions if row.benchmark == sheet.label])
        fewest = int(min(tally.samples_Q, default=0))
        chosen = list(ks) if ks else [k for k in powers_of_two(fewest) if k <= MOST]
        beyond = [k for k in chosen if k > fewest]
        if beyond:
            hint = f"ask for k <= {fewest}, leave {sheet.label} out with --benchmarks, or sample more: --samples"
            raise UsageError(f"pass@{beyond[0]} of {sheet.label}: there are {fewest} responses per question", hint=hint)
        found[sheet.label] = pass_curve(tally, chosen, intervals=True, seed=seed)
    return found


def curves_json(name: str, preset: str, found: Curves) -> dict[str, Any]:
    """The curves as one JSON object."""
    points = {label: [asdict(point) for point in curve] for label, curve in found.items()}
    return {"answers": name, "preset": preset, "curves": points}


def curves_table(name: str, preset: str, found: Curves) -> str:
    """The curves for a terminal, a line per point."""
    rows = [
        [
            label,
            str(point.k),
            percent(point.value),
            f"{percent(point.low)} - {percent(point.high)}",
            str(point.questions),
        ]
        for label, curve in found.items()
        for point in curve
    ]
    head = f"{name}, preset {preset}; percentages, 95% intervals over resampled questions"
    return "\n".join([head, aligned(("benchmark", "k", "pass@k", "95% interval", "questions"), rows)])
