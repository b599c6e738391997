"""Benchmarks by name: a module of this folder, or `my_package.module:load` from anywhere."""

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

from infuser_core.benchmarks.parts.spec import Benchmark
from infuser_core.config.run import BenchmarkSettings
from infuser_core.errors import ConfigError
from infuser_core.schemas import Question

Load = Callable[[BenchmarkSettings], list[Question]]


def names() -> list[str]:
    """Names of the shipped benchmarks."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in modules if not module.ispkg and module.name != "find")


def load(name: str) -> Load:
    """The benchmark's loader. Raises ConfigError listing what exists when there is none."""
    module_name, _, attribute = name.partition(":")
    if not attribute and name not in names():
        raise ConfigError(f"no benchmark {name!r}", hint=f"one of {', '.join(names())}; or my_package.module:load")
    try:
        module = importlib.import_module(module_name if attribute else f"{__package__}.{name}")
        found: Load = getattr(module, attribute or "load")
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(
            f"benchmark {name!r} cannot be imported: {error}", hint="expected my_package.module:load"
        ) from error
    return found


def describe(name: str) -> Benchmark | None:
    """The module's `BENCHMARK`, or None for a loader that declares nothing."""
    module = importlib.import_module(load(name).__module__)
    found = getattr(module, "BENCHMARK", None)
    return found if isinstance(found, Benchmark) else None
