"""Questions by people in the generator's prompt, before the document (R-Few)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.benchmarks.parts.question_sets import content_of, load_questions, values_of
from infuser_core.config.run import RunConfig
from infuser_core.phases.answering import template_digest
from infuser_core.prompts.load import load, render_question
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

PLAIN = "generate_mcq"
TEMPLATE = "generate_mcq_examples"
"""Takes the place of the plain template where there are examples; other routes have no room for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Questions that the examples of a prompt are drawn from."""

    questions: Sequence[Question]
    """Questions with their answers."""
    count: int
    """Examples in one prompt."""


def examples_of(config: RunConfig) -> Examples | None:
    """The examples that the prompts draw from; None where the settings ask for none."""
    settings = config.cotrain.examples
    if settings is None:
        return None
    source = settings.source or config.data.dev
    questions = load_questions(source, seed=config.seed, evaluated=config.evaluate.benchmarks)
    return Examples(questions=questions, count=settings.count)


def example_facts(config: RunConfig) -> dict[str, Any]:
    """Facts of the examples for a recipe: number, settings and content of their source, and the template."""
    settings = config.cotrain.examples
    if settings is None:
        return {}
    source, evaluated = settings.source or config.data.dev, config.evaluate.benchmarks
    return {
        "count": settings.count,
        "source": values_of(source),
        "content": content_of(source, evaluated=evaluated),
        "prompt": template_digest(load(TEMPLATE, profile=config.prompts)),
    }


def text_of(examples: Examples | None, document_id: str, *, seed: int, iteration: int) -> str:
    """The examples of one prompt; empty without any. A function of (seed, iteration, document) alone.

    Questions with their choices below and their answer, all different, with a blank line between two.
    """
    if examples is None:
        return ""
    rng = random.Random(seed_of(seed, "examples", iteration, document_id))
    chosen = rng.sample(list(examples.questions), k=min(examples.count, len(examples.questions)))
    return "\n\n".join(f"{render_question(row.text, row.choices)}\nAnswer: {row.answer}" for row in chosen)
