"""Programming benchmarks: tests go into files, days are whole, and gigabytes are read once."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import places
import pytest

from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import DataWarning, DocumentError
from infuser_core.evaluation.benchmarks import humaneval_plus, livecodebench
from infuser_core.evaluation.benchmarks.parts.spec import RowPlace, _load, cache_folder, load_cached
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import grading_of

DATA = places.DATA / "benchmarks"
HERE = RowPlace(benchmark=livecodebench.BENCHMARK, source="test", number=1)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_DATA", str(DATA))
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))


def load(module: Any, path: str = "") -> list[Question]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: list[Question] = module.BENCHMARK.load(BenchmarkSettings(name=module.BENCHMARK.name, path=path))
        return found


def problem(**changed: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((DATA / "livecodebench" / "test.jsonl").read_text().splitlines()[0])
    return {**row, **changed}


def test_every_test_lies_in_a_file_with_its_digest():
    for module in (humaneval_plus, livecodebench):
        for question in load(module):
            grading = grading_of(question)
            assert Path(grading.tests).is_file() and Path(grading.tests).name.startswith(grading.tests_sha256[:16])
            assert "expected" not in question.text


@pytest.mark.parametrize(
    ("day", "inside"),
    [("2023-04-30", False), ("2023-05-01", True), ("2025-01-31", True), ("2025-02-01", False)],
)
def test_the_first_and_the_last_day_belong_to_the_benchmark(day: str, inside: bool):
    for clock in ("T00:00:00", "T19:30:00", ""):
        assert (livecodebench.read_row(problem(contest_date=day + clock), HERE) is not None) is inside


def test_a_date_that_is_none_is_refused():
    with pytest.raises(DocumentError, match="field contest_date: expected a date like"):
        livecodebench.read_row(problem(contest_date="May 2023"), HERE)


def test_problems_say_how_they_are_answered():
    by_id = {question.question_id: question.text for question in load(livecodebench)}
    assert "reads standard input" in by_id["add_a"]
    assert "class Solution" in by_id["largest"] and "standard input" not in by_id["largest"]
    for question in load(humaneval_plus):
        assert question.text.count("```") == 2 and "def " in question.text


def test_questions_are_kept_on_disk_until_files_or_tests_change(tmp_path: Path):
    files = [("x", 1, 0)]
    made: list[int] = []

    def make() -> list[Question]:
        made.append(1)
        found = livecodebench.read_row(problem(), HERE)
        assert found is not None
        return [found]

    first = load_cached("livecodebench", files, make)
    assert load_cached("livecodebench", files, make) == first and len(made) == 1
    Path(grading_of(first[0]).tests).unlink()
    assert load_cached("livecodebench", files, make) == first and len(made) == 2
    load_cached("livecodebench", [("x", 2, 0)], make)
    assert len(made) == 3


def test_a_wrong_row_of_what_is_kept_is_named_every_time(tmp_path: Path):
    rows = [problem(question_id=str(number)) for number in range(100)] + [problem(contest_date="May 2023")]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said: list[list[str]] = []
    for _ in range(2):
        with pytest.warns(DataWarning) as caught:
            found = livecodebench.BENCHMARK.load(BenchmarkSettings(name="livecodebench", path=str(tmp_path)))
        said.append([str(each.message) for each in caught])
        assert len(found) == 100
        _load.cache_clear()
    assert said[0] == said[1] and any(line.startswith("excluded: livecodebench:") and "101" in line for line in said[0])
    rows.append(problem(contest_date="June"))
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DocumentError, match="1 more of 102 rows are wrong"):
        livecodebench.BENCHMARK.load(BenchmarkSettings(name="livecodebench", path=str(tmp_path)))


def test_a_damaged_keepsake_is_made_again(tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(DATA / "livecodebench", copy)
    before = load(livecodebench, str(copy))
    (kept_file,) = cache_folder("livecodebench", kind="questions").iterdir()
    whole = kept_file.read_text()
    kept_file.write_text(whole[: len(whole) // 2])
    (copy / "test.jsonl").touch()
    assert load(livecodebench, str(copy)) == before


def test_the_layout_of_evalplus_says_the_same_as_the_hubs():
    path = str(DATA / "evalplus_layout" / "HumanEvalPlus-v0.1.10.jsonl")
    (one,), other = load(humaneval_plus, path), load(humaneval_plus)[0]
    assert (one.question_id, one.text, one.answer) == (other.question_id, other.text, other.answer)
    cases = [json.loads(Path(grading_of(question).tests).read_text())["cases"] for question in (one, other)]
    assert len(cases[0]) == len(cases[1]) == 3
    assert [case["expected"] for case in cases[0]] == [case["expected"] for case in cases[1]]
