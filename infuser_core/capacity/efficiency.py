"""The six constants that turn counted work into seconds. They are shared by all models and all phases."""

import csv
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from infuser_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What counted work costs more than on paper."""

    matmul: float
    """Share of a GPU's dense bf16 rate that forward and backward of training reach."""
    memory: float
    """Share of what bounds decoding, memory bandwidth or dense rate; and of the bandwidth in AdamW and other sweeps."""
    link: float
    """Share of link, network and host bandwidths that collectives and copies reach."""
    decode_step: float
    """Seconds of a decoding step beyond the bytes it moves: scheduling, sampling, launches."""
    layer_pass: float
    """Seconds of one layer in one pass over a micro-batch beyond its matrix products: launches, elementwise work."""
    stage: float
    """Seconds between two phases."""


@cache
def calibrated() -> Efficiency:
    """The constants in `constants.csv`, as `fit.refit` finds them."""
    with (files(__package__) / "constants.csv").open(encoding="utf-8") as file:
        return Efficiency(**{line["name"]: float(line["value"]) for line in csv.DictReader(file)})


def from_file(path: Path) -> Efficiency:
    """The constants in a YAML file, as `as_yaml` writes them. Raises ConfigError for what is none."""
    hint = "`infuser plan --calibrate RUN --to FILE` writes one"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--efficiency {path}: cannot be read: {error}", hint=hint) from error
    wanted = [field.name for field in fields(Efficiency)]
    given = content if isinstance(content, dict) else {}
    for name in wanted:
        if not _positive(given.get(name)):
            raise ConfigError(f"--efficiency {path}: {name} is {given.get(name)!r}, not above 0", hint=hint)
    if set(given) - set(wanted):
        raise ConfigError(f"--efficiency {path}: unknown {min(set(given) - set(wanted))!r}", hint=hint)
    return Efficiency(**{name: float(given[name]) for name in wanted})


def as_yaml(efficiency: Efficiency, *, origin: str) -> str:
    """The text of such a file; `origin` says what the constants were found on."""
    lines = [f"{name}: {value:.6g}" for name, value in asdict(efficiency).items()]
    return "\n".join([f"# {origin}", *lines, ""])


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
