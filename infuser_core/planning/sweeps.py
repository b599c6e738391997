"""Sweep files: grids of runs, one run for every combination of the axes' values."""

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from infuser_core.config import shipped
from infuser_core.config.overlays import load, parse_settings
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import Settings
from infuser_core.errors import ConfigError, match_name

RUNS = 1000
"""Maximum number of runs of a sweep."""
_UNFIT = re.compile(r"[^a-z0-9]+")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class SweepFile(Settings):
    """A sweep as written. Paths are relative to the file's folder; shipped configurations go by their names, too."""

    base: Annotated[list[str], BeforeValidator(_as_list)] = Field(min_length=1)
    """Configurations that every run starts from: a list, or one name."""
    set: list[str] = Field(default=[])
    """`key=value` for every run."""
    axes: dict[str, dict[str, list[str]] | list[Any]] = Field(min_length=1)
    """An axis is labels, each with overlays and `key=value`, or a configuration leaf with its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisValue:
    """One value of an axis."""

    label: str
    """Part of the variant's name; empty for seeds, which repeat a variant."""
    files: tuple[Path, ...] = ()
    """Overlays."""
    overrides: tuple[str, ...] = ()
    """`key=value`."""


def read_sweeps(paths: Sequence[Path], overrides: Sequence[str] = (), *, against: str = "") -> list[RunConfig]:
    """Read the runs of several sweep files, each run once.

    Raises ConfigError like `read_sweep`, and if no run has the variant `against`.
    """
    runs = list({config.run_name(): config for path in paths for config in read_sweep(path, overrides)}.values())
    if against:
        match_name(against, dict.fromkeys(config.label for config in runs), kind="variant")
    return runs


def read_sweep(path: Path, overrides: Sequence[str] = ()) -> list[RunConfig]:
    """Read the runs of a sweep file, each run once, with `key=value` overrides on top.

    A run's name follows from its settings, so that sweeps share runs.

    Raises ConfigError if the file or the configuration of one of its runs is invalid.
    """
    sweep = parse_settings(SweepFile, shipped.read_settings_file(path), where=str(path))
    folder = shipped.find_file(path).parent
    axes = [list(_axis_choices(name, values, folder)) for name, values in sweep.axes.items()]
    many = prod(map(len, axes))
    if many > RUNS:
        raise ConfigError(
            f"{path}: {many} runs, and {RUNS} are the most of one sweep", hint="split it, or drop an axis"
        )
    read = cache(shipped.read_settings_file)
    every = [_run_config(sweep, folder, values, overrides, read) for values in product(*axes)]
    _refuse_alike(path, every)
    return list({config.run_name(): config for config in every}.values())


def _refuse_alike(path: Path, configs: Iterable[RunConfig]) -> None:
    """Refuse different settings under one label: comparisons would average them as if they were seeds."""
    run_of_cell: dict[tuple[str, int], str] = {}
    for config in configs:
        run = config.run_name()
        other = run_of_cell.setdefault((config.label, config.seed), run)
        if other != run:
            raise ConfigError(
                f"{path}: two variants are called {config.label}, runs {other} and {run}",
                hint="name the choices, apart in a-z and 0-9: AXIS: {low: [KEY=-1], high: [KEY=1]}",
            )


def _axis_choices(name: str, values: Mapping[str, list[str]] | Sequence[Any], folder: Path) -> Iterator[AxisValue]:
    if isinstance(values, Mapping):
        for label, parts in values.items():
            files = tuple(shipped.find_file(part, folder) for part in parts if "=" not in part)
            yield AxisValue(label=_as_label(label), files=files, overrides=tuple(part for part in parts if "=" in part))
        return
    for value in values:
        label = "" if name == "seed" else _as_label(f"{'-'.join(name.split('.')[-2:])}-{value}")
        yield AxisValue(label=label, overrides=(f"{name}={value}",))


def _as_label(label: str) -> str:
    return _UNFIT.sub("-", label.lower()).strip("-")


def _run_config(
    sweep: SweepFile, folder: Path, values: Sequence[AxisValue], on_top: Sequence[str], read: Callable[[Path], Any]
) -> RunConfig:
    bases = [shipped.find_file(name, folder) for name in sweep.base]
    files = (*bases, *(file for value in values for file in value.files))
    overrides = [*sweep.set, *(override for value in values for override in value.overrides), *on_top]
    labels = [value.label for value in values if value.label]
    # The labels name the variant: the overlays' names would hide the other values.
    return load(files, [*overrides, f"variant={'-'.join(labels)}"] if labels else overrides, read=read)


class Pace:
    """Durations of finished runs, to estimate when a sweep ends."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._seconds: list[float] = []

    def begin(self, run: str) -> None:
        """Note that a run starts."""
        self._started[run] = time.monotonic()

    def end(self, run: str) -> None:
        """Note that a run ended."""
        self._seconds.append(time.monotonic() - self._started.pop(run))

    def remaining(self, waiting: int, jobs: int) -> float:
        """Expected seconds of `waiting` runs and those under way, `jobs` at a time; 0 until the first run ends."""
        if not self._seconds:
            return 0.0
        usual = statistics.fmean(self._seconds)
        under_way = sum(max(usual - (time.monotonic() - at), 0.0) for at in self._started.values())
        return (usual * waiting + under_way) / jobs
