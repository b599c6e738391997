"""`--benchmarks all` asks a nano model what its prompts can put: numbers only where a template asks for them."""

import pytest

from infuser_core.evaluation.models import find_model
from infuser_core.evaluation.plan import make_plan
from infuser_core.evaluation.settings import settings_for


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("nano", {"nano_target", "nano_transfer"}),
        ("nano-wide", {"nano_target", "nano_transfer", "nano_problems", "nano_programs"}),
    ],
)
def test_all_means_what_the_prompts_can_ask(tmp_path, model, asked):
    model = find_model(tmp_path, model)
    settings = settings_for(model, None, {})
    plan = make_plan(model, settings, "all", data=None, samples=None, limit=4, warn=lambda line: None)
    assert {sheet.name for sheet in plan.sheets} == asked
    assert {question.verifier for question in plan.by_key().values()} <= {
        "choice",
        "integer",
        "literal",
        "arguments",
        "code",
    }
