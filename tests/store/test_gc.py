"""gc lists first, removes what it listed, keeps what rules and pins ask for, and survives a kill."""

import json
import signal
from pathlib import Path

import pytest
from care_tools import MadeUp, bits, forget, made_up
from hypothesis import given
from hypothesis import strategies as st
from launcher import Launcher

from infuser_core.config.run import KeepSettings
from infuser_core.errors import BusyRunError, StoreError, UsageError
from infuser_core.store import pruned, runs
from infuser_core.store.doctor import examine
from infuser_core.store.gc import GcPlan, apply_plan, plan_gc
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Recipe
from infuser_core.store.retention import Extent, RunState, pin, retention_of_checkpoints, unpin
from infuser_core.store.store import Store
from infuser_core.store.verify import format_size


def sweep(root: Path, **rule: int) -> GcPlan:
    with runs.hold_sweep_lock(root):
        found = plan_gc(root, KeepSettings(**rule))
        apply_plan(root, found)
    return found


def extents(run: MadeUp, count: int, role: str = "solver") -> list[str]:
    return [run.extent(number, role) for number in range(count + 1)]


def test_showing_changes_nothing_and_removing_frees_what_was_shown(tmp_path: Path):
    run = made_up(tmp_path, "run", 8, selected=3)
    before = bits(tmp_path)
    shown = plan_gc(tmp_path)
    assert bits(tmp_path) == before
    assert sweep(tmp_path).to_json() == shown.to_json()
    gone = before.keys() - bits(tmp_path).keys()
    assert sum(len(before[name]) for name in gone) == shown.bytes > 0
    assert extents(run, 8) == extents(run, 8, "generator") == ["mw", "", "", "mw", "", "w", "", "mw", "mw"]
    assert plan_gc(tmp_path).items == []
    found = examine(tmp_path)
    assert (found.problems, found.pruned) == ([], 10)
    (run.checkpoint(5) / "model.safetensors").unlink()
    assert [problem.kind for problem in examine(tmp_path).damage] == ["file_missing"]


def test_totals_come_before_the_lists_they_are_made_of(tmp_path: Path):
    made_up(tmp_path, "run", 8, selected=3)
    found = plan_gc(tmp_path)
    first, _, _, *rest = found.text(applied=False, verbose=True).splitlines()
    assert first == f"nothing was removed: `infuser gc --apply` frees {format_size(found.bytes)}"
    lists = rest.index("optimizer moments of old checkpoints:")
    assert rest[0].startswith("optimizer moments of old checkpoints  ") and lists > 1
    assert sum(item.path.name in line for line in rest[lists:] for item in found.items) == len(found.items)
    short = found.text(applied=False).splitlines()
    assert short[-1] == f"{len(found.items)} items: --verbose" and len(short) < 10


def test_whoever_needs_a_pruned_file_is_told_how_to_get_it_back(tmp_path: Path):
    run = made_up(tmp_path, "run", 8, selected=3)
    sweep(tmp_path)
    store = Store(tmp_path)
    by_key = {ref.key: ref for ref in store.refs()}
    weights_only, facts_only = (by_key[run.checkpoint(number).name] for number in (5, 1))
    assert store.verified_folder(weights_only) == run.checkpoint(5)
    calls = (lambda: store.path(weights_only, "optimizer.safetensors"), lambda: store.verified_folder(facts_only))
    for call in calls:
        with pytest.raises(StoreError, match="was pruned by gc on") as caught:
            call()
        assert "infuser doctor RUN --repair --iteration T" in caught.value.hint
    assert {entry.rule for entry in pruned.read_removed(run.checkpoint(1)).values()} == {
        "not among the last 2, nor every 5th"
    }
    assert "`infuser doctor run --repair --iteration 1` makes it whole" in pin(tmp_path, "run@1")


@pytest.mark.parametrize(
    ("selected", "rule", "stays"),
    [
        (6, {"full": 1, "weights_every": 2}, ["mw", "", "w", "", "w", "", "mw"]),
        (6, {"full": 1, "weights_every": 0}, ["mw", "", "", "", "", "", "mw"]),
        # Any checkpoint may still be selected.
        (None, {}, ["mw", "w", "w", "w", "w", "mw", "mw"]),
    ],
)
def test_every_and_keep_full_are_options(tmp_path: Path, selected: int | None, rule: dict[str, int], stays: list[str]):
    run = made_up(tmp_path, "run", 6, selected=selected)
    sweep(tmp_path, **rule)
    assert extents(run, 6) == stays


