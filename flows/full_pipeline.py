"""Prefect flow `infuser` of a complete run: corpus, co-training, selection, evaluation, report."""

from typing import Any, Literal

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

DEFAULT = ["nano"]
NOTHING: dict[str, Any] = {}
SHIPPED = tuple(file.name for file in shipped.configurations() if file.kind != "sweep")


def _title() -> str:
    """Name of the flow run: the run's name, derived from the settings if the parameters give none."""
    values = flow_run.parameters
    if values.get("name"):
        return str(values["name"])
    try:
        return resolve(
            values.get("configs") or DEFAULT,
            values.get("overrides") or {},
            values.get("seed"),
            values.get("settings") or None,
        ).run_name()
    except ConfigError:
        # The flow itself reports the error; if this function failed, Prefect would end the flow run silently.
        return "refused"


@flow(name="infuser", flow_run_name=_title, validate_parameters=False)
def infuser(
    configs: list[Literal[SHIPPED] | str] = DEFAULT,  # type: ignore[valid-type]
    overrides: dict[str, Any] = NOTHING,
    name: str = "",
    seed: int | None = None,
    settings: dict[str, Any] = NOTHING,
    again: str = "",
    until: str = "",
    only: str = "",
) -> Any:
    """Start or continue the run that these parameters describe; the same parameters always mean the same run.

    Returns the run's name.

    Args:
        configs: Shipped configurations by name, or YAML files; merged left to right.
        overrides: Settings on top of them, e.g. {"cotrain.iterations": 4}; nested mappings also work.
        name: Name of the run. By default it follows from the settings.
        seed: Random seed. By default that of the configurations, 42 in those that are shipped.
        settings: A complete resolved configuration instead of configs, overrides and seed.
        again: Compute again from this place on, e.g. score_influence@3.
        until: Stop after this place, e.g. rollout_questions@0.
        only: Run this place alone, e.g. evaluate.
    """
    config = resolve(configs or DEFAULT, overrides or {}, seed, settings or None)
    name = name or config.run_name()
    check_name(name)
    preflight(config)
    if needs_documents(config) and not config.corpus.pool:
        require_addresses(config.corpus.catalogue)
    require_room(config, name, parse_places(again=again, until=until, only=only))
    stop = pipeline(config, name, flow_run=str(flow_run.id or ""), again=again, until=until, only=only)
    return stopped_state(stop, name) if stop else name
