"""A repair goes no further than it must: not beside a living process, not beyond an unfinished run, not to new code."""

import shutil
from pathlib import Path

import pytest
from care_tools import HARMS, WEIGHTS, artifact_of, copy_run, doctor, flip, health, made_up
from launcher import Launcher, SmallRun

from infuser_core.errors import BusyRunError
from infuser_core.store import catalogue as index
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.doctor import describe, prepare, pruned_at, restoration
from infuser_core.store.gc import apply, plan
from infuser_core.store.runs import Journal
from infuser_core.store.store import Store


def test_a_run_that_a_living_process_holds_is_refused(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    other = made_up(tmp_path, "other", 3, selected=3)
    flip(run.checkpoint(1), WEIGHTS)
    with runs.holding(tmp_path, "run"):
        for arguments in (["repair", "run"], ["repair", "other"], ["repair"]):
            refused = launch(*arguments, store=tmp_path)
            assert refused.code == 2 and "run run is being executed by process" in refused.err, refused
    assert other.checkpoint(1).exists() and not (tmp_path / "damaged").exists()


def test_everything_damaged_moves_aside_and_nothing_else(tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    harmed = [run.checkpoint(1), run.folder("generate_questions", 0), run.checkpoint(2)]
    for folder, harm in zip(harmed, ("truncated", "garbled record", "lost artifact"), strict=True):
        HARMS[harm](folder, WEIGHTS)
    whole = {path.name for path in (tmp_path / "artifacts").glob("*/*")}
    prepared = prepare(tmp_path, "run")
    assert [each.key for each in prepared.aside] == [harmed[1].name, harmed[0].name] or len(prepared.aside) == 2
    assert {path.name for path in (tmp_path / "artifacts").glob("*/*")} == whole - {folder.name for folder in harmed}
    assert sorted(prepared.lost) == sorted(folder.name for folder in harmed)
    assert all(prepared.lost.values()), "the journal knows their digests"
    assert prepared.runs == ["run"]
    for each in prepared.aside:
        assert each.path.is_dir() and each.key in each.line

    made_up(tmp_path, "run", 2, selected=2)
    said = describe(tmp_path, prepared, ["run"], [])
    assert said.count("the same digest") == 3 and health(tmp_path).damage == []


def test_the_index_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index, "WORTH_KEEPING", 1)
    made_up(tmp_path, "run", 2, selected=2)
    Catalogue(tmp_path)
    path = tmp_path / index.FILE
    right = sorted(path.read_text().split("\n"))
    path.write_text(path.read_text().replace('"facts":1', '"facts":3') + "torn")
    assert health(tmp_path).damage
    prepare(tmp_path, None)
    assert sorted(path.read_text().split("\n")) == right
    assert health(tmp_path).problems == []


def test_a_chain_of_pruned_checkpoints_is_restored_back_to_the_last_whole_one(tmp_path: Path):
    run = made_up(tmp_path, "run", 9, selected=4)
    with runs.sweeping(tmp_path):
        apply(tmp_path, plan(tmp_path))
    solvers = [run.checkpoint(number).name for number in (7, 6, 5)]
    assert [key for key in pruned_at(tmp_path, "run", 7) if key.startswith("update_solver")] == solvers
    assert pruned_at(tmp_path, "run", 8) == [] == pruned_at(tmp_path, "run", 0)
    catalogue = Catalogue(tmp_path)
    update, questions = run.folder("update_solver", 5).name, run.folder("generate_questions", 5).name
    assert restoration(catalogue, tmp_path, [update]) == [run.checkpoint(5).name]
    assert restoration(catalogue, tmp_path, [questions]) == [], "the weights that it samples from are there"
    asked = run.folder("generate_questions", 6).name
    assert restoration(catalogue, tmp_path, [asked])[0] == run.checkpoint(6, "generator").name


def test_damage_that_no_run_holds_moves_aside_alone(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 1, selected=1)
    folder = run.checkpoint(1)
    for path in (tmp_path / "runs" / "run").iterdir():
        path.unlink()
    flip(folder, WEIGHTS)
    repaired = launch("repair", store=tmp_path)
    assert repaired.code == 0, repaired.err
    assert f"set aside {folder.name}" in repaired.out and f"not computed {folder.name}: no run needs it" in repaired.out
    assert launch("doctor", store=tmp_path).code == 0


def test_a_healthy_run_is_left_as_it_is(launch: Launcher, tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    journal = Journal(tmp_path, "run").path.read_bytes()
    repaired = launch("repair", "run", store=tmp_path)
    assert (repaired.code, repaired.out) == (0, "nothing is damaged or pruned there; the index was built anew\n")
    assert Journal(tmp_path, "run").path.read_bytes() == journal


def test_a_run_begins_only_when_gc_has_ended(launch: Launcher, tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    with runs.sweeping(tmp_path), pytest.raises(BusyRunError), runs.sweeping(tmp_path):
        pass
    with runs.sweeping(tmp_path):
        refused = launch("gc", "--apply", store=tmp_path)
        assert refused.code == 2 and "another process removes or fetches files" in refused.err
    assert launch("gc", "--apply", store=tmp_path).code == 0


@pytest.mark.slow
@pytest.mark.long
def test_an_unfinished_run_is_repaired_as_far_as_it_was(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_run(small_run, tmp_path / "store")
    journal = Journal(store, "small")
    lines = journal.path.read_text().splitlines(keepends=True)
    (end,) = [number for number, line in enumerate(lines) if '"update_solver", "iteration": 0' in line]
    journal.path.write_text("".join(lines[: end + 1]))
    kept = {entry.key for entry in journal.entries()}
    for folder in (store / "artifacts").glob("*/*"):
        if folder.name not in kept:
            shutil.rmtree(folder)
    harmed = [artifact_of(store, "small", phase, 0) for phase in ("rollout_questions", "update_solver")]
    flip(harmed[0], "rollouts.parquet")
    flip(harmed[1], WEIGHTS)

    repaired = launch("repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    ran = [entry.key for entry in journal.last_attempt() if entry.state == "ran"]
    assert ran == [folder.name for folder in harmed]
    assert {ref.key for ref in Store(store).refs()} == kept and not journal.is_finished()
    assert doctor(launch, store)["damage"] == []
    assert launch("resume", "small", store=store).code == 0
    assert launch("digest", "small", store=store).out == launch("digest", "small", store=small_run.root).out


@pytest.mark.slow
@pytest.mark.long
def test_a_run_of_another_version_of_the_code_is_not_computed_anew(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = copy_run(small_run, tmp_path / "store")
    record = store / "runs" / "small" / "run.json"
    record.write_text(record.read_text().replace('"group_size": 4', '"group_size": 3'))
    flip(artifact_of(store, "small", "update_solver", 1), WEIGHTS)
    before = {path.name for path in (store / "artifacts").glob("*/*")}
    refused = launch("repair", "small", store=store)
    assert refused.code == 3 and "another version of the code" in refused.err and "--dry-run" in refused.err
    assert {path.name for path in (store / "artifacts").glob("*/*")} < before
