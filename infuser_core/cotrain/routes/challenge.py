"""Challenge route: the generator writes a multiple-choice question without a document, as in R-Zero."""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes import mcq
from infuser_core.schemas import Document, Question

TEMPLATE = "generate_challenge"
NEEDS_DOCUMENT = False


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """Parse a generator's text by the rules of the route `mcq`; `document` only names the group."""
    return mcq.read(text, document, rollout_id, rules)
