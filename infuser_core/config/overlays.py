"""Load a run's configuration: merge YAML files left to right, apply dotted overrides, and validate the result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from infuser_core.config import shipped
from infuser_core.config.run import RunConfig
from infuser_core.config.shipped import parse_yaml, refuse_vast
from infuser_core.errors import ConfigError, abbreviate, closest_names, did_you_mean

Model = type[BaseModel]
Checked = TypeVar("Checked", bound=BaseModel)


def load(
    files: Sequence[Path],
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    read: Callable[[Path], Any] = shipped.read_settings_file,
) -> RunConfig:
    """Load a configuration from YAML files, or shipped ones by name, merged left to right, then `key=value` overrides.

    `read` reads one file; a sweep passes one that remembers the files that its runs share.
    Raises ConfigError naming the key, the value and the remedy.
    """
    merged: dict[str, Any] = {}
    for path in files:
        values = read(path)
        if not isinstance(values, dict):
            raise ConfigError(f"{path} holds no settings", hint="a configuration is a mapping of keys to values")
        merged = merge(merged, values)
    merged = reduce(merge, map(parse_override, overrides), merged)
    if seed is not None:
        merged = merge(merged, {"seed": seed})
    if files and "name" not in merged:
        _refuse_part(files, merged)
    return validate(merged)


def _refuse_part(files: Sequence[Path], merged: Mapping[str, Any]) -> None:
    """Raise ConfigError if shipped files without a complete configuration are to be run: overlays, or a sweep."""
    names = " ".join(map(str, files))
    if "axes" in merged:
        raise ConfigError(f"{names} is a sweep file", hint=f"infuser sweep {names}")
    if all(str(file) in shipped.names() for file in files):
        kind = "an overlay" if len(files) == 1 else "overlays"
        message = f"{names}: {kind}, without a complete configuration"
        raise ConfigError(message, hint=f"a complete one comes first: infuser run nano {names}")


def validate(values: Mapping[str, Any]) -> RunConfig:
    """Validate the values of a configuration. Raises ConfigError for the first error."""
    refuse_vast(values, name="the configuration")
    return parse_settings(RunConfig, values)


def parse_settings(model: type[Checked], values: Any, *, where: str = "") -> Checked:
    """Validate values as settings of a class. Raises ConfigError, whose message begins with their source `where`."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _config_error(model, error, prefix=f"{where}: " if where else "") from None


def with_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Apply `key=value` overrides to a configuration. Raises ConfigError for an invalid one."""
    return validate(reduce(merge, map(parse_override, overrides), config.model_dump(mode="json")))


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Merge an overlay into base values: its values win; mappings merge by key, unless it chooses another `type`."""
    merged = dict(base)
    for key, value in overlay.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and value.get("type") in (None, old.get("type")):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def nest(key: str, value: Any) -> dict[str, Any]:
    """Values of a configuration in which a dotted key, such as `cotrain.iterations`, has this value."""
    return reduce(lambda inner, part: {part: inner}, reversed(key.strip().split(".")), value)


def parse_override(text: str) -> dict[str, Any]:
    key, mark, value = text.partition("=")
    if not mark or not key.strip():
        raise ConfigError(f"--set {text[:60]}: not of the form key=value", hint="e.g. --set cotrain.iterations=40")
    name = f"--set {key.strip()[:60]}: the value"
    nested = nest(key, parse_yaml(value, name=name, hint="quote it for YAML"))
    refuse_vast(nested, name=name)
    return nested


def _config_error(model: Model, error: ValidationError, *, prefix: str) -> ConfigError:
    first = error.errors()[0]
    keys, models = _models_at(model, first["loc"])
    path = ".".join(key if len(key) <= 60 and key.isprintable() else abbreviate(key) for key in keys)
    name = f"{prefix}{path or 'configuration'}"
    reason = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        hint = _suggest_key(model, first["loc"])
        return ConfigError(f"{name} = {abbreviate(first['input'])}: unknown key{more}", hint=hint)
    if first["type"] == "missing":
        return ConfigError(f"{name} is missing{more}", hint="add the key; configs/ has complete examples")
    if isinstance(first["input"], str) and "dictionary" in first["msg"]:
        files = [each.model_fields for each in models if {"type", "path"} <= each.model_fields.keys()]
        types = [get_args(fields["type"].annotation)[0] for fields in files]
        change = f"{path}={{type: {types[0]}, path: {first['input']}}}" if types else f"{path}.KEY=VALUE"
        return ConfigError(
            f"{name} = {abbreviate(first['input'])}: it is a group of settings, not one value{more}",
            hint=f"--set '{change}'; configs/ has complete examples",
        )
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        # The cause has its own hint, and without a path its message names the setting.
        return ConfigError(f"{f'{name}: ' if path else prefix}{cause.message}{more}", hint=cause.hint)
    value = (
        ""
        if isinstance(first["input"], Mapping) or "Value error" in first["msg"]
        else f" = {abbreviate(first['input'])}"
    )
    return ConfigError(f"{name}{value}: {reason}{more}", hint="correct the value and start again")


def _suggest_key(model: Model, place: Sequence[int | str]) -> str:
    """Hint for an unknown key at the location of a validation error: keys of similar spelling, else all keys."""
    *parents, last = place
    keys, models = _models_at(model, parents)
    names = list(dict.fromkeys(name for each in models for name in each.model_fields))
    if similar := closest_names(str(last), names):
        return did_you_mean([".".join([*keys, name]) for name in similar]).strip()
    own = ".".join([*keys, str(last)])
    elsewhere = dict.fromkeys(path for path in _paths(model) if path.rpartition(".")[2] == last and path != own)
    return f"{did_you_mean([*elsewhere][:3])}keys{' of ' if keys else ''}{'.'.join(keys)}: {', '.join(names)}"


def _models_at(model: Model, place: Sequence[int | str]) -> tuple[list[str], list[Model]]:
    """The location of a validation error as written in YAML, without union tags, and the models possible there."""
    keys, models = [], [model]
    for part in place:
        inner = [
            one
            for each in models
            if part in each.model_fields
            for one in _models_in(each.model_fields[str(part)].annotation)
        ]
        tagged = [
            each
            for each in models
            if "type" in each.model_fields and part in get_args(each.model_fields["type"].annotation)
        ]
        if inner or not tagged:
            keys.append(str(part))
        models = inner or tagged or models
    return keys, models


def _models_in(annotation: Any) -> Iterator[Model]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _paths(model: Model, inside: str = "") -> Iterator[str]:
    """The dotted names of all settings."""
    for name, field in model.model_fields.items():
        yield f"{inside}{name}"
        for part in _models_in(field.annotation):
            yield from _paths(part, f"{inside}{name}.")
