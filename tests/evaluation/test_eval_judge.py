"""A judge breaks ties of fallible rules, and what it decided is marked as its own."""

from infuser_core.engines.fake import ScriptedChat
from infuser_core.evaluation.evaluate import TOO_LONG, UNASKED, grade
from infuser_core.schemas import BenchmarkResponse, Question

EMPTY = dict.fromkeys(("domain", "subdomain", "document_id", "rollout_id", "reasoning"), "")


def question(name: str, answer: str, verifier: str) -> Question:
    return Question(question_id=name, text=f"about {name}", choices=[], answer=answer, verifier=verifier, **EMPTY)


QUESTIONS = {
    ("b", name): question(name, answer, verifier)
    for name, answer, verifier in (
        ("exact value", "1/2", "math"),
        ("words", "the set of all even integers", "math"),
        ("letter", "B", "choice"),
        ("unasked", "5", "math"),
    )
}
TEXTS = {
    "exact value": "\\boxed{1/3}",
    "words": "\\boxed{\\text{all even integers}}",
    "letter": "\\boxed{C}",
    "unasked": "",
}
ROWS = [
    BenchmarkResponse(
        benchmark="b",
        question_id=name,
        sample_index=0,
        response=text,
        finish_reason=TOO_LONG if name == "unasked" else "stop",
        prompt_tokens=1,
        response_tokens=1,
    )
    for name, text in TEXTS.items()
]


def judged(reply: str) -> dict[str, tuple[str, str, str]]:
    judge = ScriptedChat(reply=lambda messages: reply)
    rows = grade(ROWS, QUESTIONS, preset="paper", judge=judge)
    return {row.question_id: (row.verdict, row.decided_by, row.reason) for row in rows}


def test_only_what_a_rule_may_have_got_wrong_is_shown_to_the_judge():
    asked: list[str] = []

    def reply(messages):
        asked.append(messages[-1]["content"])
        return "1"

    plain = {row.question_id: row for row in grade(ROWS, QUESTIONS, preset="paper")}
    rows = {row.question_id: row for row in grade(ROWS, QUESTIONS, preset="paper", judge=ScriptedChat(reply=reply))}
    assert len(asked) == 1 and "about words" in asked[0]
    assert rows["words"].verdict == "correct" and rows["words"].decided_by == "judge"
    assert rows["words"].reason == f"judge, where the rule said {plain['words'].verdict}: {plain['words'].reason}"
    assert {name: rows[name] for name in TEXTS if name != "words"} == {
        name: plain[name] for name in TEXTS if name != "words"
    }
    assert {row.decided_by for row in plain.values()} == {"verifier"}


def test_a_reply_that_is_no_digit_changes_nothing():
    assert (
        judged("I think they agree")
        == judged("")
        == {
            row.question_id: (row.verdict, row.decided_by, row.reason) for row in grade(ROWS, QUESTIONS, preset="paper")
        }
    )


def test_a_question_that_did_not_fit_has_no_answer():
    verdict, decided_by, reason = judged("1")["unasked"]
    assert (verdict, decided_by, reason) == ("no_answer", "verifier", UNASKED.reason)
