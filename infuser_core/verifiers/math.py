r"""Mathematical answers: text, structure and exact values here, what is left in math-verify's own processes.

Which box is read is the preset's (`parts/extract.py`). Presets `paper` and `strict-last` decide by `parts/compare.py`;
`official` is the authors' way: equal text, or math-verify on `$answer$` and `$reference$` with the sides swapped, and
for MATH-500 the last closed box or the final-answer phrases of its prompt.

A verdict `unverified` says that a size or time limit, or the machinery, stood in the way; it never stands for "wrong".
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
KEPT_DECISIONS = 32_768
"""Decided (answer, reference) pairs that are remembered."""
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
# What the authors' MATH-500 prompt asks for, where a response has no box.
_PHRASE = re.compile(r"(?:final answer is[ \t]*+:?|\banswer[ \t]*+:)[ \t]*+(\S[^\n]*)", re.IGNORECASE)


_Pair = tuple[str, str, Rules, bool]
"""Content of the box, reference answer, the question's rules, and whether the authors' way decides."""
_KEPT: dict[_Pair, Finding] = {}
"""Decisions of this process. Each access is a single operation of a dictionary, which threads may share."""


def check(response: str, question: Question, *, preset: str = "paper") -> Finding:
    """Compare the boxed answer with the reference. Raises EngineError when no worker can be started."""
    return check_many([Job(response=response, question=question)], preset=preset)[0]


def check_many(jobs: Sequence[Job], *, preset: str = "paper") -> list[Finding]:
    """One finding per job, in order. What cheap stages leave open is spread over the worker processes."""
    pairs = [_pair(job, preset) for job in jobs]
    decided = {pair: known for pair in pairs if pair is not None and (known := _KEPT.get(pair))}
    fresh = list(dict.fromkeys(pair for pair in pairs if pair is not None and pair not in decided))
    # Cheap stages take turns; whoever waits for a worker leaves them to the others.
    with ThreadPoolExecutor(pool().size) as threads:
        decided.update(zip(fresh, threads.map(_decided, fresh), strict=True))
    if len(_KEPT) > KEPT_DECISIONS:
        _KEPT.clear()
    # A limit may let the same pair through another time.
    _KEPT.update((pair, found) for pair, found in decided.items() if found.verdict != Verdict.UNVERIFIED)
    return [no_answer() if pair is None else replace(decided[pair], extracted=pair[0]) for pair in pairs]


def canonical(answer: str) -> str:
    r"""A reference answer as it is stored: trimmed, percentages as hundredths (`50\%` is `\frac{50}{100}`)."""
    return _PERCENT.sub(lambda m: rf"\frac{{{m.group(1).replace(',', '')}}}{{100}}", answer.strip())


def parseable(answer: str) -> bool:
    """Whether a written reference answer is one expression that the verifier can read back."""
    if len(answer) > MAX_LENGTH:
        return False
    text = canonical(answer)
    words = [word for word in _WORD.findall(_COMMAND.sub(" ", text)) if word.lower() not in _MATH_WORDS]
    # math-verify reads "hello world" as a product of ten variables.
    if not text or len(words) > 1 or "\\boxed" in text or not _is_small(text):
        return False
    return pool().ask({"ask": "parse", "text": text})[0] == "same"


def _pair(job: Job, preset: str) -> _Pair | None:
    grading = grading_of(job.question)
    own = preset == "official" and grading.route.startswith("math")
    found = (last_box(job.response) or _phrase(job.response)) if own else boxed(job.response, preset=preset)
    if found is None:
        return None
    return found, job.question.answer, rules_of(job.question), preset == "official"


def _phrase(response: str) -> str | None:
    """The rest of the line after the last answer phrase."""
    found = _PHRASE.findall(response)
    return found[-1].partition(". I hope")[0].strip().removesuffix(".").strip("$ ") or None if found else None


def _decided(pair: _Pair) -> Finding:
    found, reference, rules, official = pair
    oracle = _Budget()
    if not official:
        return compare.decide(found, reference, rules, oracle)
    found, reference = unwrap(found).strip(), unwrap(reference).strip()
    if found.casefold() == reference.casefold():
        return correct(Stage.TEXT)
    if max(len(found), len(reference)) > _MAX_LENGTH:
        return unverified(Stage.LIMIT)
    sides = {name: f"${text.strip('$')}$" for name, text in (("answer", found), ("gold", reference))}
    return oracle({"ask": "wrapped", **sides, "first": True, "swapped": True})


class _Budget:
    """The oracle of one verification: all of its requests together have the processor time of one."""

    def __init__(self) -> None:
        self._left = LIMIT_SECONDS

    def __call__(self, request: dict[str, object]) -> Finding:
        if self._left <= 0.0:
            return _REPLIES["late"]
        word, seconds = pool().ask(request, seconds=self._left)
        self._left -= seconds
        return _REPLIES[word]


def _is_small(text: str) -> bool:
    """Whether parsing is bounded: short, shallow, no tower, no large power or factorial."""
    if re.search(r"\d{40}", text):
        return False
    powers = [int(number) for number in re.findall(r"\^\s*\{?\s*[+-]?(\d+)", text)]
    factorials = [int(number) for number in re.findall(r"(\d+)\s*\)*\s*!", text)]
    tower = re.search(r"\^[^^]*\^", text) is not None and max(powers, default=0) > 3
    steps = [1 if bracket in "([{" else -1 for bracket in re.findall(r"[][(){}]", text)]
    # The parser's time grows exponentially with nesting: 8 levels take half a second, 20 do not come back.
    shallow = len(steps) <= 48 and max(itertools.accumulate(steps), default=0) <= 8
    return shallow and not tower and max(powers, default=0) <= 200 and max(factorials, default=0) <= 99
