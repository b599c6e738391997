"""A route: multiple-choice questions whose identifiers say that they came this way."""

from dataclasses import replace

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes import mcq
from infuser_core.schemas import Document, Question

TEMPLATE = mcq.TEMPLATE
NEEDS_DOCUMENT = True


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    question = mcq.read(text, document, rollout_id, rules)
    return question if isinstance(question, Malformed) else replace(question, domain="this way")
