"""A repair gives back the undisturbed run's bits, and goes no further than it must."""

import shutil
from pathlib import Path

import pytest
from care_tools import HARMS, WEIGHTS, artifact_of, bits, copy_run, differing, doctor, flip, forget, made_up
from launcher import Launcher, SmallRun

from infuser_core.store import pruned, runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.doctor import describe_repair, examine, keys_to_restore, keys_to_restore_at, prepare_repair
from infuser_core.store.gc import apply_plan, plan_gc
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST
from infuser_core.store.store import Store

# The middle of a chain of checkpoints; its optimizer; an input of everything; a table between two phases.
SOLVER = ("update_solver", 0, WEIGHTS)
MOMENTS = ("update_generator", 0, "optimizer.safetensors")
TABLE = ("judge", -1, "judgements.parquet")
CHOICE = ("select", -1, "selections.parquet")
CASES = [("flipped bit", *SOLVER), ("truncated", *MOMENTS), ("lost record", *TABLE), ("lost artifact", *CHOICE)]
MORE = [("deleted", *SOLVER), ("garbled record", *SOLVER), ("lost artifact", *MOMENTS), ("flipped bit", *TABLE)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "phase", "iteration", "name"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE)]
)
def test_a_repaired_run_has_the_undisturbed_runs_bits(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, harm: str, phase: str, iteration: int, name: str
):
    store = copy_run(small_run, tmp_path / "store")
    folder = artifact_of(store, "small", phase, iteration)
    HARMS[harm](folder, name)
    damage = doctor(launch, store, "small")["damage"]
    assert folder.name in {problem["key"] for problem in damage}
    assert all("infuser doctor small --repair" in problem["remedy"] for problem in damage)
    repaired = launch("doctor", "--repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    assert f"computed again {folder.name}: the same digest" in repaired.out
    assert [entry.key for entry in Journal(store, "small").last_attempt() if entry.state == "ran"] == [folder.name]
    assert differing(small_run, store) == [] and doctor(launch, store)["damage"] == []
    aside = list((store / "damaged").glob("*"))
    assert len(aside) == (harm != "lost artifact") and ("set aside" in repaired.out) == bool(aside)


@pytest.mark.slow
@pytest.mark.parametrize("line", [3, -2, None])
def test_a_damaged_journal_is_made_anew_from_what_the_store_holds(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, line: int | None
):
    store = copy_run(small_run, tmp_path / "store")
    path = Journal(store, "small").path
    lines = path.read_bytes().splitlines(keepends=True)
    if line is not None:
        lines[line] = lines[line].replace(b'"attempt"', b'"atteMpt"')
    path.write_bytes(b"".join(lines) if line is not None else b"")
    assert doctor(launch, store)["state"] == "repairable"
    refused = launch("result", "small", store=store)
    assert refused.code == 3 and "infuser doctor" in refused.err and "Traceback" not in refused.err
    refused = launch("gc", "--apply", store=store)
    assert refused.code == 3 and "gc cannot know what runs/small holds" in refused.err
    repaired = launch("doctor", "--repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    assert {entry.state for entry in Journal(store, "small").last_attempt()} == {"cached"}
    assert differing(small_run, store) == [] and doctor(launch, store)["state"] == "healthy"
    gone = {item.path.name for item in plan_gc(store).items if item.kind == "unreferenced"}
    assert not gone & {entry.key for entry in Journal(store, "small").latest()}


def thinned(launch: Launcher, small_run: SmallRun, target: Path) -> Path:
    """The small run with nothing of its first update but the facts."""
    store = copy_run(small_run, target)
    ended = launch("gc", "--apply", "--keep-full", "1", store=store)
    assert ended.code == 0, ended.err
    for phase in ("update_solver", "update_generator"):
        folder = artifact_of(store, "small", phase, 0)
        assert not (folder / WEIGHTS).exists() and len(pruned.read_removed(folder)) == 2
    return store


def same_bits(one: Path, other: Path) -> bool:
    return {**bits(one), MANIFEST: b""} == {**bits(other), MANIFEST: b""}


@pytest.mark.slow
def test_a_pruned_checkpoint_is_computed_again_to_the_same_bits(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = thinned(launch, small_run, tmp_path / "store")
    resumed = launch("resume", "small", store=store)
    assert resumed.code == 0 and "0 ran" in resumed.out, "a finished run needs no old checkpoint"
    refused = launch("eval", "--model", "small@1", "--benchmarks", "nano", store=store)
    assert (
        refused.code == 3
        and "was pruned by gc" in refused.err
        and "infuser doctor RUN --repair --iteration T" in refused.err
    )
    repaired = launch("doctor", "--repair", "small", "--iteration", "1", store=store)
    assert repaired.code == 0, repaired.err
    ran = [entry for entry in Journal(store, "small").last_attempt() if entry.state == "ran"]
    checkpoints = {("update_solver", 0), ("update_generator", 0)}
    assert {(entry.phase, entry.iteration) for entry in ran} == {*checkpoints, ("dev_gradient", 1)}
    assert same_bits(
        artifact_of(store, "small", "dev_gradient", 1), artifact_of(small_run.root, "small", "dev_gradient", 1)
    )
    for phase in ("update_solver", "update_generator"):
        assert same_bits(artifact_of(store, "small", phase, 0), artifact_of(small_run.root, "small", phase, 0))
    first = artifact_of(store, "small", "dev_gradient", 0)
    assert pruned.read_removed(first) and not same_bits(
        first, artifact_of(small_run.root, "small", "dev_gradient", 0)
    ), "unneeded"
    again = launch("doctor", "--repair", "small", "--iteration", "0", store=store)
    assert again.code == 0, again.err
    assert same_bits(first, artifact_of(small_run.root, "small", "dev_gradient", 0))
    assert differing(small_run, store) == [] and doctor(launch, store)["damage"] == []


@pytest.mark.slow
@pytest.mark.long
def test_a_repair_restores_the_pruned_checkpoints_that_it_needs(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = thinned(launch, small_run, tmp_path / "store")
    harmed = artifact_of(store, "small", "update_solver", 1)
    flip(harmed, "optimizer.safetensors")
    repaired = launch("doctor", "--repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    assert f"computed again {harmed.name}: the same digest" in repaired.out
    assert f"restored {artifact_of(store, 'small', 'update_solver', 0).name}" in repaired.out
    assert not (artifact_of(store, "small", "update_generator", 0) / WEIGHTS).exists(), "it was not needed"
    assert same_bits(harmed, artifact_of(small_run.root, "small", "update_solver", 1))
    assert doctor(launch, store)["damage"] == []


def test_a_run_that_a_living_process_holds_is_refused(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    other = made_up(tmp_path, "other", 3, selected=3)
    flip(run.checkpoint(1), WEIGHTS)
    with runs.hold_run(tmp_path, "run"):
        for arguments in (["doctor", "--repair", "run"], ["doctor", "--repair", "other"], ["doctor", "--repair"]):
            refused = launch(*arguments, store=tmp_path)
            assert refused.code == 2 and "run run is being executed by process" in refused.err, refused
    assert other.checkpoint(1).exists() and not (tmp_path / "damaged").exists()


def name_in(line: str) -> str:
    """The artifact or record that a line says was moved away."""
    return line.removeprefix("set aside ").partition(":")[0]


def test_everything_damaged_moves_aside_and_nothing_else(tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    harmed = [run.checkpoint(1), run.folder("generate_questions", 0), run.checkpoint(2)]
    for folder, harm in zip(harmed, ("truncated", "garbled record", "lost artifact"), strict=True):
        HARMS[harm](folder, WEIGHTS)
    whole = {path.name for path in (tmp_path / "artifacts").glob("*/*")}
    prepared = prepare_repair(tmp_path, "run")
    assert {name_in(line) for line in prepared.aside} == {folder.name for folder in harmed[:2]}
    assert {path.name for path in (tmp_path / "artifacts").glob("*/*")} == whole - {folder.name for folder in harmed}
    assert sorted(prepared.to_compute) == sorted(folder.name for folder in harmed)
    assert all(prepared.to_compute.values()), "the journal knows their digests"
    assert prepared.runs == ["run"]
    assert all(Path(line.rpartition("it lies in ")[2]).is_dir() for line in prepared.aside)
    made_up(tmp_path, "run", 2, selected=2)
    said = describe_repair(tmp_path, prepared, ["run"], [])
    assert said.count("the same digest") == 3 and examine(tmp_path).damage == []


def test_a_damaged_record_of_a_run_takes_no_artifact_with_it(tmp_path: Path):
    run = made_up(tmp_path, "run", 1)
    there = {path.name for path in (tmp_path / "artifacts").glob("*/*")}
    record = tmp_path / "runs" / "run" / "run.json"
    record.write_text(record.read_text() * 2)
    assert list(map(name_in, prepare_repair(tmp_path, None).aside)) == ["run.json"]
    assert {path.name for path in (tmp_path / "artifacts").glob("*/*")} == there and run.checkpoint(1).exists()


def test_a_chain_of_pruned_checkpoints_is_restored_back_to_the_last_whole_one(tmp_path: Path):
    run = made_up(tmp_path, "run", 9, selected=4)
    with runs.hold_sweep_lock(tmp_path):
        apply_plan(tmp_path, plan_gc(tmp_path))
    solvers = [run.checkpoint(number).name for number in (7, 6, 5)]
    assert [key for key in keys_to_restore_at(tmp_path, "run", 7) if key.startswith("update_solver")] == solvers
    assert keys_to_restore_at(tmp_path, "run", 8) == [] == keys_to_restore_at(tmp_path, "run", 0)
    catalogue = Catalogue(tmp_path)
    update, questions, asked = (
        run.folder(phase, number).name
        for phase, number in (("update_solver", 5), ("generate_questions", 5), ("generate_questions", 6))
    )
    assert keys_to_restore(catalogue, [update]) == [run.checkpoint(5).name]
    assert keys_to_restore(catalogue, [questions]) == [], "the weights that it samples from are there"
    assert keys_to_restore(catalogue, [asked])[0] == run.checkpoint(6, "generator").name


def test_damage_that_no_run_holds_moves_aside_and_a_healthy_run_is_left_alone(launch: Launcher, tmp_path: Path):
    made_up(tmp_path, "sound", 1, selected=1, seed=1)
    journal = Journal(tmp_path, "sound").path.read_bytes()
    repaired = launch("doctor", "--repair", "sound", store=tmp_path)
    assert (repaired.code, repaired.out) == (0, "nothing is damaged or pruned there\n")
    run = made_up(tmp_path, "run", 1, selected=1)
    folder = run.checkpoint(1)
    forget(run)
    flip(folder, WEIGHTS)
    repaired = launch("doctor", "--repair", store=tmp_path)
    assert repaired.code == 0, repaired.err
    assert f"set aside {folder.name}" in repaired.out and f"not computed {folder.name}: no run needs it" in repaired.out
    assert Journal(tmp_path, "sound").path.read_bytes() == journal
    assert launch("doctor", store=tmp_path).code == 0


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
    repaired = launch("doctor", "--repair", "small", store=store)
    assert repaired.code == 0, repaired.err
    ran = [entry.key for entry in journal.last_attempt() if entry.state == "ran"]
    assert ran == [folder.name for folder in harmed]
    assert {ref.key for ref in Store(store).refs()} == kept and not journal.is_finished()
    assert doctor(launch, store)["damage"] == []
    assert launch("resume", "small", store=store).code == 0
    assert (
        launch("status", "--digest", "small", store=store).out
        == launch("status", "--digest", "small", store=small_run.root).out
    )


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
    refused = launch("doctor", "--repair", "small", store=store)
    assert refused.code == 3 and "another version of the code" in refused.err and "--dry-run" in refused.err
    assert {path.name for path in (store / "artifacts").glob("*/*")} < before
