"""Answers that would keep a verifier busy for ever: each ends in time, on any thread, and none is called correct."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from places import DATA

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import math
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.grading import Finding

CASES = DATA / "math_adversarial.jsonl"


def job(answer: str, reference: str) -> Job:
    question = Question(
        question_id="q", text="?", choices=[], answer=reference, verifier="math", domain="", subdomain="",
    )  # fmt: skip
    return Job(response=rf"\boxed{{{answer}}}", question=question)


def probes() -> list[Job]:
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [job(case["answer"], case["gold"]) for case in cases if case.get("probe")]


def test_hang_probes_end_and_are_not_correct():
    found = math.check_many(probes())
    assert len(found) >= 25
    assert [finding.extracted for finding in found if finding.verdict == Verdict.CORRECT] == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("9^{99999999}", "size limit"), ("12345678!", "size limit"), ("(" * 300 + "1" + ")" * 300, "size limit"),
        ("1" * 9000, "size limit"), (r"2^{2^{2^{99}}}", "size limit"), ("1e999999999", "size limit"),
        (r"\binom{99999999}{49999999}", "size limit"), ("5!!!!!!!!", "too few informative points"),
    ],
)  # fmt: skip
def test_what_is_too_big_to_decide_is_undecided(answer: str, reason: str):
    one = job(answer, "5")
    finding = math.check(one.response, one.question)
    assert (finding.verdict, finding.reason) == (Verdict.UNVERIFIED, reason)


@pytest.mark.parametrize("answer", [r"\int_0^1 x dx", r"\sum_{k=1}^{10^9} k", r"\lim_{x \to 5} x", r"\max(5, 4)"])
def test_the_question_written_again_is_no_answer(answer: str):
    one = job(answer, "5")
    assert math.check(one.response, one.question).reason == "unevaluated"
    assert math.check(one.response, one.question).verdict == Verdict.WRONG


def test_off_the_main_thread_it_is_the_same():
    jobs = [job(r"\log_{2} 8", "3"), job(r"\cos x", r"\sin x"), job("9^{99999999}", "5"), job("7", "7")]
    here = [math.check(one.response, one.question) for one in jobs]
    there: list[Finding] = []
    thread = threading.Thread(target=lambda: there.extend(math.check(one.response, one.question) for one in jobs))
    thread.start()
    thread.join()
    assert there == here
    verdicts = [finding.verdict for finding in here]
    assert verdicts == [Verdict.CORRECT, Verdict.WRONG, Verdict.UNVERIFIED, Verdict.CORRECT]


def test_several_threads_at_once_agree_with_one():
    jobs = [job(rf"{n}+\sin(2x)", rf"2\sin(x)\cos(x)+{n % 7}") for n in range(12)]
    alone = math.check_many(jobs)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda one: math.check(one.response, one.question), jobs))
    assert together == alone
    assert [finding.verdict == Verdict.CORRECT for finding in alone] == [n < 7 for n in range(12)]


def test_all_requests_of_one_verification_share_one_time_limit():
    slow = ", ".join(f"{'-' * 40}{n}" for n in range(6))
    one = job(slow, "1, 2, 3, 4, 5, 6")
    assert math.check(one.response, one.question).verdict != Verdict.CORRECT
