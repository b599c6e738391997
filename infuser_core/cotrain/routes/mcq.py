"""The paper's route: a document becomes a multiple-choice question with its key (appendix, generator prompt)."""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed, parse, to_question
from infuser_core.schemas import Document, Question

TEMPLATE = "generate_mcq"
NEEDS_DOCUMENT = True


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question of a generator's text, or the reason why it is none."""
    parsed = parse(text, min_choices=rules.min_choices, max_choices=rules.max_choices)
    if isinstance(parsed, Malformed):
        return parsed
    return to_question(parsed, rollout_id=rollout_id, document=document, choice_order=rules.choice_order)
