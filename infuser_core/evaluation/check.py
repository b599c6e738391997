"""Check of benchmarks on this machine: every data set found is loaded and answered with its own golds and wrong ones.

Nothing is downloaded and no model is asked. A gold that is not accepted is a row that no model can answer, or a hole in
a verifier; a wrong answer that is accepted is an exploit. Programs are not run here: their rows hold no gold answer.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from infuser_core import plugins
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.evaluation.benchmarks.parts.spec import Benchmark, locate_files
from infuser_core.schemas import Question, Verdict
from infuser_core.terminal import table
from infuser_core.verifiers.parts.batch import Job, check_all

PRESET = "paper"
"""Preset under which golds are given back."""
_NO_ANSWER = ("7919", r"\frac{1}{7919}", "none of these, as nobody says")
_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Result of checking one benchmark."""

    benchmark: str
    """Benchmark module."""
    status: str
    """`checked`, or why it was not."""
    questions: int = 0
    """Questions read."""
    excluded: int = 0
    """Wrong rows left out."""
    asked: int = 0
    """Golds given back, in all their forms."""
    refused: list[str] = field(default_factory=list)
    """Golds that were not accepted, by question, form and reason."""
    wrong_asked: int = 0
    """Wrong answers given."""
    wrong_accepted: list[str] = field(default_factory=list)
    """Wrong answers that were accepted."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of the loader."""


def names_of(wanted: str) -> list[str]:
    """The benchmarks named; `all`: those with a published data set. Raises ConfigError for an unknown one."""
    if wanted == "all":
        known = ((name, plugins.describe(name)) for name in plugins.BENCHMARKS.names())
        return [name for name, benchmark in known if benchmark is not None and benchmark.repos]
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not names:
        raise ConfigError(
            f"--benchmarks {wanted!r}: none named", hint=f"all, or some of {', '.join(plugins.BENCHMARKS.names())}"
        )
    for name in names:
        if plugins.describe(name) is None:
            raise ConfigError(f"--benchmarks: {name} has no data of its own", hint="a benchmark with a data set")
    return names


def check(name: str) -> Checked:
    """One benchmark: loaded and answered. What is not on this machine, or cannot be read, is a row that says so."""
    benchmark = plugins.describe(name)
    assert benchmark is not None, "named by names_of"
    settings = BenchmarkSettings(name=name)
    try:
        locate_files(benchmark, settings, local=True)
    except ConfigError:
        return Checked(benchmark=name, status="not on this machine")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            questions = benchmark.load(settings)
    except (ConfigError, DocumentError) as error:
        return Checked(benchmark=name, status=f"does not load: {error.message}")
    said = [str(warning.message) for warning in caught if issubclass(warning.category, DataWarning)]
    return _answered(benchmark, questions, said)


def _answered(benchmark: Benchmark, questions: Sequence[Question], said: list[str]) -> Checked:
    golds = [(question, text) for question in questions for text in right_forms(question)]
    others = [(question, text) for question, text in _wrong_pairs(questions)]
    refused = [line for line, verdict in _verdicts(golds) if verdict != Verdict.CORRECT]
    accepted = [line for line, verdict in _verdicts(others) if verdict == Verdict.CORRECT]
    return Checked(
        benchmark=benchmark.name,
        status="checked" if golds else "programs are not run here",
        questions=len(questions),
        excluded=sum(line.startswith("excluded: ") for line in said),
        asked=len(golds),
        refused=refused,
        wrong_asked=len(others),
        wrong_accepted=accepted,
        warnings=said,
    )


def _verdicts(pairs: Sequence[tuple[Question, str]]) -> Iterator[tuple[str, Verdict]]:
    jobs = [Job(response=rf"Hence \boxed{{{text}}}.", question=question) for question, text in pairs]
    for (question, text), found in zip(pairs, check_all(jobs, preset=PRESET), strict=True):
        yield f"{question.question_id}: {text[:_SHOWN]} ({found.verdict.value}: {found.reason})", found.verdict


def right_forms(question: Question) -> list[str]:
    """The gold as models write it; nothing for a program."""
    gold = question.answer
    if question.verifier == "code":
        return []
    if question.verifier == "choice":
        return [gold, f"({gold})", rf"\text{{{gold}}}", f"{gold}."]
    if question.verifier == "math":
        return [gold, rf"\displaystyle {gold}", f" {gold} ", f"{gold}."]
    return [gold, f" {gold} ", rf"\text{{{gold}}}"]


def wrong_forms(question: Question) -> list[str]:
    """Answers that are wrong for every question of a benchmark."""
    gold = question.answer
    if question.verifier == "choice":
        letters = [chr(ord("A") + place) for place in range(len(question.choices))]
        return [*[letter for letter in letters if letter != gold][:3], ", ".join(letters)]
    if question.verifier == "integer":
        return [str(int(gold) + 1) if gold.isdigit() else "1000", f"{gold}.5", f"{gold}={gold}1"]
    return [*_NO_ANSWER, rf"{gold} + 7919", rf"7919 \to {gold}", rf"{gold}, {gold}, 7919"]


def _wrong_pairs(questions: Sequence[Question]) -> Iterator[tuple[Question, str]]:
    for place, question in enumerate(questions):
        if question.verifier == "code":
            continue
        yield from ((question, text) for text in wrong_forms(question) if text != question.answer)
        # A neighbour's gold, where it is another number, is what a model that mixes questions up would say.
        other = questions[place - 1].answer
        if question.verifier != "choice" and other.isdigit() and question.answer.isdigit() and other != question.answer:
            yield question, other


def table_of(found: Sequence[Checked]) -> str:
    """The checks as lines for a terminal: the table, then what was not accepted or wrongly accepted."""
    rows = [
        {
            "benchmark": one.benchmark,
            "questions": one.questions,
            "excluded": one.excluded,
            "golds asked": one.asked,
            "refused": len(one.refused),
            "wrong asked": one.wrong_asked,
            "accepted": len(one.wrong_accepted),
            "status": one.status,
        }
        for one in found
    ]
    lines = [table(rows, width=120)]
    for one in found:
        lines += [f"warning: {line}" for line in one.warnings]
        lines += [f"gold not accepted: {one.benchmark}: {line}" for line in one.refused]
        lines += [f"WRONG ACCEPTED: {one.benchmark}: {line}" for line in one.wrong_accepted]
    return "\n".join(lines)
