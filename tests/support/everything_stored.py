"""The whole pipeline walked against a store that claims to have everything: which recipes its stages ask for."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher import ROOT

from flows.corpus import document_pool
from flows.cotrain import validate as validate_solver
from flows.iteration import Players, iteration
from flows.life_cycle import benchmark
from infuser_core.config.overlays import load, merge, validate
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.route import needs_documents
from infuser_core.nano.lab import anchor_path
from infuser_core.schemas import Document
from infuser_core.store.recipe import ArtifactRef, Recipe, Record
from infuser_core.store.store import Store
from infuser_core.store.tables import write_rows
from tasks import documents, evaluation, training_pool
from tasks.run import open_run
from tasks.run_control import LookUp

NANO = ROOT / "configs" / "nano.yaml"
EXAM = [
    {"question_id": f"q{n}", "question_text": f"6 * {n}?", "choices": ["41", "42"], "ground_truth": "42", "domain": d}
    for n, d in ((7, "products"), (8, "errors"))
]
DOCUMENTS = [
    Document(
        document_id=f"d{number}", source_id=f"s{number}", header_path="", start=0, end=1, text="t", num_tokens=1,
        domain="", prompt_type="mcq",
    )
    for number in (1, 2)
]  # fmt: skip
SAME, OTHER = "0" * 64, "1" * 64
Place = tuple[str, int, int]
"""Phase, iteration, and number among the stages of that phase and iteration."""


class EverythingIsThere(Store):
    """A store that has every artifact. `fixed`: under the same id whatever the recipe, so that no change spreads.

    One artifact, `other`, may have another content than before.
    """

    def __init__(self, root: Path, *, fixed: bool, other: Place | None = None) -> None:
        super().__init__(root)
        self.recipes: list[Recipe] = []
        self.refs: list[ArtifactRef] = []
        self._fixed = fixed
        self._other = other

    def find(self, recipe: Recipe) -> ArtifactRef:
        place = self.place(recipe)
        key = recipe.phase if self._fixed else recipe.key
        ref = ArtifactRef(kind=recipe.phase, key=key, digest=OTHER if place == self._other else SAME)
        self.recipes.append(recipe)
        self.refs.append(ref)
        return ref

    def place(self, recipe: Recipe) -> Place:
        """Where the next stage stands."""
        before = [(each.phase, each.iteration) for each in self.recipes]
        return recipe.phase, recipe.iteration, before.count((recipe.phase, recipe.iteration))

    def places(self) -> list[Place]:
        """Where the stages stood, in their order."""
        seen: list[tuple[str, int]] = []
        found = []
        for each in self.recipes:
            found.append((each.phase, each.iteration, seen.count((each.phase, each.iteration))))
            seen.append((each.phase, each.iteration))
        return found

    def manifest(self, ref: ArtifactRef) -> Record:
        """One topic and one book: one group of each."""
        counts = {"topics": 1, "admitted": 1}
        return Record(ref=ref, recipe={}, files={}, volatile=[], rows=counts, summary=counts, seconds=0.0)

    def rows(self, ref: ArtifactRef, table: str, row_type: type) -> list:
        return DOCUMENTS if row_type is Document else []


def walked(
    config: RunConfig, root: Path, *, fixed: bool, iterations: int = 1, other: Place | None = None
) -> EverythingIsThere:
    """The store, after every stage of the pipeline asked it."""
    store = EverythingIsThere(root, fixed=fixed, other=other)
    with open_run(config.run_name(), config) as run:
        run.store, run.control = store, LookUp(run.control, store)
        dev, validation = (documents.reference_questions(run.name, part) for part in ("dev", "validation"))
        found = document_pool(run.name, dev, validation) if needs_documents(config) else None
        pool = dev if config.cotrain.dev_only else training_pool.training_pool(run.name, found, dev)
        anchor = training_pool.prepare_anchor(run.name)
        players = Players(solver=anchor, generator=anchor, anchor=anchor)
        scores = [validate_solver(run.name, 0, validation, anchor)]
        for number in range(iterations):
            players = iteration(run.name, number, dev, pool, players)
        scores.append(validate_solver(run.name, iterations, validation, players.solver))
        evaluation.select_checkpoint(run.name, [0, iterations], scores)
        evaluation.leakage(run.name, validation)
        for asked in config.evaluate.benchmarks:
            benchmark(run.name, iterations, asked.label or asked.name, players.solver)
    return store


def recipes(config: RunConfig, root: Path, *, fixed: bool, iterations: int = 1) -> dict[str, list[str]]:
    """Stage -> keys of its recipes, asked for in the order of the pipeline. Iterations after the first are marked."""
    found: dict[str, list[str]] = {}
    for recipe in walked(config, root, fixed=fixed, iterations=iterations).recipes:
        marked = f"{recipe.phase}/{recipe.iteration}" if 0 < recipe.iteration < iterations else recipe.phase
        found.setdefault(marked, []).append(recipe.key)
    return found


def changed(one: dict[str, list[str]], other: dict[str, list[str]]) -> list[str]:
    """Stages whose recipes are not the same."""
    return sorted(stage for stage in {*one, *other} if one.get(stage) != other.get(stage))


@contextmanager
def files_in(root: Path) -> Iterator[Path]:
    """A folder with files that settings can point to; the environment's store lies in it."""
    (root / "exam.json").write_text(json.dumps(EXAM))
    (root / "copy.json").write_text(json.dumps(EXAM))
    write_rows(root / "pool.parquet", DOCUMENTS, Document)
    (root / "reference.jsonl").write_text(json.dumps({"text": "Six times seven is forty-two."}) + "\n")
    shutil.copytree(anchor_path(), root / "model")
    (root / "model" / "extra.json").write_text("{}")
    shutil.copytree(anchor_path(), root / "same")
    before = os.environ.get("INFUSER_STORE")
    os.environ["INFUSER_STORE"] = str(root / "store")
    yield root
    del os.environ["INFUSER_STORE"]
    if before is not None:
        os.environ["INFUSER_STORE"] = before


def base_of(world: Path) -> dict[str, Any]:
    """The configuration that is changed."""
    overlay = {
        "cotrain": {"solver": {"minibatch": 64}},
        "evaluate": {"benchmarks": [{"name": "released", "label": "exam", "path": str(world / "exam.json")}]},
    }
    return validate(merge(load([NANO]).model_dump(mode="json"), overlay)).model_dump(mode="json")
