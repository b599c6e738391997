"""The check of benchmarks on this machine: golds are given back, wrong answers are refused, bad golds are named."""

import json
from pathlib import Path

import pytest

from infuser_core.errors import ConfigError
from infuser_core.evaluation.check import benchmark_names, check_benchmark, checks_text, right_forms, wrong_forms
from infuser_core.schemas import Question


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path))
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path


def math500(folder: Path, *golds: str) -> None:
    rows = [
        {"problem": f"Find {n}.", "answer": gold, "subject": "Algebra", "level": 1, "unique_id": str(n)}
        for n, gold in enumerate(golds)
    ]
    (folder / "math500.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_golds_are_accepted_in_all_forms_and_wrong_answers_in_none(data: Path):
    math500(data, "2", r"\frac{1}{2}", r"\binom{n}{r}", "(1,2)", r"\text{even}")
    found = check_benchmark("math500")
    assert (found.status, found.questions, found.asked) == ("checked", 5, 20)
    assert (found.refused, found.wrong_accepted) == ([], [])
    assert found.wrong_asked >= 25
    assert any("expected 500" in line for line in found.warnings)


def test_a_gold_that_nobody_can_give_is_named(data: Path):
    math500(data, "2", "9^{9^{9^{9}}} + x^{")
    found = check_benchmark("math500")
    assert found.refused and all(line.startswith("1: ") for line in found.refused)
    assert "gold not accepted: math500: 1: " in checks_text([found])


def test_what_is_not_here_or_does_not_load_is_a_row_of_its_own(data: Path):
    (data / "aime2024.jsonl").write_text('{"nothing": 1}\n')
    assert check_benchmark("medqa").status == "not on this machine"
    assert check_benchmark("aime2024").status.startswith("does not load: aime2024: ")


def test_all_are_those_with_a_data_set_and_others_are_refused():
    assert {"math500", "mmlu_pro", "livecodebench"} <= set(benchmark_names("all"))
    assert not any(name.startswith("nano") for name in benchmark_names("all"))
    with pytest.raises(ConfigError, match="no benchmark 'maths'"):
        benchmark_names("math500,maths")


@pytest.mark.parametrize(("verifier", "gold"), [("choice", "B"), ("integer", "42"), ("math", "2"), ("bbeh", "yes")])
def test_no_wrong_form_is_a_right_one(verifier: str, gold: str):
    question = Question(
        question_id="q", text="?", choices=["x"] * 4 * (verifier == "choice"), answer=gold, verifier=verifier,
        domain="", subdomain="",
    )  # fmt: skip
    assert not {*right_forms(question)} & {*wrong_forms(question)}