def test_a_checkpoint_that_two_runs_hold_stays_as_the_one_wants_that_wants_more(tmp_path: Path):
    long, short = made_up(tmp_path, "long", 8, selected=8), made_up(tmp_path, "short", 4, selected=4)
    assert long.checkpoint(4) == short.checkpoint(4)
    sweep(tmp_path)
    assert extents(long, 8) == ["mw", "", "", "mw", "mw", "w", "", "mw", "mw"]
    assert examine(tmp_path).damage == []


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
    held = {entry.key for entry in Journal(tmp_path, "run").latest()}
    lost = {path.name for path in (tmp_path / "artifacts").glob("*/*")} - held
    forget(other)
    order = [item.path.name for item in plan_gc(tmp_path).items if item.kind == "unreferenced"]
    assert set(order) == lost
    inputs = {ref.key: Store(tmp_path).manifest(ref).recipe["inputs"].values() for ref in Store(tmp_path).refs()}
    for place, key in enumerate(order):
        assert not {identity.split("@")[0] for identity in inputs[key]} & set(order[:place]), "an input went first"
    sweep(tmp_path)
    assert {path.name for path in (tmp_path / "artifacts").glob("*/*")} & lost == set()
    assert examine(tmp_path).damage == [] and run.extent(2) == "mw"


def test_beside_a_run_at_work_only_what_it_has_passed_goes(tmp_path: Path):
    run = made_up(tmp_path, "run", 6)
    forget(made_up(tmp_path, "other", 2, selected=2, seed=1))
    with runs.hold_run(tmp_path, "run"):
        journal = Journal(tmp_path, "run")
        journal.start_attempt()
        assert sweep(tmp_path).items == [], "this attempt has reached nothing yet"
        folder = run.checkpoint(3)
        journal.append(phase="update_solver", iteration=2, state="cached", seconds=0.0, key=folder.name, digest="known")
        found = sweep(tmp_path)
        assert {item.kind for item in found.items} == {"moments"}
        assert any("run run is at work" in note for note in found.notes)
    assert extents(run, 6) == ["mw", "w", "mw", "mw", "mw", "mw", "mw"]


