"""Registries of plug-ins (rewards, routes, verifiers, ...): look up a shipped module or a user's module by name.

Each kind of plug-in has a folder, and every module in it is a plug-in of that name. The attributes that a plug-in must
define are documented next to the folder: `find_route` in `cotrain/route.py`, `find_verifier` in
`verifiers/parts/batch.py`, and so on.
"""

import importlib
import os
import pkgutil
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from infuser_core.errors import ConfigError, EngineError, abbreviate

_OURS = ("infuser_core", "corpus")
MAIN_ROUTE = "mcq"
"""Default route of a textbook's chunk: its row or the configuration may name another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All plug-ins of one kind: the modules of a shipped package, and modules of users' packages."""

    kind: str
    """Name of this kind of plug-in in messages."""
    package: str
    """Package with the shipped plug-ins."""
    outside: str
    """Example of a user's plug-in name, for messages; with a colon, names have the form `module:attribute`."""

    def names(self) -> list[str]:
        """Names of the shipped plug-ins."""
        folder = importlib.import_module(self.package).__path__
        return sorted(module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)

    def _is_outside(self, name: str) -> bool:
        return bool(name.partition(":")[2]) if ":" in self.outside else "." in name

    def check(self, name: str) -> str:
        """Return the name if it is a shipped plug-in's or has the form of a user's plug-in name.

        Imports no user code. Otherwise raises ConfigError, which lists the shipped names.
        """
        dotted = all(part.isidentifier() for part in name.partition(":")[0].split("."))
        is_outside = self._is_outside(name)
        if not dotted or (not is_outside and name not in self.names()):
            hint = f"one of {', '.join(self.names())}; or {self.outside}"
            raise ConfigError(f"no {self.kind} {abbreviate(name)}", hint=hint)
        if is_outside:
            _check_allowed(self.kind, name)
        return name

    def find(self, name: str, *shipped: str) -> tuple[ModuleType, Any]:
        """Import a plug-in; returns its module and its object.

        The object is the attribute after the colon, else the first attribute of `shipped` that the module has; without
        a colon and `shipped`, it is the module itself. Raises ConfigError if the plug-in cannot be imported.
        """
        self.check(name)
        module_name, _, attribute = name.partition(":")
        try:
            module = importlib.import_module(module_name if self._is_outside(name) else f"{self.package}.{name}")
            attribute = attribute or next((each for each in shipped if hasattr(module, each)), "".join(shipped[-1:]))
            return module, getattr(module, attribute) if attribute else module
        except (ModuleNotFoundError, AttributeError) as error:
            message = f"{self.kind} {name!r} cannot be imported: {error}"
            raise ConfigError(message, hint=_import_hint(error, module_name, f"expected {self.outside}")) from error


def find_object(name: str, *, key: str) -> Any:
    """Import the object `package.module:name`, the value of the setting `key`. Raises ConfigError if that fails."""
    _check_allowed(key, name)
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        hint = _import_hint(error, module, "expected package.module:name of a function")
        raise ConfigError(f"{key} = {name!r}: {error}", hint=hint) from error


def _import_hint(error: Exception, module: str, form: str) -> str:
    """Hint for a plug-in that cannot be imported: where Python looks for its module, else the form of its name."""
    package = module.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return f"Python must find it: `PYTHONPATH=. infuser ...` if {package} is in this folder"
    return form


def shipped_plugins_only() -> bool:
    """Whether configurations may use only shipped plug-ins; the variable `INFUSER_PLUGINS` is `any` or `shipped`.

    `infuser serve` sets `shipped` for the flow runs it starts. Raises ConfigError for any other value.
    """
    kind = os.environ.get("INFUSER_PLUGINS") or "any"
    if kind not in ("any", "shipped"):
        raise ConfigError(f"INFUSER_PLUGINS = {kind!r}", hint="any, or shipped (no code from outside INFUSER)")
    return kind == "shipped"


def _check_allowed(kind: str, name: str) -> None:
    """Raise ConfigError for a module from outside INFUSER if only shipped plug-ins are allowed: importing runs it."""
    if shipped_plugins_only() and name.partition(".")[0] not in _OURS:
        raise ConfigError(
            f"{kind} {name!r} is code from outside INFUSER, which a deployment's parameters may not name",
            hint="`infuser serve --allow-plugins` allows it; a worker does with INFUSER_PLUGINS=any",
        )


REWARDS = Registry(kind="reward", package="infuser_core.cotrain.rewards", outside="my_package.module:name")
"""Generator rewards: `reward(score)` for one question, or `rewards(scores, questions)` for all of an iteration."""
ROUTES = Registry(kind="route", package="infuser_core.cotrain.routes", outside="my_package.my_route")
"""Routes, which turn a document into a question: `TEMPLATE`, `NEEDS_DOCUMENT`, `read` or `carry`; optional
`RUNS_PROGRAMS`."""
VERIFIERS = Registry(kind="verifier", package="infuser_core.verifiers", outside="my_package.module:Name")
"""Verifiers, which compare a response with the reference answer: `check`; optional `check_many`, `RUNS_PROGRAMS` and
`PROMPT`."""
BENCHMARKS = Registry(kind="benchmark", package="infuser_core.evaluation.benchmarks", outside="my_package.module:load")
"""Question sets that models are evaluated on: `BENCHMARK`, and `load` if it has no `read_row`."""
TRACKERS = Registry(kind="tracker", package="infuser_core.results.trackers", outside="my_package.module:name")
"""Trackers, which send a run's metrics to a service: `track`, and the `PACKAGE` that it needs."""

WORLDS = Registry(kind="world", package="infuser_core.nano.worlds", outside="my_package.my_world")
"""Micro-worlds of the nano lab: `WORLD`, and the `SCHEDULE` that pre-trains its anchor, the base model of both
roles."""


def require_extra(user: str, package: str) -> None:
    """Raise EngineError if `user` needs an optional package, whose extra has the same name, and it is not installed."""
    if find_spec(package) is None:
        raise EngineError(f"{user} needs the package {package}", hint=f"pip install 'infuser[{package}]'")
