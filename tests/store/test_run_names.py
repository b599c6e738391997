"""One rule for names of runs, at every door: `run --name`, its plan, forks, and parameters of a served run."""

from pathlib import Path

import pytest

from flows.cli import run as commands
from flows.full_pipeline import infuser
from infuser_core.config.overlays import load
from infuser_core.errors import UsageError
from infuser_core.store.runs import NAME_CHARS, check_name

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
