"""Work that is asked for again gets keys of its own from there on, and nothing is deleted."""

from pathlib import Path

from planned_run import fill, keys, short_config

from infuser_core.planning import place as again
from infuser_core.planning.place import Place
from infuser_core.store.runs import create_run
from infuser_core.store.store import Store

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
