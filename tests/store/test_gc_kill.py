"""A gc killed anywhere leaves a sound store, and the next one ends what it began."""

import signal
from pathlib import Path

import pytest
from care_tools import bits, forget, made_up
from launcher import Launcher

from infuser_core.store.doctor import examine

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
