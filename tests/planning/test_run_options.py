"""Options of `run` and `resume`: places, dry runs, stages computed again, and all of them on a small run."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from launcher import Finished, Launcher
from places import CONFIGS
from planned_run import Filling, fill, keys, short_config

from flows.plan import plan
from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.errors import UsageError
from infuser_core.planning import place as again
from infuser_core.planning.place import Place, Repeat, Salts, parse_places, resolve_place
from infuser_core.planning.plan import PlannedStage, RunPlan
from infuser_core.store.history import load_history
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.runs import create_run
from infuser_core.store.store import Store
from tasks.run_control import LookUp, NotStored, RunControl, StageCall, Stop


def recipe(phase: str, iteration: int = -1) -> Recipe:
    return Recipe(phase=phase, version=1, config={}, seed=0, iteration=iteration)


RUN = [recipe("pool"), *(recipe("update_solver", n) for n in (0, 1, 2, 5))]


@pytest.mark.parametrize("text", ["@1", "pool@", "pool@x", "pool@1.5", "@"])
def test_another_form_is_refused_with_an_example(text: str):
    with pytest.raises(UsageError, match="not a place") as caught:
        parse_places(until=text)
    assert "update_solver@3" in caught.value.hint


def test_only_stands_alone():
    with pytest.raises(UsageError, match="exclude each other"):
        parse_places(only="pool", until="pool")
    with pytest.raises(UsageError, match="exclude each other"):
        parse_places(only="pool", again="pool")


def test_a_phase_without_iterations_needs_none():
    place = parse_places(again="pool").again
    assert place is not None
    assert resolve_place(place, RUN, option="--from") == Place(phase="pool", iteration=-1)


def test_a_phase_of_several_iterations_needs_one_unless_the_first_is_meant():
    place = Place(phase="update_solver", iteration=None)
    assert resolve_place(place, RUN, option="--until", first=True).iteration == 0
    with pytest.raises(UsageError, match="needs an iteration") as caught:
        resolve_place(place, RUN, option="--from")
    assert caught.value.hint == "iterations: 0..2, 5"


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        (Place(phase="pol", iteration=None), "phases: pool, update_solver"),
        (Place(phase="update_solver", iteration=3), "iterations: 0..2, 5"),
        (Place(phase="pool", iteration=1), "it is outside the loop: leave the iteration out"),
    ],
)
def test_a_place_that_does_not_exist_is_refused_with_the_valid_names(place: Place, hint: str):
    with pytest.raises(UsageError, match=f"--from {place}") as caught:
        resolve_place(place, RUN, option="--from")
    assert caught.value.hint == hint


def test_a_run_stops_before_the_first_stage_behind_the_place():
    control = RunControl(last=parse_places(until="update_solver@1").until)
    for each in RUN[:3]:
        control.enter(each)
    control.enter(RUN[2])  # a second stage in the same place belongs to it
    with pytest.raises(Stop, match="update_solver@1"):
        control.enter(RUN[3])


def test_a_piece_that_was_looked_up_in_vain_does_not_count(tmp_path: Path):
    control = RunControl(last=parse_places(until="update_solver@0").until)
    look_up = LookUp(control, Store(tmp_path))
    with pytest.raises(NotStored):
        look_up.take(StageCall(recipe=lambda: RUN[1], sketch=lambda: RUN[1]))
    assert look_up.reached is not None and control.reached is None
    for each in RUN[:2]:
        control.enter(each)
    with pytest.raises(Stop):
        control.enter(RUN[2])


def carry(salts: Salts, name: str, salt: int) -> None:
    made = Recipe(phase="a", version=1, config={"attempt": salt}, seed=0)
    salts.carry(ArtifactRef(kind="a", key=name, digest="d"), made)


def test_salt_goes_from_an_artifact_to_what_is_made_from_it():
    salts = Salts([Repeat(phase="a", iteration=0, attempt=3), Repeat(phase="b", iteration=1, attempt=2)])
    assert (salts.of("a", 0, {}), salts.of("a", 1, {}), salts.of("b", 1, {})) == (3, 0, 2)
    carry(salts, "a-1", 3)
    assert salts.of("c", 5, {"x": "other", "y": "a-1@d"}) == 3
    assert salts.of("b", 1, {"y": "a-1@d"}) == 3


PLACE = Place(phase="update_solver", iteration=1)


def salts(root: Path, name: str) -> dict[tuple[str, int], list[int]]:
    """Salt of every stored artifact of the run's latest state."""
    store = Store(root)
    refs = {ref.key: ref for ref in store.refs()}
    return {
        place: [store.manifest(refs[key]).recipe["config"].get("attempt", 0) for key in found]
        for place, found in keys(root, name).items()
    }


