"""A process killed while it commits leaves the artifact absent or complete, and no litter once it is computed again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infuser_core.schemas import AuditFact
from infuser_core.store.recipe import MANIFEST, Recipe
from infuser_core.store.store import Store

RECIPE = Recipe(phase="audit", version=1, config={}, seed=0)

# Commits the recipe in a store; the crash points inside do the rest.
COMMIT = """
import sys
from pathlib import Path
from infuser_core.store.recipe import MANIFEST, Recipe
from infuser_core.schemas import AuditFact
from infuser_core.store.store import Outcome, Store, Table
store, recipe = Store(Path(sys.argv[1])), Recipe(phase="audit", version=1, config={}, seed=0)
with store.exclusive(recipe), store.workspace(recipe) as workspace:
    (workspace / "weights.bin").write_bytes(bytes(100_000))
    outcome = Outcome(tables={"facts": Table(row_type=AuditFact, rows=[AuditFact(name="n", value=1.0)])})
    print(store.commit(recipe, workspace, outcome, seconds=0.0).id)
"""


def commit(root: Path, crash_at: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "INFUSER_CRASH_AT": crash_at}
    return subprocess.run([sys.executable, "-c", COMMIT, root], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("point", "complete"), [("before_rename", False), ("after_rename", True)])
def test_an_artifact_is_absent_or_complete(tmp_path: Path, point: str, complete: bool):
    killed = commit(tmp_path, f"audit:{point}")
    assert killed.returncode == -signal.SIGKILL
    found = Store(tmp_path).find(RECIPE)
    assert (found is not None) == complete
    assert [path.parent.name for path in (tmp_path / "artifacts").rglob(MANIFEST)] == [RECIPE.key] * complete

    again = commit(tmp_path)
    assert again.returncode == 0, again.stderr
    ref = Store(tmp_path).find(RECIPE)
    assert ref is not None and ref.id == again.stdout.strip()
    assert Store(tmp_path).rows(ref, "facts", AuditFact) == [AuditFact(name="n", value=1.0)]
    assert list((tmp_path / ".staging").iterdir()) == [], "the killed process's workspace is swept away"


def test_a_crash_point_counts_its_passes(tmp_path: Path):
    assert commit(tmp_path, "audit:before_rename:2").returncode == 0
    assert commit(tmp_path, "audit:before").returncode == 0
    assert commit(tmp_path, "audit:before_rename:1").returncode == -signal.SIGKILL
