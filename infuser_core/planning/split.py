"""Check that questions used for training and selection are disjoint from questions that measure the result."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from infuser_core.config.roles import Overlap
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import BenchmarkQuestions
from infuser_core.errors import ConfigError, abbreviate
from infuser_core.evaluation.benchmarks.parts.loader import find_benchmark
from infuser_core.evaluation.benchmarks.parts.question_sets import load_questions
from infuser_core.evaluation.benchmarks.parts.validation import question_identity
from infuser_core.schemas import Question

EXAMPLES = 3
"""Shared questions that a message quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Questions that one setting of the configuration names."""

    part: str
    """dev, validation, problems or benchmarks."""
    name: str
    """Name in messages."""
    questions: Sequence[Question]
    """In the order of the source."""


def load_sets(config: RunConfig) -> list[QuestionSet]:
    """Load every set of questions of a run. Raises DocumentError or ConfigError for a set that cannot be read."""
    data, evaluated = config.data, config.evaluate.benchmarks
    sources = [
        ("dev", "data.dev", data.dev),
        ("validation", "data.validation", data.validation),
        *(("problems", f"data.problems.{number}", each.source) for number, each in enumerate(data.problems)),
    ]
    loaded = [
        *((part, name, load_questions(each, seed=config.seed, evaluated=evaluated)) for part, name, each in sources),
        *(
            ("benchmarks", f"benchmark {each.label or each.name}", find_benchmark(each.name)(each))
            for each in evaluated
        ),
    ]
    return [QuestionSet(part=part, name=name, questions=questions) for part, name, questions in loaded]


def require_apart(config: RunConfig, sets: Sequence[QuestionSet]) -> None:
    """Raise ConfigError if two of the sets share questions and `data.allow_overlap` does not name the pair."""
    pairs: list[str] = []
    counts: list[str] = []
    examples: list[str] = []
    keyed = [(each, [(question_identity(question), question) for question in each.questions]) for each in sets]
    compared = set(get_args(Overlap)) - set(config.data.allow_overlap)
    for (one, first), (other, second) in itertools.product(keyed, repeat=2):
        pair, originals = f"{one.part}-{other.part}", dict(first)
        shared = [(originals[name], copy) for name, copy in second if name in originals] if pair in compared else []
        if shared:
            pairs.append(pair)
            counts.append(f"{len(shared):,} of the {len(second):,} questions of {other.name} are in {one.name}")
            examples += [
                f"{abbreviate(copy.text)} ({one.name} {question.question_id}, {other.name} {copy.question_id})"
                for question, copy in shared[:EXAMPLES]
            ]
    if pairs:
        is_sampled = isinstance(config.data.validation, BenchmarkQuestions) and "validation-benchmarks" in pairs
        remedy = "data.validation.leak_free: true draws others; " if is_sampled else ""
        allowed = ", ".join(dict.fromkeys([*config.data.allow_overlap, *pairs]))
        raise ConfigError(
            f"{'; '.join(counts)}; e.g. {', '.join(examples[:EXAMPLES])}",
            hint=f"give each set other questions; {remedy}"
            f"if the overlap is intended: --set 'data.allow_overlap=[{allowed}]'",
        )