def test_workspaces_of_the_living_stay_and_those_of_the_dead_go(tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    store, recipe = Store(tmp_path), Recipe(phase="judge", version=1, config={}, seed=0)
    draft = tmp_path / "runs" / "run" / ".run.json.0.tmp"
    draft.write_text("{")
    with store.exclusive(recipe), store.workspace(recipe) as mine:
        (mine / "half").write_text("at work")
        dead = tmp_path / ".staging" / "judge-0123456789abcdef.0"
        (dead / "deep").mkdir(parents=True)
        (dead / "deep" / "half").write_text("dead")
        found = sweep(tmp_path)
        assert [(item.kind, item.path) for item in found.items] == [("staging", dead), ("draft", draft)]
        assert (mine / "half").exists() and not dead.exists() and not draft.exists()
        assert any("works on it" in note for note in found.notes)


def test_what_was_set_aside_stays_until_it_is_computed_again(tmp_path: Path):
    run = made_up(tmp_path, "run", 2, selected=2)
    folder = run.folder("generate_questions", 1)
    aside = Store(tmp_path).put_aside(folder)
    found = sweep(tmp_path)
    assert aside.exists() and any("not computed again yet" in note for note in found.notes)
    made_up(tmp_path, "run", 2, selected=2)
    sweep(tmp_path)
    assert not aside.exists() and folder.exists()


def test_a_run_begins_only_when_gc_has_ended(launch: Launcher, tmp_path: Path):
    made_up(tmp_path, "run", 1, selected=1)
    with runs.hold_sweep_lock(tmp_path):
        with pytest.raises(BusyRunError), runs.hold_sweep_lock(tmp_path):
            pass
        refused = launch("gc", "--apply", store=tmp_path)
        assert refused.code == 2 and "another process removes files" in refused.err
    assert launch("gc", "--apply", store=tmp_path).code == 0


def test_pins_are_listed_with_their_checkpoints(launch: Launcher, tmp_path: Path):
    run = made_up(tmp_path, "run", 3, selected=3)
    assert launch("gc", "--pins", store=tmp_path).out == "no pins\n"
    for place in ("run@2", "run@1", "run@2"):
        assert launch("gc", "--pin", place, store=tmp_path).code == 0
    told = json.loads(launch("gc", "--pins", "--json", store=tmp_path).out)
    expected = [{run.checkpoint(number, role).name for role in ("solver", "generator")} for number in (1, 2)]
    assert [(each["run"], each["iteration"]) for each in told] == [("run", 1), ("run", 2)]
    assert [set(each["checkpoints"]) for each in told] == expected
    assert launch("gc", "--unpin", "run@1", store=tmp_path).out == "unpinned run@1\n"
    with pytest.raises(UsageError, match="run@1 is not pinned") as caught:
        unpin(tmp_path, "run@1")
    assert "run@2" in caught.value.hint


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
        pin(tmp_path, place)
    assert caught.value.hint


@st.composite
def states(draw: st.DrawFn) -> RunState:
    last = draw(st.integers(0, 30))
    return RunState(
        iterations=range(last + 1),
        passed=draw(st.integers(-1, last)),
        selected=draw(st.none() | st.integers(0, last)),
        pinned=draw(st.sets(st.integers(0, last), max_size=3)),
    )


@given(states(), st.builds(KeepSettings, full=st.integers(1, 5), weights_every=st.integers(0, 7)))
def test_what_training_goes_on_from_stays_whole_and_keeping_more_removes_nothing(state: RunState, rule: KeepSettings):
    found = {number: extent for number, (extent, _) in retention_of_checkpoints(state, rule).items()}
    behind = [number for number in state.iterations if number <= state.passed]
    ahead = [number for number in state.iterations if number > state.passed]
    chosen = [] if state.selected is None else [state.selected]
    assert set(found) == set(state.iterations)
    for number in {0, *behind[-rule.full :], *ahead, *state.pinned, *chosen}:
        assert found[number] == Extent.WHOLE
    for number, extent in found.items():
        if state.selected is None or (rule.weights_every and number % rule.weights_every == 0):
            assert extent >= Extent.WEIGHTS
    more = retention_of_checkpoints(state, KeepSettings(full=rule.full + 1, weights_every=rule.weights_every))
    assert all(more[number][0] >= extent for number, extent in found.items())


POINTS = ("gc:recorded", "gc:file", "gc:file:3", "gc:renamed", "gc:renamed:2", "gc:removed")


def store(root: Path) -> Path:
    made_up(root, "run", 6, selected=6)
    forget(made_up(root, "other", 1, selected=1, seed=1))
    (root / "damaged" / "judge-0123456789abcdef.00000000").mkdir(parents=True)
    (root / "damaged" / "judge-0123456789abcdef.00000000" / "part").write_text("damaged")
    return root


def state(root: Path) -> dict[str, bytes]:
    """Everything but what differs by its nature: times, workers, locks."""
    found = bits(root)
    volatile = ("artifact.json", "pruned.json", "run.json", "journal.jsonl", "journal.head")
    return {name: b"" if name.endswith(volatile) else data for name, data in found.items() if "locks/" not in name}


@pytest.fixture(scope="module")
def undisturbed(launch: Launcher, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = store(tmp_path_factory.mktemp("undisturbed"))
    ended = launch("gc", "--apply", store=root)
    assert ended.code == 0, ended.err
    return state(root)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_gc_leaves_no_damage_and_the_next_one_ends_it(
    launch: Launcher, tmp_path: Path, undisturbed: dict[str, bytes], point: str
):
    root = store(tmp_path)
    assert launch("gc", "--apply", store=root, INFUSER_CRASH_AT=point).code == -signal.SIGKILL
    assert examine(root).damage == []
    again = launch("gc", "--apply", store=root)
    assert again.code == 0, again.err
    assert state(root) == undisturbed
    assert examine(root).problems == []
    assert "nothing to remove" in launch("gc", "--apply", store=root).out
