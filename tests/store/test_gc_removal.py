"""gc shows first, removes what it showed, and leaves a store that the doctor calls healthy."""

from pathlib import Path

import pytest
from care_tools import MadeUp, bits, health, made_up

from infuser_core.errors import StoreError
from infuser_core.store import pruned, runs
from infuser_core.store.gc import Plan, apply, plan
from infuser_core.store.recipe import Recipe
from infuser_core.store.retention import pin, unpin
from infuser_core.store.store import Store


def sweep(root: Path, **rule: int) -> Plan:
    with runs.sweeping(root):
        found = plan(root, **rule)
        apply(root, found)
    return found


def extents(run: MadeUp, count: int, role: str = "solver") -> list[str]:
    return [run.extent(number, role) for number in range(count + 1)]


def test_showing_changes_nothing_and_removing_frees_what_was_shown(tmp_path: Path):
    run = made_up(tmp_path, "run", 8, selected=3)
    before = bits(tmp_path)
    shown = plan(tmp_path)
    assert bits(tmp_path).keys() - before.keys() == set() and {**bits(tmp_path)} == before
    removed = sweep(tmp_path)
    assert removed.to_json() == shown.to_json()
    gone = before.keys() - bits(tmp_path).keys()
    assert sum(len(before[name]) for name in gone) == shown.bytes > 0
    assert extents(run, 8) == ["mw", "", "", "mw", "", "w", "", "mw", "mw"]
    assert extents(run, 8, "generator") == extents(run, 8)
    assert plan(tmp_path).items == []


def test_the_doctor_knows_pruned_from_damaged(tmp_path: Path):
    run = made_up(tmp_path, "run", 8, selected=3)
    sweep(tmp_path)
    found = health(tmp_path)
    assert (found.damage, found.notes, found.pruned) == ([], [], 10)
    (run.checkpoint(5) / "model.safetensors").unlink()
    assert [problem.kind for problem in health(tmp_path).damage] == ["file_missing"]


def test_whoever_needs_a_pruned_file_is_told_how_to_get_it_back(tmp_path: Path):
    run = made_up(tmp_path, "run", 8, selected=3)
    sweep(tmp_path)
    store = Store(tmp_path)
    by_key = {ref.key: ref for ref in store.refs()}
    weights_only, facts_only = (by_key[run.checkpoint(number).name] for number in (5, 1))
    assert store.verified_folder(weights_only) == run.checkpoint(5)
    for ref, call in (
        (weights_only, lambda ref: store.path(ref, "optimizer.safetensors")),
        (facts_only, store.verified_folder),
    ):
        with pytest.raises(StoreError, match="was pruned by gc on") as caught:
            call(ref)
        assert "infuser repair RUN --iteration T" in caught.value.hint
    assert {entry.rule for entry in pruned.read(run.checkpoint(1)).values()} == {"not among the last 2, nor every 5th"}


def test_every_and_keep_full_are_options(tmp_path: Path):
    run = made_up(tmp_path, "run", 6, selected=6)
    sweep(tmp_path, keep_full=1, every=2)
    assert extents(run, 6) == ["mw", "", "w", "", "w", "", "mw"]


def test_weights_stay_while_any_checkpoint_may_be_selected(tmp_path: Path):
    run = made_up(tmp_path, "run", 6)
    sweep(tmp_path)
    assert extents(run, 6) == ["mw", "w", "w", "w", "w", "mw", "mw"]


def test_a_checkpoint_that_two_runs_hold_stays_as_the_one_wants_that_wants_more(tmp_path: Path):
    long = made_up(tmp_path, "long", 8, selected=8)
    short = made_up(tmp_path, "short", 4, selected=4)
    assert long.checkpoint(4) == short.checkpoint(4)
    sweep(tmp_path)
    assert extents(long, 8) == ["mw", "", "", "mw", "mw", "w", "", "mw", "mw"]
    assert health(tmp_path).damage == []


