"""Comparison of runs by variant: means over seeds, paired differences with intervals over questions and over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, stdev
from typing import Any

import numpy as np

from infuser_core.errors import UsageError
from infuser_core.report.content import Query, Row
from infuser_core.report.queries import listed, tally_of
from infuser_core.statistics.averages import Spread, over_seeds, paired_seeds
from infuser_core.statistics.bootstrap import Difference, detectable, paired_difference
from infuser_core.statistics.tally import Tally, accuracy, shares

Exam = tuple[str, str]
"""Phase (evaluate or validate) and benchmark label."""
AUC = "validation AUC"
"""Area under the validation curve over the number of iterations: how early a variant is good, not only how good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Variant minus `against`, on one benchmark, at the checkpoint that each run selected."""

    phase: str
    """evaluate, or validate: the selection saw the validation set, so its differences are no test."""
    benchmark: str
    """Benchmark label."""
    variant: str
    """The second."""
    against: str
    """The first."""
    difference: float | None
    """Mean over common questions of the difference in accuracy, runs of a variant averaged; None without questions."""
    low: float | None
    """2.5% quantile of the question-clustered bootstrap, paired by question. It holds the runs fixed."""
    high: float | None
    """97.5% quantile."""
    sign_share: float | None
    """Twice the smaller share of bootstrap draws on one side of zero: small when the sign is clear."""
    detectable: float | None
    """Smallest true difference that this design finds with 80% power at 5%; None where no question differs."""
    questions: int
    """Common questions."""
    left_out: int
    """Questions that not every run answered; they enter no number of this row."""
    seeds: int
    """Seeds that both have; 0 when their seeds differ."""
    seed_sd: float | None
    """Sample standard deviation of the difference over common seeds; None for fewer than two."""
    seed_low: float | None
    """Lower end of the 95% t interval over common seeds: it holds the questions fixed."""
    seed_high: float | None
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One variant on one measure, beside a reference variant."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Everything that runs are compared by, read in one pass over their files."""

    groups: Mapping[str, Sequence[str]]
    """Variant to its runs, in order of first appearance."""
    seeds: Mapping[str, int]
    """Run to its seed."""
    areas: Mapping[str, float]
    """Run to the area under its validation curve over the number of iterations; none for runs without validations."""
    tallies: Mapping[str, Mapping[Exam, Tally]]
    """Run to the counts of every evaluation at its selected checkpoint."""
    tests: Mapping[str, Row]
    """Run to `benchmark` and `accuracy` of its first benchmark at the selected checkpoint."""


def read(query: Query, variants: Mapping[str, str], seeds: Mapping[str, int]) -> Compared:
    """Reads what runs are compared by. `variants` maps a run to its variant, `seeds` a run to its seed."""
    groups: dict[str, list[str]] = {}
    for run, variant in variants.items():
        groups.setdefault(variant, []).append(run)
    runs = list(variants)
    return Compared(
        groups=groups, seeds=seeds, areas=_areas(query, runs), tallies=tallies(query, runs), tests=_tests(query, runs)
    )


def _areas(query: Query, runs: Sequence[str]) -> dict[str, float]:
    rows = query(f"""
        select run, iteration, accuracy from benchmark_scores
        where run in {listed(runs)} and phase = 'validate' order by run, iteration""")
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        curves.setdefault(row["run"], []).append((row["iteration"], row["accuracy"]))
    return {run: area(*zip(*curve, strict=True)) for run, curve in curves.items()}


def area(iterations: Sequence[int], accuracies: Sequence[float]) -> float:
    """Trapezoidal area under the curve over its span of iterations; the single value when there is no span."""
    span = iterations[-1] - iterations[0]
    if span == 0:
        return accuracies[0]
    steps = zip(iterations, iterations[1:], accuracies, accuracies[1:], strict=False)
    return sum((right - left) * (a + b) / 2 for left, right, a, b in steps) / span


