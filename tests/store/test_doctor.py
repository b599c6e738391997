"""The doctor names every damage with its remedy, tests file systems, and repairs a run bit for bit."""

import json
import os
import shutil
from pathlib import Path

import pytest
from care_tools import HARMS, WEIGHTS, artifact_of, bits, copy_run, differing, doctor, examined, flip, forget, made_up
from launcher import Launcher, SmallRun

from infuser_core.errors import StoreError, UsageError
from infuser_core.store import filesystem, pruned, runs
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.doctor import describe_repair, examine, keys_to_restore, keys_to_restore_at, prepare_repair
from infuser_core.store.gc import apply_plan, plan_gc
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST, Recipe
from infuser_core.store.store import Store
from infuser_core.system import sealed

KINDS = {
    "flipped bit": "file_changed",
    "truncated": "file_truncated",
    "deleted": "file_missing",
    "lost record": "record_missing",
    "garbled record": "record_unreadable",
    "lost artifact": "artifact_missing",
    "linked file": "file_linked",
    "linked artifact": "record_unreadable",
}


@pytest.mark.parametrize("harm", HARMS)
def test_every_harm_is_named_with_its_remedy(tmp_path: Path, harm: str):
    folder = made_up(tmp_path, "run", 2, selected=2).checkpoint(1)
    HARMS[harm](folder, WEIGHTS)
    (problem,) = [each for each in examine(tmp_path).damage if each.key == folder.name]
    assert problem.kind == KINDS[harm] and problem.runs == ("run",)
    assert folder.name in problem.what and "infuser doctor run --repair" in problem.remedy


