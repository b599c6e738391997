"""Find a model by name: a folder, a nano anchor (a micro-world's base model), a checkpoint, or an address.

Checkpoints come from the store, a run or the hub.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import Phase
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import FolderAnchor, HubAnchor
from infuser_core.errors import NUMBER, UsageError
from infuser_core.evaluation.anchors import anchor_digest, anchor_folder, anchor_path
from infuser_core.plugins import WORLDS
from infuser_core.schemas import Checkpoint, Role, Selection
from infuser_core.store import runs
from infuser_core.store.catalogue import Catalogue, keys_with_inputs
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Store
from infuser_core.system.hub import REVISION, SCHEME

ADDRESS = "openai:"
_DIGITS = 32
"""Digits of a folder's digest that name its weights."""
_NANO = {"nano": "hard"} | {f"nano-{world}": world for world in WORLDS.names() if world != "hard"}
_FORMS = f"a model folder, {', '.join(_NANO)}, RUN@iteration, RUN@selected, a key of the store, \
[hf://]owner/name[@revision], or openai:MODEL@http://host:port/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModel:
    """A model to evaluate, found by its name."""

    name: str
    """Name in tables: as the user wrote it."""
    digest: str
    """Digest of its weights; for an address, the address."""
    folder: Path | None
    """Folder in Hugging Face layout; None for a model at an address."""
    config: RunConfig | None
    """Configuration of the run that the model belongs to, if any."""
    world: str = ""
    """Micro-world of a nano anchor, empty for others."""
    ref: ArtifactRef | None = None
    """The checkpoint's artifact, if the model is in the store."""

    def checkpoint(self) -> Checkpoint:
        """The checkpoint that a sampler loads."""
        assert self.folder is not None, "a model behind an address has no files here"
        return Checkpoint(checkpoint_id=self.digest, role=Role.SOLVER, path=str(self.folder), step=0)


def find_model(root: Path, text: str) -> EvaluatedModel:
    """Find the model that `text` names. Raises UsageError, with a list of the forms of names, if there is none."""
    if text.startswith(ADDRESS):
        from infuser_core.engines.endpoint import parse_address

        address = parse_address(text)
        digest = f"{ADDRESS}{address.model}@{address.url}"
        return EvaluatedModel(name=address.model, digest=digest, folder=None, config=None)
    if text in _NANO:
        return _folder_model(text, anchor_path(_NANO[text]), world=_NANO[text])
    if Path(text).is_dir():
        return _folder_model(text, anchor_folder(FolderAnchor(type="folder", path=text)))
    name, mark, place = text.rpartition("@")
    if mark and (run := runs.match_run(root, name)):
        return _find_checkpoint(Store(root), run, place)
    if ref := Store(root).ref(text):
        return _stored_model(Store(root), ref, name=ref.key, config=_config_of_key(Store(root), ref.key))
    repo, _, revision = text.removeprefix(SCHEME).partition("@")
    if repo.count("/") == 1 and not text.startswith((".", "/", "~")):
        folder = anchor_folder(HubAnchor(type="hub", repo=repo, revision=revision or REVISION))
        return _folder_model(text, folder)
    raise UsageError(f"--model {text}: there is no such model", hint=_FORMS)


def _folder_model(name: str, folder: Path, *, world: str = "") -> EvaluatedModel:
    return EvaluatedModel(name=name, digest=anchor_digest(folder)[:_DIGITS], folder=folder, config=None, world=world)


def digests_of(catalogue: Catalogue, digest: str) -> set[str]:
    """Digests of a model and of the anchors that it was trained from; a checkpoint's digest is its artifact's id."""
    inputs = filter(None, map(catalogue.find, keys_with_inputs(catalogue, [digest.split("@")[0]])))
    anchors = [record for record in inputs if record.phase == Phase.ANCHOR]
    return {digest, *(record.id for record in anchors), *(record.config["model"][:_DIGITS] for record in anchors)}


def _config_of_key(store: Store, key: str) -> RunConfig | None:
    """Configuration of the first run that has this artifact: it holds the prompts and sampling of its models."""
    for name in runs.list_runs(store.root):
        if any(entry.key == key for entry in Journal(store.root, name).latest()):
            return validate(runs.read_config(store.root, name))
    return None


def _stored_model(store: Store, ref: ArtifactRef, *, name: str, config: RunConfig | None) -> EvaluatedModel:
    if not (store.folder(ref.key) / "config.json").is_file():
        raise UsageError(f"{ref.key} is no checkpoint", hint="keys of checkpoints start with anchor- or update_")
    return EvaluatedModel(name=name, digest=ref.id, folder=store.verified_folder(ref), config=config, ref=ref)


def _find_checkpoint(store: Store, name: str, place: str) -> EvaluatedModel:
    """Find the run's solver after `place` iterations, or the selected one."""
    journal = Journal(store.root, name)
    solvers = {
        entry.iteration + 1: entry.key
        for entry in journal.latest()
        if entry.phase in (Phase.UPDATE_SOLVER, Phase.ANCHOR)
    }
    number = place
    if place == "selected":
        keys = [entry.key for entry in journal.latest() if entry.phase == Phase.SELECT]
        refs = store.refs(keys[-1]) if keys else []
        if not refs:
            raise UsageError(f"run {name} has selected no checkpoint yet", hint="`infuser resume` ends it")
        number = str(store.rows(refs[0], "selections", Selection)[0].selected_iteration)
    if not re.fullmatch(NUMBER, number) or int(number) not in solvers:
        iterations = ", ".join(map(str, sorted(solvers))) or "none yet"
        raise UsageError(
            f"--model {name}@{place}: no such checkpoint", hint=f"iterations: {iterations}; or {name}@selected"
        )
    (ref,) = store.refs(solvers[int(number)])
    config = validate(runs.read_config(store.root, name))
    return _stored_model(store, ref, name=f"{name}@{place}", config=config)


def is_nano(model: EvaluatedModel) -> bool:
    """Whether the model understands only the micro-world's language."""
    if model.world or (model.config is not None and model.config.anchor.type == "nano"):
        return True
    card = model.folder / "card.json" if model.folder else None
    return card is not None and card.is_file() and "world" in json.loads(card.read_text(encoding="utf-8"))
