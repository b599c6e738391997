"""Build the generator's prompt: few-shot examples, human-written or from earlier iterations, and an accuracy goal."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.config.run import RunConfig
from infuser_core.cotrain.route import Route, main_routes
from infuser_core.evaluation.answering import template_digest
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, load_questions, values_of
from infuser_core.prompts.function_questions import IDENTITY_PROGRAM, render_call
from infuser_core.prompts.templates import load_template, render_question
from infuser_core.protocols import Messages
from infuser_core.schemas import Document, Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.grading import grading_of

AIM_TEMPLATE = "show_aim"
"""Template of the accuracy to aim at."""
PROGRAMS_TEMPLATE = "show_programs"
"""Template of example functions, each with a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplePool:
    """Questions with answers, `count` of which are drawn into each prompt."""

    questions: Sequence[Question]
    count: int


def load_examples(config: RunConfig, earlier: Sequence[Question] = ()) -> ExamplePool | None:
    """Load the questions from which prompts draw examples; None if the settings request no examples."""
    settings = config.cotrain.examples
    if settings is None:
        return None
    if settings.earlier:
        return ExamplePool(questions=earlier, count=settings.count)
    source = settings.source or config.data.dev
    questions = load_questions(source, seed=config.seed, evaluated=config.evaluate.benchmarks)
    return ExamplePool(questions=questions, count=settings.count)


def example_facts(config: RunConfig) -> dict[str, Any]:
    """Recipe entry of the examples: count, settings and content of their source, and the templates."""
    settings = config.cotrain.examples
    if settings is None:
        return {}
    names = {route.examples_template for route in main_routes(config)} - {""}
    prompts = template_digest(*(load_template(name, profile=config.prompts) for name in sorted(names)))
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
    """Recipe entry of the accuracies that an iteration's documents aim at in turn; empty without any."""
    aims = config.cotrain.aims_of(iteration)
    if not aims:
        return {}
    return {"aims": aims, "prompt": template_digest(load_template(AIM_TEMPLATE, profile=config.prompts))}


def render_examples(examples: ExamplePool | None, document_id: str, *, seed: int, iteration: int, template: str) -> str:
    """Render the examples of one prompt with answers, drawn by a seed of (seed, iteration, document) alone."""
    if examples is None or not template:
        return ""
    as_programs = template == PROGRAMS_TEMPLATE
    rows = [row for row in examples.questions if not as_programs or grading_of(row).program]
    rng = random.Random(seed_of(seed, "examples", iteration, document_id))
    texts = []
    for row in rng.sample(rows, k=min(examples.count, len(rows))):
        if as_programs:
            grading = grading_of(row)
            texts.append(render_call(grading.program, grading.arguments))
        else:
            texts.append(f"{render_question(row.text, row.choices)}\nAnswer: {row.answer}")
    return "\n\n".join(texts)


def draw_program(examples: ExamplePool | None, document_id: str, *, seed: int, iteration: int) -> str:
    """Draw the function of an example question, for a route that takes one; the identity if no example has one."""
    programs = [grading_of(row).program for row in (examples.questions if examples else ())]
    rng = random.Random(seed_of(seed, "program", iteration, document_id))
    return rng.choice([program for program in programs if program] or [IDENTITY_PROGRAM])


def render_prompt(route: Route, document: Document, profile: str, *, examples_text: str, aim: float | None) -> Messages:
    """Render the generator's chat turns for a document: examples and aim, if any, precede the route's own text."""
    slots: Mapping[str, str] = {"text": document.text} if route.needs_document or route.takes_program else {}
    before = []
    if examples_text:
        before.append(load_template(route.examples_template, profile=profile).messages(examples=examples_text))
    if aim is not None:
        before.append(load_template(AIM_TEMPLATE, profile=profile).messages(percent=f"{100 * aim:g}"))
    *system, turn = load_template(route.template, profile=profile).messages(**slots)
    texts = [*(messages[-1]["content"] for messages in before), turn["content"]]
    return [*system, {"role": "user", "content": "\n\n".join(texts)}]
