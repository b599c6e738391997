"""Chaos in short: damage and disturbances that a person can meet, each survived with the same answers and bits."""

from pathlib import Path

import pytest
from campaign import torment
from crash_points import content, mismatches
from launcher import Launcher, SmallRun
from motion import missing
from readers import Readers
from script import Fault, parse, scripts, shrink
from world import KEEP, copy, world

from infuser_core.store import pruned

SECONDS = 45.0
# The likeliest first: a slow machine does not come to the last.
LIKELY = (
    "kill:main:0.7:0.2",
    "flip:table:0.4:0.5",
    "delete:checkpoint:0.5:0",
    "start:same:0.8:0",
    "stop:main:0.8:0.1",
    "disk:full:0.9:0.1",
    "empty:report:0.3:0",
    "truncate:locks:0.5:0.5",
    "disk:readonly:0.9:0",
)


@pytest.mark.slow
def test_likely_faults_are_survived(launch: Launcher, small_run: SmallRun, tmp_path: Path, capsys):
    made = world(launch, small_run, tmp_path)
    chosen = (parse(words) for words in LIKELY if words.partition(":")[0] not in missing())
    tally = torment(Readers(world=made), chosen, seconds=SECONDS, stopped=5.0)
    assert not tally.findings, capsys.readouterr().out
    assert tally.faults


def test_a_thinned_artifact_has_the_content_of_a_whole_one_and_a_damaged_one_has_not(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    root = tmp_path / "store"
    copy(small_run.root, root)
    whole = content(root, small_run.name)
    assert launch("gc", "--apply", *KEEP, store=root).code == 0
    thinned = next(root.glob(f"artifacts/*/*/{pruned.FILE}")).parent
    assert content(root, small_run.name) == whole
    removed = next(iter(pruned.read_removed(thinned)))
    (thinned / removed).write_bytes(b"other")
    assert mismatches(whole, content(root, small_run.name)) == [thinned.name]
    (thinned / removed).unlink()
    (thinned / pruned.FILE).unlink()
    assert mismatches(whole, content(root, small_run.name)) == [thinned.name]


def test_a_seed_gives_the_same_script_and_its_words_repeat_it():
    kinds = {"flip": ["table", "locks"], "delete": ["table"]}
    drawn = list(scripts(7, 20, kinds, {"kill": ["main"]}))
    assert drawn == list(scripts(7, 20, kinds, {"kill": ["main"]}))
    assert sum(map(len, drawn)) == 20
    assert all(parse(" ".join(map(str, script))) == script for script in drawn)
    assert {len(script) for script in drawn if script[0].kind == "kill"} == {1}


def test_a_failing_script_shrinks_to_the_faults_that_it_needs():
    script = tuple(Fault(kind="flip", target=name) for name in "abcd")
    assert [fault.target for fault in shrink(script, lambda part: {"b", "d"} <= {f.target for f in part})] == ["b", "d"]