def test_pinned_checkpoints_stay_until_they_are_unpinned(tmp_path: Path):
    run = made_up(tmp_path, "run", 6, selected=6)
    assert run.checkpoint(2).name in pin(tmp_path, "run@2")
    sweep(tmp_path)
    assert extents(run, 6) == ["mw", "", "mw", "", "", "mw", "mw"]
    unpin(tmp_path, "run@2")
    sweep(tmp_path)
    assert extents(run, 6) == ["mw", "", "", "", "", "mw", "mw"]


def test_artifacts_of_no_run_go_and_their_users_go_first(tmp_path: Path):
    run, other = made_up(tmp_path, "run", 2, selected=2), made_up(tmp_path, "other", 3, selected=3, seed=1)
    lost = {path.name for path in (tmp_path / "artifacts").glob("*/*")} - {
        entry.key for entry in runs.Journal(tmp_path, "run").latest()
    }
    for path in sorted((tmp_path / "runs" / other.name).iterdir(), reverse=True):
        path.unlink()
    order = [item.path.name for item in plan(tmp_path).items if item.kind == "unreferenced"]
    assert set(order) == lost
    inputs = {ref.key: Store(tmp_path).manifest(ref).recipe["inputs"].values() for ref in Store(tmp_path).refs()}
    for place, key in enumerate(order):
        assert not {identity.split("@")[0] for identity in inputs[key]} & set(order[:place]), "an input went first"
    sweep(tmp_path)
    assert {path.name for path in (tmp_path / "artifacts").glob("*/*")} & lost == set()
    assert health(tmp_path).damage == [] and run.extent(2) == "mw"


def test_beside_a_run_at_work_only_what_it_has_passed_goes(tmp_path: Path):
    run = made_up(tmp_path, "run", 6)
    made_up(tmp_path, "other", 2, selected=2, seed=1)
    for path in (tmp_path / "runs" / "other").iterdir():
        path.unlink()
    with runs.holding(tmp_path, "run"):
        journal = runs.Journal(tmp_path, "run")
        journal.start_attempt()
        assert [item.kind for item in sweep(tmp_path).items] == [], "this attempt has reached nothing yet"
        folder = run.checkpoint(3)
        journal.append(phase="update_solver", iteration=2, state="cached", seconds=0.0, key=folder.name, digest="known")
        found = sweep(tmp_path)
        assert {item.kind for item in found.items} == {"moments"}
        assert any("run run is at work" in note for note in found.notes)
    assert extents(run, 6) == ["mw", "w", "mw", "mw", "mw", "mw", "mw"]


def test_workspaces_of_the_living_stay_and_those_of_the_dead_go(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    store, recipe = Store(tmp_path), Recipe(phase="judge", version=1, config={}, seed=0)
    with store.exclusive(recipe), store.workspace(recipe) as mine:
        (mine / "half").write_text("at work")
        dead = tmp_path / ".staging" / "judge-0123456789abcdef.0"
        (dead / "deep").mkdir(parents=True)
        (dead / "deep" / "half").write_text("dead")
        found = sweep(tmp_path)
        assert [(item.kind, item.path) for item in found.items] == [("staging", dead)]
        assert (mine / "half").exists() and not dead.exists()
        assert any("works on it" in note for note in found.notes)


def test_what_was_set_aside_stays_until_it_is_computed_again(tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    store = Store(tmp_path)
    folder = run.folder("generate_questions", 1)
    aside = store.put_aside(folder)
    found = sweep(tmp_path)
    assert aside.exists() and any("not computed again yet" in note for note in found.notes)
    made_up(tmp_path, "run", 2, selected=2)
    sweep(tmp_path)
    assert not aside.exists() and folder.exists()


@pytest.mark.parametrize("record", ["run.json", "journal.jsonl"])
def test_nothing_goes_while_a_runs_record_is_unreadable(tmp_path: Path, record: str):
    made_up(tmp_path, "run", 6, selected=6)
    (tmp_path / "runs" / "run" / "attempt.json").write_text("{}")
    (tmp_path / "runs" / "run" / record).unlink()
    with pytest.raises(StoreError, match="gc cannot know what run run holds") as caught:
        plan(tmp_path)
    assert "infuser doctor run" in caught.value.hint
