"""Export a checkpoint as a model folder that other programs load (`infuser export`), completely or not at all."""

import re
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import validate
from infuser_core.config.phase_table import UPDATES, Phase
from infuser_core.config.run import RunConfig
from infuser_core.errors import NUMBER, UsageError
from infuser_core.results.export.card import base_name, card
from infuser_core.results.lineage.graph import Graph, graph_of
from infuser_core.schemas import Selection
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.history import load_history
from infuser_core.store.recipe import Record
from infuser_core.store.runs import read_config
from infuser_core.store.store import Store
from infuser_core.system.durable import refuse_nonempty, replacing_folder
from infuser_core.system.sealed import digest_of_file

ROLES = ("solver", "generator")
SELECTED = "selected"


def export_model(
    root: Path, run: str, *, iteration: str, role: str, out: Path, adapter: bool = False, name: str = "."
) -> dict[str, Any]:
    """Write a role's checkpoint after `iteration` iterations (a number, or `selected`) into a new folder.

    Returns the folder, the checkpoint with its iterations, and the files with their sha256, as JSON values.

    Adapters are merged into the model, or with `adapter` written alone; `name` is what the card tells users to load.
    Raises UsageError if the run has no such checkpoint or trains no adapters, or the folder is not empty.
    """
    if role not in ROLES:
        raise UsageError(f"--role {role}: no such role", hint=f"one of {', '.join(ROLES)}")
    refuse_nonempty(out, option="--out")
    store = Store(root)
    graph = graph_of(Catalogue(root), run)
    number = number_of(graph, store, iteration)
    record = _checkpoint(graph, role, number)
    config = load_history(root, run, validate(read_config(root, run))).for_measurement(number)
    if adapter and config.cotrain.adapter is None:
        raise UsageError(f"--adapter: run {run} trains all weights", hint="export it as a whole model")
    with replacing_folder(out) as draft:
        _write(store.verified_folder(record.ref), draft, config, role=role, adapter=adapter)
        files = {path.name: digest_of_file(path) for path in sorted(draft.iterdir())}
        text = card(graph, store, record, config, role=role, iteration=number, files=files, adapter=adapter, name=name)
        (draft / "README.md").write_text(text, encoding="utf-8")
    return {"out": str(out), "checkpoint_id": record.id, "iteration": number, "files": files}


def _write(source: Path, draft: Path, config: RunConfig, *, role: str, adapter: bool) -> None:
    from infuser_core.engines.local import hub

    if adapter:
        hub.write_adapter(source, draft, base=base_name(config))
        return
    cotrain, is_solver = config.cotrain, role == "solver"
    hub.write_hub_layout(
        source,
        draft,
        dtype=config.engine.dtype,
        sampling=config.evaluate.sampling if is_solver else cotrain.sampling.as_sampling(),
        max_tokens=cotrain.solver_tokens if is_solver else cotrain.generator_tokens,
    )


def number_of(graph: Graph, store: Store, text: str) -> int:
    """Parse an iteration, a number or `selected`. Raises UsageError if the run does not have it."""
    iterations = max((record.iteration + 1 for record in graph.of(*UPDATES)), default=0)
    valid = f"0 (the anchor) to {iterations}, or {SELECTED}"
    if text == SELECTED:
        selections = graph.of(Phase.SELECT)
        if not selections:
            raise UsageError(f"run {graph.run} has selected no checkpoint yet", hint=f"finish it, or give {valid}")
        return store.rows(selections[-1].ref, "selections", Selection)[0].selected_iteration
    if not re.fullmatch(NUMBER, text) or int(text) > iterations:
        raise UsageError(f"--iteration {text}: run {graph.run} has no such checkpoint", hint=f"give {valid}")
    return int(text)


def _checkpoint(graph: Graph, role: str, number: int) -> Record:
    updates = graph.of(f"update_{role}", iteration=number - 1)
    # Several attempts may have left one each for this iteration: use the last.
    record = updates[-1] if updates else graph.checkpoint(role, number)
    if record is None:
        raise UsageError(f"run {graph.run} has no checkpoint yet", hint=f"`infuser resume {graph.run}` continues it")
    return record
