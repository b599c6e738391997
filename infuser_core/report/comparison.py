"""Comparison of runs and variants: paired differences with intervals over questions and seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from infuser_core.report.queries import listed
from infuser_core.statistics.bootstrap import DRAWS, Difference, detectable, paired_difference
from infuser_core.statistics.seeds import Spread, paired_seeds
from infuser_core.statistics.tally import Tally, accuracy, from_counts, shares

Query = Callable[[str], list[dict[str, Any]]]
Exam = tuple[str, str]
"""Phase (evaluate or validate) and benchmark label."""


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
    exams: dict[str, dict[Exam, list[dict[str, Any]]]] = {run: {} for run in runs}
    for row in rows:
        exams[row["run"]].setdefault((row["phase"], row["benchmark"]), []).append(row)
    return {run: {exam: _tally(found) for exam, found in held.items()} for run, held in exams.items()}


_FROM_ROLLOUTS = """
            union all
            select r.run, r.iteration, r.phase, r.artifact_key, b.benchmark, r.group_id, count(*),
                count(*) filter (where r.verdict = 'correct')
            from rollouts r join benchmark_scores b using (run, artifact_key)
            where r.artifact_key not in (select artifact_key from question_scores)
            group by all"""


def _tally(rows: Sequence[Mapping[str, Any]]) -> Tally:
    return from_counts(
        {row["question_id"]: int(row["num_correct"]) for row in rows},
        {row["question_id"]: int(row["num_samples"]) for row in rows},
    )


def contrasts(
    query: Query,
    groups: Mapping[str, Sequence[str]],
    *,
    seeds: Mapping[str, int] | None = None,
    draws: int = DRAWS,
) -> list[Contrast]:
    """Every pair of groups, the later against the earlier, on every exam that all their runs have.

    `groups` maps a variant to its runs; a single group is taken apart, its runs against each other.
    """
    return compared(tallies(query, [run for runs in groups.values() for run in runs]), groups, seeds, draws=draws)


def compared(
    found: Mapping[str, Mapping[Exam, Tally]],
    groups: Mapping[str, Sequence[str]],
    seeds: Mapping[str, int] | None = None,
    *,
    draws: int = DRAWS,
) -> list[Contrast]:
    """`contrasts` of runs whose counts are known."""
    units = groups if len(groups) > 1 else {run: [run] for runs in groups.values() for run in runs}
    rows = []
    for (first, base), (second, other) in combinations(units.items(), 2):
        for exam in _common([found[run] for run in [*base, *other]]):
            sides = [{run: found[run][exam] for run in runs} for runs in (base, other)]
            rows.append(_contrast(exam, first, second, sides, seeds or {}, draws))
    return rows


def _common(exams: Sequence[Mapping[Exam, Tally]]) -> list[Exam]:
    return [exam for exam in exams[0] if all(exam in other for other in exams)]


def _contrast(
    exam: Exam,
    first: str,
    second: str,
    sides: Sequence[Mapping[str, Tally]],
    seeds: Mapping[str, int],
    draws: int,
) -> Contrast:
    ids, left_out = _common_questions([tally for side in sides for tally in side.values()])
    values = [_mean_shares(list(side.values()), ids) for side in sides]
    paired: Difference | None = None
    if ids:
        paired = paired_difference(values[0], values[1], draws=draws, left_out=left_out)
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
