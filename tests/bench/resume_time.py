"""How long `infuser resume` takes on a finished run of many iterations, all of it in the store already.

    python tests/bench/resume_time.py --iterations 100 [--template STORE]

The artifacts are synthetic: each stage's recipe is committed with the tables of a small run's stage of the same kind
and without its weights. So keys, commit records, journal and Prefect are real, and only they count.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from crash_points import NANO, overlay
from launcher import ENVIRONMENT, ROOT

from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.runs import Journal
from infuser_core.store.store import MANIFEST, Outcome, Store

NAME = "long"
TARGET = 20.0


def infuser(store: Path, *arguments: str) -> float:
    """Wall-clock seconds of a command in a process of its own, imports and Prefect's server included."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**outer, **ENVIRONMENT, "INFUSER_STORE": str(store)}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return time.monotonic() - started


class FillingStore(Store):
    """Has whatever it is asked for."""

    template = Path()

    def find(self, recipe: Recipe) -> ArtifactRef | None:
        found = super().find(recipe)
        return found or self._made_up(recipe)

    def _made_up(self, recipe: Recipe) -> ArtifactRef:
        label = recipe.config.get("label")
        like = [json.loads(path.read_text()) for path in self.template.glob(f"artifacts/{recipe.phase}/*/{MANIFEST}")]
        record = next(each for each in like if each["recipe"]["config"].get("label") == label)
        source = self.template / "artifacts" / recipe.phase / record["key"]
        with self.workspace(recipe) as workspace:
            for path in source.glob("*.parquet"):
                shutil.copy(path, workspace)
            (workspace / "key").write_text(recipe.key)
            ref = self.commit(recipe, workspace, Outcome(tables={}, summary=record["summary"]), seconds=1.0)
        path = self.folder(ref.kind, ref.key) / MANIFEST
        changed = {**json.loads(path.read_text()), "rows": record["rows"]}
        changed.pop("seal", None)
        path.write_text(json.dumps(changed))
        return ref


def synthesise(store: Path, template: Path, config: Path) -> None:
    """A finished run, by the flow itself."""
    import tasks.run
    from flows.execute import execute
    from infuser_core.config.overlays import load

    FillingStore.template = template
    os.environ.update({**ENVIRONMENT, "INFUSER_STORE": str(store)})
    page = store / "runs" / NAME / "report" / "report.html"
    page.parent.mkdir(parents=True)
    page.touch()
    tasks.run.Store = FillingStore  # type: ignore[attr-defined, misc]
    execute(load([ROOT / NANO, config], []), NAME)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--template", type=Path, help="store with a small run; made when left out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="resume-") as name:
        folder = Path(name)
        if asked.template is None:
            infuser(folder / "template", "run", NANO, str(overlay(folder, 1)), "--name", "template")
        synthesise(folder / "store", asked.template or folder / "template", overlay(folder, asked.iterations))
        seconds = sorted(infuser(folder / "store", "resume", NAME) for _ in range(asked.repeats))
        entries = Journal(folder / "store", NAME).last_attempt()
        assert {entry.state for entry in entries} == {"cached"}
        print(
            f"{len(entries)} artifacts; resume: {', '.join(f'{each:.1f}' for each in seconds)} s (target {TARGET:.0f})"
        )


if __name__ == "__main__":
    main()
