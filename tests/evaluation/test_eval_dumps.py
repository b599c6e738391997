"""Files of other harnesses are read as answers: rows in the shapes of real ones, written here."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.evaluation.dumps import read_dump
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.grading import grading_of

CHOICE = {
    "question_id": 7, "question": "Which is even?", "options": ["1", "2", "3"], "answer": "B", "answer_index": 1,
    "category": "math",
}  # fmt: skip
PROBLEM = {"problem": "1 + 1?", "solution": "Add.", "answer": "2", "subject": "Algebra", "level": 1, "unique_id": "t/0"}
SAMPLE = {
    "id": 3, "epoch": 1, "input": [{"role": "user", "content": "Which?"}], "choices": ["x", "y"], "target": ["B"],
    "output": {"choices": [{"message": {"content": [{"type": "text", "text": "It is "}, {"text": "(B)"}]}}]},
}  # fmt: skip


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def said(path: Path, name: str) -> list[tuple[str, str, int, str]]:
    """Identifier, key, sample and text of every response."""
    questions, responses = read_dump(path, name)
    keys = {question.question_id: question.answer for question in questions}
    return [(row.question_id, keys[row.question_id], row.sample_index, row.response) for row in responses]


def test_samples_of_lm_eval_carry_the_row_of_their_data_and_repeat_it_for_every_filter(tmp_path: Path):
    rows = [
        {"doc_id": 0, "doc": PROBLEM, "target": "2", "resps": [["two", "2"]], "filtered_resps": ["2"], "filter": name}
        for name in ("strict", "flexible")
    ]
    assert said(lines(tmp_path / "samples.jsonl", *rows), "math500") == [("t/0", "2", 0, "two"), ("t/0", "2", 1, "2")]
    rows[0]["resps"] = [[[-1.5, False]], [[-0.5, True]]]
    with pytest.raises(DocumentError, match="row 1: the row has log-likelihoods and no text"):
        read_dump(lines(tmp_path / "samples.jsonl", rows[0]), "math500")


@pytest.mark.parametrize("options", [CHOICE["options"], str(CHOICE["options"])])
@pytest.mark.parametrize("column", ["model_outputs", "generated_text", "response"])
def test_outputs_of_mmlu_pro_are_its_rows_with_a_text(tmp_path: Path, options: Any, column: str):
    row = {**CHOICE, "options": options, column: "The answer is (B).", "pred": "B"}
    expected = [("7", "B", 0, "The answer is (B).")]
    (tmp_path / "out.json").write_text(json.dumps([row]))
    assert said(tmp_path / "out.json", "mmlu_pro") == expected
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        archive.write(tmp_path / "out.json", "out.json")
    assert said(tmp_path / "out.zip", "mmlu_pro") == expected


def test_outputs_of_math_evaluation_harness_have_a_reference_and_answers(tmp_path: Path):
    row = {
        "idx": 0, "question": "1 + 1?", "gt_cot": "Add.", "gt": "2", "level": 1,
        "code": [r"\boxed{2}", "Final Answer: The final answer is 3."], "pred": ["2", "3"], "score": [True, False],
    }  # fmt: skip
    path = lines(tmp_path / "out.jsonl", row, {**row, "idx": 1})
    assert said(path, "math500") == [(key, "2", place, row["code"][place]) for key in "01" for place in range(2)]
    questions, responses = read_dump(path, "math500")
    jobs = [Job(response=each.response, question=questions[0]) for each in responses]
    boxed, _ = read_dump(lines(path, {**row, "gt_cot": r"Add: \boxed{2\text{ m}}"}), "math500")
    assert boxed[0].answer == r"2\text{ m}"
    # The benchmark's own extractor reads the phrase under `official`, whichever harness saved the answer.
    assert [found.extracted for found in check_all(jobs, preset="official")] == ["2", "3"] * 2


def test_a_sample_of_inspect_that_failed_is_named_and_an_archive_may_be_packed_by_zstandard(tmp_path: Path):
    failed = {**SAMPLE, "id": 200, "output": {"model": "m", "choices": []}, "error": {"message": "no connection"}}
    rows = [{**SAMPLE, "id": number} for number in range(200)]
    path = packed(tmp_path / "log.eval", [*rows, failed])
    with pytest.warns(DataWarning, match="no answer of the model: no connection"):
        assert len(said(path, "mmlu_pro")) == 200
    with pytest.raises(DocumentError, match="no connection"):
        read_dump(packed(tmp_path / "log.eval", [failed]), "mmlu_pro")


def packed(path: Path, rows: list[dict[str, Any]]) -> Path:
    """An archive as Inspect writes it: members stored under the number of another method, which packed them."""
    with zipfile.ZipFile(path, "w") as archive:
        for row in rows:
            sink = pyarrow.BufferOutputStream()
            with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
                stream.write(json.dumps(row).encode())
            archive.writestr(f"samples/{row['id']}_epoch_1.json", sink.getvalue().to_pybytes())
    content = path.read_bytes()
    # Methods in headers and in the directory: 8 and 10 bytes behind their marks.
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content = re.sub(
            re.escape(mark) + b".{%d}" % (place - 4) + b"\x00\x00",
            lambda m: m[0][:-2] + b"\x5d\x00",
            content,
            flags=re.DOTALL,
        )
    path.write_bytes(content)
    return path


def test_details_of_lighteval_have_letters_or_the_one_answer_as_choices(tmp_path: Path):
    details: list[dict[str, Any]] = [
        {"doc": {"query": "Which?", "choices": list("ABC"), "gold_index": [2], "id": "7"},
         "model_response": {"text": ["It is (C)", "(A)"]}, "metric": {"em": 0.5}},
        {"doc": {"query": "How many?", "choices": ["204"], "gold_index": [0], "id": ""},
         "model_response": {"text": [r"\boxed{204}"]}, "metric": {"em": 1.0}},
    ]  # fmt: skip
    path = tmp_path / "details_aime24_2026.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(details), path)
    assert [row[:3] for row in said(path, "aime2024")] == [("7", "C", 0), ("7", "C", 1), ("2", "204", 0)]
    questions, _ = read_dump(path, "aime2024")
    assert [question.verifier for question in questions] == ["choice", "integer"]
    details[0]["doc"]["gold_index"] = [3]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(details), path)
    with pytest.raises(DocumentError, match="gold_index 3 is no choice"):
        read_dump(path, "aime2024")


def test_logs_of_inspect_are_read_from_json_and_from_its_archive(tmp_path: Path):
    again = {**SAMPLE, "epoch": 2}
    expected = [("3", "B", 0, "It is (B)"), ("3", "B", 1, "It is (B)")]
    (tmp_path / "log.json").write_text(json.dumps({"version": 2, "eval": {"task": "t"}, "samples": [SAMPLE, again]}))
    assert said(tmp_path / "log.json", "mmlu_pro") == expected
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", "{}")
        for number, sample in enumerate((SAMPLE, again), 1):
            archive.writestr(f"samples/3_epoch_{number}.json", json.dumps(sample))
    assert said(tmp_path / "log.eval", "mmlu_pro") == expected
    (tmp_path / "log.json").write_text(json.dumps({"eval": {}, "samples": [{**SAMPLE, "target": "E"}]}))
    with pytest.raises(DocumentError, match="target 'E' is no answer"):
        read_dump(tmp_path / "log.json", "mmlu_pro")


def test_outputs_without_the_row_are_answers_to_the_benchmarks_own_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path))
    lines(tmp_path / "math500.jsonl", PROBLEM)
    row = {"question_id": "t/0", "output_list": ["2", "3"], "graded_list": [True, False]}
    with pytest.warns(DataWarning, match="1 questions, expected 500"):
        assert [each[2:] for each in said(lines(tmp_path / "out.jsonl", row), "math500")] == [(0, "2"), (1, "3")]
    with pytest.raises(DocumentError, match="math500 has no question 't/9'"):
        read_dump(lines(tmp_path / "out.jsonl", {**row, "question_id": "t/9"}), "math500")


def test_a_wrong_row_of_many_is_left_out_by_name_and_more_of_them_stop(tmp_path: Path):
    rows = [{**CHOICE, "question_id": n, "response": "(B)"} for n in range(200)]
    rows[17] = {**rows[17], "answer_index": 2}
    with pytest.warns(DataWarning, match="excluded: .*answer_index"):
        assert len(said(lines(tmp_path / "out.jsonl", *rows), "mmlu_pro")) == 199
    with pytest.raises(DocumentError, match=r"answer_index.* \(and 0 more of 10 rows\)"):
        read_dump(lines(tmp_path / "out.jsonl", *rows[10:20]), "mmlu_pro")
    with pytest.raises(DocumentError, match="has no resps, model_outputs"):
        read_dump(lines(tmp_path / "out.jsonl", CHOICE), "mmlu_pro")
    with pytest.raises(ConfigError, match="no rows of its own"):
        read_dump(lines(tmp_path / "out.jsonl", CHOICE), "math:sqrt")


@pytest.mark.parametrize(
    "responses",
    [
        [[["-28.94", "False"]], [["-4.0", "True"]]],
        [[[-28.94, False]], [[-4.0, True]]],
        [["-28.94", "False"]],
        [[-28.94]],
    ],
)
def test_log_likelihoods_are_no_answers(tmp_path: Path, responses: Any):
    with pytest.raises(DocumentError, match="row 1: the row has log-likelihoods and no text"):
        read_dump(lines(tmp_path / "out.jsonl", {"doc": CHOICE, "resps": responses}), "mmlu_pro")


@pytest.mark.parametrize("responses", [["True", "False"], ["12", "yes"], [["5", "False"]]])
def test_short_answers_are_no_log_likelihoods(tmp_path: Path, responses: list[Any]):
    assert len(said(lines(tmp_path / "out.jsonl", {"doc": CHOICE, "resps": responses}), "mmlu_pro")) == 2


def test_a_sample_without_a_text_counts_as_an_empty_answer(tmp_path: Path):
    silent = {**SAMPLE, "output": {"choices": [{"message": {"content": None}}, {"message": {"content": "(B)"}}]}}
    row = {**CHOICE, "responses": [None, "(B)"]}
    for rows in (silent, row):
        assert [each[2:] for each in said(lines(tmp_path / "o.jsonl", rows), "mmlu_pro")] == [(0, ""), (1, "(B)")]
    detail = {"doc": {"query": "?", "choices": ["4"], "gold_index": 0}, "model_response": {"text": "four"}}
    assert [each[3] for each in said(lines(tmp_path / "o.jsonl", detail), "gsm8k")] == ["four"]
    with pytest.raises(DocumentError, match="the row has no resps"):
        read_dump(lines(tmp_path / "o.jsonl", {**detail, "model_response": {"text": []}}), "gsm8k")


def test_several_targets_are_alternatives(tmp_path: Path):
    detail = {"doc": {"query": "?", "choices": ["4", "four"], "gold_index": [0, 1]}, "model_response": {"text": ["4"]}}
    for row in ({**SAMPLE, "choices": [], "target": ["4", "four"]}, detail):
        (question,), _ = read_dump(lines(tmp_path / "out.jsonl", row), "gsm8k")
        assert (question.answer, question.choices, question.verifier) == ("4", [], "math")
        jobs = [Job(response=rf"\boxed{{{said}}}", question=question) for said in ("four", "4", "5")]
        assert [found.verdict for found in check_all(jobs)] == ["correct", "correct", "wrong"]
    letters = {"query": "?", "choices": ["4", "four", "5"], "gold_index": [0, 1]}
    for row in ({**SAMPLE, "target": ["A", "B"]}, {**detail, "doc": letters}):
        (question,), _ = read_dump(lines(tmp_path / "out.jsonl", row), "gsm8k")
        assert (question.answer, grading_of(question).also_right) == ("A", ("B",))
    with pytest.raises(DocumentError, match="target 'E' is no answer"):
        read_dump(lines(tmp_path / "out.jsonl", {**SAMPLE, "target": ["A", "E"]}), "gsm8k")
    with pytest.raises(DocumentError, match="target 'AB' is no answer"):
        read_dump(lines(tmp_path / "out.jsonl", {**SAMPLE, "target": "AB"}), "gsm8k")
    with pytest.raises(DocumentError, match="gold_index 3 is no choice"):
        read_dump(lines(tmp_path / "out.jsonl", {**detail, "doc": {**letters, "gold_index": [0, 3]}}), "gsm8k")
    many = {"query": "?", "choices": [f"text {place}" for place in range(11)], "gold_index": 10}
    for row in ({**SAMPLE, "choices": many["choices"], "target": "K"}, {**detail, "doc": many}):
        with pytest.raises(DocumentError, match="11 choices"):
            read_dump(lines(tmp_path / "out.jsonl", row), "gsm8k")
    with pytest.raises(DocumentError, match="field target: expected a text, found None"):
        read_dump(lines(tmp_path / "out.jsonl", {**SAMPLE, "target": []}), "gsm8k")


def test_saved_answers_are_scored_without_torch(tmp_path: Path):
    path = lines(tmp_path / "out.jsonl", {**CHOICE, "response": r"\boxed{B}"})
    program = (
        "import sys; from flows.cli.main import main\n"
        "try: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    )
    words = ["eval", "rescore", str(path), "--benchmark", "mmlu_pro", "--preset", "strict-last"]
    environment = {**os.environ, "INFUSER_STORE": str(tmp_path / "store")}
    ended = subprocess.run([sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True)
    assert "strict-last" in ended.stdout and ended.stderr.splitlines()[-1] == "False", ended.stderr
