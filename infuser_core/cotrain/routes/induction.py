"""Induction, self-play with an executor: a function is to be found from what it returns for some arguments.

The generator is given the function and writes `{"inputs": ["...", ...], "message": "..."}`. The solver sees the message
and the first half of the inputs with their values; its function is run on the second half.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.cotrain.phases.parsing import Malformed
from infuser_core.cotrain.routes.parts.functions import ENTRY, Failure, arguments_of, asked, fields_of, values
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
"""Inputs that are needed, and that are used; half of them are shown."""


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question about the function that is the document's text, or the reason why there is none; no choices.

    Raises SandboxError where the sandbox itself fails, SandboxUnavailable where this host has none.
    """
    fields = fields_of(text, "inputs")
    if isinstance(fields, Malformed):
        return fields
    written = list(fields["inputs"]) if isinstance(fields["inputs"], list) else []
    inputs = [each for each in dict.fromkeys(each for each in written if isinstance(each, str))][:MOST]
    cases = [case for case in map(arguments_of, inputs) if case is not None]
    if len(cases) < len(inputs):
        return Malformed(reason=Failure.NO_LITERAL_ARGUMENTS)
    if len(cases) < LEAST:
        return Malformed(reason=Failure.TOO_FEW_EXAMPLES)
    found = values(document.text, cases)
    if isinstance(found, Failure):
        return Malformed(reason=found)
    shown, message = len(cases) // 2, fields.get("message")
    calls = zip(inputs[:shown], found[:shown], strict=True)
    question = ask_function(calls, message if isinstance(message, str) else "")
    hidden = call_tests(ENTRY, zip(cases[shown:], found[shown:], strict=True), seconds=LIMITS.seconds)
    return asked(question, document.text, "code", document, rollout_id, Grading(cases=hidden))
