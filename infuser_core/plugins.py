"""Plug-ins by name: rewards, routes, verifiers, benchmarks and trackers; modules of a folder, or anybody's module.

The folder is the registry: a file that is added to it is found, and nothing else has to be edited.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from infuser_core import settings
from infuser_core.errors import ConfigError, guess, nearest, shown
from infuser_core.schemas import Document, InfluenceScore, Question

if TYPE_CHECKING:
    from infuser_core.config.run import BenchmarkSettings, QuestionSettings, RunConfig
    from infuser_core.cotrain.phases.parsing import Malformed
    from infuser_core.evaluation.benchmarks.parts.spec import Benchmark
    from infuser_core.results.trackers.parts.follow import Tracked
    from infuser_core.results.trackers.parts.points import Point
    from infuser_core.verifiers.parts.grading import Finding

_OURS = ("infuser_core", "corpus")
_LISTED = 40
CHOICES, SHORT_ANSWER = "solve_mcq", "solve_free_form"
"""Prompt templates of questions with lettered choices, and of others whose verifier declares none."""
MAIN_ROUTE = "mcq"
"""Route of a textbook's chunk, unless its row or the configuration says otherwise."""
BATCH = "rewards"
"""Name of a reward function that takes all questions at once."""
Load = Callable[["BenchmarkSettings"], list[Question]]
"""Loads a benchmark's questions."""
Read = Callable[[str, Document, str, "QuestionSettings"], "Question | Malformed"]
"""Reads what a generator wrote, from a document, under a rollout's identifier."""
Given = Callable[[Question, str], Question]
"""Turns the problem that a row carries into a question under an identifier."""
Track = Callable[["Tracked", "Iterable[Point]"], None]
"""Shows a run's points as they come, until there are no more."""


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


def named(name: str, *, key: str) -> Any:
    """The object that the setting `key` names as `package.module:name`. Raises ConfigError where there is none."""
    _check_allowed(key, name)
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{key} = {name!r}: {error}", hint="expected package.module:name of a function") from error


def _check_allowed(kind: str, name: str) -> None:
    """Importing a module runs it: whoever may only set parameters must not choose whose."""
    if settings.shipped_plugins_only() and name.partition(".")[0] not in _OURS:
        raise ConfigError(
            f"{kind} {name!r} is code from outside INFUSER, which a deployment's parameters may not name",
            hint="`infuser serve --allow-plugins` allows it; a worker does with INFUSER_PLUGINS=any",
        )


REWARDS = Registry(kind="reward", package="infuser_core.cotrain.rewards", outside="my_package.module:name")
"""Generator rewards: `reward(score)` of one question, or `rewards(scores, questions)` of all of an iteration."""
ROUTES = Registry(kind="route", package="infuser_core.cotrain.routes", outside="my_package.my_route")
"""Ways from a document to a question: `TEMPLATE`, `NEEDS_DOCUMENT`, `read` or `given`; perhaps `RUNS_PROGRAMS`."""
VERIFIERS = Registry(kind="verifier", package="infuser_core.verifiers", outside="my_package.module:Name")
"""Comparisons of a response with the reference answer: `check`; perhaps `check_many`, `RUNS_PROGRAMS` and `PROMPT`, the
template that its questions are put with."""
BENCHMARKS = Registry(kind="benchmark", package="infuser_core.evaluation.benchmarks", outside="my_package.module:load")
"""Question sets that models are evaluated on: `BENCHMARK`, and `load` where it reads no rows."""
TRACKERS = Registry(kind="tracker", package="infuser_core.results.trackers", outside="my_package.module:name")
"""Places that a run's numbers are shown in: `track`, and the `PACKAGE` that it needs."""

WORLDS = Registry(kind="world", package="infuser_core.nano.worlds", outside="my_package.my_world")
"""Micro-worlds of the nano lab: `WORLD`, and the `SCHEDULE` that its anchor is trained by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A generator reward, ready to call."""

    name: str
    """As written in the configuration."""
    needs_influence: bool
    """Whether questions must be probed against the dev gradient first."""
    of: Callable[[Sequence[InfluenceScore], Sequence[Question]], list[float]]
    """Rewards of an iteration's questions, in order; the two sequences name the same questions."""


def reward(name: str) -> Reward:
    """The reward called `name`; one from outside needs influence unless its module says `NEEDS_INFLUENCE = False`.

    Raises ConfigError listing what exists when there is none.
    """
    module, function = REWARDS.find(name, BATCH, "reward")
    if not callable(function):
        raise ConfigError(f"reward {name!r} is not a function", hint="see infuser_core/cotrain/rewards/variance.py")
    takes_all = function is getattr(module, BATCH, None)
    return Reward(
        name=name,
        needs_influence=bool(getattr(module, "NEEDS_INFLUENCE", True)),
        of=function if takes_all else lambda scores, questions: [function(score) for score in scores],
    )


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


def route(name: str) -> Route:
    """The route called `name`. Raises ConfigError listing what exists when there is none."""
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


