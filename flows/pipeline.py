"""Run the whole pipeline of a configuration: stages, requested stops, and the report; with or without Prefect."""

import itertools
from functools import reduce
from pathlib import Path
from typing import Any

from flows.life_cycle import life_cycle
from flows.plan import check_request
from infuser_core.config.overlays import load, merge, nest, validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import PrunedError
from infuser_core.planning.place import parse_places
from infuser_core.settings import store_root
from infuser_core.store.doctor import with_keys_to_restore
from infuser_core.store.store import restoring
from tasks import display, evaluation
from tasks.run import open_run
from tasks.run_control import Stop


def resolve(
    configs: list[str], overrides: dict[str, Any], seed: int | None, settings: dict[str, Any] | None
) -> RunConfig:
    """Resolve a flow's parameters to a configuration; complete `settings` override the others."""
    if settings is not None:
        return validate(settings)
    merged = load([Path(path) for path in configs], seed=seed).model_dump(mode="json")
    return validate(reduce(merge, itertools.starmap(nest, overrides.items()), merged))


def pipeline(config: RunConfig, name: str, *, flow_run: str = "", page: bool = True, **places: str) -> Stop | None:
    """Run all stages and write the `page` of the report. Returns the place of a requested stop, else None.

    `flow_run` is Prefect's id of the surrounding flow run, or empty. If a stage needs an artifact that another
    run with the same beginning has pruned (`store.keep`), another attempt recomputes it first; afterwards it is kept
    like all artifacts that several runs share.
    """
    restored: set[str] = set()
    note = ""
    while True:
        try:
            with restoring(restored, stay=False):
                return _attempt(config, name, note, flow_run=flow_run, page=page, **places)
        except PrunedError as error:
            if error.key in restored:
                raise
            restored.update(with_keys_to_restore(store_root(), [error.key]))
            note = f"{error.message}; it is computed again first, bit by bit the same"
            # The request to recompute is in the run's record by now.
            places.pop("again", None)


def _attempt(config: RunConfig, name: str, note: str, *, flow_run: str, page: bool, **places: str) -> Stop | None:
    request = check_request(config, name, parse_places(**places))
    with open_run(name, config, request=request, flow_run=flow_run) as run:
        if note:
            run.log.warn(note)
        if flow_run:
            display.show_tags(run, flow_run)
        try:
            life_cycle(run)
            run.control.end()
        except Stop as stop:
            place = run.control.reached
            assert place is not None and place.iteration is not None
            message = f"stopped after {stop}, as requested"
            run.console.say(message, passing=True)
            run.journal.append(
                phase=place.phase, iteration=place.iteration, state="stopped", seconds=0.0, message=message
            )
            return stop
        evaluation.write_report(run, page=page)
        return None
