"""A document becomes a problem whose answer is one mathematical value, compared by the `math` verifier."""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed, parse, to_question
from infuser_core.schemas import Document, Question

TEMPLATE = "generate_free_form"
NEEDS_DOCUMENT = True


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The problem of a generator's text, or the reason why it is none; rules on choices do not apply."""
    parsed = parse(text, route="free_form")
    return parsed if isinstance(parsed, Malformed) else to_question(parsed, rollout_id=rollout_id, document=document)
