"""Multiple-choice route of the paper: a document becomes a question with choices and a key (answer).

The prompt is in the paper's appendix (generator prompt).
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed, parse, to_question
from infuser_core.schemas import Document, Question

TEMPLATE = "generate_mcq"
NEEDS_DOCUMENT = True


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """Parse a generator's text into a multiple-choice question, or say why it is none."""
    parsed = parse(text, min_choices=rules.min_choices, max_choices=rules.max_choices)
    if isinstance(parsed, Malformed):
        return parsed
    return to_question(parsed, rollout_id=rollout_id, document=document, choice_order=rules.choice_order)
