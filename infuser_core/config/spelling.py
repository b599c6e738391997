"""Hints about unknown settings: the nearest key of that part, the same key elsewhere, and all keys of that part."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from infuser_core.errors import guess, nearest

Model = type[BaseModel]


def spelling(model: Model, place: Sequence[int | str]) -> str:
    """A hint for an unknown key of a model's settings, which stands at this place of a validation error."""
    *parts, last = place
    where, held = _held_by(model, parts)
    known = list(dict.fromkeys(name for part in held for name in part.model_fields))
    if found := nearest(str(last), known):
        return guess([".".join([*where, name]) for name in found]).strip()
    own = ".".join([*where, str(last)])
    elsewhere = dict.fromkeys(path for path in _paths(model) if path.rpartition(".")[2] == last and path != own)
    return f"{guess([*elsewhere][:3])}keys{' of ' if where else ''}{'.'.join(where)}: {', '.join(known)}"


def _held_by(model: Model, place: Sequence[int | str]) -> tuple[list[str], list[Model]]:
    """A place as people write it, without the tags of unions, and the models that may stand there."""
    where, found = [], [model]
    for part in place:
        inner = [one for each in found if part in each.model_fields for one in _models(each, str(part))]
        tagged = [one for one in found if "type" in one.model_fields and part in _choices(one)]
        if inner or not tagged:
            where.append(str(part))
        found = inner or tagged or found
    return where, found


def _choices(model: Model) -> tuple[Any, ...]:
    return get_args(model.model_fields["type"].annotation)


def _models(model: Model, name: str) -> list[Model]:
    return list(_in(model.model_fields[name].annotation))


def _in(annotation: Any) -> Iterator[Model]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _in(inner)


def _paths(model: Model, inside: str = "") -> Iterator[str]:
    """The dotted names of all settings."""
    for name in model.model_fields:
        yield f"{inside}{name}"
        for part in _models(model, name):
            yield from _paths(part, f"{inside}{name}.")
