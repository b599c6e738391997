"""Induction route (self-play with an executor): the solver writes a function that returns given values.

The generator gets the function and writes `{"inputs": ["...", ...], "message": "..."}`. The solver sees the message
and the first half of the inputs with their values; its function is run on the second half.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes.parts.function_questions import (
    ENTRY,
    Failure,
    make_question,
    parse_arguments,
    parse_fields,
    run_function,
)
from infuser_core.prompts.function_questions import ask_function
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.arguments import LIMITS
from infuser_core.verifiers.parts.code_tests import call_tests
from infuser_core.verifiers.parts.grading import Grading

VERSION = 2
TEMPLATE = "generate_induction"
NEEDS_DOCUMENT = False
RUNS_PROGRAMS = True
TAKES_PROGRAM = True
SHOWS = ""
SOLVED_WITH = "solve_code"
LEAST, MOST = 4, 12
"""Minimum and maximum number of inputs that are used; the solver sees half of them."""


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """Parse a generator's inputs into a question, without choices, about the function in `document`, or say why not.

    Raises SandboxError if the sandbox itself fails, SandboxUnavailable if this host has none.
    """
    fields = parse_fields(text, "inputs")
    if isinstance(fields, Malformed):
        return fields
    texts = list(fields["inputs"]) if isinstance(fields["inputs"], list) else []
    inputs = [*dict.fromkeys(text for text in texts if isinstance(text, str))][:MOST]
    cases = [case for case in map(parse_arguments, inputs) if case is not None]
    if len(cases) < len(inputs):
        return Malformed(reason=Failure.NO_LITERAL_ARGUMENTS)
    if len(cases) < LEAST:
        return Malformed(reason=Failure.TOO_FEW_EXAMPLES)
    values = run_function(document.text, cases)
    if isinstance(values, Failure):
        return Malformed(reason=values)
    half, message = len(cases) // 2, fields.get("message")
    calls = zip(inputs[:half], values[:half], strict=True)
    question = ask_function(calls, message if isinstance(message, str) else "")
    hidden = call_tests(ENTRY, zip(cases[half:], values[half:], strict=True), seconds=LIMITS.seconds)
    return make_question(question, document.text, "code", document, rollout_id, Grading(cases=hidden))
