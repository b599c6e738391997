r"""Worker process that compares formulas with math-verify. Run as a script.

Its first argument is the descriptor of its connection. Requests are JSON, a reply is one word. Each request has
`seconds`, the processor time that it may take. Requests:
`{"ask": "equal", "answer", "gold", "within": [absolute, relative]}`, `{"ask": "equation", "answer": [left, right],
"gold": [left, right]}`, `{"ask": "wrapped", "answer", "gold", "first", "swapped"}` (math-verify's own verdict, on text
with its own `$` or box) and `{"ask": "parse", "text"}`. Replies: `same`, `exact`, `numeric`, `other`, `open`, `answer`,
`gold`, `late`, `memory`; `open` is undecided, `answer` and `gold` (the reference) name the side that cannot be parsed.

math-verify parses the texts. It rounds to six decimals and takes tiny numbers for zero, so `equality.py` decides
equality; only preset `official` uses math-verify's verdict.
"""

import contextlib
import functools
import json
import logging
import os
import re
import resource
import signal
import sys
import types
from typing import Any

# An isolated interpreter ignores PYTHONPATH: the parent passes the folders of the project and of the libraries. The
# project comes first, as another copy may be installed, but not before the standard library if both share a folder.
if sys.argv[2] not in sys.path:
    sys.path.insert(0, sys.argv[2])
sys.path.extend(sys.argv[3:])
logging.disable(logging.CRITICAL)

import math_verify  # noqa: E402
import sympy  # noqa: E402

from infuser_core.system.child import lower_limit  # noqa: E402
from infuser_core.system.worker import connect  # noqa: E402
from infuser_core.verifiers.parts import equality  # noqa: E402

Request = dict[str, Any]

_MEMORY_BYTES = 1 << 30
# math-verify assumes that letters are coprime, and reads a double factorial as the factorial of a factorial.
_MISREAD = re.compile(r"\\(?:gcd|lcm)\b[^)}]*[A-Za-z]|!\s*!")


class Late(BaseException):
    """The request's time is up. Not an Exception, so that no handler of the library catches it."""


def main() -> None:
    """Serve requests until their pipe closes."""
    connection = connect(sys.argv[1])
    lower_limit(resource.RLIMIT_AS, _MEMORY_BYTES)
    lower_limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _raise_late)
    # Check that the library works, and warm it up before any limit applies: the first logarithm is slow.
    equal = {"ask": "equal", "within": [0, 0]}
    assert decide({**equal, "answer": r"\log_{2}8+\sqrt{x}", "gold": r"3+\sqrt{x}"}) == "exact"
    assert decide({**equal, "answer": r"\sin x", "gold": r"\cos x"}) == "other"
    assert decide({"ask": "wrapped", "answer": "$2$", "gold": "$3$", "first": True, "swapped": True}) == "other"
    # The library prints messages, which the parent reads only until this worker is ready.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    connection.send_bytes(b"ready")
    with contextlib.suppress(EOFError):
        while True:
            connection.send_bytes(_answer_within_limits(json.loads(connection.recv_bytes())).encode())


def _raise_late(number: int, frame: types.FrameType | None) -> None:
    raise Late


def _answer_within_limits(request: Request) -> str:
    # Late can be raised anywhere in here, once; if no Python code runs any more, the parent kills the process. The
    # timer counts the processor time of this process: a busy machine does not change a verdict.
    try:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        try:
            word = decide(request)
        except MemoryError:
            word = "memory"
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    except Late:
        word = "late"
    return word


def decide(request: Request) -> str:
    """Compute the reply to a request (see the module docstring for both)."""
    ask = request["ask"]
    if ask == "parse":
        return "same" if any(not isinstance(value, str) for value in _parse(f"${request['text']}$")) else "answer"
    if ask == "wrapped":
        names = ("answer", "gold") if request["swapped"] else ("gold", "answer")
        sides = [_parse(request[name], first=request["first"]) for name in names]
        return "same" if math_verify.verify(*sides, timeout_seconds=None) else "other"
    if _MISREAD.search(f"{request['gold']} ; {request['answer']}"):
        return "open"
    if ask == "equation":
        gold, answer = (
            None if first is None or second is None else first - second
            for first, second in (map(_expression, request[side]) for side in ("gold", "answer"))
        )
    else:
        gold, answer = _expression(request["gold"]), _expression(request["answer"])
    if gold is None or answer is None:
        return "gold" if gold is None else "answer"
    if ask == "equation":
        return equality.proportional(gold, answer)
    within = request["within"]
    if not any(within) or gold.free_symbols or answer.free_symbols:
        return equality.equal(gold, answer)
    pair = equality.values_at(gold, answer, {})
    if pair is None:
        return "other"
    allowed = within[0] or within[1] * (abs(pair[0]) or 1)
    return "numeric" if abs(pair[0] - pair[1]) <= allowed else "other"


def _parse(text: str, *, first: bool = True) -> list[Any]:
    mode = "first_match" if first else "any_match"
    return math_verify.parse(text, parsing_timeout=None, extraction_mode=mode)


# One reference is compared with many answers.
@functools.lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    # math-verify strips a unit from the end, even the unknown of `7 \\cdot m`, but not inside of brackets.
    bracketed = f"({text})" if text[-1:].isalpha() and r"\begin" not in text else text
    values = [value for value in _parse(f"${bracketed}$") if isinstance(value, sympy.Expr | sympy.MatrixBase)]
    return values[0] if values else None


if __name__ == "__main__":
    main()
