"""Gains of a run: accuracy of its anchor and its selected checkpoint on validation and benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infuser_core.evaluation.statistics.bootstrap import Difference, difference
from infuser_core.evaluation.statistics.tally import Tally, accuracy, from_counts
from infuser_core.results.lineage.numbers import points
from infuser_core.store.views import Lens

_COUNTS = """select q.phase, q.benchmark, q.iteration, q.question_id, q.num_correct, q.num_samples
    from question_scores q, (select coalesce((select min(selected_iteration) from selections where run = $run), (
        select arg_max(iteration, accuracy) from benchmark_scores where run = $run and phase = 'validate')) as chosen) s
    where q.run = $run and q.iteration in (0, s.chosen) and q.num_samples > 0"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Accuracy of a run's anchor and of its selected checkpoint on the same questions."""

    benchmark: str
    """Benchmark label, or `validation`."""
    before: float
    after: float
    iteration: int
    """Iterations that the selected checkpoint has seen."""
    change: Difference
    """Paired difference with its 95% interval."""

    @property
    def direction(self) -> str:
        """Sign of the change if its interval excludes zero: up, down or unclear."""
        return "up" if self.change.low > 0 else "down" if self.change.high < 0 else "unclear"

    @property
    def interval(self) -> str:
        """The change in percentage points with its interval."""
        ends = f"{100 * self.change.low:.0f}, {100 * self.change.high:.0f}"
        return f"{points(self.change.value)} points [{ends}]"


def gains(lens: Lens, run: str) -> list[Gain]:
    """Gains of a run on validation, which comes first, and on every benchmark; before the selection, of the best
    checkpoint so far."""
    counts: dict[tuple[bool, str], dict[int, dict[str, Any]]] = {}
    for row in lens.query(_COUNTS, {"run": run}):
        exam = counts.setdefault((row["phase"] == "evaluate", row["benchmark"]), {})
        exam.setdefault(row["iteration"], {})[row["question_id"]] = row
    return [_gain(label, sides) for (_, label), sides in sorted(counts.items()) if _is_paired(sides)]


def _is_paired(sides: Mapping[int, Mapping[str, Any]]) -> bool:
    return bool(sides.get(0, {}).keys() & sides[max(sides)].keys())


def _gain(label: str, sides: Mapping[int, Mapping[str, Any]]) -> Gain:
    first, last = (_tally(sides[iteration]) for iteration in (0, max(sides)))
    change = difference(first, last, draws=2000)
    return Gain(benchmark=label, before=accuracy(first), after=accuracy(last), iteration=max(sides), change=change)


def _tally(rows: Mapping[str, Mapping[str, Any]]) -> Tally:
    correct, samples = ({name: row[column] for name, row in rows.items()} for column in ("num_correct", "num_samples"))
    return from_counts(correct, samples)
