"""Names of runs follow one rule, and a name keeps its settings."""

import json
from pathlib import Path

import pytest

from flows.cli import run as commands
from flows.full_pipeline import infuser
from infuser_core.config.overlays import load
from infuser_core.errors import ConfigError, UsageError
from infuser_core.store.runs import (
    NAME_CHARS,
    check_name,
    control_of,
    create_run,
    find_method,
    find_run,
    list_runs,
    mark_latest,
    read_config,
)

NANO = Path(__file__).parents[2] / "configs" / "nano.yaml"
ODD = [
    "../x",
    "a/b",
    "a\nb",
    "a\n",
    "a b",
    "",
    ".",
    "..",
    ".x",
    "-x",
    "x.",
    "CON",
    "nul.txt",
    "übung",
    "ａ",
    "a\x1b[2J",
]
ODD.append("a" * (NAME_CHARS + 1))


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_refused_in_one_short_line(name: str):
    with pytest.raises(UsageError, match="not a name for a run") as caught:
        check_name(name)
    assert caught.value.message.isprintable() and len(caught.value.message) < 200 and caught.value.hint


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "console", "2026-run", "a" * NAME_CHARS, "_".join(["x"] * 20)])
def test_plain_names_are_taken(name: str):
    check_name(name)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_plan_has_the_rule_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    with pytest.raises(UsageError, match="not a name for a run"):
        commands.run([str(NANO)], name="../x", dry_run=dry_run)
    assert [*tmp_path.rglob("*")] == []


def test_a_served_run_has_it_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    with pytest.raises(UsageError, match="not a name for a run"):
        infuser.fn(name="a\nb")
    assert not (tmp_path / "store").exists()


def test_the_longest_name_that_settings_give_is_one():
    config = load([NANO], [f"name={'n' * 40}", f"variant={'v' * 100}", f"seed={2**32 - 1}"])
    assert len(config.run_name()) == NAME_CHARS
    check_name(config.run_name())


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


def test_without_a_name_a_reader_gets_the_method_and_not_its_control(tmp_path: Path):
    for name, update in (("method", True), ("other", True), ("control", False)):
        seed = 2 if name == "other" else 1
        config = {"name": "nano", "seed": seed, "cotrain": {"generator": {"update": update}}}
        create_run(tmp_path, name, config)
        mark_latest(tmp_path, name)
    assert find_run(tmp_path, None) == "control"
    assert find_method(tmp_path, None) == "method" and control_of(tmp_path, "method") == "control"
    assert find_method(tmp_path, "control") == "control" and control_of(tmp_path, "other") == ""
