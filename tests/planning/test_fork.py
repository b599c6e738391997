"""A fork shares every artifact before its iteration; changes that cannot start there are refused."""

import json
from pathlib import Path

import pytest
from launcher import ROOT
from planned_run import fill, keys, keys_of, short_config

from flows.plan import plan_fork
from infuser_core.config.overlays import load, validate
from infuser_core.errors import ConfigError, InfuserError, UsageError
from infuser_core.planning import place as again
from infuser_core.planning.fork import Fork, make_fork, record_fork, record_variant
from infuser_core.planning.place import Repeat
from infuser_core.store import runs
from infuser_core.store.history import load_history
from infuser_core.store.runs import describe_origin, list_runs, read_config

RATE = "cotrain.solver.learning_rate=0.25"
LOOP = ("rollout_dev", "update_solver")


def forked(root: Path, *changes: str, at: int = 1, origin: str = "base", name: str = "fork") -> Fork:
    """A fork, recorded and filled."""
    made = make_fork(root, origin, at=at, changes=changes, name=name)
    plan_fork(made)
    record_fork(root, made)
    fill(root, name, made.history.latest, repeats=made.repeats)
    return made


def differing(root: Path, one: str, other: str) -> set[tuple[str, int]]:
    mine, theirs = keys(root, one), keys(root, other)
    return {place for place in {*mine, *theirs} if mine.get(place) != theirs.get(place)}


def test_everything_before_the_iteration_has_the_same_keys(root: Path):
    fill(root, "base", short_config())
    forked(root, RATE, at=1)
    assert differing(root, "base", "fork") == {
        ("update_solver", 1), ("rollout_dev", 2), ("update_solver", 2), ("respond", 2), ("validate", 2),
        ("respond", 3), ("validate", 3), ("select", -1), ("evaluate", 3),
    }  # fmt: skip


def test_a_fork_at_zero_shares_what_stands_before_the_loop(root: Path):
    fill(root, "base", short_config())
    forked(root, RATE, at=0)
    shared = {place for place in keys(root, "base")} - differing(root, "base", "fork")
    assert {("anchor", -1), ("questions", -1), ("rollout_dev", 0), ("validate", 0)} <= shared
    assert ("update_solver", 0) not in shared


def test_another_seed_holds_from_the_iteration_on_and_for_later_answers_alone(root: Path):
    fill(root, "base", short_config())
    forked(root, "seed=7", at=2)
    parted = differing(root, "base", "fork")
    assert min(t for phase, t in parted if phase in LOOP) == 2
    assert {place for place in parted if place[0] == "validate"} == {("validate", 3)}


def test_settings_of_measuring_hold_for_all_checkpoints_because_they_are_compared(root: Path):
    fill(root, "base", short_config())
    forked(root, "evaluate.too_long=drop", at=2)
    parted = differing(root, "base", "fork")
    assert {t for phase, t in parted if phase == "validate"} == {0, 1, 2, 3}
    assert not {place for place in parted if place[0] in (*LOOP, "respond")}


def test_more_iterations_go_on_from_the_last(root: Path):
    fill(root, "base", short_config())
    forked(root, "cotrain.iterations=5", at=3)
    assert {place for place in differing(root, "base", "fork") if place[0] in LOOP} == {
        (phase, t) for phase in LOOP for t in (3, 4)
    }


def test_its_record_says_where_it_comes_from_and_resuming_needs_no_more(root: Path):
    fill(root, "base", short_config())
    made = make_fork(root, "base", at=1, changes=[RATE])
    record_fork(root, made)
    record = json.loads((root / "runs" / made.name / "run.json").read_text())
    assert (record["forked_from"], record["at"]) == ("base", 1)
    assert record["earlier"] == [{"before": 1, "config": read_config(root, "base")}]
    assert record["config"]["cotrain"]["solver"]["learning_rate"] == 0.25
    read = load_history(root, made.name, validate(read_config(root, made.name)))
    assert read == made.history
    assert made.name.startswith("base-at1-")


def test_a_fork_of_a_fork_has_the_settings_of_all_three(root: Path):
    fill(root, "base", short_config())
    forked(root, RATE, at=1)
    second = forked(root, "cotrain.solver.learning_rate=0.5", at=2, origin="fork", name="second")
    old = short_config().cotrain.solver.learning_rate
    assert [second.history.at(t).cotrain.solver.learning_rate for t in range(3)] == [old, 0.25, 0.5]
    assert {t for phase, t in differing(root, "fork", "second") if phase == "update_solver"} == {2}
    third = make_fork(root, "second", at=1, changes=["cotrain.solver.learning_rate=0.125"])
    assert [third.history.at(t).cotrain.solver.learning_rate for t in range(3)] == [old, 0.125, 0.125]
    assert len(third.history.earlier) == 1


def test_what_the_origin_computed_again_before_is_shared_too(root: Path):
    repeat = Repeat(phase="update_solver", iteration=0, attempt=1)
    fill(root, "base", short_config())
    again.record_repeats(root, "base", [repeat, Repeat(phase="update_solver", iteration=2, attempt=2)])
    fill(root, "base", short_config(), repeats=again.load_repeats(root, "base"))
    made = forked(root, RATE, at=1)
    assert list(made.repeats) == again.load_repeats(root, "fork") == [repeat]
    assert ("update_solver", 0) not in differing(root, "base", "fork")


