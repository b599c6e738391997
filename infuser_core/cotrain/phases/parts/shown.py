"""Texts before a generator's prompt: examples by people or of earlier iterations, and the accuracy to aim at."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.config.run import RunConfig
from infuser_core.cotrain.route import Route, main_routes
from infuser_core.evaluation.answering import template_digest
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, load_questions, values_of
from infuser_core.prompts.functions import FIRST, used
from infuser_core.prompts.load import load, render_question
from infuser_core.protocols import Messages
from infuser_core.schemas import Document, Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.grading import grading_of

AIM = "show_aim"
"""Template of the accuracy to aim at."""
PROGRAMS = "show_programs"
"""Template of functions with their arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Questions that the examples of a prompt are drawn from."""

    questions: Sequence[Question]
    """Questions with their answers."""
    count: int
    """Examples in one prompt."""


def examples_of(config: RunConfig, earlier: Sequence[Question] = ()) -> Examples | None:
    """The examples that the prompts draw from; None where the settings ask for none."""
    settings = config.cotrain.examples
    if settings is None:
        return None
    if settings.earlier:
        return Examples(questions=earlier, count=settings.count)
    source = settings.source or config.data.dev
    questions = load_questions(source, seed=config.seed, evaluated=config.evaluate.benchmarks)
    return Examples(questions=questions, count=settings.count)


def example_facts(config: RunConfig) -> dict[str, Any]:
    """Facts of the examples for a recipe: number, settings and content of their source, and the templates."""
    settings = config.cotrain.examples
    if settings is None:
        return {}
    shown = {each.shows for each in main_routes(config)} - {""}
    prompts = template_digest(*(load(name, profile=config.prompts) for name in sorted(shown)))
    if settings.earlier:
        return {"count": settings.count, "earlier": settings.earlier, "prompt": prompts}
    source, evaluated = settings.source or config.data.dev, config.evaluate.benchmarks
    return {
        "count": settings.count,
        "source": values_of(source),
        "content": content_of(source, evaluated=evaluated),
        "prompt": prompts,
    }


def aim_facts(config: RunConfig, iteration: int) -> dict[str, Any]:
    """Facts of the accuracies that an iteration's documents aim at in turn, for a recipe; empty without any."""
    aims = config.cotrain.aims_of(iteration)
    return {"aims": aims, "prompt": template_digest(load(AIM, profile=config.prompts))} if aims else {}


def text_of(examples: Examples | None, document_id: str, *, seed: int, iteration: int, template: str) -> str:
    """The examples of one prompt with their answers: a function of (seed, iteration, document) alone."""
    if examples is None or not template:
        return ""
    programs = template == PROGRAMS
    rows = [row for row in examples.questions if grading_of(row).program] if programs else list(examples.questions)
    rng = random.Random(seed_of(seed, "examples", iteration, document_id))
    chosen = rng.sample(rows, k=min(examples.count, len(rows)))
    return "\n\n".join(_program(row) if programs else _question(row) for row in chosen)


def _question(row: Question) -> str:
    return f"{render_question(row.text, row.choices)}\nAnswer: {row.answer}"


def _program(row: Question) -> str:
    facts = grading_of(row)
    return used(facts.program, facts.arguments)


def program_of(examples: Examples | None, document_id: str, *, seed: int, iteration: int) -> str:
    """The source of a function of an earlier question, for a route that takes one; the first one without any."""
    found = [grading_of(row).program for row in (examples.questions if examples else ())]
    rng = random.Random(seed_of(seed, "program", iteration, document_id))
    return rng.choice([source for source in found if source] or [FIRST])


def messages_of(route: Route, document: Document, profile: str, *, shown: str, aim: float | None) -> Messages:
    """The generator's prompt for a document, with what is shown before the route's own text."""
    slots: Mapping[str, str] = {"text": document.text} if route.needs_document or route.takes_program else {}
    before = [load(route.shows, profile=profile).messages(examples=shown)] if shown else []
    if aim is not None:
        before.append(load(AIM, profile=profile).messages(percent=f"{100 * aim:g}"))
    *system, turn = load(route.template, profile=profile).messages(**slots)
    texts = [*(each[-1]["content"] for each in before), turn["content"]]
    return [*system, {"role": "user", "content": "\n\n".join(texts)}]
