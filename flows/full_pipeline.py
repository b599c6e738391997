"""Prefect flow `infuser` of a complete run: corpus, co-training, selection, evaluation, report."""

from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from corpus.find.catalogue import require_addresses
from flows.pipeline import pipeline, resolve
from infuser_core.config import shipped
from infuser_core.cotrain.route import needs_documents
from infuser_core.errors import ConfigError
from infuser_core.planning.place import parse_places
from infuser_core.planning.preflight import preflight
from infuser_core.planning.room import require_room
from infuser_core.store.runs import check_name
from tasks.stage import stopped_state

DEFAULT = [str(shipped.path_of("nano"))]


def _title() -> str:
    """Name of the flow run: the run's name, derived from the settings if the parameters give none."""
    values = flow_run.parameters
    if values.get("name"):
        return str(values["name"])
    try:
        return resolve(
            values.get("configs") or DEFAULT, values.get("overrides") or {}, values.get("seed"), values.get("settings")
        ).run_name()
    except ConfigError:
        # The flow itself reports the error; if this function failed, Prefect would end the flow run silently.
        return "refused"


@flow(name="infuser", flow_run_name=_title, validate_parameters=False)
def infuser(
    configs: list[str] | None = None,
    overrides: dict[str, Any] | None = None,
    name: str = "",
    seed: int | None = None,
    settings: dict[str, Any] | None = None,
    again: str = "",
    until: str = "",
    only: str = "",
) -> Any:
    """Start or continue the run that these parameters describe; the same parameters always mean the same run.

    `configs` are YAML files or names of shipped ones, merged left to right, `overrides` a nested mapping on top.
    `settings` is a complete resolved configuration and overrides both. `again`, `until` and `only` are places of the
    form PHASE@ITERATION: compute again from there on, stop after it, run it alone. Returns the run's name.
    """
    config = resolve(configs or DEFAULT, overrides or {}, seed, settings)
    name = name or config.run_name()
    check_name(name)
    preflight(config)
    if needs_documents(config) and not config.corpus.pool:
        require_addresses(config.corpus.catalogue)
    require_room(config, name, parse_places(again=again, until=until, only=only))
    stop = pipeline(config, name, flow_run=str(flow_run.id or ""), again=again, until=until, only=only)
    return stopped_state(stop, name) if stop else name
