"""pass@k from saved answers: one curve per benchmark, with intervals over questions."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.evaluation.plan import Plan
from infuser_core.evaluation.results import aligned, percent
from infuser_core.schemas import QuestionScore
from infuser_core.statistics.passk import PassPoint, pass_curve, powers_of_two
from infuser_core.statistics.tally import from_scores

MOST = 128
"""Largest k of a curve whose points nobody named."""

Curves = dict[str, list[PassPoint]]
"""Benchmark label to points."""


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


def as_json(name: str, preset: str, found: Curves) -> dict[str, Any]:
    """The curves as one JSON object."""
    points = {label: [asdict(point) for point in curve] for label, curve in found.items()}
    return {"answers": name, "preset": preset, "curves": points}


def terminal(name: str, preset: str, found: Curves) -> str:
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
