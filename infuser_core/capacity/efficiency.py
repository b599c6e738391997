"""The six constants that turn counted work into seconds. They are shared by all models and all phases."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


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
