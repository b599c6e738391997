"""Routes from a document to a question by name: what a file in `routes/` has to hold, and the routes of a run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from infuser_core.config.run import QuestionSettings, RunConfig
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.errors import ConfigError
from infuser_core.plugins import MAIN_ROUTE, ROUTES, VERIFIERS
from infuser_core.schemas import Document, Question

Read = Callable[[str, Document, str, QuestionSettings], Question | Malformed]
"""Reads what a generator wrote, from a document, under a rollout's identifier."""
Given = Callable[[Question, str], Question]
"""Turns the problem that a row carries into a question under an identifier."""


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
    """Reader of a generator's reply: a question, or the reason why it is none; None where nothing is generated."""
    given: Given | None
    """The row's own problem as the question of an iteration; None where a generator writes it."""
    shows: str
    """Template that earlier questions or examples by people stand in, before the route's own; empty for none."""
    takes_program: bool
    """Whether the prompt holds a function of an earlier question in a document's place."""
    solved_with: str
    """Prompt template that solvers are asked with, where it is neither of the two for choices and short answers."""
    runs_programs: bool
    """Whether reading a reply or checking an answer runs programs in the sandbox."""
    version: int
    """Raised when the same text would become another question: it enters the key of the runs that use the route."""


def find_route(name: str) -> Route:
    """The route called `name`. Raises ConfigError listing what exists if there is none."""
    module, _ = ROUTES.find(name)
    read, given = getattr(module, "read", None), getattr(module, "given", None)
    try:
        template, needs_document = str(module.TEMPLATE), bool(module.NEEDS_DOCUMENT)
    except AttributeError as error:
        raise ConfigError(
            f"route {name!r} cannot be used: {error}", hint="see infuser_core/cotrain/routes/mcq.py"
        ) from error
    if (read is None) == (given is None):
        raise ConfigError(
            f"route {name!r} needs `read` or `given`", hint="one of them, see infuser_core/cotrain/routes"
        )
    return Route(
        name=name,
        template=template,
        needs_document=needs_document,
        read=read,
        given=given,
        shows=str(getattr(module, "SHOWS", "show_questions")),
        takes_program=bool(getattr(module, "TAKES_PROGRAM", False)),
        solved_with=str(getattr(module, "SOLVED_WITH", "")),
        runs_programs=bool(getattr(module, "RUNS_PROGRAMS", False)),
        version=int(getattr(module, "VERSION", 1)),
    )


def main_routes(config: RunConfig) -> list[Route]:
    """Routes of the run's own rows: the one that it names, those that share its batches, or the textbooks'."""
    cotrain = config.cotrain
    shared = cotrain.budget.shares if cotrain.budget.by == "prompt_type" and not cotrain.route else {}
    own = [find_route(name) for name, share in shared.items() if share > 0]
    return [each for each in own if each.read] or [find_route(cotrain.route or MAIN_ROUTE)]


def blank_routes(config: RunConfig) -> list[str]:
    """The main routes whose generator is asked for questions from nothing."""
    return [each.name for each in main_routes(config) if each.template and not each.needs_document]


def templates(config: RunConfig) -> list[str]:
    """Prompt templates that a generator is asked with in this run; empty where no row needs one."""
    found = [*main_routes(config), *(find_route(each.route) for each in config.data.problems)]
    return sorted({each.template for each in found if each.template})


def needs_documents(config: RunConfig) -> bool:
    """Whether the run writes questions from documents of a corpus."""
    return not config.cotrain.dev_only and any(each.needs_document for each in main_routes(config))


def solver_prompts(config: RunConfig) -> list[str]:
    """Prompt templates that the run's routes have solvers answer with, besides those for choices and short answers."""
    return sorted({each.solved_with for each in main_routes(config)} - {""})


def runs_programs(config: RunConfig, questions: Iterable[Question]) -> bool:
    """Whether this run needs the sandbox, for the questions that it generates or for these."""
    checking = [VERIFIERS.find(name)[0] for name in sorted({question.verifier for question in questions})]
    return any(each.runs_programs for each in main_routes(config)) or any(
        getattr(module, "RUNS_PROGRAMS", False) for module in checking
    )
