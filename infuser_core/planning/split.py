"""The split of a run's questions: what it learns from or chooses by shares nothing with what checks the result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from infuser_core import plugins
from infuser_core.benchmarks.parts.question_sets import load_questions
from infuser_core.benchmarks.parts.validation import identity
from infuser_core.config.roles import Overlap
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import BenchmarkQuestions
from infuser_core.errors import ConfigError, shown
from infuser_core.schemas import Question

EXAMPLES = 3
"""Shared questions that a message quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Questions of one setting."""

    part: str
    """dev, validation, problems or benchmarks."""
    name: str
    """The set in a message."""
    questions: Sequence[Question]
    """Its questions, in the order of the source."""


def load_sets(config: RunConfig) -> list[QuestionSet]:
    """Every set of questions of a run. Raises DocumentError or ConfigError for a set that cannot be read."""
    data, evaluated = config.data, config.evaluate.benchmarks
    sources = [
        ("dev", "data.dev", data.dev),
        ("validation", "data.validation", data.validation),
        *(("problems", f"data.problems.{number}", each.source) for number, each in enumerate(data.problems)),
    ]
    loaded = [
        *((part, name, load_questions(each, seed=config.seed, evaluated=evaluated)) for part, name, each in sources),
        *(
            ("benchmarks", f"benchmark {each.label or each.name}", plugins.benchmark(each.name)(each))
            for each in evaluated
        ),
    ]
    return [QuestionSet(part=part, name=name, questions=questions) for part, name, questions in loaded]


def require_apart(config: RunConfig, sets: Sequence[QuestionSet]) -> None:
    """Raises ConfigError where two of the sets share questions and `data.allow_overlap` does not name the pair."""
    pairs: list[Overlap] = []
    counts: list[str] = []
    examples: list[str] = []
    keys = [[identity(question) for question in each.questions] for each in sets]
    for pair, first, second in _pairs(sets):
        if pair in config.data.allow_overlap:
            continue
        one, other = sets[first], sets[second]
        known = dict(zip(keys[first], one.questions, strict=True))
        shared = [
            f"{shown(copy.text)} ({one.name} {known[key].question_id}, {other.name} {copy.question_id})"
            for key, copy in zip(keys[second], other.questions, strict=True)
            if key in known
        ]
        if shared:
            pairs.append(pair)
            counts.append(
                f"{len(shared):,} of the {len(other.questions):,} questions of {other.name} are in {one.name}"
            )
            examples += shared[:EXAMPLES]
    if pairs:
        drawn = isinstance(config.data.validation, BenchmarkQuestions) and "validation-benchmarks" in pairs
        remedy = "data.validation.leak_free: true draws others; " if drawn else ""
        allowed = ", ".join(dict.fromkeys([*config.data.allow_overlap, *pairs]))
        raise ConfigError(
            f"{'; '.join(counts)}; e.g. {', '.join(examples[:EXAMPLES])}",
            hint=f"give each set other questions; {remedy}"
            f"where the overlap is by design: --set 'data.allow_overlap=[{allowed}]'",
        )


def _pairs(sets: Sequence[QuestionSet]) -> Iterator[tuple[Overlap, int, int]]:
    """The pairs that are compared, by the places of their sets."""
    for pair in get_args(Overlap):
        first, second = pair.split("-")
        for place, one in enumerate(sets):
            for other, each in enumerate(sets):
                if (one.part, each.part) == (first, second):
                    yield pair, place, other
