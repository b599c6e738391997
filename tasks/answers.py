"""Stages of evaluating any model: a benchmark is answered, a file's answers are taken in, saved answers are scored."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infuser_core.benchmarks.parts.validation import content
from infuser_core.engines.endpoint import Endpoint, parse_address
from infuser_core.engines.protocols import ChatModel, Progress
from infuser_core.evaluation.answers import answered, collect, scored
from infuser_core.evaluation.models import NamedModel
from infuser_core.evaluation.plan import Plan, ask_settings
from infuser_core.evaluation.remote import respond as respond_remotely
from infuser_core.evaluation.settings import EvaluationSettings, engine_name, phrasing_of
from infuser_core.phases import evaluate as phase
from infuser_core.phases.evaluate import Ask, Key, RespondSettings, ScoreSettings, respond
from infuser_core.schemas import BenchmarkResponse, Question
from infuser_core.store.pieces import Pieces
from infuser_core.store.recipe import ArtifactRef, Recipe
from infuser_core.store.store import Outcome
from tasks.run import Execution, plain
from tasks.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Facts about asking a model that its answers do not depend on."""

    model: NamedModel
    """The model."""
    settings: EvaluationSettings
    """Sampling, prompts, limits and engine."""
    batch_tokens: int
    """Tokens that one batch may come to."""
    concurrency: int
    """Requests under way at an address."""


def answer(run: Execution, plan: Plan, asking: Asking, *, source: ArtifactRef | None = None) -> Work:
    """The model answers one benchmark; `source` is the artifact that generated questions are from."""
    (sheet,), settings, model = plan.sheets, asking.settings, asking.model
    questions = plan.questions[sheet.label]
    asked = ask_settings(settings, sheet, questions)
    values = {
        "answers": asked,
        "label": sheet.label,
        "benchmark": sheet.name,
        "content": content(questions),
        "engine": engine_name(model, settings),
    }
    solver = {"solver": model.ref.id} if model.ref else {}
    recipe = Recipe(
        phase="respond",
        version=phase.VERSION,
        config=plain(values if model.ref else {**values, "model": model.digest}),
        seed=settings.seed,
        inputs=solver | ({"questions": source.id} if source else {}),
    )
    return Work(recipe=recipe, produce=partial(_ask, run, recipe, plan, asking))


def _ask(run: Execution, recipe: Recipe, plan: Plan, asking: Asking, workspace: Path, progress: Progress) -> Outcome:
    model, settings, label = asking.model, asking.settings, plan.sheets[0].label
    how = RespondSettings(
        prompts=settings.prompts,
        sampling=settings.sampling,
        prompt_tokens=settings.prompt_tokens,
        seed=settings.seed,
        batch_tokens=asking.batch_tokens,
        phrasing=phrasing_of(settings, label),
    )

    def batches(asks: Sequence[Ask], finished: Collection[Key]) -> Iterator[list[BenchmarkResponse]]:
        missing = sum(ask.key not in finished for ask in asks)
        run.console.say(f"{model.name}: {missing:,} of {len(asks):,} questions of {label} to ask")
        if model.folder is None:
            endpoint = Endpoint(parse_address(model.digest), concurrency=asking.concurrency)
            return respond_remotely(asks, finished, endpoint, how, progress=progress)
        return respond(asks, finished, run.pool.sampler(model.checkpoint()), how, progress=progress)

    responses = collect(plan, Pieces(run.store.partial(recipe), BenchmarkResponse), batches)
    return answered(label, plan.questions[label], responses, model=model.name)


def take_in(label: str, questions: Sequence[Question], responses: Sequence[BenchmarkResponse], digest: str) -> Work:
    """Answers that a file of this digest holds, as the artifact that asking would have made."""
    values = {"label": label, "content": content(questions), "file": digest}
    recipe = Recipe(phase="respond", version=phase.VERSION, config=values, seed=0)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        return answered(label, questions, responses)

    return Work(recipe=recipe, produce=produce)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A model that breaks ties of fallible rules."""

    digest: str
    """Identity of its weights, or its address."""
    load: Callable[[], ChatModel]
    """Loads it; called only where something is judged."""


def score(run: Execution, answers: ArtifactRef, settings: ScoreSettings, *, judge: Judge | None = None) -> Work:
    """Saved answers are scored under a preset. Those of a run, under its own, have been already."""
    manifest = run.store.manifest(answers)
    recipe = Recipe(
        phase="evaluate",
        version=phase.VERSION,
        config=plain(settings) | ({"judge": judge.digest} if judge else {}),
        seed=0,
        iteration=int(manifest.recipe["iteration"]),
        inputs={"responses": answers.id},
    )

    def produce(workspace: Path, progress: Progress) -> Outcome:
        label, model = str(manifest.summary["label"]), judge.load() if judge else None
        return scored(run.store, label, answers, settings, judge=model, progress=progress)

    return Work(recipe=recipe, produce=produce)