def test_the_command_ends_with_3_for_damage_and_prints_one_line_per_problem(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    healthy = launch("doctor", store=tmp_path)
    assert (healthy.code, healthy.err) == (0, "") and healthy.out.startswith("store: healthy (8 artifacts, ")
    assert launch("doctor", "run", store=tmp_path).out.startswith("run run: healthy (8 artifacts, ")
    HARMS["flipped bit"](run.checkpoint(1), WEIGHTS)
    HARMS["truncated"](run.checkpoint(2), WEIGHTS)
    ended = launch("doctor", store=tmp_path)
    lines = ended.out.splitlines()
    assert ended.code == 3 and [line.startswith("damaged") for line in lines] == [True, True, False]
    assert "2 damaged" in lines[-1]
    found = json.loads(launch("doctor", "--json", store=tmp_path).out)
    assert not found["healthy"] and [each["kind"] for each in found["damage"]] == ["file_truncated", "file_changed"]


def test_a_commit_record_that_is_json_but_wrong_is_found(tmp_path: Path):
    path = made_up(tmp_path, "run", 1, selected=1).checkpoint(1) / MANIFEST
    record = json.loads(path.read_text())
    del record["seal"]  # as in records of older versions
    record["recipe"]["iteration"] = 7
    path.write_text(json.dumps(record))
    assert "record_unreadable" in {problem.kind for problem in examine(tmp_path).damage}


def test_inputs_that_are_gone_are_named(tmp_path: Path):
    HARMS["lost artifact"](made_up(tmp_path, "run", 2, selected=2).folder("generate_questions", 0), "")
    kinds = [problem.kind for problem in examine(tmp_path).damage]
    assert kinds.count("input_missing") == 2 and kinds.count("artifact_missing") == 1


def test_what_an_unfinished_run_lacks_is_work_to_do_and_no_damage(tmp_path: Path):
    HARMS["lost artifact"](made_up(tmp_path, "run", 2).checkpoint(2), "")
    (note,) = examine(tmp_path).problems
    assert (note.damage, note.kind, note.remedy) == (
        False,
        "artifact_missing",
        "`infuser resume run` computes it again",
    )


def test_an_artifact_of_an_evaluation_that_is_gone_is_damage(tmp_path: Path):
    examined(made_up(tmp_path, "run", 1, selected=1), 1)
    assert examine(tmp_path).damage == []
    shutil.rmtree(next((tmp_path / "artifacts" / "respond").iterdir()))
    (problem,) = examine(tmp_path).damage
    assert problem.kind == "artifact_missing" and "evaluation exam holds respond-" in problem.what
    assert "`infuser eval`" in problem.remedy and examine(tmp_path, "run").damage == []


def test_leftovers_of_dead_processes_are_notes_that_name_their_owner(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    key = Journal(tmp_path, "run").latest()[-1].key
    for folder in (f".staging/{key}.0", f".partial/{key}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "half").write_text("half")
    (tmp_path / "runs" / "run" / "run.1.tmp").write_text("{")
    found = examine(tmp_path, "run")
    assert found.damage == [] and [note.kind for note in found.notes] == ["draft", "pieces", "staging"]
    staging = found.notes[-1].what
    assert "left by process " in staging and "which is gone" in staging and "4 B" in staging
    assert all("infuser gc --apply" in note.remedy for note in found.notes)


def test_a_workspace_of_a_living_process_is_said_to_be_in_use(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    store, recipe = Store(tmp_path), Recipe(phase="judge", version=1, config={}, seed=0)
    with store.exclusive(recipe), store.workspace(recipe):
        (note,) = examine(tmp_path).notes
    assert note.kind == "staging" and "works on it" in note.remedy


def test_a_torn_journal_line_is_a_note(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    path = Journal(tmp_path, "run").path
    path.write_bytes(path.read_bytes() + b'{"attempt": 2, "pha')
    found = examine(tmp_path)
    assert found.damage == [] and [note.kind for note in found.notes] == ["journal_torn"]
    assert "journal.jsonl: line " in found.notes[0].what


@pytest.mark.parametrize("content", [None, "{"])
def test_a_lost_record_of_a_run_is_damage_and_says_how_to_resume(tmp_path: Path, content: str | None):
    made_up(tmp_path, "run", 1, selected=1)
    path = tmp_path / "runs" / "run" / "run.json"
    path.unlink() if content is None else path.write_text(content)
    (problem,) = examine(tmp_path).damage
    assert problem.kind == "record_lost" and "--name run" in problem.remedy
    with pytest.raises(UsageError, match="no run named other"):
        examine(tmp_path, "other")


def test_artifacts_of_no_run_are_checked_too(tmp_path: Path):
    run = made_up(tmp_path, "run", 1, selected=1)
    folder = run.checkpoint(1)
    forget(run)
    assert examine(tmp_path).damage == [] and len(plan_gc(tmp_path).items) == 5
    HARMS["flipped bit"](folder, WEIGHTS)
    (problem,) = examine(tmp_path).damage
    assert problem.remedy.startswith("`infuser doctor --repair`")


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
    # The record and the costs of passes have times.
    times = {MANIFEST: b"", "step_costs.parquet": b""}
    return {**bits(one), **times} == {**bits(other), **times}


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
    rest = "".join(lines[: end + 1]).encode()
    journal.path.write_bytes(rest)
    # The head of a journal whose last line this is.
    state = f"{1:08d} {len(rest):014d} 0 {sealed.chain(rest).seals[len(rest)]} "
    journal.path.with_suffix(".head").write_text(f"{state}{sealed.checksum(state.encode())}\n")
    (store / "runs" / "small" / "attempt.json").unlink()
    kept = {json.loads(line)["key"] for line in lines[: end + 1]} - {""}
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
    changed = json.dumps(sealed.read(record)).replace('"group_size": 4', '"group_size": 3')
    sealed.write(record, json.loads(changed))
    flip(artifact_of(store, "small", "update_solver", 1), WEIGHTS)
    before = {path.name for path in (store / "artifacts").glob("*/*")}
    refused = launch("doctor", "--repair", "small", store=store)
    assert refused.code == 3 and "another version of the code" in refused.err and "--dry-run" in refused.err
    assert {path.name for path in (store / "artifacts").glob("*/*")} < before


def test_a_local_folder_can_hold_a_store_and_nothing_is_left_there(tmp_path: Path):
    found = filesystem.probe_folder(tmp_path)
    assert [row["name"] for row in found if not row["kept"]] == []
    assert len(found) == 5 and list(tmp_path.iterdir()) == []
    assert "can hold a store" in filesystem.format_findings(tmp_path, found)


def test_a_broken_promise_that_is_needed_is_named():
    said = filesystem.format_findings(Path("/x"), [{"name": "lock", "kept": False, "what": "a lock was given twice"}])
    assert "BROKEN" in said and "cannot hold a store: lock" in said


def test_the_command_answers_in_json_and_creates_the_folder(launch: Launcher, tmp_path: Path):
    ended = launch("doctor", "--file-system", str(tmp_path / "new" / "store"), "--json", store=tmp_path)
    assert ended.code == 0, ended.err
    assert {row["name"] for row in json.loads(ended.out)} >= {"rename", "lock", "fsync", "exclusive"}


def test_a_folder_that_cannot_be_written_is_said_so():
    with pytest.raises(StoreError, match="cannot write /proc"):
        filesystem.probe_folder(Path("/proc") / str(os.getpid()) / "store")
