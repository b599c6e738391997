"""Verifiers by name: a module of this folder, or `my_package.module:Name` from anywhere."""

import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import Protocol, cast

from infuser_core.errors import ConfigError
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.grading import Finding


class Verifier(Protocol):
    """What a verifier module, or an object named from outside, offers; `check_many(jobs, preset=...)` is optional."""

    def check(self, response: str, question: Question, *, preset: str = "paper") -> Finding:
        """Extract the response's answer and compare it with `question.answer`.

        Never raises for any response; raises ConfigError for a preset that is not in PRESETS.
        """
        ...


def names() -> list[str]:
    """Names of the shipped verifiers."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in modules if not module.ispkg and module.name != "find")


def load(name: str) -> Verifier:
    """The verifier called `name`. Raises ConfigError listing what exists when there is none."""
    module_name, _, attribute = name.partition(":")
    if not attribute and name not in names():
        raise ConfigError(f"no verifier {name!r}", hint=f"one of {', '.join(names())}; or my_package.module:Name")
    try:
        module = importlib.import_module(module_name if attribute else f"{__package__}.{name}")
        found: object = getattr(module, attribute) if attribute else module
    except (ModuleNotFoundError, AttributeError) as error:
        hint = "expected my_package.module:Name"
        raise ConfigError(f"verifier {name!r} cannot be imported: {error}", hint=hint) from error
    if not callable(getattr(found, "check", None)):
        raise ConfigError(f"verifier {name!r} has no check", hint="see infuser_core/verifiers/exact.py")
    return cast(Verifier, found)
