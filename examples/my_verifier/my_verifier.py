"""Example of a verifier: durations are equal in any unit, `90 min` and `1.5 h`; and the questions that it decides."""

import json
import re
from fractions import Fraction
from pathlib import Path

from infuser_core.config.run import BenchmarkSettings
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.extract import boxed
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, no_answer, wrong

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(s|min|h|d)")


class Duration:
    """The verifier: questions name it `my_verifier:Duration`."""

    @staticmethod
    def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
        """Compare the boxed duration with the reference. It never raises, for any response."""
        box = boxed(response, preset=preset)
        if box is None:
            return no_answer()
        found = seconds(box)
        if found is None or found != seconds(question.answer):
            return wrong(Reason.OTHER_TEXT, box)
        return correct(Reason.NUMBER, box)


def seconds(text: str) -> Fraction | None:
    """Length of a duration in seconds; None for any other text."""
    match = _DURATION.fullmatch(text.strip())
    return Fraction(match[1]) * SECONDS[match[2]] if match else None


def load(settings: BenchmarkSettings) -> list[Question]:
    """Questions of the file that the configuration names, one JSON object per line: question, answer."""
    rows = [json.loads(line) for line in Path(settings.path).read_text(encoding="utf-8").splitlines()]
    name = f"{__name__}:{Duration.__name__}"
    return [
        Question(question_id=f"d-{number}", text=row["question"], choices=[], answer=row["answer"], verifier=name)
        for number, row in enumerate(rows)
    ]
