"""The whole life cycle: corpus, co-training, selection, evaluation, report."""

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.life_cycle import life_cycle
from flows.plan import checked
from infuser_core.config import shipped
from infuser_core.config.overlays import load, merge, validate
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError
from infuser_core.planning.place import asked_of
from infuser_core.planning.preflight import preflight
from infuser_core.store.runs import check_name
from tasks import evaluation
from tasks.run import Run, opened
from tasks.run_control import Stop
from tasks.stage import stopped

DEFAULT = [str(shipped.named("nano"))]


def _title() -> str:
    """Prefect's flow runs carry the run's name, which follows from the settings where none is given."""
    given = flow_run.parameters
    if given.get("name"):
        return str(given["name"])
    try:
        return _resolve(
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
    quiet: bool = False,
    again: str = "",
    until: str = "",
    only: str = "",
) -> Any:
    """Run, or go on with, the run that these parameters describe; the same parameters always mean the same run.

    `configs` are YAML files or names of shipped ones, merged left to right, `overrides` a nested mapping on top.
    `settings` is a complete resolved configuration and wins over both. `again`, `until` and `only` are places,
    PHASE@ITERATION: computed again from there on, stopped after it, this alone. Returns the run's name.
    """
    config = _resolve(configs or DEFAULT, overrides or {}, seed, settings)
    check_name(name or config.run_name())
    preflight(config)
    return pipeline(config, name or config.run_name(), quiet=quiet, again=again, until=until, only=only)


def pipeline(config: RunConfig, name: str, *, quiet: bool, published: bool = True, **places: str) -> Any:
    """The stages of the run and its report; in Prefect's sight only where it is `published`."""
    asked = checked(config, name, asked_of(**places))
    with opened(name, config, quiet=quiet, asked=asked, published=published) as run:
        try:
            life_cycle(run)
            run.control.end()
        except Stop as stop:
            _journal(run, stop)
            return stopped(stop, run.name)
        evaluation.write_report(run)
        return run.name


def _journal(run: Run, stop: Stop) -> None:
    place = run.control.reached
    assert place is not None and place.iteration is not None
    message = f"stopped after {stop}, as asked"
    run.console.say(message, passing=True)
    run.journal.append(phase=place.phase, iteration=place.iteration, state="stopped", seconds=0.0, message=message)


def _resolve(
    configs: list[str], overrides: dict[str, Any], seed: int | None, settings: dict[str, Any] | None
) -> RunConfig:
    if settings is not None:
        return validate(settings)
    merged = load([Path(path) for path in configs], seed=seed).model_dump(mode="json")
    return validate(merge(merged, overrides))
