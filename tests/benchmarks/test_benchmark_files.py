"""Benchmark files are found in one order of places, in any common format, and refused with their place."""

import csv
import gzip
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import places
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError, DataWarning, DocumentError
from infuser_core.evaluation.benchmarks import math500
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.evaluation.benchmarks.parts.loader import describe_benchmark, find_benchmark
from infuser_core.evaluation.benchmarks.parts.spec import locate_files, source_of, split_files
from infuser_core.schemas import Question
from infuser_core.terminal import format_warning

DATA = places.DATA / "benchmarks"
ROW = {"problem": "Find it.", "answer": "2", "subject": "Algebra", "level": 1, "unique_id": "test/a/1.json"}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def read(path: Path | str = "", name: str = "math500") -> list[Question]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_benchmark(name)(BenchmarkSettings(name=name, path=str(path)))


def rows(*names: str) -> list[dict[str, Any]]:
    return [{**ROW, "unique_id": name, "problem": f"Find {name}."} for name in names]


def write(path: Path, content: list[dict[str, Any]]) -> Path:
    """The rows in the format that the file's name asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(content), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(content[0]))
            writer.writeheader()
            writer.writerows(content)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    else:
        path.write_text(json.dumps(content, indent=1))
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json", ".csv"])
def test_every_format_gives_the_same_questions(tmp_path: Path, suffix: str):
    found = read(write(tmp_path / f"any{suffix}", rows("a", "b")))
    assert found == read(write(tmp_path / "other.jsonl", rows("a", "b")))
    assert [question.question_id for question in found] == ["a", "b"]


@pytest.mark.parametrize(
    "suffix", [".parquet", ".PARQUET", ".JSONL", ".jsonl.gz", ".JSON.GZ", ".csv.gz", ".tsv", ".TSV"]
)
def test_files_with_capitals_or_packed_are_found_where_small_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
):
    monkeypatch.setenv("INFUSER_DATA", str(tmp_path))
    plain = suffix.lower().removesuffix(".gz")
    content = write(tmp_path / f"draft{plain.replace('.tsv', '.csv')}", rows("a")).read_bytes()
    content = content.replace(b",", b"\t") if plain == ".tsv" else content
    path = tmp_path / f"math500{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.lower().endswith(".gz") else content)
    assert locate_files(describe_benchmark("math500"), BenchmarkSettings(name="math500")) == [path]
    assert [question.question_id for question in read()] == ["a"]
    folder = tmp_path / "set"
    folder.mkdir()
    path.rename(folder / f"TEST{suffix}")
    write(folder / "train.jsonl", rows("b"))
    assert [question.question_id for question in read(folder)] == ["a"]


@pytest.mark.parametrize("key", ["examples", "data", "questions", "rows"])
def test_an_object_that_holds_the_rows_is_read_pretty_or_plain(tmp_path: Path, key: str):
    for name, indent in (("plain", None), ("pretty", 2)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"canary": "x", key: rows("a")}, indent=indent))
        assert [question.question_id for question in read(tmp_path / f"{name}.json")] == ["a"]


def test_json_lines_may_be_called_json(tmp_path: Path):
    (tmp_path / "lines.json").write_text("\n".join(json.dumps(row) for row in rows("a", "b")) + "\n\n")
    assert len(read(tmp_path / "lines.json")) == 2


def test_the_configured_path_comes_before_the_data_folder(tmp_path: Path, data: Path):
    write(data / "math500.jsonl", rows("folder"))
    assert [question.question_id for question in read()] == ["folder"]
    assert [question.question_id for question in read(write(tmp_path / "own.json", rows("own")))] == ["own"]


@pytest.mark.parametrize(
    "place", ["math500/test.jsonl", "math500/data/test-0.parquet", "math500.parquet", "math500.csv"]
)
def test_the_data_folder_holds_a_file_or_a_folder_of_the_benchmarks_name(data: Path, place: str):
    write(data / place, rows("here"))
    assert [question.question_id for question in read()] == ["here"]


def test_of_several_layouts_the_preferred_one_is_read_alone(tmp_path: Path):
    for name in ("data/test-00000-of-00001.parquet", "test.jsonl", "train.jsonl"):
        write(tmp_path / "set" / name, rows(name))
    assert [question.question_id for question in read(tmp_path / "set")] == ["test.jsonl"]


def test_a_folder_of_an_unknown_layout_gives_its_split_or_all_it_has(tmp_path: Path):
    write(tmp_path / "set" / "my_test_part.json", rows("a"))
    write(tmp_path / "set" / "train.json", rows("b"))
    assert [question.question_id for question in read(tmp_path / "set")] == ["a"]
    write(tmp_path / "plain" / "x.json", rows("c"))
    write(tmp_path / "plain" / "y.json", rows("d"))
    assert [question.question_id for question in read(tmp_path / "plain")] == ["c", "d"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mmlu_pro", ["data/test-00000-of-00001.parquet"]),
        ("medqa", ["phrases_no_exclude_test.jsonl"]),
        ("medxpertqa", ["Text/test.jsonl"]),
        ("humaneval_plus", ["data/test-00000-of-00001-5f.parquet"]),
        ("livecodebench", ["test.jsonl", "test5.jsonl"]),
        ("aime2025", ["aime2025-I.jsonl", "aime2025-II.jsonl"]),
        ("gpqa_diamond", ["gpqa_diamond.csv"]),
    ],
)
def test_the_split_is_read_and_its_neighbours_are_not(name: str, expected: list[str]):
    benchmark = describe_benchmark(name)
    assert benchmark is not None
    found = split_files(benchmark, DATA / name)
    assert [path.relative_to(DATA / name).as_posix() for path in found] == expected


def test_a_contest_is_known_by_its_folder_or_its_file(tmp_path: Path):
    benchmark = describe_benchmark("hmmt")
    assert benchmark is not None
    assert source_of(benchmark, tmp_path / "hmmt_feb_2025" / "data" / "train-0.parquet") == "hmmt_feb_2025"
    assert source_of(benchmark, tmp_path / "HMMT_Feb_2026.jsonl") == "hmmt_feb_2026"
    assert source_of(benchmark, tmp_path / "mine.jsonl") == "mine"
    shutil.copytree(DATA / "hmmt", tmp_path / "copy")
    names = [question.question_id for question in read(tmp_path / "copy", "hmmt")]
    assert names == ["hmmt_feb_2025-1", "hmmt_feb_2025-2", "hmmt_feb_2026-1", "hmmt_nov_2025-1"]


def test_a_question_twice_names_both_places(tmp_path: Path):
    write(tmp_path / "set" / "one.json", rows("a", "b"))
    write(tmp_path / "set" / "two.json", rows("b"))
    with pytest.raises(DocumentError) as caught:
        read(tmp_path / "set")
    one, two = tmp_path / "set" / "one.json", tmp_path / "set" / "two.json"
    assert caught.value.message == f"math500: question b is in {one}, row 2 and again in {two}, row 1"


def test_where_the_data_repeats_itself_every_copy_is_kept_and_announced():
    copy = str(DATA / "supergpqa" / "SuperGPQA-all.jsonl")
    names = [question.question_id for question in read(copy, "supergpqa")]
    assert names[-2:] == ["a77f-05", "a77f-05#2"]


def test_a_wrong_row_names_benchmark_file_row_and_field(tmp_path: Path):
    path = write(tmp_path / "set.jsonl", [*rows("a"), {**ROW, "answer": None}])
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert caught.value.message == f"math500: {path}, row 2: field answer: expected a text, found None"


def test_a_wrong_row_in_a_hundred_is_named_and_left_out(tmp_path: Path):
    good = rows(*(f"q{number}" for number in range(120)))
    path = write(tmp_path / "set.jsonl", [*good[:7], {**ROW, "answer": None}, *good[7:]])
    with pytest.warns(DataWarning) as seen:
        found = math500.BENCHMARK.load(BenchmarkSettings(name="math500", path=str(path)))
    assert [question.question_id for question in found] == [row["unique_id"] for row in good]
    said = [str(warning.message) for warning in seen]
    assert said[:2] == [
        f"excluded: math500: {path}, row 8: field answer: expected a text, found None",
        "math500: 1 of 121 rows are wrong and excluded",
    ]


def test_more_wrong_rows_stop_and_are_counted(tmp_path: Path):
    good = rows(*(f"q{number}" for number in range(120)))
    path = write(tmp_path / "set.jsonl", [*good, {**ROW, "answer": None}, {**ROW, "answer": None}])
    with pytest.raises(DocumentError, match=r"row 121: .* \(and 1 more of 122 rows are wrong\)"):
        read(path)


def test_a_missing_column_names_what_is_there(tmp_path: Path):
    path = write(tmp_path / "set.jsonl", [{"question": "Q", "answer": "1"}])
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert caught.value.message == f"math500: {path}, row 1: no field problem; there are question, answer"
    assert "HuggingFaceH4/MATH-500" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("set.jsonl", b'{"problem": "x"', "line 1 is not JSON"),
        ("set.json", b"[1, 2]", "row 1 is no object"),
        ("set.json", b"[{]", "is not JSON"),
        ("set.jsonl", b"\xff\xfe\x00", "is not UTF-8: byte 0xff"),
        ("set.csv", b"problem,answer\ncaf\xe9,2\n", "is not UTF-8: byte 0xe9"),
        ("set.csv", b"problem,answer\nWhat is 1,000 + 1?,1001\n", "line 2 has more cells than the header"),
        ("set.csv", b'problem,answer\n"What is 1 + 1?,2\nWhat is 2 + 2?,4\n', "is no CSV: unexpected end of data"),
        ("set.tsv", b'problem\tanswer\n"One" and "two"?\t3\n', "is no CSV"),
        ("set.csv", b"problem,answer,answer\nx,1,2\n", "has two columns of one name"),
        ("set.jsonl.gz", gzip.compress(b"{}", mtime=0)[:-9], "is damaged"),
        ("set.csv", b"PK\x03\x04 and so on", "is a zip archive or a workbook"),
        ("set.parquet", b"PAR1 no", "is no parquet file"),
        ("set.jsonl", b"", "holds no rows"),
        ("set.json", b"", "is not JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DocumentError, match=message) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "name", ["SET.PARQUET", "set.pq", "SET.CSV", "set.tsv", "set.jsonl.gz", "set.csv.gz", "set.JSON"]
)
def test_a_format_is_known_by_content_or_by_its_name_in_any_letters(tmp_path: Path, name: str):
    plain = {"pq": "parquet", "tsv": "csv"}.get(name.lower().split(".")[1], name.lower().split(".")[1])
    content = write(tmp_path / f"plain.{plain}", rows("a", "b")).read_bytes()
    content = content.replace(b",", b"\t") if name == "set.tsv" else content
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [row["unique_id"] for row in rows_of(path)] == ["a", "b"]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_half_a_surrogate_pair_is_replaced_and_counted(tmp_path: Path, suffix: str):
    path = write(tmp_path / f"set{suffix}", [{"a": "cut \ud83d", "b": ["\ude00", {"c": "\U0001f600"}]}, {"a": "whole"}])
    with pytest.warns(DataWarning, match="half a surrogate pair in 2 texts"):
        found = list(rows_of(path))
    assert found == [{"a": "cut \ufffd", "b": ["\ufffd", {"c": "\U0001f600"}]}, {"a": "whole"}]


def test_a_path_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"benchmark math500: path = '.*nowhere': no such file or folder"):
        read(tmp_path / "nowhere")


def test_a_folder_without_data_says_what_was_expected(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no file of its test split") as caught:
        read(tmp_path / "empty")
    assert "test.jsonl" in caught.value.hint


def test_a_changed_file_is_read_again(tmp_path: Path):
    path = write(tmp_path / "set.jsonl", rows("a"))
    assert len(read(path)) == 1
    assert len(read(write(path, rows("a", "b")))) == 2


def test_large_files_come_row_by_row(tmp_path: Path):
    path = tmp_path / "large.jsonl"
    path.write_text(json.dumps({"n": 0}) + "\n" + "no json\n")
    found = rows_of(path)
    assert next(found) == {"n": 0}, "the second line was not looked at yet"
    with pytest.raises(DocumentError, match="line 2 is not JSON"):
        next(found)


def test_another_number_of_questions_is_announced_in_one_line(tmp_path: Path):
    path = write(tmp_path / "set.jsonl", rows("a", "b"))
    with pytest.warns(DataWarning) as seen:
        math500.BENCHMARK.load(BenchmarkSettings(name="math500", path=str(path)))
    assert [str(warning.message) for warning in seen] == ["math500: 2 questions, expected 500: scores do not compare"]


def test_own_warnings_are_one_line_and_others_say_where_they_are_from():
    assert format_warning(DataWarning("math500: few"), DataWarning, "x.py", 3) == "warning: math500: few\n"
    assert format_warning(UserWarning("odd"), UserWarning, "x.py", 3) == "x.py:3: UserWarning: odd\n"


def test_a_file_is_located_without_being_read(tmp_path: Path):
    (tmp_path / "set.jsonl").write_text("no json")
    assert locate_files(math500.BENCHMARK, BenchmarkSettings(name="math500", path=str(tmp_path / "set.jsonl"))) == [
        tmp_path / "set.jsonl"
    ]
