"""What the tests of doctor, repair and gc share: a finished run in a store of its own, and ways to harm it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crash_points import content, mismatches
from fault_tools import own_copy
from launcher import Launcher, SmallRun, copy_store

from infuser_core.schemas import AuditFact
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import MANIFEST, ArtifactRef, Recipe, read_record
from infuser_core.store.runs import ATTEMPT, EVALUATION, EVALUATIONS, create_run, write_record
from infuser_core.store.store import Outcome, Store, Table
from infuser_core.system import sealed

WEIGHTS = "model.safetensors"


def copy_run(small_run: SmallRun, target: Path) -> Path:
    """The small run alone, with its record: artifacts share their bytes with the original, the record does not."""
    store = copy_store(small_run.root, target)
    held = {entry.key for entry in Journal(small_run.root, small_run.name).entries()}
    for folder in store.glob("artifacts/*/*"):
        if folder.name not in held:
            shutil.rmtree(folder)
    shutil.copytree(small_run.root / "runs" / small_run.name, store / "runs" / small_run.name)
    return store


def artifact_of(store: Path, run: str, phase: str, iteration: int) -> Path:
    """The folder of a stage's artifact."""
    found = {
        entry.key for entry in Journal(store, run).latest() if (entry.phase, entry.iteration) == (phase, iteration)
    }
    (key,) = found
    return store / "artifacts" / phase / key


def flip(folder: Path, name: str) -> None:
    """Change one bit in the middle of a file."""
    path = own_copy(folder, name)
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)


def cut(folder: Path, name: str) -> None:
    """Keep a file's first half."""
    path = own_copy(folder, name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose(folder: Path, name: str) -> None:
    """Delete a file."""
    (folder / name).unlink()


def lose_record(folder: Path, name: str) -> None:
    """Delete the commit record."""
    (folder / MANIFEST).unlink()


def garble_record(folder: Path, name: str) -> None:
    """Change one number in the commit record."""
    path = own_copy(folder, MANIFEST)
    record = json.loads(path.read_text())
    record["seconds"] = record["seconds"] + 1.0
    path.write_text(json.dumps(record))


def lose_artifact(folder: Path, name: str) -> None:
    """Delete the whole folder."""
    shutil.rmtree(folder)


def link_file(folder: Path, name: str) -> None:
    """Put a symbolic link to the same content in a file's place."""
    outside = folder.parents[3] / f"outside-{name}"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)


def link_artifact(folder: Path, name: str) -> None:
    """Put a symbolic link to the same content in the whole folder's place."""
    outside = folder.parents[3] / f"outside-{folder.name}"
    folder.rename(outside)
    folder.symlink_to(outside)


HARMS: dict[str, Callable[[Path, str], None]] = {
    "flipped bit": flip,
    "truncated": cut,
    "deleted": lose,
    "lost record": lose_record,
    "garbled record": garble_record,
    "lost artifact": lose_artifact,
    "linked file": link_file,
    "linked artifact": link_artifact,
}


def differing(small_run: SmallRun, store: Path) -> list[str]:
    """Keys whose content is not the undisturbed run's; a pruned file counts by its digest."""
    return mismatches(content(small_run.root, small_run.name), content(store, small_run.name))


def bits(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def doctor(launch: Launcher, store: Path, *arguments: str) -> dict:
    """What the doctor says, as JSON."""
    ended = launch("doctor", "--json", *arguments, store=store)
    assert ended.code in (0, 3), ended
    found = json.loads(ended.out)
    assert found["healthy"] == (ended.code == 0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp:
    """A run whose artifacts are a few bytes each, with a chain of checkpoints as long as wanted."""

    root: Path
    """The store."""
    name: str
    """The run."""

    def folder(self, phase: str, iteration: int) -> Path:
        """Where the artifact of a stage lies."""
        return artifact_of(self.root, self.name, phase, iteration)

    def checkpoint(self, number: int, role: str = "solver") -> Path:
        """The folder of a role's checkpoint after so many iterations."""
        return self.folder("anchor", -1) if number == 0 else self.folder(f"update_{role}", number - 1)

    def extent(self, number: int, role: str = "solver") -> str:
        """What is there of a checkpoint: m for moments, w for weights."""
        names = [path.name for path in self.checkpoint(number, role).iterdir()]
        return "m" * ("optimizer.safetensors" in names) + "w" * (WEIGHTS in names)


def made_up(root: Path, name: str, iterations: int, *, selected: int | None = None, seed: int = 0) -> MadeUp:
    """Commit such a run; it is finished where a checkpoint is selected. Runs of one seed share their artifacts."""
    store = Store(root)
    create_run(root, name, {"seed": seed})
    journal = Journal(root, name)
    journal.start_attempt()

    def make(phase: str, iteration: int, *, summary: dict | None = None, **inputs: ArtifactRef) -> ArtifactRef:
        identities = {key: ref.id for key, ref in inputs.items()}
        recipe = Recipe(phase=phase, version=1, config={}, seed=seed, iteration=iteration, inputs=identities)
        ref = store.find(recipe) or _commit(store, recipe, summary or {})
        journal.append(phase=phase, iteration=iteration, state="ran", seconds=0.0, key=ref.key, digest=ref.digest)
        return ref

    solver = generator = make("anchor", -1, summary={"step": 0})
    for number in range(iterations):
        questions = make("generate_questions", number, generator=generator)
        generator = make("update_generator", number, questions=questions, generator=generator)
        solver = make("update_solver", number, questions=questions, solver=solver)
    if selected is not None:
        make("select", -1, summary={"selected_iteration": selected}, last=solver)
        write_record(root, name, ATTEMPT, {"run": name, "seconds": 1.5})
        journal.finish()
    return MadeUp(root=root, name=name)


def _commit(store: Store, recipe: Recipe, summary: dict) -> ArtifactRef:
    with store.exclusive(recipe), store.workspace(recipe) as workspace:
        if recipe.phase in ("anchor", "update_solver", "update_generator"):
            (workspace / WEIGHTS).write_text(f"weights of {recipe.key}")
            (workspace / "optimizer.safetensors").write_text(f"moments of {recipe.key}" * 2)
        facts = Table(row_type=AuditFact, rows=[AuditFact(name=recipe.phase, value=1.0)])
        return store.commit(recipe, workspace, Outcome(tables={"facts": facts}, summary=summary), seconds=0.1)


def examined(run: MadeUp, number: int) -> None:
    """Commit an evaluation of the solver's checkpoint after so many iterations, which no run's journal tells of."""
    checkpoint = run.checkpoint(number)
    solver = read_record(checkpoint).ref
    recipe = Recipe(phase="respond", version=1, config={}, seed=0, iteration=-1, inputs={"solver": solver.id})
    ref = _commit(Store(run.root), recipe, {})
    sealed.write(run.root / EVALUATIONS / "exam" / EVALUATION, {"model": str(checkpoint)})
    journal = Journal(run.root, "exam", shelf=EVALUATIONS)
    journal.start_attempt()
    journal.append(phase="respond", iteration=-1, state="ran", seconds=0.0, key=ref.key, digest=ref.digest)
    journal.finish()


def forget(run: MadeUp) -> None:
    """Remove the record of a run, so that nobody holds its artifacts."""
    shutil.rmtree(run.root / "runs" / run.name)
