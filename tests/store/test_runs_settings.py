"""A run's name stands for its settings: other settings under the same name are refused."""

import json
from pathlib import Path

import pytest

from infuser_core.errors import ConfigError, UsageError
from infuser_core.store.runs import create_run, find_run, list_runs, read_config

SETTINGS = {"seed": 42, "cotrain": {"iterations": 5, "documents": 8}, "benchmarks": [{"name": "exam"}]}


def test_the_resolved_settings_are_kept(tmp_path: Path):
    create_run(tmp_path, "run", SETTINGS)
    assert read_config(tmp_path, "run") == SETTINGS
    before = (tmp_path / "runs" / "run" / "run.json").read_bytes()
    create_run(tmp_path, "run", json.loads(json.dumps(SETTINGS)))
    assert (tmp_path / "runs" / "run" / "run.json").read_bytes() == before


def test_other_settings_under_the_same_name_are_refused(tmp_path: Path):
    create_run(tmp_path, "run", SETTINGS)
    with pytest.raises(ConfigError) as caught:
        create_run(tmp_path, "run", {**SETTINGS, "cotrain": {"iterations": 6, "documents": 8}})
    assert caught.value.message == "run run exists with other settings: cotrain.iterations is 5, asked 6"
    assert "--name" in caught.value.hint
    assert read_config(tmp_path, "run") == SETTINGS


@pytest.mark.parametrize("name", ["", ".", "..", "../elsewhere", "a/b", "/tmp/run", "a b", "-x", "a\n"])
def test_a_name_never_leads_out_of_the_store(tmp_path: Path, name: str):
    with pytest.raises(UsageError):
        create_run(tmp_path / "store", name, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_run_is_named_with_those_that_exist(tmp_path: Path):
    with pytest.raises(UsageError, match="no runs yet") as none:
        find_run(tmp_path, None)
    assert "infuser run" in none.value.hint
    create_run(tmp_path, "base", SETTINGS)
    with pytest.raises(UsageError, match="no run named other") as other:
        find_run(tmp_path, "other")
    assert other.value.hint == "known: base"
    assert find_run(tmp_path, None) == find_run(tmp_path, "base") == "base"
    assert list_runs(tmp_path) == ["base"]


def test_a_run_goes_by_the_beginning_of_its_name(tmp_path: Path):
    for name in ("nano", "nano-s1", "nano-s12", "wide"):
        create_run(tmp_path, name, SETTINGS)
    assert [find_run(tmp_path, text) for text in ("nano", "nano-s1", "nano-s12", "w")] == [
        "nano", "nano-s1", "nano-s12", "wide",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="3 runs begin with nan") as several:
        find_run(tmp_path, "nan")
    assert all(name in several.value.hint for name in ("nano", "nano-s1", "nano-s12"))
    with pytest.raises(UsageError, match="no run named wyde") as none:
        find_run(tmp_path, "wyde")
    assert none.value.hint.startswith("did you mean wide?")
