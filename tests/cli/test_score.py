"""`infuser score` and `score_questions` rank questions by their influence on any model, and keep the best of a file."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.scoring import score_questions
from infuser_core.errors import DocumentError, InfuserError, UsageError
from infuser_core.evaluation.benchmarks.parts.files import keep_rows, rows_of
from infuser_core.evaluation.statistics import ranking
from infuser_core.nano import lab
from infuser_core.store.tables import read_foreign_rows

Rows = list[dict[str, object]]


def questions(topics: str, split: str, count: int) -> Rows:
    return [
        {"question_id": q.question_id, "question_text": q.text, "choices": q.choices, "ground_truth": q.answer}
        for q in lab.draw_questions(topics, split, count, 42, "hard")
    ]


def jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scored(folder: Path, *words: str) -> tuple[dict, Rows]:
    out = folder / "scores.parquet"
    place = ["--model", "nano", "--dev", str(folder / "dev.jsonl"), "--out", str(out), "--samples", "4", "--json"]
    done = CliRunner().invoke(app, ["score", *place, *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.output), list(read_foreign_rows(out))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    jsonl(tmp_path / "dev.jsonl", questions("target", "dev", 12))
    jsonl(tmp_path / "target.jsonl", questions("target", "test", 12))
    jsonl(tmp_path / "transfer.jsonl", questions("transfer", "test", 12))
    return tmp_path


def test_questions_of_the_target_come_first_and_a_repeated_call_changes_nothing(folder: Path) -> None:
    words = ["--questions", str(folder / "target.jsonl"), "--questions", str(folder / "transfer.jsonl")]
    told, rows = scored(folder, *words, "--keep", "top:8")
    assert [row["rank"] for row in rows] == list(range(1, 25)) and told["questions"] == 24
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert {row["status"] for row in rows} <= {"scored", "zero_variance"}
    # One of two files is of the dev set's topics: seven or more of the best eight is chance once in 74 draws.
    best = [row for row in rows[:8] if row["file"].endswith("target.jsonl")]
    assert len(best) >= 7
    assert all(row["accuracy_low"] - 1e-9 <= row["accuracy"] <= row["accuracy_high"] + 1e-9 for row in rows)
    lines = (folder / "target.jsonl").read_text().splitlines()
    kept = (folder / "target.kept.jsonl").read_text().splitlines()
    assert kept == [lines[row["row"] - 1] for row in sorted(best, key=lambda row: row["row"])]
    again = (folder / "scores.parquet").read_bytes()
    assert scored(folder, *words)[1] == rows and (folder / "scores.parquet").read_bytes() == again


def test_held_out_questions_tell_what_steps_on_the_ranked_ones_change(folder: Path) -> None:
    jsonl(folder / "held.jsonl", questions("target", "validation", 6))
    words = ["--questions", str(folder / "target.jsonl"), "--held-out", str(folder / "held.jsonl"), "--steps", "1"]
    told, _ = scored(folder, *words)
    # The studies continue the run of the ranking.
    assert len(list((folder / "store" / "runs").iterdir())) == 1
    arms = {row["arm"]: row for row in told["arms"]}
    assert arms["random"]["arms"] == 5 and arms["before"]["change"] == 0
    # The lab's right replies are known, so that the change is exact, and not in steps of an answer.
    assert 0 < abs(arms["preconditioned_cosine"]["change"]) < 0.2
    assert {row["predictor"] for row in told["correlations"]} >= {"preconditioned_cosine", "gradalign", "short"}
    # The form of a right reply is part of the question: another one, which the model never gives, changes nothing.
    other, _ = scored(folder, *words, "--reply", "{answer}{answer}")
    assert {row["arm"]: row["accuracy"] for row in other["arms"]}["before"] == 0


def test_rows_in_memory_are_scored_as_those_of_their_file_and_share_its_work(folder: Path) -> None:
    (_, rows), file = scored(folder, "--questions", str(folder / "target.jsonl")), [folder / "target.jsonl"]
    assert score_questions("nano", file, folder / "dev.jsonl", samples=4).to_pylist() == rows
    target, dev = questions("target", "test", 12), questions("target", "dev", 12)
    assert [(row["text"], row["choices"], row["answer"]) for row in rows] == [
        (target[place]["question_text"], target[place]["choices"], target[place]["ground_truth"])
        for place in (row["row"] - 1 for row in rows)
    ]
    artifacts = sorted((folder / "store").glob("artifacts/*/*"))
    arrays = [{**row, "choices": np.array(row["choices"]), "field": float("nan")} for row in target]
    for same in (target, (row for row in target), pa.Table.from_pylist(target), arrays):
        table = score_questions("nano", same, pa.Table.from_pylist(dev), samples=4)
        assert table.to_pylist() == [{**row, "file": ""} for row in rows]
    assert sorted((folder / "store").glob("artifacts/*/*")) == artifacts
    assert len(list((folder / "store" / "runs").iterdir())) == 1


SCRIPT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("prefect", "ray"):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
from flows.scoring import score_questions
dev = [{"question_text": f"What is {n} times 3?", "choices": [n, 3 * n], "ground_truth": 3 * n} for n in (4, 5)]
row = {"problem": "Größe 数: what is 2 times 3?", "options": ["5", "6"], "key": 6}
rows = [{"question_text": row["problem"], "choices": row["options"], "ground_truth": row["key"]}]
print(score_questions("nano", rows, dev, samples=4).select(["text", "answer"]).to_pylist())
"""


