"""Deduction route (self-play with an executor): the solver predicts the value of a generated function's call.

The generator writes `{"program": "def f(...): ...", "arguments": "..."}`. The value that the call returns in the
sandbox is the reference answer.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes.parts.function_questions import FunctionCall, make_question, parse_call
from infuser_core.prompts.function_questions import ask_value
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.parts.grading import Grading

VERSION = 2
TEMPLATE = "generate_deduction"
NEEDS_DOCUMENT = False
RUNS_PROGRAMS = True
SHOWS = "show_programs"


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """Parse a generator's text into a question about its call, without choices, or say why it is none.

    Raises SandboxError if the sandbox itself fails, SandboxUnavailable if this host has none.
    """
    call = parse_call(text)
    if not isinstance(call, FunctionCall):
        return call
    question = ask_value(call.program, call.arguments)
    facts = Grading(program=call.program, arguments=call.arguments)
    return make_question(question, repr(call.value), "literal", document, rollout_id, facts)
