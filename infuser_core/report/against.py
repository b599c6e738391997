"""Variants beside one reference variant: means over seeds, paired differences, and whether these exceed the noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.report.compare import areas_of
from infuser_core.report.comparison import Exam, compared, tallies
from infuser_core.statistics.seeds import Spread, over_seeds, paired_seeds
from infuser_core.statistics.tally import Tally, accuracy

Query = Callable[[str], list[dict[str, Any]]]
AUC = "validation AUC"
"""Area under the validation curve over the number of iterations: how early a variant is good, not only how good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One variant on one measure."""

    variant: str
    """Base configuration and variant."""
    measure: str
    """`validation AUC`, or a benchmark at the checkpoint that each run selected."""
    mean: float
    """Mean over seeds."""
    sd: float | None
    """Sample standard deviation over seeds; None for one."""
    seeds: int
    """Runs of the variant."""
    gain: float | None
    """Mean difference to the reference over common seeds; None for the reference and where seeds differ."""
    seed_low: float | None
    """Lower end of the 95% t interval of the gain over common seeds; None for fewer than two."""
    seed_high: float | None
    """Upper end."""
    question_low: float | None
    """2.5% quantile of the paired bootstrap over questions, runs held fixed; None for an AUC."""
    question_high: float | None
    """97.5% quantile."""
    one_sign: bool | None
    """Whether the difference has the same sign for every common seed."""
    verdict: str
    """reference, above or below: every interval leaves zero out; within noise: one holds it; unknown: there is none."""


def standings(query: Query, variants: Mapping[str, str], seeds: Mapping[str, int], reference: str) -> list[Standing]:
    """Every variant on every measure, the reference first, else in order of first appearance.

    `variants` maps a run to its variant, `seeds` a run to its seed. Raises UsageError when no run is of `reference`.
    """
    groups: dict[str, list[str]] = {}
    for run, variant in variants.items():
        groups.setdefault(variant, []).append(run)
    if reference not in groups:
        raise UsageError(f"no run of variant {reference!r}", hint=f"variants: {', '.join(groups)}")
    ordered = {reference: groups.pop(reference), **groups}
    found, curves = tallies(query, list(variants)), areas_of(query, list(variants))
    values = {run: _values(curves.get(run), found[run]) for run in variants}
    intervals = _question_intervals(found, ordered, reference)
    measures = list(dict.fromkeys(name for found in values.values() for name in found))
    rows = []
    for variant, runs in ordered.items():
        for measure in measures:
            own = {seeds[run]: values[run][measure] for run in runs if measure in values[run]}
            base = {seeds[run]: values[run][measure] for run in ordered[reference] if measure in values[run]}
            if own:
                low, high = intervals.get((variant, measure), (None, None))
                rows.append(_standing(variant, measure, own, base, variant == reference, low, high))
    return rows


def _values(curve: float | None, found: Mapping[Exam, Tally]) -> dict[str, float]:
    """A run's numbers by measure."""
    exams = {label: accuracy(tally) for (phase, label), tally in found.items() if phase == "evaluate"}
    return ({} if curve is None else {AUC: curve}) | exams


def _question_intervals(
    counts: Mapping[str, Mapping[Exam, Tally]], groups: Mapping[str, Sequence[str]], reference: str
) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    found: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    for variant, runs in groups.items():
        if variant == reference:
            continue
        for row in compared(counts, {reference: groups[reference], variant: runs}):
            if row.phase == "evaluate":
                found[variant, row.benchmark] = (row.low, row.high)
    return found


def _standing(
    variant: str,
    measure: str,
    own: Mapping[int, float],
    base: Mapping[int, float],
    is_reference: bool,
    low: float | None,
    high: float | None,
) -> Standing:
    spread = over_seeds(list(own.values()))
    common = sorted(own.keys() & base.keys()) if not is_reference else []
    gain = paired_seeds([base[seed] for seed in common], [own[seed] for seed in common]) if common else None
    return Standing(
        variant=variant,
        measure=measure,
        mean=float(spread.mean),
        sd=spread.sd,
        seeds=spread.seeds,
        gain=float(gain.mean) if gain else None,
        seed_low=gain.low if gain else None,
        seed_high=gain.high if gain else None,
        question_low=low,
        question_high=high,
        one_sign=_one_sign([own[seed] - base[seed] for seed in common]),
        verdict="reference" if is_reference else _verdict(gain, low, high),
    )


def _one_sign(differences: Sequence[float]) -> bool | None:
    if not differences:
        return None
    return all(value > 0 for value in differences) or all(value < 0 for value in differences)


def _verdict(gain: Spread | None, low: float | None, high: float | None) -> str:
    """Seeds and questions are two sources of noise: a difference has to exceed both."""
    if gain is None or gain.low is None or gain.high is None:
        return "unknown"
    ends = [(gain.low, gain.high)] + ([(low, high)] if low is not None and high is not None else [])
    if all(lower > 0 for lower, _ in ends):
        return "above"
    return "below" if all(upper < 0 for _, upper in ends) else "within noise"


def markdown(rows: Sequence[Standing]) -> str:
    """One line per variant; per measure its mean, deviation, gain with the interval over seeds, and the verdict."""
    measures = list(dict.fromkeys(row.measure for row in rows))
    cells = {(row.variant, row.measure): row for row in rows}
    head = ["variant", "seeds", *measures]
    lines = [" | ".join(head), " | ".join(["---"] * len(head))]
    for variant in dict.fromkeys(row.variant for row in rows):
        own = [cells.get((variant, measure)) for measure in measures]
        number = max(row.seeds for row in own if row)
        lines.append(" | ".join([variant, str(number), *(_cell(row) for row in own)]))
    return "\n".join(f"| {line} |" for line in lines)


def _cell(row: Standing | None) -> str:
    if row is None:
        return ""
    value = f"{row.mean:.3f}" + ("" if row.sd is None else f" ± {row.sd:.3f}")
    if row.gain is None:
        return value
    interval = "" if row.seed_low is None or row.seed_high is None else f" [{row.seed_low:+.3f}, {row.seed_high:+.3f}]"
    mark = f"**{row.verdict}**" if row.verdict in ("above", "below") else row.verdict
    return f"{value}; {row.gain:+.3f}{interval}, {mark}"