def test_a_script_in_any_folder_continues_after_a_crash_and_needs_no_prefect_or_ray(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INFUSER_")}

    def run_script(**changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "script.py"]
        return subprocess.run(command, cwd=tmp_path, env=environment | changes, capture_output=True, text=True)

    assert run_script(INFUSER_CRASH_AT="score_given:start").returncode == -9
    ended = run_script()
    assert ended.stdout == "[{'text': 'Größe 数: what is 2 times 3?', 'answer': 'B'}]\n"
    # Standard error has the report about the process that was killed, and that no question has a score.
    assert ended.returncode == 0 and ended.stderr.startswith("infuser:")
    assert "DataWarning: nano: no score for 1 of 1 questions: " in ended.stderr.splitlines()[1]
    journal = next((tmp_path / ".infuser" / "runs").glob("score-*/score.jsonl"))
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    second = {entry["phase"]: entry["state"] for entry in entries if entry["attempt"] == 2}
    assert second["rollout_questions"] == "cached" and second["score_given"] == "ran"
    again = run_script()
    assert again.stdout == ended.stdout and "infuser:" not in again.stderr


Q = {"question_text": "What is 2 times 3?", "choices": ["5", "6"], "ground_truth": "6"}


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([], {}, "questions holds no rows"),
        (pa.table({"question_text": []}), {}, "questions holds no rows"),
        ([Q, {"question_text": "Why?"}], {}, "questions, row 2: no ground_truth; there are question_text"),
        ([Q, {**Q, "ground_truth": None}], {}, "questions, row 2: no ground_truth"),
        (pa.table({"text": ["Why?"], "key": ["so"]}), {}, "questions, row 1: no question_text; there are text, key"),
        ([Q, "What is 2 times 3?"], {}, "questions, row 2: 'What is 2 times 3?' is no object"),
        (Q, {}, "questions, row 1: 'question_text' is no object"),
        ([{**Q, "question_id": "a"}] * 2, {}, "questions: question_id a twice"),
        ([Q], {"columns": {"question_text": "problem"}}, "dev, row 1: no problem; there are question_text"),
        ([Q], {"dev": []}, "dev holds no rows"),
        ([Q], {"samples": 1}, "cotrain.group_size = 1"),
        ([Q], {"max_tokens": 0}, "cotrain.solver_tokens = 0"),
        ([Q], {"adapter": "full"}, "cotrain.adapter.type = 'full'"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_scored_are_refused_with_their_place(
    folder: Path, rows: object, changes: dict, message: str
) -> None:
    with pytest.raises(InfuserError) as refusal:
        score_questions("nano", rows, changes.pop("dev", [Q]), **changes)
    assert refusal.value.message.startswith(message) and refusal.value.hint
    assert not (folder / "store" / "artifacts").exists()


def test_a_column_of_several_types_is_refused_by_name() -> None:
    class Frame:
        """Answers as pandas passes them on: a column without one type."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"ground_truth": pa.array([1, "x"])}).__arrow_c_stream__(requested_schema)

    with pytest.raises(DocumentError, match="questions: Could not convert 'x' with type str"):
        score_questions("nano", Frame(), [Q])


def as_list(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps(rows))


def held(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps({"name": "mine", "questions": rows}))


def as_lines(path: Path, rows: Rows) -> None:
    # A line ends at a line feed alone, and a half of a surrogate pair may be in a text or a name.
    odd = [{**row, "note": "one\u2028two\x85\x0c", "\ud800": "\ud800"} for row in rows]
    lines = [json.dumps(row, ensure_ascii=False).replace("\ud800", "\\ud800") for row in odd]
    path.write_text("\n\n".join(lines), encoding="utf-8")


def odd_list(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps([{**row, "\ud800": "\ud800"} for row in rows]))


def as_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question_id", "note", "question_text", "ground_truth"])
        writer.writeheader()
        writer.writerows({"note": 'a "b", c', **{key: row[key] for key in row if key != "choices"}} for row in rows)


def as_parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.filterwarnings("ignore:.*surrogate pair")
@pytest.mark.parametrize(
    ("write", "name"),
    [
        (as_list, "a.json"), (odd_list, "a.json"), (held, "a.json"), (as_lines, "a.jsonl"), (as_lines, "a.txt"),
        (as_csv, "a.csv"), (as_parquet, "a.parquet"), (as_parquet, "a.json"),
    ],
)  # fmt: skip
def test_the_best_are_kept_in_the_format_of_their_file(
    tmp_path: Path, write: Callable[[Path, Rows], None], name: str
) -> None:
    write(tmp_path / name, questions("target", "test", 5))
    keep_rows(tmp_path / name, tmp_path / f"kept-{name}", {4, 2})
    before, after = list(rows_of(tmp_path / name)), list(rows_of(tmp_path / f"kept-{name}"))
    assert after == [before[1], before[3]]
    if write is held:
        assert json.loads((tmp_path / f"kept-{name}").read_text())["name"] == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "openai:m@http://127.0.0.1:1/v1"], "an address has no gradients"),
        (["--model", "nano", "--keep", "best"], "--keep best: unknown"),
        (["--model", "nano", "--keep", "top:-1"], "--keep top:-1: unknown"),
        (["--model", "nano", "--columns", "question_text"], "--columns 'question_text': no column"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_runs(folder: Path, words: list[str], message: str) -> None:
    files = ["--dev", str(folder / "dev.jsonl"), "--questions", str(folder / "target.jsonl"), "--out", "x.parquet"]
    done = CliRunner().invoke(app, ["score", *files, *words])
    assert isinstance(done.exception, UsageError) and message in done.exception.message
    assert not (folder / "store" / "artifacts").exists()


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ([], ""),
        (["zero_variance", "scored"], ""),
        (["no_dev_signal"] * 3, "no score for 3 of 3 questions: all answers to the dev set had the same reward"),
        (["zero_variance", "not_finite", "zero_variance"], "no score for 2 of 3 questions: all answers had the same"),
    ],
)
def test_a_ranking_without_any_score_says_why(statuses: list[str], text: str) -> None:
    assert ranking.describe_unscored(statuses).startswith(text) and bool(text) == bool(
        ranking.describe_unscored(statuses)
    )