def tallies(query: Query, runs: Sequence[str]) -> dict[str, dict[Exam, Tally]]:
    """Counts per question of every evaluation at each run's selected checkpoint, in one pass over the files.

    From the saved scores of questions, or from the rollouts where an evaluation saved only those.
    """
    chosen = listed(runs)
    unsaved = query(f"""
        select 1 from benchmark_scores where run in {chosen} and phase in ('evaluate', 'validate')
            and artifact_key not in (select artifact_key from question_scores) limit 1""")
    rows = query(f"""
        with counted as (
            select run, iteration, phase, artifact_key, benchmark, question_id, num_samples, num_correct
            from question_scores {_FROM_ROLLOUTS if unsaved else ""}
        )
        select c.run, c.phase, c.benchmark, c.question_id, c.num_samples, c.num_correct
        from counted c join selections s using (run)
        where c.run in {chosen} and c.iteration = s.selected_iteration and c.phase in ('evaluate', 'validate')
            and c.num_samples > 0
        order by c.run, c.phase, c.benchmark, c.question_id""")
    exams: dict[str, dict[Exam, list[Row]]] = {run: {} for run in runs}
    for row in rows:
        exams[row["run"]].setdefault((row["phase"], row["benchmark"]), []).append(row)
    return {run: {exam: tally_of(found) for exam, found in held.items()} for run, held in exams.items()}


_FROM_ROLLOUTS = """
            union all
            select r.run, r.iteration, r.phase, r.artifact_key, b.benchmark, r.group_id, count(*),
                count(*) filter (where r.verdict = 'correct')
            from rollouts r join benchmark_scores b using (run, artifact_key)
            where r.artifact_key not in (select artifact_key from question_scores)
            group by all"""


def _tests(query: Query, runs: Sequence[str]) -> dict[str, Row]:
    rows = query(f"""
        select run, min(b.benchmark) as benchmark, arg_min(b.accuracy, b.benchmark) as accuracy
        from benchmark_scores b join selections s using (run)
        where run in {listed(runs)} and b.phase = 'evaluate' and b.iteration = s.selected_iteration group by run""")
    return {row["run"]: row for row in rows}


def summaries(found: Compared) -> list[dict[str, Any]]:
    """One row per variant: area under the validation curve and accuracy on the first benchmark; None where unknown."""
    return [
        {
            "variant": variant,
            "runs": len(runs),
            **_spread("auc", areas := [found.areas[run] for run in runs if run in found.areas]),
            "auc_low": min(areas, default=None),
            "auc_high": max(areas, default=None),
            **_spread("test", [found.tests[run]["accuracy"] for run in runs if run in found.tests]),
            "benchmark": ", ".join(sorted({found.tests[run]["benchmark"] for run in runs if run in found.tests})),
        }
        for variant, runs in found.groups.items()
    ]


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    sd = stdev(values) if len(values) > 1 else 0.0
    return {name: mean(values) if values else None, f"{name}_sd": sd}


def contrasts(found: Compared) -> list[Contrast]:
    """Every pair of variants, the later against the earlier, on every benchmark that all their runs have.

    A single variant is taken apart, its runs against each other.
    """
    runs = {run: [run] for names in found.groups.values() for run in names}
    units = found.groups if len(found.groups) > 1 else runs
    return [
        row
        for (first, base), (second, other) in combinations(units.items(), 2)
        for row in _against(found, first, base, second, other)
    ]


def _against(found: Compared, first: str, base: Sequence[str], second: str, other: Sequence[str]) -> list[Contrast]:
    """Two groups of runs on every benchmark that all of them have."""
    held = [found.tallies[run] for run in [*base, *other]]
    exams = [exam for exam in held[0] if all(exam in one for one in held)]
    sides = [[{run: found.tallies[run][exam] for run in runs} for runs in (base, other)] for exam in exams]
    return [_contrast(exam, first, second, pair, found.seeds) for exam, pair in zip(exams, sides, strict=True)]


def _contrast(
    exam: Exam, first: str, second: str, sides: Sequence[Mapping[str, Tally]], seeds: Mapping[str, int]
) -> Contrast:
    ids, left_out = _common_questions([tally for side in sides for tally in side.values()])
    values = [_mean_shares(list(side.values()), ids) for side in sides]
    paired: Difference | None = None
    if ids:
        paired = paired_difference(values[0], values[1], left_out=left_out)
    over = _over_seeds(sides, seeds)
    return Contrast(
        phase=exam[0],
        benchmark=exam[1],
        variant=second,
        against=first,
        difference=paired.value if paired else None,
        low=paired.low if paired else None,
        high=paired.high if paired else None,
        sign_share=paired.share if paired else None,
        detectable=detectable(values[1] - values[0]) if ids else None,
        questions=len(ids),
        left_out=left_out,
        seeds=over.seeds if over else 0,
        seed_sd=over.sd if over else None,
        seed_low=over.low if over else None,
        seed_high=over.high if over else None,
    )


