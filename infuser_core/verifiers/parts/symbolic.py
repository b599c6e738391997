r"""The symbolic worker: a process of its own around math-verify. Run as a script; imports nothing of this project.

It is given two pipes as descriptors: requests come as JSON, replies go back as one word. Requests:
`{"ask": "equal", "answer", "gold", "within": [absolute, relative]}`, `{"ask": "equation", "answer": [left, right],
"gold": [left, right]}`, `{"ask": "wrapped", "answer", "gold", "first", "swapped"}` (math-verify as it is, on text that
carries its own `$` or box) and `{"ask": "parse", "text"}`. Replies: `same`, `numeric`, `other`, `answer`, `gold`,
`late`, `memory`; `answer` and `gold` name the side that cannot be read.

math-verify rounds to six decimals and calls tiny numbers zero, so that its yes counts only if both sides agree to 30
digits where their unknowns have values. Where every such point agrees, negative ones included, that is equality by
itself. The points depend on both texts, so that nobody writes an answer for them.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import resource
import signal
import sys
import types
from multiprocessing.connection import Connection
from typing import Any

# An isolated interpreter ignores PYTHONPATH: the asker says where the libraries are.
sys.path.extend(sys.argv[3:])
logging.disable(logging.CRITICAL)

import math_verify  # noqa: E402
import sympy  # noqa: E402

Request = dict[str, Any]
Point = dict[Any, Any]
"""A number for each unknown, in the library's own types."""

LIMIT_SECONDS = 2.0
"""Time for one request; the asker kills the worker some time later if this did not end it."""
_BACKSTOP_SECONDS = 6.0
_MEMORY_BYTES = 1 << 30
_DIGITS = 50
_AGREED = 30
_SIGNS = (1, 1, 1, -1, -1)
_WHOLE = (2, 3, 4, 5, 7, 8, 11)
_NAMES_OF_FAILURE = (
    ArithmeticError, AttributeError, AssertionError, IndexError, KeyError, NotImplementedError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip


class Late(BaseException):
    """The request's time is up. No Exception, so that no handler of the library swallows it."""


def main() -> None:
    """Serve requests until their pipe closes."""
    requests = Connection(int(sys.argv[1]), writable=False)
    replies = Connection(int(sys.argv[2]), readable=False)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _late)
    _die_with(requests.fileno())
    _try_library()
    # The library prints: the asker reads standard error only until this worker is ready.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    replies.send_bytes(b"ready")
    with contextlib.suppress(EOFError):
        while True:
            replies.send_bytes(_within_limits(json.loads(requests.recv_bytes())).encode())


