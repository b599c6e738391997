"""The mathematics verifier on hand-made cases, random ones and hard ones, and the judge of what it leaves open."""

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from formulas import Formula, differ, gold, mutants, tex
from places import DATA

from infuser_core.engines.fake import ScriptedChat
from infuser_core.errors import DocumentError
from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import math
from infuser_core.verifiers.parts.batch import MAY_ERR, Job, break_ties
from infuser_core.verifiers.parts.grading import Finding, Stage, correct, no_answer, unverified, wrong

SUITES = ("math_suites", "math_adversarial", "math_fresh", "math_domains")


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def job(case: dict[str, Any]) -> Job:
    grading = json.dumps(case["grading"]) if "grading" in case else ""
    question = Question(
        question_id="q", text=case.get("question", "?"), choices=[], answer=case["gold"], verifier="math", domain="",
        subdomain="", grading=grading,
    )  # fmt: skip
    return Job(response=rf"Hence \boxed{{{case['answer']}}}.", question=question)


@pytest.fixture(scope="module")
def findings() -> dict[str, list[Finding]]:
    """Of every suite, hang probes aside: they take their time limit each."""
    return {name: math.check_many([job(case) for case in quick(name)]) for name in SUITES}


def quick(name: str) -> list[dict[str, Any]]:
    return [case for case in cases(name) if not case.get("probe")]


@pytest.mark.parametrize("name", SUITES)
def test_nothing_wrong_is_ever_called_correct(name: str, findings: dict[str, list[Finding]]):
    pairs = zip(quick(name), findings[name], strict=True)
    fooled = [case for case, found in pairs if case["expected"] != "correct" and found.verdict == Verdict.CORRECT]
    assert fooled == []


@pytest.mark.parametrize("name", SUITES)
def test_what_is_right_is_called_correct(name: str, findings: dict[str, list[Finding]]):
    pairs = zip(quick(name), findings[name], strict=True)
    missed = [case for case, found in pairs if case["expected"] == "correct" and found.verdict != Verdict.CORRECT]
    # A backslash before the brace that should close the box: whether such a box closes is the extractor's decision.
    assert [case for case in missed if not case["answer"].endswith("\\")] == []


@pytest.mark.parametrize("name", SUITES)
def test_wrong_answers_are_wrong_and_not_undecided(name: str, findings: dict[str, list[Finding]]):
    pairs = zip(quick(name), findings[name], strict=True)
    assert [case for case, found in pairs if case["expected"] == "wrong" and found.verdict != Verdict.WRONG] == []


@pytest.mark.parametrize("name", SUITES)
def test_every_answer_is_its_own_reference(name: str):
    golds = [{**case, "answer": case["gold"]} for case in quick(name)]
    found = math.check_many([job(case) for case in golds])
    assert [case["gold"] for case, one in zip(golds, found, strict=True) if one.verdict != Verdict.CORRECT] == []


def test_a_tolerance_that_is_no_number_is_an_error():
    case = {"gold": "2", "answer": "1", "grading": {"tolerance": "small"}}
    with pytest.raises(DocumentError, match="small"):
        math.check_many([job(case)])


@pytest.mark.parametrize("truth", [r"127.32\%", "127.32%", "50%", r"100\% + 5\%"])
def test_canonical_answers_have_no_percent_sign(truth: str):
    assert "%" not in math.canonical(truth)
    assert math.parseable(truth)


@pytest.mark.parametrize(
    "truth", [r"(n!)^2", r"(n!)^2 \geq n^n", r"\frac{1}{2}", "10^{-8}", "n!", r"\sum_{k=1}^n k", "3", "x=1 or x=2"]
)
def test_readable_references_are_left_alone(truth: str):
    assert math.canonical(truth) == truth
    assert math.parseable(truth)


