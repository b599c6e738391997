"""Recipes of stages: a phase's own settings, its inputs by id, nothing else."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from infuser_core.planning.place import SALT
from infuser_core.store.recipe import ArtifactRef, Recipe
from tasks.run import Run


def recipe_of(
    run: Run,
    phase: str,
    version: int,
    settings: Any,
    inputs: Mapping[str, ArtifactRef | None],
    *,
    iteration: int = -1,
    seeded: bool = False,
) -> Recipe:
    """The recipe of a stage of this run; `seeded` where the phase draws random numbers.

    Work that is done again although the store has it carries its salt among the settings.
    """
    sources = {name: ref.id for name, ref in inputs.items() if ref is not None}
    salt = run.salts.of(phase, iteration, sources)
    return Recipe(
        phase=phase,
        version=version,
        config={**plain(settings), SALT: salt} if salt else plain(settings),
        seed=run.config.seed if seeded else 0,
        iteration=iteration,
        inputs=sources,
    )


def plain(value: Any) -> Any:
    """Settings as JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
