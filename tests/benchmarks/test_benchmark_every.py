"""Every file of the benchmarks' folder loads its fixture, and its own keys are right by its own verifier."""

import json
import warnings
from pathlib import Path

import places
import pytest

from infuser_core.config.run import BenchmarkSettings
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark, find_benchmark
from infuser_core.plugins import BENCHMARKS
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.grading import grading_of

DATA = places.DATA / "benchmarks"
NAMES = BENCHMARKS.names()
# Appendix, sampling hyperparameters; the benchmarks' rows as evaluation counts them.
PAPER = {
    "mmlu_pro": ("general", 12_032, 1, None),
    "gpqa_diamond": ("general", 198, 5, None),
    "supergpqa": ("general", 26_529, 1, None),
    "bbeh": ("general", 4_520, 1, None),
    "math500": ("math", 500, 4, None),
    "aime2024": ("math", 30, 32, None),
    "aime2025": ("math", 30, 32, None),
    "hmmt": ("math", 93, 32, None),
    "olympiadbench_math": ("math", 674, 1, None),
    "olympiadbench_phys": ("math", 236, 1, None),
    "medqa": ("medical", 1_273, 1, None),
    "medxpertqa": ("medical", 2_450, 1, None),
    "humaneval_plus": ("coding", 164, 8, 16_384),
    "livecodebench": ("coding", 880, 2, 16_384),
}
# What DARC's tables have beside them.
OTHERS = {
    "amc23": ("math", 40, 32, None),
    "minerva_math": ("math", 272, 1, None),
    "gsm8k": ("math", 1_319, 1, None),
}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_DATA", str(DATA))
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))


def fixture(name: str) -> list[Question]:
    path = str(DATA / "released.json") if name == "released" else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_benchmark(name)(BenchmarkSettings(name=name, path=path))


def response(name: str, question: Question) -> str:
    """What a model that knows the key would write."""
    if question.verifier != "code":
        return f"I compute it, and so the answer is $\\boxed{{{question.answer}}}$."
    solutions = json.loads((DATA / "livecodebench_solutions.json").read_text())
    program = question.answer or solutions[question.question_id]
    return f"Here is the program.\n\n\\boxed{{\n```python\n{program}\n```\n}}\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_describes_itself(name: str):
    known = describe_benchmark(name)
    assert known is not None and known.name == name and known.title
    assert known.category in ("math", "general", "medical", "coding", "nano", "other")
    assert bool(known.repos) == bool(known.files) == (known.category not in ("nano", "other"))


def test_benchmarks_are_sampled_as_their_papers_say():
    found = {name: describe_benchmark(name) for name in NAMES}
    facts = {
        name: (known.category, known.rows, known.samples, known.max_tokens)
        for name, known in found.items()
        if known and known.repos
    }
    assert facts == PAPER | OTHERS


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_gives_whole_questions_with_unique_identifiers(name: str):
    questions = fixture(name)
    assert len(questions) >= 3
    assert len({question.question_id for question in questions}) == len(questions)
    known = describe_benchmark(name)
    for question in questions:
        assert question.text.strip() == question.text != ""
        assert question.answer or question.verifier == "code"
        if known and known.verifier:
            assert question.verifier == known.verifier
        if known and known.repos:
            assert grading_of(question).route == name
            assert question.domain or name == "hmmt"
        if question.choices:
            assert question.answer in "ABCDEFGHIJ"[: len(question.choices)]


@pytest.mark.parametrize("preset", ["paper", "strict-last"])
@pytest.mark.parametrize("name", NAMES)
def test_the_own_key_is_right(name: str, preset: str):
    questions = fixture(name)[:40]
    findings = check_all([Job(response=response(name, q), question=q) for q in questions], preset=preset)
    judged = {q.question_id: (f.verdict, f.reason) for q, f in zip(questions, findings, strict=True)}
    assert {key: found for key, found in judged.items() if found[0] != Verdict.CORRECT} == {}


@pytest.mark.parametrize("name", NAMES)
def test_another_answer_is_not_right(name: str):
    questions = [question for question in fixture(name)[:40] if question.verifier != "code"]
    other = [
        "ABCDEFGHIJ"[("ABCDEFGHIJ".index(q.answer) + 1) % len(q.choices)] if q.choices else "987654" for q in questions
    ]
    jobs = [Job(response=f"\\boxed{{{text}}}", question=q) for q, text in zip(questions, other, strict=True)]
    assert Verdict.CORRECT not in {finding.verdict for finding in check_all(jobs)}


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("nano")])
def test_the_micro_worlds_have_the_questions_they_announce(name: str):
    known = describe_benchmark(name)
    assert known is not None and len(fixture(name)) == known.rows
