"""Abduction, self-play with an executor: the solver is shown a function and a value, and finds arguments for it.

`{"program": "def f(...): ...", "arguments": "..."}`. Any arguments that give the value are right, not only the writer's
own.
"""

from infuser_core.config.run import QuestionSettings
from infuser_core.phases.parsing import Malformed
from infuser_core.routes.parts.functions import asked, called, fenced, fields_of
from infuser_core.schemas import Document, Question
from infuser_core.verifiers.parts.grading import Grading

TEMPLATE = "generate_abduction"
NEEDS_DOCUMENT = False
SHOWS = "show_programs"


def read(text: str, document: Document, rollout_id: str, rules: QuestionSettings) -> Question | Malformed:
    """The question about the function of a generator's text, or the reason why there is none; no choices.

    Raises SandboxError where the sandbox itself fails, SandboxUnavailable where this host has none.
    """
    fields = fields_of(text, "program")
    if isinstance(fields, Malformed):
        return fields
    program, arguments = fields["program"], fields.get("arguments")
    value = called(program, arguments)
    if isinstance(value, Malformed):
        return value
    question = (
        f"For which arguments does the function `f` return {value!r}? Any that do are right. Write them as Python "
        f"literals with commas between them, as they stand in the brackets of a call.\n\n{fenced(program)}"
    )
    facts = Grading(program=program, arguments=str(arguments))
    return asked(question, str(arguments), "arguments", document, rollout_id, facts)
