"""Examples of the generator's prompt: read where they lie, and in the recipe by what they say."""

from typing import Any

from infuser_core.benchmarks.parts.question_sets import content_of, load_questions, values_of
from infuser_core.phases.answering import template_digest
from infuser_core.phases.examples import TEMPLATE, Examples
from infuser_core.prompts.load import load
from tasks.run import Run, plain


def examples_of(run: Run) -> Examples | None:
    """What the prompts of an iteration draw from; None where the settings ask for no examples."""
    settings = run.config.cotrain.examples
    if settings is None:
        return None
    source = settings.source or run.config.data.dev
    questions = load_questions(source, seed=run.config.seed, evaluated=run.config.evaluate.benchmarks)
    return Examples(questions=questions, count=settings.count)


def with_examples(run: Run, values: Any) -> Any:
    """A phase's settings, with the examples where there are any."""
    settings = run.config.cotrain.examples
    if settings is None:
        return values
    source, evaluated = settings.source or run.config.data.dev, run.config.evaluate.benchmarks
    examples = {
        "count": settings.count,
        "source": values_of(source),
        "content": content_of(source, evaluated=evaluated),
        "prompt": template_digest(load(TEMPLATE, profile=run.config.prompts)),
    }
    return {**plain(values), "examples": examples}