@pytest.mark.parametrize(
    "truth",
    [
        "n!^2",
        r"n!^2 \geq n^n",
        "5!^2 = 14400",
        "(n+1)!^2",
        "The answer is three.",
        "<answer>",
        "",
        "hello you",
        "1" * 200,
    ],
)
def test_unreadable_references(truth: str):
    assert not math.parseable(truth)


# Formulas with a changed number, sign, base or divisor are never accepted: a sample of `make bench-verifiers`


GOLDS = 40


def boxed_job(reference: str, answer: str) -> Job:
    question = Question(
        question_id="q", text="?", choices=[], answer=reference, verifier="math", domain="", subdomain="",
    )  # fmt: skip
    return Job(response=rf"\boxed{{{answer}}}", question=question)


@pytest.fixture(scope="module")
def golds() -> list[Formula]:
    dice = random.Random(20)
    return [gold(dice) for _ in range(GOLDS)]


def test_no_mutant_that_differs_somewhere_is_accepted(golds: list[Formula]):
    dice = random.Random(21)
    pairs = [(one, other) for one in golds for other in mutants(one, dice) if differ(one, other)]
    found = math.check_many([boxed_job(tex(one), tex(other)) for one, other in pairs])
    assert len(pairs) > 6 * GOLDS
    accepted = [pair for pair, one in zip(pairs, found, strict=True) if one.verdict == Verdict.CORRECT]
    assert [(tex(one), tex(other)) for one, other in accepted] == []


def test_another_way_to_write_a_formula_is_accepted(golds: list[Formula]):
    found = math.check_many([boxed_job(tex(one), tex(one, other=True)) for one in golds])
    refused = [tex(one) for one, verdict in zip(golds, found, strict=True) if verdict.verdict != Verdict.CORRECT]
    assert refused == []


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (r"\binom{n}{r}", "0"), (r"\frac{n!}{r!(n-r)!}", "0"), (r"\binom{n}{r}", r"-\binom{n}{r}"),
        (r"\frac{d!}{2k(d-k)!}", r"\frac{d!}{5k(d-k)!}"), (r"\binom{n}{m}2^n", r"\binom{m}{n}3^n"),
        (r"\lfloor (2n-1)/5 \rfloor", r"\lfloor (2n-1)/8 \rfloor"), (r"\lfloor n^2/4 \rfloor", "0"),
        (r"mn-\lfloor m/2 \rfloor", r"mn-\lfloor m/21 \rfloor"),
        (r"2^{\lfloor n/2 \rfloor}", r"2^{\lfloor n/3 \rfloor}"),
        ("I(0)", "0"), (r"I(0)e^{-\frac{t}{RC}}", "0"), (r"\psi(0)", "0"), ("P(1)", "P"), ("y(0)+1", "1"),
        ("y(2)", "2y"), ("y(2)", "3y"), ("2y", "y(2)"),
        ("3x+1", "x(3)+1"), ("e^{y(2)}", "e^{2y}"),
        (r"\lfloor x \rfloor", "x"), (r"\gcd(n,6)", "1"), (r"\sqrt{x^2}", "x"), ("1", r"\tanh(100)"),
        (r"2\sin x\cos x", r"\sin(2x)+10^{-40}"), ("0", "e^{-200}"),
        (r"n+\lfloor n/97 \rfloor", r"n+\lfloor (n+1)/97 \rfloor"),
        (r"\lfloor n/97 \rfloor", r"\lfloor (n+1)/97 \rfloor"),
    ],
)  # fmt: skip
def test_what_vanishes_or_agrees_at_small_numbers_is_not_accepted(reference: str, answer: str):
    assert math.check_many([boxed_job(reference, answer)])[0].verdict != Verdict.CORRECT


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        (r"I(0)e^{-\frac{t}{RC}}", r"I(0) \cdot e^{-t/(RC)}"), ("P(0)", r"2 \cdot \frac{P(0)}{2}"),
        ("y(2)-1", "-1+y(2)"), ("2(x+1)", "2x+2"), ("n(n+1)", "n^2+n"),
        (r"\binom{n}{r}", r"\frac{n!}{r!(n-r)!}"), (r"\lfloor n^2/4 \rfloor", r"\lfloor n/2 \rfloor \lceil n/2 \rceil"),
        (r"\lfloor n/2 \rfloor", r"\frac{2n-1+(-1)^n}{4}"), (r"\sum_{k=1}^n k^2", r"\frac{n(n+1)(2n+1)}{6}"),
        (r"\frac{(2n)!}{n!(n+1)!}", r"\frac{1}{n+1}\binom{2n}{n}"), (r"2\ln x", r"\ln x^2"), (r"\sqrt{x^2}", "|x|"),
        (r"e^{i\theta}", r"\cos\theta+i\sin\theta"), ("1", r"\sin^2 x+\cos^2 x"),
        (r"\cos\frac{2\pi}{7}+\cos\frac{4\pi}{7}+\cos\frac{6\pi}{7}", r"-\frac12"), ("(-1)^{n}", r"\cos(n\pi)"),
    ],
)  # fmt: skip
def test_identities_are_accepted(reference: str, answer: str):
    assert math.check_many([boxed_job(reference, answer)])[0].verdict == Verdict.CORRECT