def main_routes(config: "RunConfig") -> list[Route]:
    """Routes of the run's own rows: the one that it names, those that share its batches, or the textbooks'."""
    cotrain = config.cotrain
    shared = cotrain.budget.shares if cotrain.budget.by == "prompt_type" and not cotrain.route else {}
    own = [route(name) for name, share in shared.items() if share > 0]
    return [each for each in own if each.read] or [route(cotrain.route or MAIN_ROUTE)]


def blank_routes(config: "RunConfig") -> list[str]:
    """The main routes whose generator is asked for questions from nothing."""
    return [each.name for each in main_routes(config) if each.template and not each.needs_document]


def templates(config: "RunConfig") -> list[str]:
    """Prompt templates that a generator is asked with in this run; empty where no row needs one."""
    found = [*main_routes(config), *(route(each.route) for each in config.data.problems)]
    return sorted({each.template for each in found if each.template})


def needs_documents(config: "RunConfig") -> bool:
    """Whether the run writes questions from documents of a corpus."""
    return not config.cotrain.dev_only and any(each.needs_document for each in main_routes(config))


def solver_prompts(config: "RunConfig") -> list[str]:
    """Prompt templates that the run's routes have solvers answer with, besides those for choices and short answers."""
    return sorted({each.solved_with for each in main_routes(config)} - {""})


def runs_programs(config: "RunConfig", questions: Iterable[Question]) -> bool:
    """Whether this run needs the sandbox, for the questions that it generates or for these."""
    checking = [VERIFIERS.find(name)[0] for name in sorted({question.verifier for question in questions})]
    return any(each.runs_programs for each in main_routes(config)) or any(
        getattr(module, "RUNS_PROGRAMS", False) for module in checking
    )


class Verifier(Protocol):
    """A verifier module, or an object named from outside; `check_many(jobs, preset=...)` is optional."""

    def check(self, response: str, question: Question, *, preset: str = "paper") -> "Finding":
        """Extract the response's answer and compare it with `question.answer`.

        Never raises for any response; raises ConfigError for a preset that is not in PRESETS.
        """
        ...


@cache
def verifier_prompt(name: str) -> str:
    """Prompt template of a verifier's questions. Raises ConfigError listing what exists when there is no verifier."""
    return str(getattr(VERIFIERS.find(name)[0], "PROMPT", SHORT_ANSWER))


def prompt_name(question: Question) -> str:
    """Template that a question is put with: the one for lettered choices, or its verifier's."""
    return CHOICES if question.choices else verifier_prompt(question.verifier)


def verifier(name: str) -> Verifier:
    """The verifier called `name`. Raises ConfigError listing what exists when there is none."""
    _, found = VERIFIERS.find(name)
    if not callable(getattr(found, "check", None)):
        raise ConfigError(f"verifier {name!r} has no check", hint="see infuser_core/verifiers/exact.py")
    return cast(Verifier, found)


def benchmark(name: str) -> Load:
    """The loader of the benchmark called `name`; of its questions it gives those that the settings ask for.

    Raises ConfigError listing what exists when there is none.
    """
    _, found = BENCHMARKS.find(name, "load", "BENCHMARK")
    load = cast(Load, getattr(found, "load", found))
    return lambda settings: asked(load(settings), settings)


def asked(questions: Sequence[Question], settings: "BenchmarkSettings") -> list[Question]:
    """The questions of the domains or subdomains that the settings name, or all.

    Raises ConfigError listing what there is for a name that no question has.
    """
    if not settings.only:
        return list(questions)
    wanted = {name.casefold(): name for name in settings.only}
    there = {part.casefold(): part for row in questions for part in (row.domain, row.subdomain) if part}
    for folded, name in wanted.items():
        if folded not in there:
            listed = ", ".join(sorted(there.values())[:_LISTED]) or "none at all"
            raise ConfigError(
                f"{settings.name} has no domain or subdomain {name!r}",
                hint=f"{guess(nearest(name, there.values()))}there are {listed}",
            )
    return [row for row in questions if wanted.keys() & {row.domain.casefold(), row.subdomain.casefold()}]


def describe(name: str) -> "Benchmark | None":
    """The `BENCHMARK` of its module, or None for a loader that declares nothing."""
    module, _ = BENCHMARKS.find(name, "load", "BENCHMARK")
    return cast("Benchmark | None", getattr(module, "BENCHMARK", None))


def tracker(name: str) -> Track:
    """The tracker called `name`. Raises ConfigError when there is none, or its package is not installed."""
    module, found = TRACKERS.find(name, "track")
    if not callable(found):
        raise ConfigError(
            f"tracker {name!r} is not a function", hint="see infuser_core/results/trackers/tensorboard.py"
        )
    package = getattr(module, "PACKAGE", "")
    if package and importlib.util.find_spec(package) is None:
        hint = f"pip install 'infuser[{name}]', or take it out of `track`"
        raise ConfigError(f"tracker {name!r} needs the package {package}, which is not installed", hint=hint)
    return cast(Track, found)
