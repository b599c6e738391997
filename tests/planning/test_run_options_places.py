"""Places in a run, PHASE@ITERATION: what is understood, and what is said of one that does not exist."""

from pathlib import Path

import pytest

from infuser_core.errors import UsageError
from infuser_core.planning.place import Place, Repeat, Salts, parse_places, resolve_place
from infuser_core.store.recipe import ArtifactRef, Recipe
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
