"""Generator rewards by name: a module of this folder, or `my_package.module:name` from anywhere."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infuser_core.errors import ConfigError
from infuser_core.schemas import InfluenceScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A generator reward, ready to call."""

    name: str
    """As written in the configuration."""
    needs_influence: bool
    """Whether questions must be probed against the dev gradient first."""
    of: Callable[[InfluenceScore], float]
    """Reward of one question."""


def names() -> list[str]:
    """Names of the shipped rewards."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in modules if name != "find")


def load(name: str) -> Reward:
    """The reward called `name`; one from outside needs influence unless its module says `NEEDS_INFLUENCE = False`.

    Raises ConfigError listing what exists when there is none.
    """
    module_name, _, attribute = name.partition(":")
    if not attribute and name not in names():
        raise ConfigError(f"no reward {name!r}", hint=f"one of {', '.join(names())}; or my_package.module:name")
    try:
        module = importlib.import_module(module_name if attribute else f"{__package__}.{name}")
        function = getattr(module, attribute or "reward")
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(
            f"reward {name!r} cannot be imported: {error}", hint="expected my_package.module:name"
        ) from error
    if not callable(function):
        raise ConfigError(f"reward {name!r} is not a function", hint="see infuser_core/rewards/variance.py")
    return Reward(name=name, needs_influence=bool(getattr(module, "NEEDS_INFLUENCE", True)), of=function)
