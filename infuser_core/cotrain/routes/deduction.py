"""Deduction, self-play with an executor: the generator writes a function and a call, and the solver is asked its value.

`{"program": "def f(...): ...", "arguments": "..."}`. What the call returns in the sandbox is the reference answer.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes.parts.functions import Call, asked, call_of
from infuser_core.prompts.function_questions import ask_value
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.parts.grading import Grading

VERSION = 2
TEMPLATE = "generate_deduction"
NEEDS_DOCUMENT = False
RUNS_PROGRAMS = True
SHOWS = "show_programs"


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question about the call of a generator's text, or the reason why there is none; no choices.

    Raises SandboxError where the sandbox itself fails, SandboxUnavailable where this host has none.
    """
    call = call_of(text)
    if not isinstance(call, Call):
        return call
    question = ask_value(call.program, call.arguments)
    facts = Grading(program=call.program, arguments=call.arguments)
    return asked(question, repr(call.value), "literal", document, rollout_id, facts)
