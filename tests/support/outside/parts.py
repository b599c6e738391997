"""Parts of several kinds that are named with a colon: a reward, a verifier, a benchmark and a tracker."""

import json
from collections.abc import Iterable, Sequence

from infuser_core.config.run import BenchmarkSettings
from infuser_core.nano import world
from infuser_core.results.trackers.parts.follow import Tracked
from infuser_core.results.trackers.parts.points import Point
from infuser_core.schemas import InfluenceScore, Question
from infuser_core.verifiers.parts.grading import Finding, Reason, correct, wrong


def rewards(scores: Sequence[InfluenceScore], questions: Sequence[Question]) -> list[float]:
    """A longer question is a better one."""
    return [len(question.text) / 1000 + row.solver_accuracy for row, question in zip(scores, questions, strict=True)]


class Mentions:
    """Every response is right that has the answer anywhere."""

    @staticmethod
    def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
        return (correct if question.answer in response else wrong)(Reason.TEXT, response[:10])


def load(settings: BenchmarkSettings) -> list[Question]:
    """Eight questions of the target, by the verifier above."""
    target = world.draw_questions("test", world.TARGET, 8, 3, world.world_of(settings.world))
    return [
        Question(
            question_id=each.question_id,
            text=each.text,
            choices=each.choices,
            answer=each.answer,
            verifier="outside.parts:Mentions",
        )
        for each in target
    ]


def track(run: Tracked, points: Iterable[Point]) -> None:
    """Phases in their order."""
    with (run.folder / "phases.jsonl").open("a") as file:
        for point in points:
            file.write(json.dumps(point.phase) + "\n")
            file.flush()
