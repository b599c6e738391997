"""Look up routes, the ways from a document to a question (plug-ins of `routes/`), by name or for a run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from infuser_core.config.run import QuestionSettings, RunConfig
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.errors import ConfigError
from infuser_core.plugins import MAIN_ROUTE, ROUTES, VERIFIERS
from infuser_core.schemas import Document, Question

Read = Callable[[str, Document, str, QuestionSettings], Question | Malformed]
"""Parses a generator's reply (text, document, rollout id, rules) into a question, or says why it is none."""
Carry = Callable[[Question, str], Question]
"""Turns the problem that a data row carries into a question with the given identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way from a document to a question, ready to use."""

    name: str
    """As `prompt_type` or the configuration names it."""
    template: str
    """Prompt template of the generator; empty if nothing is generated."""
    needs_document: bool
    """Whether the prompt contains a document's text."""
    read: Read | None
    """Parser of a generator's reply; None if nothing is generated."""
    carry: Carry | None
    """The row's own problem as a question (`carry` of the plug-in); None if a generator writes it."""
    examples_template: str
    """Template of the examples before the route's own; empty for none."""
    takes_program: bool
    """Whether the prompt contains a function of an earlier question instead of a document."""
    solver_template: str
    """The solver's prompt template if it is neither of the two for choices and short answers."""
    runs_programs: bool
    """Whether parsing a reply or checking an answer runs programs in the sandbox."""
    version: int
    """Part of the keys of runs that use the route; increased when the same text is parsed into another question."""


def find_route(name: str) -> Route:
    """Find the route called `name`. Raises ConfigError, with a list of the known routes, if there is none."""
    module, _ = ROUTES.find(name)
    read, carry = getattr(module, "read", None), getattr(module, "carry", None)
    try:
        template, needs_document = str(module.TEMPLATE), bool(module.NEEDS_DOCUMENT)
    except AttributeError as error:
        raise ConfigError(
            f"route {name!r} cannot be used: {error}", hint="see infuser_core/cotrain/routes/mcq.py"
        ) from error
    if (read is None) == (carry is None):
        raise ConfigError(
            f"route {name!r} needs `read` or `carry`", hint="one of them, see infuser_core/cotrain/routes"
        )
    return Route(
        name=name,
        template=template,
        needs_document=needs_document,
        read=read,
        carry=carry,
        examples_template=str(getattr(module, "SHOWS", "show_questions")),
        takes_program=bool(getattr(module, "TAKES_PROGRAM", False)),
        solver_template=str(getattr(module, "SOLVED_WITH", "")),
        runs_programs=bool(getattr(module, "RUNS_PROGRAMS", False)),
        version=int(getattr(module, "VERSION", 1)),
    )


def main_routes(config: RunConfig) -> list[Route]:
    """Routes of the run's documents: those that share its batches, else the configured one, else the default."""
    cotrain = config.cotrain
    shared = cotrain.budget.shares if cotrain.budget.by == "prompt_type" and not cotrain.route else {}
    own = [find_route(name) for name, share in shared.items() if share > 0]
    return [each for each in own if each.read] or [find_route(cotrain.route or MAIN_ROUTE)]


def blank_routes(config: RunConfig) -> list[str]:
    """Names of the run's main routes whose generator writes questions without a document."""
    return [each.name for each in main_routes(config) if each.template and not each.needs_document]


def generator_templates(config: RunConfig) -> list[str]:
    """Names of the run's prompt templates for the generator; empty if no row needs a generator."""
    routes = [*main_routes(config), *(find_route(each.route) for each in config.data.problems)]
    return sorted({each.template for each in routes if each.template})


def needs_documents(config: RunConfig) -> bool:
    """Whether the run writes questions from documents of a corpus."""
    return not config.cotrain.dev_only and any(each.needs_document for each in main_routes(config))


def solver_prompts(config: RunConfig) -> list[str]:
    """Names of the run's prompt templates for the solver, other than those for choices and short answers."""
    return sorted({each.solver_template for each in main_routes(config)} - {""})


def runs_programs(config: RunConfig, questions: Iterable[Question]) -> bool:
    """Whether the run needs the sandbox, to generate its own questions or to check answers to `questions`."""
    verifiers = [VERIFIERS.find(name)[0] for name in sorted({question.verifier for question in questions})]
    return any(each.runs_programs for each in main_routes(config)) or any(
        getattr(module, "RUNS_PROGRAMS", False) for module in verifiers
    )
