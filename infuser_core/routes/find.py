"""Routes by name: a module of this folder, or `my_package.my_route` from anywhere.

A module states `TEMPLATE` (the generator's prompt template; "" where nothing is generated) and `NEEDS_DOCUMENT`. It has
`read(text, document, rollout_id, rules)` for what a generator wrote, or `given(problem, question_id)` for rows that
carry their question and answer.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infuser_core.config.run import QuestionSettings, RunConfig
from infuser_core.errors import ConfigError
from infuser_core.phases.parsing import Malformed
from infuser_core.schemas import Document, Question

MAIN_ROUTE = "mcq"
"""What a chunk of a textbook is for, unless its row or the configuration says otherwise."""

Read = Callable[[str, Document, str, QuestionSettings], Question | Malformed]
Given = Callable[[Question, str], Question]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way from a document to a question, ready to use."""

    name: str
    """As `prompt_type` or the configuration names it."""
    template: str
    """Prompt template of the generator; empty where nothing is generated."""
    needs_document: bool
    """Whether the prompt holds a document's text."""
    read: Read | None
    """What the generator wrote, to a question or the reason why it is none; None where nothing is generated."""
    given: Given | None
    """The row's own problem as the question of an iteration; None where a generator writes it."""


def names() -> list[str]:
    """Names of the shipped routes."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in modules if name != "find")


def load(name: str) -> Route:
    """The route called `name`. Raises ConfigError listing what exists when there is none."""
    if "." not in name and name not in names():
        raise ConfigError(f"no route {name!r}", hint=f"one of {', '.join(names())}; or my_package.my_route")
    try:
        module = importlib.import_module(name if "." in name else f"{__package__}.{name}")
        template, needs_document = str(module.TEMPLATE), bool(module.NEEDS_DOCUMENT)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"route {name!r} cannot be used: {error}", hint="see infuser_core/routes/mcq.py") from error
    read, given = getattr(module, "read", None), getattr(module, "given", None)
    if (read is None) == (given is None):
        raise ConfigError(f"route {name!r} needs `read` or `given`", hint="one of them, see infuser_core/routes")
    return Route(name=name, template=template, needs_document=needs_document, read=read, given=given)


def templates(config: RunConfig) -> list[str]:
    """What a generator is asked with in this run; empty where no row needs one."""
    names = [config.cotrain.route or MAIN_ROUTE, *(each.route for each in config.data.problems)]
    return sorted({template for template in (load(name).template for name in names) if template})


def needs_documents(config: RunConfig) -> bool:
    """Whether the run writes questions from documents of a corpus."""
    cotrain = config.cotrain
    return not cotrain.dev_only and load(cotrain.route or MAIN_ROUTE).needs_document
