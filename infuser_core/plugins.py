"""Plug-ins by name (rewards, routes, verifiers, ...): modules of a folder here, or of a user's package.

The folder is the registry: a file added to it is found by its name. What such a module has to hold is declared next to
the folder: `find_route` in `cotrain/route.py`, `find_verifier` in `verifiers/parts/batch.py`, and so on.
"""

import importlib
import os
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from infuser_core.errors import ConfigError, shown

_OURS = ("infuser_core", "corpus")
MAIN_ROUTE = "mcq"
"""Route of a textbook's chunk, unless its row or the configuration says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A folder whose every module is a plug-in of one kind."""

    kind: str
    """Name of the kind in messages."""
    package: str
    """Package of the shipped ones."""
    outside: str
    """Form of the name of one from elsewhere, as messages show it."""

    def names(self) -> list[str]:
        """Names of the shipped ones."""
        folder = importlib.import_module(self.package).__path__
        return sorted(module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)

    def _elsewhere(self, name: str) -> bool:
        return bool(name.partition(":")[2]) if ":" in self.outside else "." in name

    def check(self, name: str) -> str:
        """The name itself, a shipped one's or of the form of one from elsewhere, of which nothing is imported.

        Raises ConfigError listing what exists for any other.
        """
        dotted = all(part.isidentifier() for part in name.partition(":")[0].split("."))
        elsewhere = self._elsewhere(name)
        if not dotted or (not elsewhere and name not in self.names()):
            hint = f"one of {', '.join(self.names())}; or {self.outside}"
            raise ConfigError(f"no {self.kind} {shown(name)}", hint=hint)
        if elsewhere:
            _check_allowed(self.kind, name)
        return name

    def find(self, name: str, *shipped: str) -> tuple[ModuleType, Any]:
        """The module of a plug-in and the attribute meant: the one after the colon, or the first of `shipped`.

        Without either it is the module itself. Raises ConfigError listing what exists when there is none.
        """
        self.check(name)
        module_name, _, attribute = name.partition(":")
        elsewhere = self._elsewhere(name)
        try:
            module = importlib.import_module(module_name if elsewhere else f"{self.package}.{name}")
            wanted = attribute or next((own for own in shipped if hasattr(module, own)), "".join(shipped[-1:]))
            return module, getattr(module, wanted) if wanted else module
        except (ModuleNotFoundError, AttributeError) as error:
            message = f"{self.kind} {name!r} cannot be imported: {error}"
            raise ConfigError(message, hint=f"expected {self.outside}") from error


def find_object(name: str, *, key: str) -> Any:
    """The object that the setting `key` names as `package.module:name`. Raises ConfigError where there is none."""
    _check_allowed(key, name)
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{key} = {name!r}: {error}", hint="expected package.module:name of a function") from error


def shipped_plugins_only() -> bool:
    """Whether a configuration may name this project's code alone, `INFUSER_PLUGINS`: `any`, or `shipped`.

    `infuser serve` chooses `shipped` for the flow runs it starts. Raises ConfigError for any other value.
    """
    kind = os.environ.get("INFUSER_PLUGINS") or "any"
    if kind not in ("any", "shipped"):
        raise ConfigError(f"INFUSER_PLUGINS = {kind!r}", hint="any, or shipped (no code from outside INFUSER)")
    return kind == "shipped"


def _check_allowed(kind: str, name: str) -> None:
    """Importing a module runs it: whoever may only set parameters must not choose whose."""
    if shipped_plugins_only() and name.partition(".")[0] not in _OURS:
        raise ConfigError(
            f"{kind} {name!r} is code from outside INFUSER, which a deployment's parameters may not name",
            hint="`infuser serve --allow-plugins` allows it; a worker does with INFUSER_PLUGINS=any",
        )


REWARDS = Registry(kind="reward", package="infuser_core.cotrain.rewards", outside="my_package.module:name")
"""Generator rewards: `reward(score)` of one question, or `rewards(scores, questions)` of all of an iteration."""
ROUTES = Registry(kind="route", package="infuser_core.cotrain.routes", outside="my_package.my_route")
"""Ways from a document to a question: `TEMPLATE`, `NEEDS_DOCUMENT`, `read` or `given`; perhaps `RUNS_PROGRAMS`."""
VERIFIERS = Registry(kind="verifier", package="infuser_core.verifiers", outside="my_package.module:Name")
"""Comparisons of a response with the reference answer: `check`; perhaps `check_many`, `RUNS_PROGRAMS` and `PROMPT`."""
BENCHMARKS = Registry(kind="benchmark", package="infuser_core.evaluation.benchmarks", outside="my_package.module:load")
"""Question sets that models are evaluated on: `BENCHMARK`, and `load` where it reads no rows."""
TRACKERS = Registry(kind="tracker", package="infuser_core.results.trackers", outside="my_package.module:name")
"""Places that a run's numbers are shown in: `track`, and the `PACKAGE` that it needs."""

WORLDS = Registry(kind="world", package="infuser_core.nano.worlds", outside="my_package.my_world")
"""Micro-worlds of the nano lab: `WORLD`, and the `SCHEDULE` that its anchor is trained by."""
