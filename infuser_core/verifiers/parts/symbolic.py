r"""The symbolic worker: a process of its own around math-verify. Run as a script.

Its first argument is the descriptor of its connection: requests come as JSON, replies go back as one word. Each request
has `seconds`, the processor time that it may take. Requests:
`{"ask": "equal", "answer", "gold", "within": [absolute, relative]}`, `{"ask": "equation", "answer": [left, right],
"gold": [left, right]}`, `{"ask": "wrapped", "answer", "gold", "first", "swapped"}` (math-verify as it is, on text that
carries its own `$` or box) and `{"ask": "parse", "text"}`. Replies: `same`, `exact`, `numeric`, `other`, `open`,
`answer`, `gold`, `late`, `memory`; `open` is "cannot be told", `answer` and `gold` name the side that cannot be read.

math-verify reads the texts. It rounds to six decimals and calls tiny numbers zero, so that equality is decided by
`equality.py`; preset `official` alone takes its word.
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

# An isolated interpreter ignores PYTHONPATH: the asker says where the project and the libraries are. The project comes
# first, as another copy of it may be installed, but not before the standard library where it is among the libraries.
if sys.argv[2] not in sys.path:
    sys.path.insert(0, sys.argv[2])
sys.path.extend(sys.argv[3:])
logging.disable(logging.CRITICAL)

import math_verify  # noqa: E402
import sympy  # noqa: E402

from infuser_core.child import lower  # noqa: E402
from infuser_core.system.worker import connect  # noqa: E402
from infuser_core.verifiers.parts import equality  # noqa: E402

Request = dict[str, Any]

_MEMORY_BYTES = 1 << 30
# The library takes letters for coprime, and a double factorial for the factorial of a factorial.
_MISREAD = re.compile(r"\\(?:gcd|lcm)\b[^)}]*[A-Za-z]|!\s*!")


class Late(BaseException):
    """The request's time is up. No Exception, so that no handler of the library swallows it."""


def main() -> None:
    """Serve requests until their pipe closes."""
    asker = connect(sys.argv[1])
    lower(resource.RLIMIT_AS, _MEMORY_BYTES)
    lower(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _late)
    _try_library()
    # The library prints: the asker reads that only until this worker is ready.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    asker.send_bytes(b"ready")
    with contextlib.suppress(EOFError):
        while True:
            asker.send_bytes(_within_limits(json.loads(asker.recv_bytes())).encode())


def _late(number: int, frame: types.FrameType | None) -> None:
    raise Late


def _within_limits(request: Request) -> str:
    # Late can be raised anywhere in here, once; where no Python code runs any more, the asker ends the process. The
    # clock counts this process's own time: what else the machine does is no part of a verdict.
    try:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        try:
            said = answer(request)
        except MemoryError:
            said = "memory"
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    except Late:
        said = "late"
    return said


def _try_library() -> None:
    """A broken library must not pass for a bad model; and the first logarithm is slow, at a time without a limit."""
    equal = {"ask": "equal", "within": [0, 0]}
    assert answer({**equal, "answer": r"\log_{2}8+\sqrt{x}", "gold": r"3+\sqrt{x}"}) == "exact"
    assert answer({**equal, "answer": r"\sin x", "gold": r"\cos x"}) == "other"
    assert answer({"ask": "wrapped", "answer": "$2$", "gold": "$3$", "first": True, "swapped": True}) == "other"


def answer(request: Request) -> str:
    """The word that answers a request."""
    ask = request["ask"]
    if ask == "parse":
        return "same" if any(not isinstance(value, str) for value in _parse(f"${request['text']}$")) else "answer"
    if ask == "wrapped":
        first = request["first"]
        gold, found = _parse(request["gold"], first=first), _parse(request["answer"], first=first)
        sides = (found, gold) if request["swapped"] else (gold, found)
        return "same" if math_verify.verify(*sides, timeout_seconds=None) else "other"
    if _MISREAD.search(f"{request['gold']} ; {request['answer']}"):
        return "open"
    if ask == "equation":
        gold, found = (_zero(request[side]) for side in ("gold", "answer"))
    else:
        gold, found = _expression(request["gold"]), _expression(request["answer"])
    if gold is None or found is None:
        return "gold" if gold is None else "answer"
    return equality.proportional(gold, found) if ask == "equation" else _equal(gold, found, request["within"])


def _parse(text: str, *, first: bool = True) -> list[Any]:
    mode = "first_match" if first else "any_match"
    return math_verify.parse(text, parsing_timeout=None, extraction_mode=mode)


# One reference meets many answers.
@functools.lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    # The library takes a unit off the end, even where it is the unknown of `7 \\cdot m`; not from within brackets.
    bracketed = f"({text})" if text[-1:].isalpha() and r"\begin" not in text else text
    found = [value for value in _parse(f"${bracketed}$") if isinstance(value, sympy.Expr | sympy.MatrixBase)]
    return found[0] if found else None


def _zero(sides: list[str]) -> Any:
    left, right = map(_expression, sides)
    return None if left is None or right is None else left - right


def _equal(gold: Any, found: Any, within: list[float]) -> str:
    if not any(within) or gold.free_symbols or found.free_symbols:
        return equality.equal(gold, found)
    pair = equality.values_at(gold, found, {})
    if pair is None:
        return "other"
    allowed = within[0] or within[1] * (abs(pair[0]) or 1)
    return "numeric" if abs(pair[0] - pair[1]) <= allowed else "other"


if __name__ == "__main__":
    main()
