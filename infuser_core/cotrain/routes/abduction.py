"""Abduction, self-play with an executor: the solver is shown a function and a value, and finds arguments for it.

`{"program": "def f(...): ...", "arguments": "..."}`. Any arguments that give the value are right, not only the writer's
own.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes.parts.functions import Call, asked, call_of
from infuser_core.prompts.function_questions import ask_arguments
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.parts.grading import Grading

TEMPLATE = "generate_abduction"
NEEDS_DOCUMENT = False
RUNS_PROGRAMS = True
SHOWS = "show_programs"


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question about the function of a generator's text, or the reason why there is none; no choices.

    Raises SandboxError where the sandbox itself fails, SandboxUnavailable where this host has none.
    """
    call = call_of(text)
    if not isinstance(call, Call):
        return call
    question = ask_arguments(call.program, call.value)
    facts = Grading(program=call.program, arguments=call.arguments)
    return asked(question, call.arguments, "arguments", document, rollout_id, facts)
