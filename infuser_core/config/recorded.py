"""Select the settings on which an artifact's key and a run's name depend: all except marked fields.

A setting that is added later gets a mark, `Annotated[float, Mark.NEUTRAL] = 0.0`, in a class of settings or a
dataclass: at its default, recipes are the same as before it existed, so stored artifacts are still reused.
"""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, cast, get_type_hints

from pydantic import BaseModel
from pydantic_core import to_jsonable_python


class Mark(Enum):
    """Marks of fields that are not always part of artifacts' recipes and of the digest in a run's name."""

    NEUTRAL = "in neither at its default, which means what was done before the field existed"
    NEUTRAL_IN_KEYS = "at its default in names alone, which had it before it was marked"
    UNRECORDED = "in neither: it changes no result"


def recorded(
    settings: Any, *, naming: bool = False, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Any:
    """Convert settings to the JSON values in a recipe; with `naming`, to those on which a run's name depends.

    `only` and `without` select among the top-level fields of the settings, not among those of nested settings.
    """
    if isinstance(settings, Mapping):
        return {to_jsonable_python(key): recorded(value, naming=naming) for key, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [recorded(value, naming=naming) for value in settings]
    if not isinstance(settings, BaseModel) and (isinstance(settings, type) or not is_dataclass(settings)):
        return to_jsonable_python(settings)
    values = {}
    for name, (mark, default) in _fields(cast("Any", type(settings))).items():
        if name in without or (only is not None and name not in only):
            continue
        value = getattr(settings, name)
        neutral = mark is Mark.NEUTRAL or (mark is Mark.NEUTRAL_IN_KEYS and not naming)
        if mark is not Mark.UNRECORDED and not (neutral and value == default):
            values[name] = recorded(value, naming=naming)
    return values


@cache
def _fields(kind: Any) -> dict[str, tuple[Mark | None, Any]]:
    """Mark and default of every field of a class, in order."""
    if issubclass(kind, BaseModel):
        models = kind.model_fields.items()
        return {name: (_mark(field.metadata), field.get_default(call_default_factory=True)) for name, field in models}
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: (
            _mark(getattr(hints[field.name], "__metadata__", ())),
            field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field in fields(kind)
    }


def _mark(metadata: Any) -> Mark | None:
    return next((each for each in metadata if isinstance(each, Mark)), None)
