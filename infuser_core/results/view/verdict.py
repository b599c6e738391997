"""Gains of a run: accuracy of its anchor and its selected checkpoint on validation and benchmarks."""

from dataclasses import dataclass
from typing import Any

from infuser_core.evaluation.statistics.bootstrap import Difference, difference
from infuser_core.evaluation.statistics.tally import accuracy, common_questions
from infuser_core.results.lineage.numbers import points
from infuser_core.results.report.queries import tally_of
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
    exams: dict[tuple[bool, str], dict[int, list[dict[str, Any]]]] = {}
    for row in lens.query(_COUNTS, {"run": run}):
        sides = exams.setdefault((row["phase"] == "evaluate", row["benchmark"]), {})
        sides.setdefault(row["iteration"], []).append(row)
    result = []
    for (_, label), sides in sorted(exams.items()):
        selected = max(sides)
        first, last = tally_of(sides.get(0, [])), tally_of(sides[selected])
        if common_questions([first, last])[0]:
            change = difference(first, last, draws=2000)
            before, after = accuracy(first), accuracy(last)
            result.append(Gain(benchmark=label, before=before, after=after, iteration=selected, change=change))
    return result