def _die_with(inbox: int) -> None:
    """While it works, the kernel ends this process when the pipe from the asker closes: even inside a long C call."""
    fcntl.fcntl(inbox, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(inbox, fcntl.F_SETFL, fcntl.fcntl(inbox, fcntl.F_GETFL) | os.O_ASYNC)
    signal.signal(signal.SIGIO, signal.SIG_IGN)


def _late(number: int, frame: types.FrameType | None) -> None:
    raise Late


def _within_limits(request: Request) -> str:
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    # Processor time, with the signal's default action: ends the process where no Python code runs any more.
    signal.setitimer(signal.ITIMER_PROF, _BACKSTOP_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        try:
            return answer(request)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGIO, signal.SIG_IGN)
    except Late:
        return "late"
    except MemoryError:
        return "memory"


def _try_library() -> None:
    """A broken library must not pass for a bad model; and the first logarithm is slow, at a time without a limit."""
    equal = {"ask": "equal", "within": [0, 0]}
    assert answer({**equal, "answer": r"\log_{2}8+\sqrt{x}", "gold": r"3+\sqrt{x}"}) == "numeric"
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
    if ask == "equation":
        gold, found = (_zero(request[side]) for side in ("gold", "answer"))
    else:
        gold, found = _expression(request["gold"]), _expression(request["answer"])
    if gold is None or found is None:
        return "gold" if gold is None else "answer"
    return _same_zeros(gold, found) if ask == "equation" else _equal(gold, found, request["within"])


def _parse(text: str, *, first: bool = True) -> list[Any]:
    mode = "first_match" if first else "any_match"
    return math_verify.parse(text, parsing_timeout=None, extraction_mode=mode)


# One reference meets many answers.
@functools.lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    found = [value for value in _parse(f"${text}$") if isinstance(value, sympy.Expr | sympy.MatrixBase)]
    return found[0] if found else None


def _zero(sides: list[str]) -> Any:
    left, right = map(_expression, sides)
    return None if left is None or right is None else left - right


def _equal(gold: Any, found: Any, within: list[float]) -> str:
    if any(within):
        pair = _at(gold, found, {})
        if pair is None:
            return "other"
        allowed = within[0] or within[1] * (abs(pair[0]) or 1)
        return "numeric" if abs(pair[0] - pair[1]) <= allowed else "other"
    agreed = []
    for point in _points(gold, found):
        agreed.append(_agree(gold, found, point))
        # Only points right of zero veto: a logarithm of a square is two readings left of it.
        if agreed[-1] is False and all(value > 0 for value in point.values()):
            return "other"
    if all(agreed):
        return "numeric"
    return "same" if math_verify.verify([gold], [found], timeout_seconds=None) else "other"


def _same_zeros(gold: Any, found: Any) -> str:
    """Equations are the same when their zero forms differ by a constant factor."""
    ratios = []
    for point in _points(gold, found):
        pair = _at(gold, found, point)
        if pair is None:
            continue
        if pair[0] == 0 or pair[1] == 0:
            return "other"
        ratios.append(pair[0] / pair[1])
    small = 10.0**-_AGREED
    same = len(ratios) > 2 and all(abs(ratio - ratios[0]) <= small * abs(ratios[0]) for ratio in ratios)
    return "numeric" if same else "other"


def _points(gold: Any, found: Any) -> list[Point]:
    """Values for the unknowns; whole numbers where a sum, a factorial or the like asks for them."""
    names = sorted(gold.free_symbols | found.free_symbols, key=str)
    if not names:
        return [{}]
    whole = (sympy.factorial, sympy.binomial, sympy.Sum, sympy.Product)
    if gold.has(*whole) or found.has(*whole):
        return [{name: sympy.Integer(n + place) for place, name in enumerate(names)} for n in _WHOLE]
    digest = hashlib.sha256(f"{gold}|{found}".encode()).digest()
    return [
        {
            name: sympy.Rational(sign * (10 + digest[(len(names) * row + column) % 32]), 97 + 10 * row + column)
            for column, name in enumerate(names)
        }
        for row, sign in enumerate(_SIGNS)
    ]


def _at(gold: Any, found: Any, point: Point) -> list[Any] | None:
    """Both values at a point as numbers; None when either has none there."""
    try:
        i = {name: sympy.I for name in gold.free_symbols | found.free_symbols if str(name) == "i"}
        values = [side.subs({**point, **i}).doit().evalf(_DIGITS) for side in (gold, found)]
        if all(value.is_number and value.is_finite for value in values):
            return values
    except _NAMES_OF_FAILURE:
        return None
    return None


def _agree(gold: Any, found: Any, point: Point) -> bool | None:
    """Whether both sides have the same value at a point; None when that cannot be told."""
    if isinstance(gold, sympy.MatrixBase) or isinstance(found, sympy.MatrixBase):
        return None
    pair = _at(gold, found, point)
    if pair is None:
        return None
    small = sympy.Float(10, _DIGITS) ** -_AGREED
    # Decimals are read as floating-point numbers of 15 digits.
    small = sympy.Float("1e-12") if gold.has(sympy.Float) or found.has(sympy.Float) else small
    return bool(abs(pair[0] - pair[1]) <= small * max(abs(pair[0]), abs(pair[1])) + sympy.Float("1e-45"))


if __name__ == "__main__":
    main()