def test_everything_from_there_on_is_another_artifact_that_says_so(root: Path):
    before = fill(root, "base", short_config())
    stored = {ref.id for ref in Store(root).refs()}
    repeats = again.add_repeat(root, "base", PLACE)
    after = fill(root, "base", short_config(), repeats=repeats)
    assert {place for place in after if after[place] != before[place]} == {
        ("update_solver", 1), ("rollout_dev", 2), ("update_solver", 2), ("respond", 2), ("validate", 2),
        ("respond", 3), ("validate", 3), ("select", -1), ("evaluate", 3),
    }  # fmt: skip
    assert {place for place, found in salts(root, "base").items() if found == [1]} == {
        place for place in after if after[place] != before[place] and len(after[place]) == 1
    } - {("respond", 3)}
    assert stored < {ref.id for ref in Store(root).refs()}, "the former artifacts are still there"


def test_asking_again_is_computing_again(root: Path):
    fill(root, "base", short_config())
    once = again.add_repeat(root, "base", PLACE)
    again.record_repeats(root, "base", once)
    first = fill(root, "base", short_config(), repeats=once)
    twice = again.add_repeat(root, "base", PLACE)
    second = fill(root, "base", short_config(), repeats=twice)
    assert first["update_solver", 1] != second["update_solver", 1]
    assert [repeat.attempt for repeat in twice] == [2]


def test_no_other_run_of_the_store_has_the_salt(root: Path):
    create_run(root, "other", {})
    again.record_repeats(root, "other", again.add_repeat(root, "other", PLACE))
    (mine,) = again.add_repeat(root, "base", PLACE)
    assert mine.attempt == 2


def test_an_attempt_that_prefect_starts_again_asks_once(root: Path):
    create_run(root, "base", {})
    once = again.add_repeat(root, "base", PLACE, asked_by="flow")
    again.record_repeats(root, "base", once)
    assert again.add_repeat(root, "base", PLACE, asked_by="flow") == once
    assert again.add_repeat(root, "base", PLACE, asked_by="other") != once


def test_a_resumed_run_goes_on_with_what_was_asked(root: Path):
    fill(root, "base", short_config())
    repeats = again.add_repeat(root, "base", PLACE)
    again.record_repeats(root, "base", repeats)
    first = fill(root, "base", short_config(), repeats=repeats, until="update_solver@1")
    later = fill(root, "base", short_config(), repeats=again.load_repeats(root, "base"))
    assert later["update_solver", 1] == [first["update_solver", 1][-1]]


def planned(root: Path, config: RunConfig, name: str = "base", **asked: str) -> RunPlan:
    return plan(load_history(root, name, config), name, parse_places(**asked))


def stage(found: RunPlan, phase: str, iteration: int = -1, label: str = "") -> PlannedStage:
    (one,) = [
        each
        for each in found.stages
        if (each.recipe.phase, each.recipe.iteration) == (phase, iteration) and label in ("", each.label)
    ]
    return one


def kinds(found: PlannedStage) -> list[str]:
    return [reason.kind for reason in found.reasons]


def running(found: RunPlan) -> list[str]:
    return [each.title for each in found.running]


