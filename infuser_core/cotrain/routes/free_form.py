"""Free-form route: the generator turns a document into a problem with one mathematical value as its answer.

The `math` verifier compares answers.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed, parse, to_question
from infuser_core.schemas import Document, Question

TEMPLATE = "generate_free_form"
NEEDS_DOCUMENT = True


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """Parse a generator's text into a problem, or say why it is none; rules on choices do not apply."""
    parsed = parse(text, route="free_form")
    return parsed if isinstance(parsed, Malformed) else to_question(parsed, rollout_id=rollout_id, document=document)
