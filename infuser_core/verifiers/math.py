r"""Verify mathematical answers: compare text, structure and exact values here, the rest in math-verify workers.

The preset selects the `\boxed{...}` that is the answer (`parts/extract.py`). Preset `official` compares as the authors
do: equal text, or math-verify on `$answer$` and `$reference$` with the sides swapped; for MATH-500 it reads the last
closed box, or the final-answer phrases of its prompt. All other presets compare by `parts/compare.py`.

The verdict is `unverified`, never `wrong`, if a size or time limit or a failing worker prevents a decision.
"""

import itertools
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from infuser_core.schemas import Question, Verdict
from infuser_core.verifiers.parts import compare
from infuser_core.verifiers.parts.batch import Job
from infuser_core.verifiers.parts.extract import boxed, last_box, unwrap
from infuser_core.verifiers.parts.grading import Finding, Stage, correct, grading_of, no_answer, unverified, wrong
from infuser_core.verifiers.parts.tokens import MAX_LENGTH as _MAX_LENGTH
from infuser_core.verifiers.parts.values import Rules, rules_of
from infuser_core.verifiers.parts.workers import LIMIT_SECONDS, pool

MAX_LENGTH = 128
"""Longest reference answer that a generated question may have, characters."""
MAX_DECISIONS = 32_768
"""Most decisions in the cache; a larger cache is emptied."""
_REPLIES = {
    "same": correct(Stage.SYMBOLIC),
    "exact": correct(Stage.EXACT),
    "numeric": correct(Stage.NUMERIC),
    "other": wrong(Stage.SYMBOLIC),
    "open": unverified(Stage.OPEN),
    "answer": wrong(Stage.UNREADABLE),
    "gold": unverified(Stage.REFERENCE),
    "late": unverified(Stage.TIME),
    "memory": unverified(Stage.LIMIT),
    "lost": unverified(Stage.CRASH),
}
_PERCENT = re.compile(r"((?:\d[\d,]*)?\.?\d+)\s*\\?%")
_COMMAND = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_WORDS_OF_MATH = "or and mod sin cos tan cot sec csc log ln exp pi sqrt max min gcd lcm det arcsin arccos arctan"
_MATH_WORDS = frozenset(_WORDS_OF_MATH.split())
# The answer phrases of the authors' MATH-500 prompt, for a response without a box.
_PHRASE = re.compile(r"(?:final answer is[ \t]*+:?|\banswer[ \t]*+:)[ \t]*+(?=\S)", re.IGNORECASE)


_Pair = tuple[str, str, Rules, bool]
"""Content of the box, reference answer, the question's rules, and whether the preset is `official`."""
_DECISIONS: dict[_Pair, Finding] = {}
"""Decisions of this process. Shared by threads: each access is one atomic operation of the dictionary."""


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Verify one response by its boxed answer. Raises EngineError when no worker can be started."""
    return check_many([Job(response=response, question=question)], preset=preset)[0]


def check_many(jobs: Sequence[Job], *, preset: str = "paper") -> list[Finding]:
    """Verify responses: one finding per job, in order. Worker processes decide what the cheap stages leave open."""
    pairs = [_pair_of(job, preset) for job in jobs]
    findings = {pair: finding for pair in pairs if pair is not None and (finding := _DECISIONS.get(pair))}
    undecided = list(dict.fromkeys(pair for pair in pairs if pair is not None and pair not in findings))
    # Cheap stages run one at a time under the interpreter lock; a thread that waits for a worker releases the lock.
    with ThreadPoolExecutor(pool().size) as threads:
        findings.update(zip(undecided, threads.map(_decide, undecided), strict=True))
    if len(_DECISIONS) > MAX_DECISIONS:
        _DECISIONS.clear()
    # Unverified pairs are not cached: a later attempt may stay within the limits.
    _DECISIONS.update((pair, finding) for pair, finding in findings.items() if finding.verdict != Verdict.UNVERIFIED)
    return [no_answer() if pair is None else replace(findings[pair], extracted=pair[0]) for pair in pairs]


def canonical(answer: str) -> str:
    r"""The stored form of a reference answer: trimmed, percentages as hundredths (`50\%` is `\frac{50}{100}`)."""
    return _PERCENT.sub(lambda m: rf"\frac{{{m.group(1).replace(',', '')}}}{{100}}", answer.strip())


def parseable(answer: str) -> bool:
    """Whether a generated reference answer is one expression that math-verify can parse."""
    if len(answer) > MAX_LENGTH:
        return False
    text = canonical(answer)
    words = [word for word in _WORD.findall(_COMMAND.sub(" ", text)) if word.lower() not in _MATH_WORDS]
    # math-verify reads "hello world" as a product of ten variables.
    if not text or len(words) > 1 or "\\boxed" in text or not _is_small(text):
        return False
    return pool().ask({"ask": "parse", "text": text})[0] == "same"


def _pair_of(job: Job, preset: str) -> _Pair | None:
    grading = grading_of(job.question)
    is_authors_math = preset == "official" and grading.route.startswith("math")
    box = last_box(job.response) if is_authors_math else boxed(job.response, preset=preset)
    if is_authors_math and not box and len(parts := _PHRASE.split(job.response)) > 1:
        # The rest of the line after the last answer phrase.
        line = parts[-1].partition("\n")[0]
        box = line.partition(". I hope")[0].strip().removesuffix(".").strip("$ ") or None
    if box is None:
        return None
    return box, job.question.answer, rules_of(job.question), preset == "official"


def _decide(pair: _Pair) -> Finding:
    answer, reference, rules, official = pair
    oracle = _Budget()
    if not official:
        return compare.decide(answer, reference, rules, oracle)
    answer, reference = unwrap(answer).strip(), unwrap(reference).strip()
    if answer.casefold() == reference.casefold():
        return correct(Stage.TEXT)
    if max(len(answer), len(reference)) > _MAX_LENGTH:
        return unverified(Stage.LIMIT)
    sides = {name: f"${text.strip('$')}$" for name, text in (("answer", answer), ("gold", reference))}
    return oracle({"ask": "wrapped", **sides, "first": True, "swapped": True})


class _Budget:
    """Sends the requests of one comparison to the workers; all together may use the processor time of one request."""

    def __init__(self) -> None:
        self._remaining = LIMIT_SECONDS

    def __call__(self, request: dict[str, object]) -> Finding:
        if self._remaining <= 0.0:
            return _REPLIES["late"]
        word, seconds = pool().ask(request, seconds=self._remaining)
        self._remaining -= seconds
        return _REPLIES[word]


def _is_small(text: str) -> bool:
    """Whether parsing takes bounded time: a short, shallow text without towers, large powers or factorials."""
    if re.search(r"\d{40}", text):
        return False
    powers = [int(number) for number in re.findall(r"\^\s*\{?\s*[+-]?(\d+)", text)]
    factorials = [int(number) for number in re.findall(r"(\d+)\s*\)*\s*!", text)]
    tower = re.search(r"\^[^^]*\^", text) is not None and max(powers, default=0) > 3
    steps = [1 if bracket in "([{" else -1 for bracket in re.findall(r"[][(){}]", text)]
    # The parser's time grows exponentially with nesting: 8 levels take half a second, 20 do not end.
    shallow = len(steps) <= 48 and max(itertools.accumulate(steps), default=0) <= 8
    return shallow and not tower and max(powers, default=0) <= 200 and max(factorials, default=0) <= 99
