"""Check the benchmarks on this machine: verify each data set's own reference answers (golds), and wrong answers.

Nothing is downloaded and no model is used. A rejected gold means a row that no model can answer, or a gap in a
verifier; an accepted wrong answer is an exploit. Programs are not run here: their rows hold no gold answer.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark
from infuser_core.evaluation.benchmarks.parts.spec import locate_files
from infuser_core.plugins import BENCHMARKS
from infuser_core.schemas import Question, Verdict
from infuser_core.terminal import format_rows
from infuser_core.verifiers.parts.batch import Job, check_all

PRESET = "paper"
"""Preset under which golds are verified."""
_NO_ANSWER = ("7919", r"\frac{1}{7919}", "none of these, as nobody says")
_MOST_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkCheck:
    """Result of checking one benchmark."""

    benchmark: str
    status: str
    """`checked`, or why it was not."""
    questions: int = 0
    excluded: int = 0
    """Wrong rows left out."""
    asked: int = 0
    """Golds verified, in all their forms."""
    refused: list[str] = field(default_factory=list)
    """Golds that were not accepted, by question, form and reason."""
    wrong_asked: int = 0
    """Wrong answers verified."""
    wrong_accepted: list[str] = field(default_factory=list)
    """Wrong answers that were accepted."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of the loader."""


def benchmark_names(text: str) -> list[str]:
    """Parse comma-separated names; `all` means those with a published data set. Raises ConfigError for unknown ones."""
    if text == "all":
        shipped = ((name, describe_benchmark(name)) for name in BENCHMARKS.names())
        return [name for name, benchmark in shipped if benchmark is not None and benchmark.repos]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--benchmarks {text!r}: none named", hint=f"all, or some of {', '.join(BENCHMARKS.names())}")
    for name in names:
        if describe_benchmark(name) is None:
            raise ConfigError(f"--benchmarks: {name} has no data set", hint="a benchmark with a data set")
    return names


def check_benchmark(name: str) -> BenchmarkCheck:
    """Load and check one benchmark; the result's status says if it is not on this machine, or does not load."""
    benchmark = describe_benchmark(name)
    assert benchmark is not None, "checked by benchmark_names"
    settings = BenchmarkSettings(name=name)
    try:
        locate_files(benchmark, settings, local=True)
    except ConfigError:
        return BenchmarkCheck(benchmark=name, status="not on this machine")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            questions = benchmark.load(settings)
    except (ConfigError, DocumentError) as error:
        return BenchmarkCheck(benchmark=name, status=f"does not load: {error.message}")
    lines = [str(warning.message) for warning in caught if issubclass(warning.category, DataWarning)]
    golds = [(question, text) for question in questions for text in right_forms(question)]
    others = list(_wrong_pairs(questions))
    return BenchmarkCheck(
        benchmark=name,
        status="checked" if golds else "programs are not run here",
        questions=len(questions),
        excluded=sum(line.startswith("excluded: ") for line in lines),
        asked=len(golds),
        refused=[line for line, verdict in _verdicts(golds) if verdict != Verdict.CORRECT],
        wrong_asked=len(others),
        wrong_accepted=[line for line, verdict in _verdicts(others) if verdict == Verdict.CORRECT],
        warnings=lines,
    )


def _verdicts(pairs: Sequence[tuple[Question, str]]) -> Iterator[tuple[str, Verdict]]:
    jobs = [Job(response=rf"Hence \boxed{{{text}}}.", question=question) for question, text in pairs]
    for (question, text), finding in zip(pairs, check_all(jobs, preset=PRESET), strict=True):
        yield (
            f"{question.question_id}: {text[:_MOST_CHARACTERS]} ({finding.verdict.value}: {finding.reason})",
            finding.verdict,
        )


def right_forms(question: Question) -> list[str]:
    """Forms in which models write the gold answer; empty for a program."""
    gold = question.answer
    if question.verifier == "code":
        return []
    if question.verifier == "choice":
        return [gold, f"({gold})", rf"\text{{{gold}}}", f"{gold}."]
    if question.verifier == "math":
        return [gold, rf"\displaystyle {gold}", f" {gold} ", f"{gold}."]
    return [gold, f" {gold} ", rf"\text{{{gold}}}"]


def wrong_forms(question: Question) -> list[str]:
    """Wrong answers to a question, fixed ones and some made from its gold answer."""
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
        # The previous question's gold, if it is another number, is the answer of a model that mixes questions up.
        other = questions[place - 1].answer
        if question.verifier != "choice" and other.isdigit() and question.answer.isdigit() and other != question.answer:
            yield question, other


def checks_text(checks: Sequence[BenchmarkCheck]) -> str:
    """Render the checks for a terminal: a table, then warnings, refused golds and accepted wrong answers."""
    rows = [
        {
            "benchmark": each.benchmark,
            "questions": each.questions,
            "excluded": each.excluded,
            "golds asked": each.asked,
            "refused": len(each.refused),
            "wrong asked": each.wrong_asked,
            "accepted": len(each.wrong_accepted),
            "status": each.status,
        }
        for each in checks
    ]
    lines = [format_rows(rows, width=120)]
    for each in checks:
        lines += [f"warning: {line}" for line in each.warnings]
        lines += [f"gold not accepted: {each.benchmark}: {line}" for line in each.refused]
        lines += [f"WRONG ACCEPTED: {each.benchmark}: {line}" for line in each.wrong_accepted]
    return "\n".join(lines)
