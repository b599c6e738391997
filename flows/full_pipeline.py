"""The whole life cycle as a Prefect flow: corpus, co-training, selection, evaluation, report."""

from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from corpus.find.catalogue import require_addresses
from flows.pipeline import pipeline, resolve
from infuser_core.config import shipped
from infuser_core.errors import ConfigError
from infuser_core.planning.place import parse_places
from infuser_core.planning.preflight import preflight
from infuser_core.planning.room import require_room
from infuser_core.plugins import needs_documents
from infuser_core.store.runs import check_name
from tasks.stage import stopped

DEFAULT = [str(shipped.path_of("nano"))]


def _title() -> str:
    """Prefect's flow runs carry the run's name, which follows from the settings where none is given."""
    given = flow_run.parameters
    if given.get("name"):
        return str(given["name"])
    try:
        return resolve(
            given.get("configs") or DEFAULT, given.get("overrides") or {}, given.get("seed"), given.get("settings")
        ).run_name()
    except ConfigError:
        # The flow itself says why, and where people look; Prefect ends a flow run without a name without a word.
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
    """Run, or go on with, the run that these parameters describe; the same parameters always mean the same run.

    `configs` are YAML files or names of shipped ones, merged left to right, `overrides` a nested mapping on top.
    `settings` is a complete resolved configuration and wins over both. `again`, `until` and `only` are places,
    PHASE@ITERATION: computed again from there on, stopped after it, this alone. Returns the run's name.
    """
    config = resolve(configs or DEFAULT, overrides or {}, seed, settings)
    title = name or config.run_name()
    check_name(title)
    preflight(config)
    if needs_documents(config) and not config.corpus.pool:
        require_addresses(config.corpus.catalogue)
    require_room(config, title, parse_places(again=again, until=until, only=only))
    stop = pipeline(config, title, flow_run=str(flow_run.id or ""), again=again, until=until, only=only)
    return stopped(stop, title) if stop else title
