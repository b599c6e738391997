"""Generator rewards by name: a module of this folder, or `my_package.module:name` from anywhere.

A module has `reward(score)`, the reward of one question, or `rewards(scores, questions)`, those of all questions of an
iteration, where one depends on the others. From outside, a function called `rewards` takes the batch.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import ConfigError
from infuser_core.schemas import InfluenceScore, Question

BATCH = "rewards"
"""Name of a function that takes all questions at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A generator reward, ready to call."""

    name: str
    """As written in the configuration."""
    needs_influence: bool
    """Whether questions must be probed against the dev gradient first."""
    of: Callable[[Sequence[InfluenceScore], Sequence[Question]], list[float]]
    """Rewards of an iteration's questions, in order; the two sequences name the same questions."""


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
        attribute = attribute or (BATCH if hasattr(module, BATCH) else "reward")
        function = getattr(module, attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(
            f"reward {name!r} cannot be imported: {error}", hint="expected my_package.module:name"
        ) from error
    if not callable(function):
        raise ConfigError(f"reward {name!r} is not a function", hint="see infuser_core/rewards/variance.py")
    batch = function if attribute == BATCH else _each(function)
    return Reward(name=name, needs_influence=bool(getattr(module, "NEEDS_INFLUENCE", True)), of=batch)


def _each(reward: Callable[[InfluenceScore], float]) -> Any:
    """A reward of single questions over a batch."""

    def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question]) -> list[float]:
        return [reward(score) for score in scores]

    return rewards
