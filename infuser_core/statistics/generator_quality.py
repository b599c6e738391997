"""Are generated questions good exercise? A strong solver agrees with the key more often than the base; none repeats."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infuser_core.errors import UsageError
from infuser_core.examination import BenchmarkVerdict
from infuser_core.states import Verdict
from infuser_core.statistics.bootstrap import DRAWS, Difference, difference
from infuser_core.statistics.tally import Tally, accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverGap:
    """One solver beside the base on the same generated questions, both against the generator's own key."""

    solver: str
    """Solver."""
    base: str
    """Solver that it is compared with."""
    accuracy: float
    """Agreement with the generator's key over all questions that the solver answered."""
    gap: Difference
    """accuracy(solver) - accuracy(base) on common questions; the strong-against-weak gap for a strong solver."""


def strong_weak_gaps(solvers: Mapping[str, Tally], base: str, *, draws: int = DRAWS, seed: int = 0) -> list[SolverGap]:
    """The gap of every other solver over `base`, paired by question, in the order given.

    Raises UsageError when `base` is none of the solvers, or a solver shares no question with it.
    """
    if base not in solvers:
        raise UsageError(f"no answers of {base}", hint=f"solvers: {', '.join(solvers) or 'none'}")
    return [
        SolverGap(
            solver=name,
            base=base,
            accuracy=accuracy(tally),
            gap=difference(solvers[base], tally, draws=draws, seed=seed),
        )
        for name, tally in solvers.items()
        if name != base
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheck:
    """What most of one solver's answers say of a question's key."""

    finding: Literal["agrees", "disputes", "undecided"]
    """Most answers are the key; most are one other answer; neither."""
    answer: str
    """The answer of the majority; empty when undecided."""


def check_key(verdicts: Sequence[BenchmarkVerdict]) -> KeyCheck:
    """The key of one question against a solver's samples: more than half of them have to say the same."""
    right = [row for row in verdicts if row.verdict == Verdict.CORRECT]
    wrong = Counter(row.extracted for row in verdicts if row.verdict == Verdict.WRONG and row.extracted)
    if 2 * len(right) > len(verdicts):
        return KeyCheck(finding="agrees", answer=right[0].extracted)
    for answer, count in wrong.most_common(1):
        if 2 * count > len(verdicts):
            return KeyCheck(finding="disputes", answer=answer)
    return KeyCheck(finding="undecided", answer="")


def copies(questions: Mapping[str, str]) -> dict[str, int]:
    """Question id to how many other questions have the same text, case and spacing aside."""
    plain = {name: " ".join(text.casefold().split()) for name, text in questions.items()}
    counts = Counter(plain.values())
    return {name: counts[text] - 1 for name, text in plain.items()}
