"""A small store with a finished run, made in milliseconds, and `infuser` as a process of its own."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from places import ROOT

from infuser_core.store import runs
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome, Store
from infuser_core.store.views import Lens, Rows


def commit(store: Store, phase: str, *, made_from: dict[str, str] | None = None, text: str = "x") -> ArtifactRef:
    """A committed artifact with two files, one of them in a folder."""
    recipe = Recipe(phase=phase, version=1, config={"text": text}, seed=0, inputs=made_from or {})
    with store.workspace(recipe) as workspace:
        (workspace / "inner").mkdir()
        (workspace / "inner" / "optimizer.bin").write_bytes(text.encode() * 1000)
        (workspace / "model.safetensors").write_bytes(phase.encode() * 2000)
        return store.commit(recipe, workspace, Outcome(tables={}, summary={"text": text}), seconds=0.1)


def make_store(root: Path, *, run: str = "first", artifacts: int = 4) -> Store:
    """A finished run of a chain of artifacts."""
    store = Store(root)
    runs.create_run(root, run, {"seed": 1})
    journal = Journal(root, run)
    journal.start_attempt()
    before: dict[str, str] = {}
    for number in range(artifacts):
        ref = commit(store, f"phase_{number}", made_from=before, text=run)
        before = {"source": ref.id}
        journal.append(phase=ref.kind, iteration=-1, state="ran", seconds=0.1, key=ref.key, digest=ref.digest)
    runs.write_record(root, run, runs.ATTEMPT, {"run": run, "seconds": 0.1})
    journal.finish()
    return store


def infuser(
    *arguments: str, store: Path, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`infuser ARGUMENTS` as a process of its own."""
    command = [sys.executable, "-m", "flows.cli.main", *arguments]
    values = {**os.environ, "INFUSER_STORE": str(store), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, cwd=ROOT, env=values, capture_output=True, text=True, timeout=timeout)


def query(root: Path, statement: str, *, run: str | None = None) -> Rows:
    """Rows of a statement over the runs of a store, or over one."""
    with closing(Lens(Store(root), runs=[run] if run else None)) as lens:
        return lens.query(statement)
