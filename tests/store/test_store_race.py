"""Of several processes that want the same artifact one computes, and the first writer wins."""

import subprocess
import sys
import time
from pathlib import Path

from infuser_core.schemas import AuditFact
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Outcome, Store, Table

RECIPE = Recipe(phase="audit", version=1, config={}, seed=0)

# Looks, computes something of its own if nothing is there, and commits. The last word tells it to take the key's lock.
WORKER = """
import os, sys, time
from contextlib import nullcontext
from pathlib import Path
from infuser_core.store.recipe import Recipe
from infuser_core.schemas import AuditFact
from infuser_core.store.store import Outcome, Store, Table
store, recipe = Store(Path(sys.argv[1])), Recipe(phase="audit", version=1, config={}, seed=0)
start = store.root / "start"
(store.root / f"ready-{os.getpid()}").touch()
while not start.exists():
    time.sleep(0.005)
with store.exclusive(recipe) if sys.argv[2] == "locked" else nullcontext():
    ref, computed = store.find(recipe), False
    if ref is None:
        computed = True
        with store.workspace(recipe) as workspace:
            time.sleep(0.2)
            rows = [AuditFact(name="process", value=float(os.getpid()))]
            outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=rows)})
            ref = store.commit(recipe, workspace, outcome, seconds=0.0)
print(ref.id, store.rows(ref, "facts", AuditFact)[0].value, computed)
"""


def race(root: Path, mode: str) -> list[list[str]]:
    """Three processes at once: id, the number they read, whether they computed."""
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, root, mode], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    while len(list(root.glob("ready-*"))) < len(workers):
        time.sleep(0.01)
    (root / "start").touch()
    lines = [worker.communicate()[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    return lines


def test_the_key_lock_lets_one_process_compute(tmp_path: Path):
    lines = race(tmp_path, "locked")
    assert len({(identity, value) for identity, value, _ in lines}) == 1
    assert sorted(computed for _, _, computed in lines) == ["False", "False", "True"]


def test_the_first_writer_wins_and_the_others_take_its_artifact(tmp_path: Path):
    store = Store(tmp_path)
    refs = []
    for number in (1.0, 2.0):
        folder = tmp_path / f"work-{number}"
        folder.mkdir()
        facts = [AuditFact(name="writer", value=number)]
        outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=facts)})
        refs.append(store.commit(RECIPE, folder, outcome, seconds=0.0))
    assert refs[0] == refs[1]
    assert Store(tmp_path).rows(refs[1], "facts", AuditFact) == [AuditFact(name="writer", value=1.0)]


def test_a_loser_of_the_race_reads_the_winners_rows(tmp_path: Path):
    lines = race(tmp_path, "free")
    assert len({(identity, value) for identity, value, _ in lines}) == 1
