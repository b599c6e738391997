"""Verifiers by name: a module of this folder, or `my_package.module:Name` from anywhere."""

import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import Protocol, cast

from infuser_core.errors import ConfigError
from infuser_core.schemas import Question, Verdict

_MACHINERY = {"extract", "find"}


class Verifier(Protocol):
    """What a verifier module, or an object named from outside, offers."""

    def verify(self, response: str, question: Question, *, preset: str = "paper") -> Verdict:
        """Compare the response's answer with `question.answer`."""
        ...

    def extract(self, response: str, question: Question, *, preset: str = "paper") -> str | None:
        """The answer that `verify` compares, or None."""
        ...


def names() -> list[str]:
    """Names of the shipped verifiers."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in modules if name not in _MACHINERY)


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
    missing = [part for part in ("verify", "extract") if not callable(getattr(found, part, None))]
    if missing:
        hint = "see infuser_core/verifiers/exact.py"
        raise ConfigError(f"verifier {name!r} has no {' and no '.join(missing)}", hint=hint)
    return cast(Verifier, found)
