"""Judge answers: compare each with its reference answer, or run a program, by the rules that training uses."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from infuser_core.errors import InfuserError, UsageError
from infuser_core.plugins import VERIFIERS
from infuser_core.schemas import Question
from infuser_core.verifiers.parts.batch import Job, check_all
from infuser_core.verifiers.parts.extract import PRESETS
from infuser_core.verifiers.parts.grading import Finding, Grading, as_text, no_answer, unverified

SECONDS = 6.0
"""Default time limit of a program, seconds."""
PROGRAMS = 2
"""Programs that run concurrently."""
GRADING = ("route", "answer_type", "tolerance", "unit")
"""Keys that say how answers are compared, in addition to `multiple`."""


class _Malformed(Exception):
    """Error for values that are no question; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """An answer to verify, or a program to run."""

    preset: str
    job: Job | None
    """Answer to verify; None for a program."""
    run: Callable[[], Finding] | None = None
    """Runs a program; None for an answer."""


def judge(answer: str, truth: str | float = "", kind: str = "math", *, preset: str = "", **options: Any) -> Finding:
    """Judge one answer: its verdict (correct, wrong, no_answer or unverified), the compared text, and the reason.

    Without a preset, `answer` is the answer alone, or for `code` a program; with one (paper, official, strict-last or
    phrase) it is a whole reply, from which that preset takes the answer. `kind` and the options, such as `choices`,
    `tolerance` or `tests`, are the keys of `infuser verify`.

    Raises UsageError for an unknown kind or preset, and for options that do not fit.
    """
    if preset:
        reply = {"response": answer, "preset": preset}
    elif kind == "code":
        reply = {"solution": answer}
    else:
        reply = {"response": f"\\boxed{{{answer}}}"}
    request = parse_request({"kind": kind, "gold": truth, **reply, **options})
    if isinstance(request, Finding):
        raise UsageError(f"judge: {request.reason}", hint="`infuser verify --help` lists the keys")
    (finding,) = check_requests([request])
    return finding


