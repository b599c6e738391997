"""Saved answers under several presets: accuracies, every kind of changed verdict counted, and pass@k curves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.plan import Plan
from infuser_core.evaluation.results import averages, percent, shown_means
from infuser_core.evaluation.saved import Scored
from infuser_core.evaluation.scores import scores_of
from infuser_core.schemas import QuestionScore
from infuser_core.statistics.passk import pass_curve, powers_of_two
from infuser_core.statistics.tally import from_scores
from infuser_core.terminal import table

SHOWN = 12
"""Kinds of change that a terminal shows; JSON has all."""
MOST = 128
"""Largest k of a curve whose points nobody named."""
_CHANGE = ("benchmark", "before_verdict", "after_verdict", "before_reason", "after_reason")
JSON = dict[str, Any]


def agreement(name: str, plan: Plan, scored: Sequence[Scored]) -> JSON:
    """All presets on one set of answers, as JSON values; the first is the one that the others are held against.

    `scores`: benchmark by benchmark and preset by preset, with the responses that the first preset judges otherwise
    (`differing`). `changes`: responses judged differently in the same way, the most frequent first. `changed`:
    responses whose verdict is not the same under all presets. `averages`: by category.
    """
    changes = [change for other in scored[1:] for change in _changes(scored[0], other)]
    differing: Counter[tuple[str, str]] = Counter()
    for change in changes:
        differing[change["benchmark"], change["after"]] += change["rows"]
    verdicts = zip(*(one.verdicts for one in scored), strict=True)
    scores, means = [], {}
    for one in scored:
        found = scores_of(plan, one.questions, checkpoint_id="")
        means[one.preset] = averages(found)
        counts = Counter(row.benchmark for row in one.verdicts)
        for each in found:
            facts = {key: getattr(each.score, key) for key in ("accuracy", "low", "high", "answered", "unverified")}
            label = each.sheet.label
            counted = {"responses": counts[label], "differing": differing[label, one.preset]}
            scores.append({"benchmark": label, "preset": one.preset, **facts, **counted})
    order = {sheet.label: place for place, sheet in enumerate(plan.sheets)}
    return {
        "answers": name,
        "responses": len(scored[0].verdicts),
        "changed": sum(len({row.verdict for row in rows}) > 1 for rows in verdicts),
        "scores": sorted(scores, key=lambda row: order[row["benchmark"]]),
        "averages": means,
        "changes": sorted(changes, key=lambda row: (-row["rows"], row["benchmark"], row["after"], row["after_reason"])),
    }


def _changes(first: Scored, other: Scored) -> list[JSON]:
    kinds: Counter[tuple[str, ...]] = Counter()
    for before, after in zip(first.verdicts, other.verdicts, strict=True):
        if before.verdict != after.verdict:
            kinds[before.benchmark, before.verdict, after.verdict, before.reason, after.reason] += 1
    presets = {"before": first.preset, "after": other.preset}
    return [
        {"benchmark": kind[0], **presets, **dict(zip(_CHANGE, kind, strict=True)), "rows": rows}
        for kind, rows in kinds.items()
    ]


def agreement_table(found: JSON) -> str:
    """The comparison for a terminal."""
    rows = [
        {
            **{name: row[name] for name in ("benchmark", "preset")},
            "accuracy": percent(row["accuracy"]),
            "95% interval": f"{percent(row['low'])} - {percent(row['high'])}",
            "answered": percent(row["answered"], 1),
            **{name: row[name] for name in ("unverified", "responses", "differing")},
        }
        for row in found["scores"]
    ]
    for preset, means in found["averages"].items():
        shown = shown_means(means)
        named = ({"benchmark": f"mean: {name}", "preset": preset, "accuracy": percent(shown[name])} for name in shown)
        rows += [{**dict.fromkeys(rows[0], ""), **row} for row in named]
    lines = [f"{found['answers']}: {found['responses']:,} responses; percentages", table(rows)]
    lines.append(f"{found['changed']:,} responses change their verdict between presets")
    kinds = [
        {
            "benchmark": row["benchmark"],
            "from": row["before"],
            "to": row["after"],
            **{f"{what}s": f"{row[f'before_{what}']} -> {row[f'after_{what}']}" for what in ("verdict", "reason")},
            "responses": row["rows"],
        }
        for row in found["changes"]
    ]
    lines += [table(kinds[:SHOWN], width=120)] if kinds else []
    hidden = sum(row["responses"] for row in kinds[SHOWN:])
    return "\n".join([*lines, f"and {hidden:,} more in {len(kinds) - SHOWN} kinds (--json)"] if hidden else lines)


def curves(name: str, preset: str, plan: Plan, questions: Sequence[QuestionScore], ks: Sequence[int] | None) -> JSON:
    """Every benchmark's curve at the given k, or at the powers of two up to its number of samples, as JSON values.

    Raises UsageError naming benchmark and number of samples for a k above it.
    """
    found = {}
    for sheet in plan.sheets:
        tally = from_scores([row for row in questions if row.benchmark == sheet.label])
        fewest = int(min(tally.samples_Q, default=0))
        chosen = list(ks) if ks else [k for k in powers_of_two(fewest) if k <= MOST]
        beyond = [k for k in chosen if k > fewest]
        if beyond:
            hint = f"ask for k <= {fewest}, leave {sheet.label} out with --benchmarks, or sample more: --samples"
            raise UsageError(f"pass@{beyond[0]} of {sheet.label}: there are {fewest} responses per question", hint=hint)
        found[sheet.label] = [asdict(point) for point in pass_curve(tally, chosen, intervals=True)]
    return {"answers": name, "preset": preset, "curves": found}


def curves_table(found: JSON) -> str:
    """The curves for a terminal, a line per point."""
    rows = [
        {
            "benchmark": label,
            "k": point["k"],
            "pass@k": percent(point["value"]),
            "95% interval": f"{percent(point['low'])} - {percent(point['high'])}",
            "questions": point["questions"],
        }
        for label, curve in found["curves"].items()
        for point in curve
    ]
    head = f"{found['answers']}, preset {found['preset']}; percentages, 95% intervals over resampled questions"
    return f"{head}\n{table(rows)}"
