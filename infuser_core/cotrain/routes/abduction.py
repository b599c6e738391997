"""Abduction route (self-play with an executor): the solver gets a function and a value, and finds arguments.

The generator writes `{"program": "def f(...): ...", "arguments": "..."}`. Any arguments that give the value are right.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes.parts.function_questions import FunctionCall, make_question, parse_call
from infuser_core.prompts.function_questions import ask_arguments
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.parts.grading import Grading

TEMPLATE = "generate_abduction"
NEEDS_DOCUMENT = False
RUNS_PROGRAMS = True
SHOWS = "show_programs"


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """Parse a generator's text into a question about its function, without choices, or say why it is none.

    Raises SandboxError if the sandbox itself fails, SandboxUnavailable if this host has none.
    """
    call = parse_call(text)
    if not isinstance(call, FunctionCall):
        return call
    question = ask_arguments(call.program, call.value)
    facts = Grading(program=call.program, arguments=call.arguments)
    return make_question(question, call.arguments, "arguments", document, rollout_id, facts)