# Answers that would keep a verifier busy for ever: each ends in time, on any thread, and none is called correct


CASES = DATA / "math_adversarial.jsonl"


def job_of(answer: str, reference: str) -> Job:
    question = Question(
        question_id="q", text="?", choices=[], answer=reference, verifier="math", domain="", subdomain="",
    )  # fmt: skip
    return Job(response=rf"\boxed{{{answer}}}", question=question)


def probes() -> list[Job]:
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [job_of(case["answer"], case["gold"]) for case in cases if case.get("probe")]


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
    one = job_of(answer, "5")
    finding = math.check(one.response, one.question)
    assert (finding.verdict, finding.reason) == (Verdict.UNVERIFIED, reason)


@pytest.mark.parametrize("answer", [r"\int_0^1 x dx", r"\sum_{k=1}^{10^9} k", r"\lim_{x \to 5} x", r"\max(5, 4)"])
def test_the_question_written_again_is_no_answer(answer: str):
    one = job_of(answer, "5")
    assert math.check(one.response, one.question).reason == "unevaluated"
    assert math.check(one.response, one.question).verdict == Verdict.WRONG


def test_off_the_main_thread_it_is_the_same():
    jobs = [job_of(r"\log_{2} 8", "3"), job_of(r"\cos x", r"\sin x"), job_of("9^{99999999}", "5"), job_of("7", "7")]
    here = [math.check(one.response, one.question) for one in jobs]
    there: list[Finding] = []
    thread = threading.Thread(target=lambda: there.extend(math.check(one.response, one.question) for one in jobs))
    thread.start()
    thread.join()
    assert there == here
    verdicts = [finding.verdict for finding in here]
    assert verdicts == [Verdict.CORRECT, Verdict.WRONG, Verdict.UNVERIFIED, Verdict.CORRECT]


def test_several_threads_at_once_agree_with_one():
    jobs = [job_of(rf"{n}+\sin(2x)", rf"2\sin(x)\cos(x)+{n % 7}") for n in range(12)]
    alone = math.check_many(jobs)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda one: math.check(one.response, one.question), jobs))
    assert together == alone
    assert [finding.verdict == Verdict.CORRECT for finding in alone] == [n < 7 for n in range(12)]


def test_all_requests_of_one_verification_share_one_time_limit():
    slow = ", ".join(f"{'-' * 40}{n}" for n in range(6))
    one = job_of(slow, "1, 2, 3, 4, 5, 6")
    assert math.check(one.response, one.question).verdict != Verdict.CORRECT


# The judge as tie-breaker: asked only where the rules may err, recorded as such, never above a correct


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