def judge_all(rows: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Judge many replies at once, which is much faster: each row has the keys of `infuser verify`. One finding per row.

    A malformed row is `unverified`, and its reason says what is wrong.
    """
    return list(check_requests([parse_request(row) for row in rows]))


def check_requests(requests: Sequence[JudgeRequest | Finding]) -> Iterator[Finding]:
    """Yield a finding for every request, in order; findings among the requests stay as they are.

    Answers are verified together; programs run two at a time, and their findings are yielded as soon as they are next.
    """
    findings = {place: one for place, one in enumerate(requests) if isinstance(one, Finding)}
    jobs = {place: one for place, one in enumerate(requests) if isinstance(one, JudgeRequest)}
    for preset in sorted({one.preset for one in jobs.values() if one.job}):
        findings |= _check_jobs({p: one.job for p, one in jobs.items() if one.job and one.preset == preset}, preset)
    with ThreadPoolExecutor(max_workers=PROGRAMS) as pool:
        running = {place: pool.submit(one.run) for place, one in jobs.items() if one.run is not None}
        for place in range(len(requests)):
            try:
                yield running[place].result() if place in running else findings[place]
            except InfuserError as error:
                yield unverified(str(error))


def _check_jobs(jobs: Mapping[int, Job], preset: str) -> dict[int, Finding]:
    """Findings of all jobs together; if one of them raises, of each alone, so that only that one is unverified."""
    try:
        return dict(zip(jobs, check_all(list(jobs.values()), preset=preset), strict=True))
    except InfuserError as error:
        if len(jobs) == 1:
            return dict.fromkeys(jobs, unverified(str(error)))
        return {place: finding for p, job in jobs.items() for place, finding in _check_jobs({p: job}, preset).items()}


def parse_request(values: Any) -> JudgeRequest | Finding:
    """Parse a question with its answer; malformed values give an `unverified` finding with the reason."""
    try:
        return _request_of(values)
    except _Malformed as error:
        return unverified(str(error))


def _request_of(values: Any) -> JudgeRequest:
    if not isinstance(values, Mapping):
        raise _Malformed("no JSON object")
    kind = values.get("kind")
    if kind not in _kinds():
        raise _Malformed(f"unknown kind {str(kind)[:40]!r}: one of {', '.join(_kinds())}")
    preset = values.get("preset", "paper")
    if preset not in PRESETS:
        raise _Malformed(f"unknown preset {str(preset)[:40]!r}: one of {', '.join(PRESETS)}")
    if kind == "code":
        return _parse_program(values, preset)
    question = Question(
        question_id="",
        text="",
        choices=_choices(values),
        answer=_gold(values, kind),
        verifier=kind,
        domain="",
        subdomain="",
        grading=_grading(values),
    )
    return JudgeRequest(preset=preset, job=Job(response=_text(values, "response"), question=question))


@cache
def _kinds() -> tuple[str, ...]:
    return tuple(VERIFIERS.names())


def _parse_program(values: Mapping[str, Any], preset: str) -> JudgeRequest:
    # Imported here: it costs a process pool's imports.
    from infuser_core.verifiers import code
    from infuser_core.verifiers.code import extract_program

    tests, seconds = values.get("tests"), values.get("seconds", SECONDS)
    if not isinstance(tests, list) or not tests or not all(isinstance(test, dict) for test in tests):
        raise _Malformed('tests: needed, a list of {"stdin", "stdout"} or {"call", "args", "expected"}')
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 600:
        raise _Malformed(f"seconds = {str(seconds)[:40]}: expected a number above 0, at most 600")
    if "solution" in values:
        solution: str | None = _text(values, "solution")
    else:
        entry = tests[0].get("call", "")
        entry = entry if isinstance(entry, str) else ""
        solution = extract_program(_text(values, "response"), preset=preset, entry=entry)
    if solution is None:
        return JudgeRequest(preset=preset, job=None, run=lambda: no_answer("no program"))
    setup, scientific = values.get("setup", ""), values.get("scientific", False)
    if not isinstance(setup, str) or not isinstance(scientific, bool):
        raise _Malformed("setup: expected a string" if not isinstance(setup, str) else "scientific: expected a boolean")
    verify = partial(code.verify_solution, solution, tests, seconds=float(seconds), setup=setup, scientific=scientific)
    return JudgeRequest(preset=preset, job=None, run=verify)


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise _Malformed(f"{key}: needed, a string" if value is None else f"{key}: expected a string")
    return value


def _gold(values: Mapping[str, Any], kind: str) -> str:
    """The reference answer; a number becomes its text."""
    gold = values.get("gold")
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise _Malformed("gold: needed, a string or a number")
    text = gold if isinstance(gold, str) else json.dumps(gold)
    if kind == "choice":
        letter, number = text.strip().upper(), len(_choices(values)) or 26
        if len(letter) != 1 or not 0 <= ord(letter) - ord("A") < number:
            raise _Malformed(f"gold = {text[:40]!r}: expected the letter of one of {number} choices")
    return text


def _choices(values: Mapping[str, Any]) -> list[str]:
    """Texts of the choices, blank if only their number is given; empty if every letter counts."""
    choices = values.get("choices")
    if choices is None:
        return []
    if isinstance(choices, int) and not isinstance(choices, bool) and 2 <= choices <= 26:
        return [""] * choices
    if isinstance(choices, list) and 2 <= len(choices) <= 26:
        return [str(choice) for choice in choices]
    raise _Malformed(f"choices = {str(choices)[:40]}: expected a number or a list of 2 to 26")


def _grading(values: Mapping[str, Any]) -> str:
    multiple = values.get("multiple", False)
    if not isinstance(multiple, bool):
        raise _Malformed("multiple: expected true or false")
    texts = {name: values[name] for name in GRADING if values.get(name) is not None}
    for name, value in texts.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _Malformed(f"{name}: expected a string")
    if not texts and not multiple:
        return ""
    facts: dict[str, Any] = {name: str(value) for name, value in texts.items()}
    return as_text(Grading(multiple=multiple, **facts))
