"""A dry run says of every stage whether it would run, why, and how long that takes; it writes nothing."""

import json
import shutil
from pathlib import Path

from places import CONFIGS
from planned_run import Filling, fill, short_config

from flows.plan import plan
from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.planning.place import parse_places
from infuser_core.planning.plan import PlannedStage, RunPlan
from infuser_core.store.history import load_history


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
