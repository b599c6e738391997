"""Questions by people in the generator's prompt, before the document (R-Few)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.prompts.load import render_question
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of

PLAIN = "generate_mcq"
TEMPLATE = "generate_mcq_examples"
"""Takes the place of the plain template where there are examples; other routes have no room for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """What examples are drawn from."""

    questions: Sequence[Question]
    """Questions with their answers."""
    count: int
    """Examples in one prompt."""


def text_of(examples: Examples | None, document_id: str, *, seed: int, iteration: int) -> str:
    """The examples of one prompt; empty without any. A function of (seed, iteration, document) alone.

    Questions with their choices below and their answer, all different, with a blank line between two.
    """
    if examples is None:
        return ""
    rng = random.Random(seed_of(seed, "examples", iteration, document_id))
    chosen = rng.sample(list(examples.questions), k=min(examples.count, len(examples.questions)))
    return "\n\n".join(f"{render_question(row.text, row.choices)}\nAnswer: {row.answer}" for row in chosen)