def test_a_half_finished_run_can_be_left_where_it_is_complete(root: Path):
    fill(root, "base", short_config(), until="update_solver@1")
    assert plan_fork(make_fork(root, "base", at=2, changes=[RATE])).running
    with pytest.raises(UsageError, match="has not reached iteration 3: rollout_dev, iteration 2 is missing") as caught:
        plan_fork(make_fork(root, "base", at=3, changes=[RATE]))
    assert "--fork base@2 or earlier" in caught.value.hint


def test_a_plan_of_a_fork_records_nothing(root: Path):
    fill(root, "base", short_config())
    found = plan_fork(make_fork(root, "base", at=2, changes=[RATE], name="fork"))
    assert list_runs(root) == ["base"]
    assert found.compared_with == "base"
    first = found.running[0]
    assert (first.title, first.reasons[0].key) == ("update_solver, iteration 2", "cotrain.solver.learning_rate")
    assert not any(stage.recipe.iteration < 2 for stage in found.running if stage.recipe.phase in LOOP)


def test_recording_it_twice_is_recording_it_once(root: Path):
    fill(root, "base", short_config())
    made = make_fork(root, "base", at=1, changes=[RATE], name="fork")
    record_fork(root, made)
    before = (root / "runs" / "fork" / "run.json").read_bytes()
    record_fork(root, made)
    assert (root / "runs" / "fork" / "run.json").read_bytes() == before
    other = make_fork(root, "base", at=2, changes=[RATE], name="fork")
    with pytest.raises(ValueError, match="is another one"):
        record_fork(root, other)


def test_an_ordinary_run_is_not_touched_by_any_of_this(root: Path):
    fill(root, "base", short_config())
    history = load_history(root, "base", short_config())
    assert (history.earlier, history.first, history.at(0)) == ((), history.latest, history.latest)
    assert [key for _, _, key in keys_of(root, "base", history)] == [
        key for _, _, key in keys_of(root, "unknown", history)
    ]


def test_a_variant_changes_every_part_of_a_forks_settings_and_keeps_the_rest(root: Path):
    fill(root, "base", short_config())
    forked(root, RATE, at=1)
    record_variant(root, "fork", "strict", lambda config: config.model_copy(update={"seed": 7}))
    read = load_history(root, "strict", validate(read_config(root, "strict")))
    assert [config.seed for config in read.all] == [7, 7]
    assert [config.cotrain.solver.learning_rate for config in read.all] == [
        short_config().cotrain.solver.learning_rate,
        0.25,
    ]
    assert [describe_origin(root, name) for name in ("base", "fork", "strict")] == [
        "", "forked from base at iteration 1", "forked from fork",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorded = tmp_path_factory.mktemp("store")
    config = load([ROOT / "configs" / "nano-basic.yaml"], ["cotrain.iterations=3"])
    runs.create_run(recorded, "base", config.model_dump(mode="json"))
    return recorded


@pytest.mark.parametrize(
    "change",
    [
        "anchor.world=hard",
        "data.dev.size=5",
        "data.validation.size=5",
        "corpus.chunk.max_tokens=77",
        "corpus.overlap.matched=report",
        "cotrain.optimizer.beta1=0.5",
        "engine.dtype=bfloat16",
        "engine.trainer=fake",
        "engine.sampler=fake",
    ],
)
def test_what_was_settled_before_the_loop_cannot_change_in_it(recorded: Path, change: str):
    key = change.split("=")[0]
    with pytest.raises(ConfigError, match=f"{key} cannot change at iteration 1: ") as caught:
        make_fork(recorded, "base", at=1, changes=[change])
    assert "infuser run" in caught.value.hint


@pytest.mark.parametrize(
    "change",
    [
        "corpus.exclude.documents=[d1]",
        "cotrain.reward.name=variance",
        "cotrain.generator.learning_rate=1",
        "prompts=paper",
        "engine.threads=2",
        "seed=1",
    ],
)
def test_what_an_iteration_reads_can(recorded: Path, change: str):
    assert make_fork(recorded, "base", at=1, changes=[change]).history.at(0) != make_fork(
        recorded, "base", at=1, changes=[change]
    ).history.at(1)


@pytest.mark.parametrize(
    ("at", "changes", "said"),
    [
        (4, ["seed=1"], "iterations 0 to 2"),
        (-1, ["seed=1"], "iterations 0 to 2"),
        (1, [], "other settings"),
        (1, ["seed=42"], "nothing to fork for"),
        (2, ["cotrain.iterations=1"], "ends before iteration 2"),
        (1, ["seed"], "key=value"),
        (1, ["cotrain.sed=1"], "unknown key"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused_with_a_hint(recorded: Path, at: int, changes: list[str], said: str):
    with pytest.raises(InfuserError, match=said) as caught:
        make_fork(recorded, "base", at=at, changes=changes)
    assert caught.value.hint


def test_its_name_must_be_one(recorded: Path):
    with pytest.raises(UsageError, match="not a name"):
        make_fork(recorded, "base", at=1, changes=["seed=1"], name="../up")
