"""A gc killed anywhere leaves a sound store, and the next one ends what it began."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from care_tools import bits, forget, made_up

from infuser_core.store.doctor import examine

POINTS = ("gc:recorded", "gc:file", "gc:file:3", "gc:renamed", "gc:renamed:2", "gc:removed")


def gc(root: Path, crash_at: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "INFUSER_STORE": str(root), "INFUSER_CRASH_AT": crash_at}
    command = [sys.executable, "-m", "flows.cli.main", "gc", "--apply"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def store(root: Path) -> Path:
    made_up(root, "run", 6, selected=6)
    forget(made_up(root, "other", 1, selected=1, seed=1))
    (root / "damaged" / "judge-0123456789abcdef.00000000").mkdir(parents=True)
    (root / "damaged" / "judge-0123456789abcdef.00000000" / "part").write_text("damaged")
    return root


def state(root: Path) -> dict[str, bytes]:
    """Everything but what differs by its nature: times, workers, locks."""
    found = bits(root)
    volatile = ("artifact.json", "pruned.json", "run.json", "journal.jsonl")
    return {name: b"" if name.endswith(volatile) else data for name, data in found.items() if "locks/" not in name}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = store(tmp_path_factory.mktemp("undisturbed"))
    ended = gc(root)
    assert ended.returncode == 0, ended.stderr
    return state(root)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_gc_leaves_no_damage_and_the_next_one_ends_it(
    tmp_path: Path, undisturbed: dict[str, bytes], point: str
):
    root = store(tmp_path)
    assert gc(root, point).returncode == -signal.SIGKILL
    assert examine(root).damage == []
    again = gc(root)
    assert again.returncode == 0, again.stderr
    assert state(root) == undisturbed
    assert examine(root).problems == []
    assert "nothing to remove" in gc(root).stdout
