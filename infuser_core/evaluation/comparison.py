"""Compare scores of saved answers under several presets: accuracies, changed verdicts by kind, and pass@k curves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.plan import ExamPlan
from infuser_core.evaluation.saved import ScoredAnswers
from infuser_core.evaluation.scores import average_accuracies, sheet_scores
from infuser_core.evaluation.statistics.passk import pass_curve, powers_of_two
from infuser_core.evaluation.statistics.tally import from_scores
from infuser_core.schemas import QuestionScore

MOST = 128
"""Largest k of a curve if no k is requested."""
_CHANGE = ("benchmark", "before", "after", "before_verdict", "after_verdict", "before_reason", "after_reason")
JSON = dict[str, Any]


def compare_presets(name: str, plan: ExamPlan, scored: Sequence[ScoredAnswers]) -> JSON:
    """Compare all presets on one set of answers, as JSON values; the first preset is the reference.

    `scores`: by benchmark and preset, with the number of responses that the first preset judges otherwise
    (`differing`). `changes`: responses judged differently in the same way, the most frequent first. `changed`:
    responses whose verdict is not the same under all presets. `averages`: by category.
    """
    differing: Counter[tuple[str, str]] = Counter()
    kinds: Counter[tuple[str, ...]] = Counter()
    for other in scored[1:]:
        for before, after in zip(scored[0].verdicts, other.verdicts, strict=True):
            if before.verdict != after.verdict:
                differing[before.benchmark, other.preset] += 1
                reasons = before.reason, after.reason
                kinds[before.benchmark, scored[0].preset, other.preset, before.verdict, after.verdict, *reasons] += 1
    changes = [{**dict(zip(_CHANGE, kind, strict=True)), "rows": rows} for kind, rows in kinds.items()]
    verdicts = zip(*(one.verdicts for one in scored), strict=True)
    rows, averages = [], {}
    for one in scored:
        scores = sheet_scores(plan, one.questions, checkpoint_id="")
        averages[one.preset] = average_accuracies(scores)
        counts = Counter(row.benchmark for row in one.verdicts)
        for each in scores:
            facts = {key: getattr(each.score, key) for key in ("accuracy", "low", "high", "answered", "unverified")}
            label = each.sheet.label
            counted = {"responses": counts[label], "differing": differing[label, one.preset]}
            rows.append({"benchmark": label, "preset": one.preset, **facts, **counted})
    order = {sheet.label: place for place, sheet in enumerate(plan.sheets)}
    return {
        "answers": name,
        "responses": len(scored[0].verdicts),
        "changed": sum(len({row.verdict for row in each}) > 1 for each in verdicts),
        "scores": sorted(rows, key=lambda row: order[row["benchmark"]]),
        "averages": averages,
        "changes": sorted(changes, key=lambda row: (-row["rows"], row["benchmark"], row["after"], row["after_reason"])),
    }


def pass_curves(
    name: str, preset: str, plan: ExamPlan, questions: Sequence[QuestionScore], ks: Sequence[int] | None
) -> JSON:
    """Compute each benchmark's pass@k curve at `ks`, or at powers of two up to its number of samples, as JSON.

    Raises UsageError naming benchmark and number of samples for a k above it.
    """
    curves = {}
    for sheet in plan.sheets:
        tally = from_scores([row for row in questions if row.benchmark == sheet.label])
        fewest = int(min(tally.samples_Q, default=0))
        points = list(ks) if ks else [k for k in powers_of_two(fewest) if k <= MOST]
        beyond = [k for k in points if k > fewest]
        if beyond:
            hint = f"use k <= {fewest}, leave {sheet.label} out with --benchmarks, or sample more: --samples"
            raise UsageError(f"pass@{beyond[0]} of {sheet.label}: there are {fewest} responses per question", hint=hint)
        curves[sheet.label] = [asdict(point) for point in pass_curve(tally, points, intervals=True)]
    return {"answers": name, "preset": preset, "curves": curves}
