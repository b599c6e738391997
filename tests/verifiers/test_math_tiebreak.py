"""The judge as tie-breaker: asked only where the rules may err, recorded as such, never above a correct."""

import pytest

from infuser_core.engines.fake import ScriptedChat
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts.batch import MAY_ERR, Job, break_ties
from infuser_core.verifiers.parts.grading import Finding, Stage, correct, no_answer, unverified, wrong

JOB = Job(
    response=r"\boxed{two}",
    question=Question(
        question_id="q", text="How many?", choices=[], answer="2", verifier="math", domain="", subdomain="",
    ),
)  # fmt: skip
OPEN = wrong(Stage.WORDS, "two")


def judged(findings: list[Finding], reply: str) -> tuple[list[Verdict], list[str], int]:
    """Verdicts, who decided them, and how often the judge was asked."""
    asked: list[str] = []

    def answer(messages: list[dict[str, str]]) -> str:
        asked.append(messages[-1]["content"])
        return reply

    broken = break_ties([JOB] * len(findings), findings, ScriptedChat(reply=answer))
    verdicts = [broken.get(place, finding.verdict) for place, finding in enumerate(findings)]
    return verdicts, ["judge" if place in broken else "verifier" for place in range(len(findings))], len(asked)


def test_one_makes_it_correct_and_says_who_decided():
    assert judged([OPEN], "1") == ([Verdict.CORRECT], ["judge"], 1)
    assert judged([unverified(Stage.TIME, "two")], " 1\n") == ([Verdict.CORRECT], ["judge"], 1)


def test_zero_leaves_wrong_wrong_and_settles_the_undecided():
    assert judged([OPEN], "0") == ([Verdict.WRONG], ["verifier"], 1)
    assert judged([unverified(Stage.LIMIT, "two")], "0") == ([Verdict.WRONG], ["judge"], 1)


@pytest.mark.parametrize("reply", ["", "yes", "10", "1 because", "The answer is 1", "{1}", "01", "one"])
def test_any_other_reply_changes_nothing(reply: str):
    assert judged([OPEN], reply) == ([Verdict.WRONG], ["verifier"], 1)


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage not in MAY_ERR])
def test_proofs_are_not_put_to_the_judge(stage: Stage):
    assert judged([wrong(stage, "two")], "1") == ([Verdict.WRONG], ["verifier"], 0)


def test_correct_answers_and_missing_ones_are_not_put_to_the_judge():
    findings = [correct(Stage.SYMBOLIC, "2"), no_answer(), wrong(Stage.WORDS, "x" * 600)]
    verdicts = [finding.verdict for finding in findings]
    assert judged(findings, "0") == (verdicts, ["verifier"] * 3, 0)
    assert judged(findings, "1") == (verdicts, ["verifier"] * 3, 0)


def test_the_judge_sees_question_reference_and_answer():
    seen: list[str] = []

    def answer(messages: list[dict[str, str]]) -> str:
        seen.append(messages[-1]["content"])
        return "0"

    break_ties([JOB], [OPEN], ScriptedChat(reply=answer))
    assert all(part in seen[0] for part in ("How many?", "<<<reference\n2\n", "<<<student\ntwo\n"))