def _common_questions(found: Sequence[Tally]) -> tuple[list[str], int]:
    """Questions that every run answered, in the first one's order, and the number of the others."""
    sets = [set(tally.question_ids) for tally in found]
    common = set.intersection(*sets)
    return [name for name in found[0].question_ids if name in common], len(set.union(*sets)) - len(common)


def _mean_shares(found: Sequence[Tally], ids: Sequence[str]) -> np.ndarray:
    """Share of correct responses per question, (Q,), averaged over runs."""
    columns = []
    for tally in found:
        by_id = dict(zip(tally.question_ids, shares(tally), strict=True))
        columns.append([by_id[name] for name in ids])
    return np.asarray(np.mean(np.asarray(columns, dtype=np.float64), axis=0))


def _over_seeds(sides: Sequence[Mapping[str, Tally]], seeds: Mapping[str, int]) -> Spread | None:
    """The difference over seeds; None unless both sides have one run for each of the same seeds."""
    by_seed = [{seeds[run]: accuracy(tally) for run, tally in side.items() if run in seeds} for side in sides]
    if by_seed[0].keys() != by_seed[1].keys() or len(by_seed[0]) != len(sides[0]) or len(sides[0]) != len(sides[1]):
        return None
    order = sorted(by_seed[0])
    return paired_seeds([by_seed[0][seed] for seed in order], [by_seed[1][seed] for seed in order])


def standings(found: Compared, reference: str) -> list[Standing]:
    """Every variant on every measure, the reference first, else in order of first appearance.

    Raises UsageError when no run is of `reference`.
    """
    if reference not in found.groups:
        raise UsageError(f"no run of variant {reference!r}", hint=f"variants: {', '.join(found.groups)}")
    base = found.groups[reference]
    ordered = {reference: base, **found.groups}
    values = {run: _values(found, run) for runs in found.groups.values() for run in runs}
    measures = list(dict.fromkeys(name for held in values.values() for name in held))
    rows = []
    for variant, runs in ordered.items():
        pairs = [] if variant == reference else _against(found, reference, base, variant, runs)
        ends = {row.benchmark: (row.low, row.high) for row in pairs if row.phase == "evaluate"}
        for measure in measures:
            own, other = (
                {found.seeds[run]: values[run][measure] for run in names if measure in values[run]}
                for names in (runs, base)
            )
            if own:
                questions = ends.get(measure, (None, None))
                rows.append(_standing(variant, measure, own, None if variant == reference else other, questions))
    return rows


def _values(found: Compared, run: str) -> dict[str, float]:
    """A run's numbers by measure."""
    area = {AUC: found.areas[run]} if run in found.areas else {}
    return area | {
        label: accuracy(tally) for (phase, label), tally in found.tallies[run].items() if phase == "evaluate"
    }


def _standing(
    variant: str,
    measure: str,
    own: Mapping[int, float],
    base: Mapping[int, float] | None,
    questions: tuple[float | None, float | None],
) -> Standing:
    """One row; `base` holds the reference's values by seed, None for the reference itself."""
    spread = over_seeds(list(own.values()))
    common = sorted(own.keys() & base.keys()) if base is not None else []
    gain = paired_seeds([base[seed] for seed in common], [own[seed] for seed in common]) if base and common else None
    signs = {np.sign(own[seed] - base[seed]) for seed in common} if base else set()
    return Standing(
        variant=variant,
        measure=measure,
        mean=float(spread.mean),
        sd=spread.sd,
        seeds=spread.seeds,
        gain=float(gain.mean) if gain else None,
        seed_low=gain.low if gain else None,
        seed_high=gain.high if gain else None,
        question_low=questions[0],
        question_high=questions[1],
        one_sign=signs in ({1.0}, {-1.0}) if common else None,
        verdict="reference" if base is None else _verdict(gain, *questions),
    )


def _verdict(gain: Spread | None, low: float | None, high: float | None) -> str:
    """Seeds and questions are two sources of noise: a difference has to exceed both."""
    if gain is None or gain.low is None or gain.high is None:
        return "unknown"
    ends = [(gain.low, gain.high)] + ([(low, high)] if low is not None and high is not None else [])
    if all(lower > 0 for lower, _ in ends):
        return "above"
    return "below" if all(upper < 0 for _, upper in ends) else "within noise"