def files(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_on_an_empty_store_all_is_missing_or_depends_on_what_is(root: Path):
    found = planned(root, short_config())
    assert len(found.running) == len(found.stages) > 20
    assert kinds(stage(found, "anchor")) == ["missing"]
    assert stage(found, "anchor").reasons[0].text == "missing: not computed yet"
    assert kinds(stage(found, "update_solver", 2)) == ["depends"] * 3
    assert stage(found, "update_solver", 2).reasons[-1].text == "depends on update_solver, iteration 1, which would run"
    assert (found.seconds, found.unknown) == (0, len(found.stages))
    assert "time unknown" in found.text()
    assert files(root) == {}


def test_a_finished_run_has_nothing_to_do_and_planning_writes_nothing(root: Path):
    fill(root, "base", short_config())
    before = files(root)
    found = planned(root, short_config())
    assert found.running == []
    assert f"all {len(found.stages)} stages are cached" in found.text()
    assert files(root) == before


def test_a_changed_setting_is_named_as_in_the_configuration_with_both_values(root: Path):
    old = short_config().cotrain.solver.learning_rate
    fill(root, "base", short_config())
    found = planned(root, short_config(cotrain={"solver": {"learning_rate": 0.25}}), name="other")
    assert found.compared_with == "base"
    first = stage(found, "update_solver", 0)
    assert (kinds(first), first.reasons[0].key) == (["setting"], "cotrain.solver.learning_rate")
    assert (first.reasons[0].old, first.reasons[0].new) == (old, 0.25)
    assert kinds(stage(found, "update_solver", 1)) == ["setting", "depends", "depends"]
    assert kinds(stage(found, "rollout_dev", 1)) == ["depends"]
    assert stage(found, "rollout_dev", 0).cached
    assert stage(found, "validate", 0).cached
    assert stage(found, "respond", 0, "exam").cached


def test_a_finished_evaluation_setting_leaves_training_alone(root: Path):
    fill(root, "base", short_config())
    found = planned(root, short_config(evaluate={"too_long": "drop"}), name="other")
    assert {each.recipe.phase for each in found.running} == {"validate", "select", "evaluate"}
    assert stage(found, "validate", 0).reasons[0].key == "evaluate.too_long"


def test_another_seed_is_said_to_be_the_seed(root: Path):
    fill(root, "base", short_config())
    found = planned(root, short_config(seed=7), name="other")
    assert "seed" in kinds(stage(found, "rollout_dev", 0))
    assert stage(found, "anchor").cached


def test_what_was_deleted_is_missing_and_what_was_made_from_it_stays(root: Path):
    made = fill(root, "base", short_config())
    shutil.rmtree(root / "artifacts" / "rollout_dev" / made["rollout_dev", 1][0])
    found = planned(root, short_config())
    assert running(found) == ["rollout_dev, iteration 1"]
    assert found.running[0].reasons[0].text == "missing: it was computed, and was removed from the store"


def test_what_depends_on_two_deleted_artifacts_knows_which_would_run(root: Path):
    made = fill(root, "base", short_config())
    for place in (("rollout_dev", 1), ("update_solver", 1)):
        shutil.rmtree(root / "artifacts" / place[0] / made[place][0])
    found = planned(root, short_config())
    assert running(found) == ["rollout_dev, iteration 1", "update_solver, iteration 1"]
    assert stage(found, "update_solver", 1).reasons[0].text == "depends on rollout_dev, iteration 1, which would run"


def test_times_are_those_of_the_stage_before_or_of_its_phase(root: Path):
    Filling.seconds = 3.0
    fill(root, "base", short_config())
    Filling.seconds = 2.0
    longer = planned(root, short_config(cotrain={"iterations": 4}), name="longer")
    assert {(each.title, each.seconds) for each in longer.running if each.recipe.iteration == 3} == {
        ("rollout_dev, iteration 3", 3.0),
        ("update_solver, iteration 3", 3.0),
    }
    assert longer.seconds == 3.0 * len(longer.running)


def test_an_unfinished_run_goes_on_where_it_stopped(root: Path):
    fill(root, "base", short_config(), until="update_solver@1")
    found = planned(root, short_config())
    assert running(found)[:2] == ["respond, iteration 2 (validation)", "validate, iteration 2"]
    assert stage(found, "respond", 2).reasons[0].text == "missing: not computed yet"
    assert any("which checkpoint is selected depends on" in note for note in found.notes)


def test_from_a_place_on_is_forced_and_the_rest_depends_on_it(root: Path):
    fill(root, "base", short_config())
    found = planned(root, short_config(), again="update_solver@1")
    assert kinds(stage(found, "update_solver", 1)) == ["forced"]
    assert stage(found, "rollout_dev", 1).cached
    assert stage(found, "validate", 1).cached
    assert kinds(stage(found, "update_solver", 2)) == ["depends", "depends"]
    assert "select" in running(found)
    assert not (root / "runs" / "base" / "again.json").exists()


def test_until_ends_the_plan_and_only_is_all_of_it(root: Path):
    fill(root, "base", short_config(), until="validate@1")
    assert running(planned(root, short_config(), until="rollout_dev@1")) == ["rollout_dev, iteration 1"]
    assert running(planned(root, short_config(), only="rollout_dev@1")) == ["rollout_dev, iteration 1"]
    (alone,) = planned(root, short_config(), only="validate@1").stages
    assert alone.cached


def test_a_name_that_is_taken_by_other_settings_is_noted(root: Path):
    fill(root, "base", short_config())
    found = planned(root, short_config(cotrain={"solver": {"learning_rate": 0.25}}))
    assert any("another --name" in note for note in found.notes)


def test_a_plan_in_json_has_every_stage_and_the_sums(root: Path):
    fill(root, "base", short_config(), until="validate@1")
    found = json.loads(json.dumps(planned(root, short_config()).to_json()))
    states = [each["state"] for each in found["stages"]]
    assert (found["cached"], found["would_run"]) == (states.count("cached"), states.count("would run"))
    by_place = {(each["phase"], each["iteration"], each["label"]): each for each in found["stages"]}
    assert by_place["rollout_dev", 1, None]["key"].startswith("rollout_dev-")
    assert by_place["update_solver", 2, None]["key"] is None, "its inputs are not known yet"
    assert by_place["evaluate", 0, "exam"]["why"][0]["kind"] == "depends"


def test_what_depends_on_unknown_content_says_so_and_no_count_is_invented(root: Path):
    found = planned(root, load([CONFIGS / "nano.yaml"]))
    convert = stage(found, "convert")
    assert (convert.is_known, convert.recipe.config) == (False, {})
    assert [reason.new for reason in convert.reasons] == ["sources", "download"]
    assert any("textbooks there are depends on the choice" in note for note in found.notes)
    assert any("topics are searched for depends on the taxonomy" in note for note in found.notes)
    assert files(root) == {}


NANO = "configs/nano.yaml"
SMALL = {
    "data": {"dev": {"size": 4}, "validation": {"size": 4}},
    "cotrain": {
        "iterations": 2,
        "dev_only": True,
        "solver_tokens": 16,
        "group_size": 4,
        "validate_every": 1,
        "generator": {"update": False},
        "solver": {"minibatch": 2},
    },
    "evaluate": {"benchmarks": []},
}


class Small:
    """A store with one run, which the tests of this file carry on one after the other."""

    def __init__(self, launch: Launcher, root: Path) -> None:
        self._launch, self.root = launch, root
        self.overlay = root.parent / "small.yaml"
        self.overlay.write_text(yaml.safe_dump(SMALL))

    def __call__(self, *arguments: str) -> Finished:
        return self._launch(*arguments, store=self.root)

    def done(self, *arguments: str) -> str:
        ended = self(*arguments)
        assert ended.code == 0, ended.err
        return ended.out

    def ran(self, run: str = "base") -> list[str]:
        """What the latest attempt computed."""
        entries = Journal(self.root, run).last_attempt()
        return [f"{entry.phase}@{entry.iteration}" for entry in entries if entry.state == "ran"]


@pytest.fixture(scope="module")
def small(launch: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    yield Small(launch, tmp_path_factory.mktemp("options") / "store")


def test_a_place_that_the_run_does_not_have_is_one_line_with_the_valid_names(small: Small):
    ended = small("run", NANO, str(small.overlay), "--name", "base", "--until", "update_solver@7")
    assert ended.code == 2
    assert "--until update_solver@7: update_solver has no iteration 7" in ended.err
    assert "hint: iterations: 0..1" in ended.err
    assert not (small.root / "runs" / "base").exists()


def test_until_stops_cleanly_and_resuming_goes_on_from_there(small: Small):
    said = small.done("run", NANO, str(small.overlay), "--name", "base", "--until", "validate@1")
    assert "run base stopped after validate@1, as requested; `infuser resume base` continues it" in said
    assert small.ran()[-1] == "validate@1"
    assert not Journal(small.root, "base").is_finished()
    again = small.done("resume", "base", "--until", "validate@1")
    assert "stopped after validate@1" in again
    assert small.ran() == []


def test_only_computes_one_stage_and_refuses_without_its_inputs(small: Small):
    refused = small("resume", "base", "--only", "update_solver@1")
    assert refused.code == 2
    assert "its input rollouts (rollout_dev, iteration 1) is not in the store" in refused.err
    assert "--until update_solver@1" in refused.err
    small.done("resume", "base", "--only", "rollout_dev@1")
    assert small.ran() == ["rollout_dev@1"]


def test_a_resumed_run_computes_the_rest_alone(small: Small):
    planned = json.loads(small.done("resume", "base", "--dry-run", "--json"))
    expected = [f"{stage['phase']}@{-1 if stage['iteration'] is None else stage['iteration']}"
                for stage in planned["stages"] if stage["state"] == "would run"]  # fmt: skip
    small.done("resume", "base")
    assert small.ran() == expected
    assert expected[0] == "update_solver@1"
    assert Journal(small.root, "base").is_finished()


def test_from_a_place_on_is_computed_again_under_other_keys(small: Small):
    before = {ref.id for ref in Store(small.root).refs()}
    small.done("resume", "base", "--from", "update_solver@1")
    assert small.ran()[0] == "update_solver@1"
    assert "rollout_dev@1" not in small.ran()
    after = {ref.id for ref in Store(small.root).refs()}
    assert before < after
    small.done("resume", "base")
    assert small.ran() == [], "a resumed run goes on with what was computed again"


def test_the_same_work_again_gives_the_same_content(small: Small):
    store = Store(small.root)
    updates = [
        ref for ref in store.refs() if ref.kind == "update_solver" and store.manifest(ref).recipe["iteration"] == 1
    ]
    assert len(updates) == 2
    assert len({ref.key for ref in updates}) == 2
    assert len({ref.digest for ref in updates}) == 1


def test_a_fork_computes_its_own_iterations_alone(small: Small):
    rate = ("--set", "cotrain.solver.learning_rate=1e-3")
    planned = json.loads(small.done("run", "--fork", "base@1", *rate, "--dry-run", "--json"))
    assert planned["recorded"] is False
    made = json.loads(small.done("run", "--fork", "base@1", *rate, "--name", "fork", "--json"))
    assert (made["forked_from"], made["at"], made["recorded"]) == ("base", 1, True)
    assert small.ran("fork")[0] == "update_solver@1"
    assert not {name for name in small.ran("fork") if name.endswith("@0")}
    refused = small("run", "--fork", "base@1", "--set", "anchor.world=basic")
    assert refused.code == 2
    assert "anchor.world cannot change at iteration 1" in refused.err
