"""Pins are set, listed and taken away by name, and wrong names are answered in one line."""

import json
from pathlib import Path

import pytest
from care_tools import made_up
from launcher import Launcher

from infuser_core.errors import StoreError, UsageError
from infuser_core.store import retention, runs
from infuser_core.store.gc import apply, plan


def test_pins_are_listed_with_their_checkpoints(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 3, selected=3)
    assert launch("pin", "--list", store=tmp_path).out == "no pins\n"
    for place in ("run@2", "run@1", "run@2"):
        assert launch("pin", place, store=tmp_path).code == 0
    listed = launch("pin", "--list", "--json", store=tmp_path)
    expected = [{run.checkpoint(number, role).name for role in ("solver", "generator")} for number in (1, 2)]
    assert [(each["run"], each["iteration"]) for each in json.loads(listed.out)] == [("run", 1), ("run", 2)]
    assert [set(each["checkpoints"]) for each in json.loads(listed.out)] == expected
    assert launch("unpin", "run@1", store=tmp_path).out == "unpinned run@1\n"
    assert launch("pin", "--list", store=tmp_path).out.startswith("run@2  update_")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("run", "names no checkpoint"),
        ("run@x", "names no checkpoint"),
        ("run@4", "no checkpoint after 4"),
        ("no@1", "no run"),
    ],
)
def test_a_place_that_does_not_exist_is_named(tmp_path: Path, place: str, said: str):
    made_up(tmp_path, "run", 3, selected=3)
    with pytest.raises(UsageError, match=said) as caught:
        retention.pin(tmp_path, place)
    assert caught.value.hint


def test_what_is_not_pinned_cannot_be_unpinned(tmp_path: Path):
    made_up(tmp_path, "run", 3, selected=3)
    retention.pin(tmp_path, "run@1")
    with pytest.raises(UsageError, match="run@2 is not pinned") as caught:
        retention.unpin(tmp_path, "run@2")
    assert "run@1" in caught.value.hint


def test_pinning_what_gc_thinned_out_says_how_to_get_it_back(tmp_path: Path):
    made_up(tmp_path, "run", 4, selected=4)
    with runs.sweeping(tmp_path):
        apply(tmp_path, plan(tmp_path))
    assert "`infuser repair run --iteration 1` makes it whole" in retention.pin(tmp_path, "run@1")


def test_gc_touches_nothing_while_pins_cannot_be_read(tmp_path: Path):
    made_up(tmp_path, "run", 4, selected=4)
    (tmp_path / "runs" / "run" / retention.FILE).write_text("{")
    with pytest.raises(StoreError, match=r"pins\.json is damaged"):
        plan(tmp_path)
