"""The mathematics verifier against math-verify on the same cases, and what it costs: `make bench-verifiers`.

Prints agreement with the labels of the hand-made suites, speed, and behaviour under poisoned answers. The labels are ours. A third of the cases (`held`) was kept aside while the code was written; `fresh` was
written when it was finished; `domains` holds floors, factorials, binomials, sets, intervals, matrices, bases and units.
Then formulas are changed by a fuzzer that has values of its own. `mv boxed` is math-verify as documented, `mv official` with the authors' wrapping (both
sides in `$`, first match, sides swapped); both run in the same killable workers, so that their hangs can be counted.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Row, shown

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers import math
from infuser_core.verifiers.parts import workers
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.workers import GRACE_SECONDS, LIMIT_SECONDS, Pool

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS / "data"
sys.path.insert(0, str(TESTS / "support"))

import formulas

HAND = ("equality", "strings", "olympiad", "official")
SLACK = 0.5
"""Seconds beyond the limit for ending a process and for a machine that does other things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One grader on one suite."""

    suite: str
    grader: str
    cases: int
    right: int
    false_positives: int
    false_negatives: int
    undecided: int
    """Neither correct nor wrong, time-outs included."""
    hangs: int
    """Ended by a limit."""


def load() -> list[dict[str, Any]]:
    names = ("math_suites", "math_adversarial", "math_fresh", "math_domains")
    return [json.loads(line) for name in names for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def job(gold: str, answer: str, *, grading: Any = None, text: str = "?") -> Job:
    question = Question(
        question_id="q", text=text, choices=[], answer=gold, verifier="math", domain="", subdomain="", grading=json.dumps(grading) if grading else "",
    )  # fmt: skip
    return Job(response=rf"Step by step we find \boxed{{{answer}}}.", question=question)


def of(case: dict[str, Any]) -> Job:
    return job(case["gold"], case["answer"], grading=case.get("grading"), text=case.get("question", "?"))


# --- agreement -------------------------------------------------------------------------------------------------------


def ours(cases: list[dict[str, Any]]) -> list[str]:
    found = math.check_many([of(case) for case in cases], preset="strict-last")
    return ["late" if one.reason in ("time limit", "worker lost") else one.verdict.value for one in found]


def library(*, official: bool) -> Callable[[list[dict[str, Any]]], list[str]]:
    def grade(case: dict[str, Any]) -> str:
        answer, gold = case["answer"], case["gold"]
        wrapped = {"answer": f"${answer}$" if official else rf"\boxed{{{answer}}}", "gold": f"${gold.strip('$')}$"}
        word = workers.pool().ask({"ask": "wrapped", **wrapped, "first": official, "swapped": official})[0]
        return {"same": "correct", "other": "wrong", "lost": "late"}.get(word, word)

    def all_of(cases: list[dict[str, Any]]) -> list[str]:
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(grade, cases))

    return all_of


GRADERS: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
    "ours": ours,
    "mv boxed": library(official=False),
    "mv official": library(official=True),
}


def scores(cases: list[dict[str, Any]]) -> Iterator[Score]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        for name in (
            "hand suites" if case["suite"] in HAND else case["suite"],
            *([f"{case['suite']}, hang probes"] if case.get("probe") else []),
            *(["held out before the code"] if case["held"] and case["suite"] != "fresh" else []),
            *([f"  {case['suite']}"] if case["suite"] in HAND else []),
        ):
            groups.setdefault(name, []).append(case)
    for grader, grade in GRADERS.items():
        verdicts = dict(zip(map(id, cases), grade(cases), strict=True))
        for suite, own in groups.items():
            yield score(suite, grader, own, [verdicts[id(case)] for case in own])


def score(suite: str, grader: str, cases: list[dict[str, Any]], verdicts: list[str]) -> Score:
    tally: Counter[str] = Counter()
    for case, verdict in zip(cases, verdicts, strict=True):
        want = case["expected"]
        tally["right"] += verdict == want or (want == "not_correct" and verdict != "correct")
        tally["fp"] += verdict == "correct" and want != "correct"
        tally["fn"] += verdict != "correct" and want == "correct"
        tally["late"] += verdict == "late"
        tally["undecided"] += verdict not in ("correct", "wrong")
    return Score(
        suite=suite, grader=grader, cases=len(cases), right=tally["right"], false_positives=tally["fp"],
        false_negatives=tally["fn"], undecided=tally["undecided"], hangs=tally["late"],
    )  # fmt: skip


# --- speed -----------------------------------------------------------------------------------------------------------


def real_style(count: int, *, seed: int, distinct: int) -> list[Job]:
    """Answers as models write them to competition questions: mostly numbers, then fractions, surds, intervals, text."""
    dice = random.Random(seed)
    pairs = [_pair(dice) for _ in range(distinct)]
    return [job(*pairs[place % distinct]) for place in range(count)]


def _pair(dice: random.Random) -> tuple[str, str]:
    a, b, c = dice.randint(2, 999), dice.randint(2, 99), dice.randint(2, 30)
    miss = dice.choice([0, 0, 1])
    c_, d_ = c + miss, a + miss
    kinds: Sequence[tuple[str, str]] = (
        (f"{a}", f"{d_}"), (f"{a}", f"x = {d_}"), (f"{a}", rf"{d_}^\circ"), (f"{a}{b:03d}", f"{d_},{b:03d}"),
        (rf"\frac{{{a}}}{{{b}}}", rf"\dfrac{{{d_}}}{{{b}}}"), (rf"\frac{{{a}}}{{{b}}}", f"{d_}/{b}"),
        (rf"{c}\sqrt{{{b}}}", rf"\sqrt{{{c * c * b + miss}}}"),
        (rf"\frac{{{c}\pi}}{{{b}}}", rf"\frac{{{c_}}}{{{b}}}\pi"), (f"({a}, {b})", f"({d_},{b})"),
        (rf"[{b}, {a + b})", rf"[{b + miss},{a + b})"), (f"{a}, {b}", f"{b + miss}, {a}"),
        (rf"x^2+{a}x+{b}", rf"x^{{2}} + {b} + {d_}x"), (rf"(x+{c})(x-{b})", rf"(x-{b})(x+{c_})"),
        (rf"{a}\text{{ cm}}", rf"{d_} \text{{ cm}}"), (rf"{c}^{{n}}-{b}", rf"{c}^n - {b + miss}"),
        (rf"\sin({c}x)+{b}", rf"{b + miss}+\sin({c}x)"), (rf"\ln({b})", rf"\ln {b + miss}"),
        (r"\text{even}", r"\text{odd}"),
    )  # fmt: skip
    # Nearly half of real answers are whole numbers.
    return kinds[0] if dice.random() < 0.4 else dice.choice(kinds)


def rate(jobs: list[Job]) -> float:
    began = time.perf_counter()
    math.check_many(jobs)
    return len(jobs) / (time.perf_counter() - began)


def speed() -> Iterator[Row]:
    began = time.perf_counter()
    pool = Pool(1)
    pool.ask({"ask": "parse", "text": "1"})
    yield Row(name="start of a worker, ready to answer", value=1000 * (time.perf_counter() - began), unit="ms")
    pool.close()
    math.check_many(real_style(50, seed=1, distinct=50))
    repeated = rate(real_style(800, seed=2, distinct=100))
    name = "800 real-style answers, 100 different, nothing remembered"
    yield Row(name=name, value=repeated, unit="/s", target=">= 2000")
    yield Row(name="the same 800 again", value=rate(real_style(800, seed=2, distinct=100)), unit="/s")
    yield Row(name="800 different real-style answers", value=rate(real_style(800, seed=3, distinct=800)), unit="/s")
    symbolic = [
        job(rf"\sin({n}x)+x^{{{n}}}", rf"x^{{{n}}}+2\sin(\frac{{{n}x}}{{2}})\cos(\frac{{{n}x}}{{2}})")
        for n in range(2, 42)
    ]
    yield Row(name="different answers that all need a worker", value=rate(symbolic), unit="/s")


# --- time limits -----------------------------------------------------------------------------------------------------


def limits(cases: list[dict[str, Any]]) -> Iterator[Row]:
    probes = [of(case) for case in cases if case.get("probe")]
    longest = {"main thread": max(map(timed, probes))}
    with ThreadPoolExecutor(1) as thread:
        longest["another thread"] = max(thread.map(timed, probes))
    bound = LIMIT_SECONDS + GRACE_SECONDS + SLACK
    for where, seconds in longest.items():
        name = f"longest of {len(probes)} hang probes, {where}"
        yield Row(name=name, value=seconds, unit="s", target=f"<= {bound}")
    poisoned = threading.Thread(target=workers.pool().ask, args=[{**EQUAL, "answer": "9^{9^{9}}"}])
    poisoned.start()
    waits = [asked() for _ in range(20)]
    poisoned.join()
    yield Row(name="longest of 20 requests beside a poisoned one", value=max(waits), unit="s", target=f"<= {bound}")
    both = [threading.Thread(target=workers.pool().ask, args=[{**EQUAL, "answer": "9^{9^{9}}"}]) for _ in range(2)]
    for thread_ in both:
        thread_.start()
    time.sleep(0.2)
    wait = asked()
    for thread_ in both:
        thread_.join()
    name = "a request while all workers are poisoned"
    yield Row(name=name, value=wait, unit="s", target=f"<= {2 * (LIMIT_SECONDS + GRACE_SECONDS)}")


EQUAL = {"ask": "equal", "answer": r"\sin x", "gold": r"\cos x", "within": [0, 0]}


def timed(probe: Job) -> float:
    began = time.perf_counter()
    assert math.check(probe.response, probe.question).verdict != Verdict.CORRECT
    return time.perf_counter() - began


def asked() -> float:
    began = time.perf_counter()
    workers.pool().ask(EQUAL)
    return time.perf_counter() - began


# --- changed formulas -------------------------------------------------------------------------------------------------


def fuzzed(count: int = 1000, *, seed: int = 20) -> Iterator[Row]:
    """Eight mutants of every formula, and every formula written otherwise."""
    dice = random.Random(seed)
    golds = [formulas.gold(dice) for _ in range(count)]
    pairs = [(one, other) for one in golds for other in formulas.mutants(one, dice)]
    changed = [(one, other) for one, other in pairs if formulas.differ(one, other)]
    began = time.perf_counter()
    found = math.check_many([job(formulas.tex(one), formulas.tex(other)) for one, other in changed])
    yield Row(name="mutants decided", value=len(changed) / (time.perf_counter() - began), unit="/s")
    accepted = sum(one.verdict == Verdict.CORRECT for one in found)
    name = f"mutants accepted, of {len(changed)} that differ among {len(pairs)}"
    yield Row(name=name, value=accepted, unit="", target="<= 0")
    late = sum(one.reason in ("time limit", "worker lost") for one in found)
    yield Row(name="mutants that ran into a limit", value=late, unit="")
    again = math.check_many([job(formulas.tex(one), formulas.tex(one, other=True)) for one in golds])
    missed = 100 * sum(one.verdict != Verdict.CORRECT for one in again) / len(golds)
    yield Row(name=f"{count} formulas written otherwise, refused", value=missed, unit="%", target="<= 1")


# --- report ----------------------------------------------------------------------------------------------------------


def report(found: list[Score]) -> Iterator[str]:
    yield "| suite | grader | cases | right | false positives | false negatives | undecided | hangs |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in sorted(found, key=lambda one: [each.suite for each in found].index(one.suite)):
        numbers = (one.cases, one.right, one.false_positives, one.false_negatives, one.undecided, one.hangs)
        yield f"| {one.suite} | {one.grader} | {' | '.join(map(str, numbers))} |"


def gates(found: list[Score]) -> Iterator[Row]:
    by = {(one.suite, one.grader): one for one in found}
    hand, adversarial = by["hand suites", "ours"], by["adversarial", "ours"]
    share = 128 * hand.right / hand.cases
    yield Row(name="hand suites, right of 128", value=share, unit="", target=">= 120")
    mine, theirs = (
        sum(by[suite, grader].false_positives for suite in ("hand suites", "adversarial", "fresh", "domains"))
        for grader in ("ours", "mv official")
    )
    name = f"false positives (math-verify, authors' wrapping: {theirs})"
    yield Row(name=name, value=mine, unit="", target="<= 0")
    percent = 100 * adversarial.right / adversarial.cases
    yield Row(name="adversarial, right", value=percent, unit="%", target=">= 95")
    domains = by["domains", "ours"]
    missed = 100 * domains.false_negatives / domains.cases
    yield Row(name=f"domains, false rejects of {domains.cases}", value=missed, unit="%", target="<= 1")


def main() -> None:
    """Measure and print. Ends with 1 when a target is missed."""
    cases = load()
    rows = [*speed(), *limits(cases), *fuzzed()]
    found = list(scores(cases))
    print("\n".join(report(found)) + "\n")
    raise SystemExit(shown([*gates(found), *rows], as_json=False))


if __name__ == "__main__":
    main()
