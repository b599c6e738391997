"""One JSON file per run, in the common style: written, read again, and files of others understood."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import UsageError
from infuser_core.report.leaderboard import RunResult, metrics, read, to_json, write
from infuser_core.statistics.tally import from_counts

names = st.text("abcdefgh_0123456789", min_size=1, max_size=8)
results = st.builds(
    RunResult,
    model_name=st.text(min_size=1, max_size=12),
    model_sha=st.text("0123456789abcdef", max_size=8),
    model_dtype=st.sampled_from(["", "bfloat16"]),
    results=st.dictionaries(names, st.dictionaries(names, st.floats(allow_nan=False, allow_infinity=False))),
    versions=st.dictionaries(names, names),
    n_shot=st.dictionaries(names, st.integers(0, 64)),
    date=st.floats(0, 2e9),
)


@given(result=results)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, result: RunResult):
    path = tmp_path_factory.mktemp("results") / "run.json"
    write(path, result)
    assert read(path) == result
    assert [file.name for file in path.parent.iterdir()] == ["run.json"]


def test_metrics_of_a_tally():
    tally = from_counts({"a": 2, "b": 0, "c": 1}, 2, no_answer={"b": 1}, unverified={"c": 1})
    found = metrics(tally, ks=[1, 2])
    assert found["acc"] == found["pass@1"] == 0.5 and found["pass@2"] == pytest.approx(2 / 3)
    assert found["acc_stderr"] == pytest.approx(0.5 / math.sqrt(3))
    assert (found["acc_lenient"], found["no_answer"], found["unverified"]) == (3 / 4, 1 / 6, 1 / 6)
    assert (found["questions"], found["samples"]) == (3, 6)
    assert "acc_stderr" not in metrics(from_counts({"a": 1}, 2))
    with pytest.raises(UsageError, match="no questions"):
        metrics(from_counts({}, 1))


def saved(tmp_path: Path, record: object) -> Path:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(record))
    return path


def test_results_with_filters_and_missing_errors_are_read(tmp_path: Path):
    record = {
        "results": {
            "quiz": {"alias": "quiz", "acc,none": 0.25, "acc_stderr,none": 0.01, "norm,none": 0.5},
            "sums": {"match,strict": 0.5, "match,flexible": 0.75, "match_stderr,strict": "N/A"},
        },
        "config": {"model": "hub", "model_revision": "abc", "dtype": "float32"},
        "versions": {"quiz": 2.0},
        "n-shot": {"quiz": 5},
        "date": 1700000000.5,
        "model_name": "ours/model",
    }
    found = read(saved(tmp_path, record))
    assert (found.model_name, found.model_sha, found.model_dtype, found.date) == (
        "hub",
        "abc",
        "float32",
        1700000000.5,
    )
    assert found.results["quiz"] == {"acc": 0.25, "acc_stderr": 0.01, "norm": 0.5}
    assert found.results["sums"] == {"match": 0.5, "match,flexible": 0.75}
    assert (found.versions, found.n_shot) == ({"quiz": "2.0"}, {"quiz": 5})


def test_tasks_named_with_suite_and_shots_are_read(tmp_path: Path):
    record = {
        "config_general": {"model_name": "m", "model_sha": "s", "model_dtype": "d"},
        "results": {"suite|quiz|3": {"acc": 0.5, "acc_stderr": 0.1}},
        "date": "2025-01-02T00:00:00+00:00",
    }
    found = read(saved(tmp_path, record))
    assert (found.model_name, found.results, found.n_shot) == (
        "m",
        {"quiz": {"acc": 0.5, "acc_stderr": 0.1}},
        {"quiz": 3},
    )
    assert found.date == 1735776000


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "no field `results`"),
        ({"results": {"quiz": 0.5}}, "results of quiz: float"),
        ({"results": {}, "date": "soon"}, "date 'soon'"),
        ({"results": {}, "versions": 3}, "`versions` is int"),
    ],
)
def test_what_is_no_result_is_refused_by_field(tmp_path: Path, record: object, message: str):
    with pytest.raises(UsageError, match=message):
        read(saved(tmp_path, record))


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(UsageError, match="not JSON"):
        read(tmp_path / "torn.json")


def test_equal_results_are_equal_files():
    result = RunResult(
        model_name="m", model_sha="", model_dtype="", results={"q": {"acc": 0.5}}, versions={}, n_shot={}, date=0.0
    )
    assert to_json(result) == to_json(result) and list(json.loads(to_json(result))) == [
        "config",
        "results",
        "versions",
        "n-shot",
        "date",
    ]
