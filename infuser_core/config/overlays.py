"""From YAML files to a checked configuration: overlays merged left to right, then dotted overrides."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads `3e-4` as text; people mean a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def load(files: Sequence[Path], overrides: Sequence[str] = (), *, seed: int | None = None) -> RunConfig:
    """Merge YAML files left to right, then `key=value` overrides, and check the result.

    Raises ConfigError naming the key, the value and the remedy.
    """
    merged: dict[str, Any] = {}
    for path in files:
        merged = merge(merged, _read_yaml(path))
    for override in overrides:
        merged = merge(merged, parse_override(override))
    if seed is not None:
        merged = merge(merged, {"seed": seed})
    return validate(merged)


def validate(values: Mapping[str, Any]) -> RunConfig:
    """The checked configuration. Raises ConfigError for the first thing that is wrong."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise _explain(error) from None


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Overlay wins; mappings merge key by key, unless the overlay chooses another `type`."""
    merged = dict(base)
    for key, value in overlay.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and value.get("type") in (None, old.get("type")):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="shipped ones lie in configs/") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not valid YAML: {' '.join(str(error).split())}", hint="configs/nano.yaml shows the form"
        ) from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no settings", hint="a configuration is a mapping of keys to values")
    return values


def parse_override(text: str) -> dict[str, Any]:
    key, mark, value = text.partition("=")
    if not mark or not key.strip():
        raise ConfigError(f"--set {text}: not of the form key=value", hint="e.g. --set cotrain.iterations=40")
    try:
        nested: Any = yaml.load(value, Loader=_Loader)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"--set {text}: the value is not valid YAML: {reason}", hint="quote it for YAML") from error
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    return nested


_KINDS = ("nano", "file", "folder", "hub", "endpoint", "rules", "none")
"""Members of unions, which pydantic puts into the path of an error."""


def _explain(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"] if part not in _KINDS)
    reason = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        hint = "no such key: check the spelling against configs/nano.yaml"
        return ConfigError(f"{key} = {first['input']!r}: unknown key{more}", hint=hint)
    if first["type"] == "missing":
        return ConfigError(f"{key} is missing{more}", hint="add the key; configs/ has complete examples")
    value = "" if isinstance(first["input"], Mapping) or "Value error" in first["msg"] else f" = {first['input']!r}"
    return ConfigError(f"{key or 'configuration'}{value}: {reason}{more}", hint="correct the value and start again")
