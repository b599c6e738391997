"""Programs that try to fool the judge and programs that do not, judged: by the tests, and as a command by another user.

`python sandbox_corpus.py` judges both collections as whoever runs it and writes one JSON object.
"""

import contextlib
import json
import math
import os
import random
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from places import DATA

from infuser_core.verifiers.parts.code_tests import CodeTests, ProgramJudgement, judge, parse_tests
from infuser_core.verifiers.sandbox import literals
from infuser_core.verifiers.sandbox.program import SandboxError

FOLDER = DATA / "sandbox"
CHEATS = sorted((FOLDER / "cheats").glob("*.py"))
HONEST = sorted((FOLDER / "honest").glob("*.py"))
ASKED = (0, 3, 11, 500, 77777)
"""Arguments of the problem that the cheats do not solve."""
PORT = 47123
"""Where the answers are served on the loopback interface."""
ANSWERS = {str(n): (n * 7919 + 104729) % 99991 for n in ASKED}
CHEAT_SECONDS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One program of a collection."""

    name: str
    """File name without its ending."""
    source: str
    """The whole file."""
    tests: CodeTests
    """What it is judged by."""


def cheats() -> list[Entry]:
    """Every cheat with the one problem that all of them face."""
    call = [{"args": [n], "expected": ANSWERS[str(n)]} for n in ASKED]
    whole = [{"stdin": f"{n}\n", "stdout": f"{ANSWERS[str(n)]}\n"} for n in ASKED]
    common = {"seconds": CHEAT_SECONDS, "memory_mb": 256}
    entries = []
    for path in CHEATS:
        kind = _header(path.read_text(), "Kind")[0]
        cases = {"call": call, "stdin": whole}[kind]
        tests = parse_tests({"kind": kind, "entry": "solve" if kind == "call" else "", "cases": cases, **common})
        entries.append(Entry(name=path.stem, source=path.read_text(), tests=tests))
    return entries


def honest() -> list[Entry]:
    """Every honest program with its tests: those in its header, and those that are too long for one."""
    entries = []
    for path in HONEST:
        text = path.read_text()
        kind, _, entry = _header(text, "Kind")[0].partition(" ")
        cases = [json.loads(line) for line in _header(text, "Test")] + long_tests().get(path.stem, [])
        options = json.loads((_header(text, "Options") or ["{}"])[0])
        if kind == "call":
            cases = [{name: _tagged(value) for name, value in case.items()} for case in cases]
        tests = {"kind": kind, "entry": entry, "cases": cases, "literals": "tagged", "seconds": 10, **options}
        entries.append(Entry(name=path.stem, source=text, tests=parse_tests(tests)))
    return entries


@lru_cache
def long_tests() -> dict[str, list[dict[str, Any]]]:
    """Tests whose inputs or outputs are large, or cannot be written as plain JSON."""
    numbers = [random.Random(7).randrange(10**6) for _ in range(100_000)]
    lines = "\n".join(map(str, [len(numbers), *numbers])) + "\n"
    summed = [{"stdin": lines, "stdout": str(sum(numbers))}]
    sys.set_int_max_str_digits(0)
    letters = {"b": [1], "o": [1, 1]}
    everything = {(1, "a"): {frozenset({7}): None}, "set": {7, 8}, b"raw": (True, 1, 1.5, 2j), 7: [[], (), {}]}
    return {
        "many_lines": summed,
        "fast_input": summed,
        "input_replaced": summed,
        "unread_input": [{"stdin": "x" * 2_000_000, "stdout": "42"}],
        "flushed_output": [{"stdin": "300", "stdout": "\n".join(map(str, range(300)))}],
        "large_output": [{"stdin": "150000\n", "stdout": "\n".join(str(n * n) for n in range(150_000))}],
        "large_integers": [{"args": [2, 40_000], "expected": 2**40_000}, {"args": [-3, 501], "expected": (-3) ** 501}],
        "large_integer_output": [{"stdin": "9000", "stdout": str(7**9000)}],
        "special_floats": [{"args": [1], "expected": [math.inf, -math.inf, math.nan]}],
        "structures": [{"args": [7], "expected": everything}],
        "subclasses": [{"args": ["boo"], "expected": [{"b": 1, "o": 2}, letters, letters, (1, 2)]}],
        "many_calls": [{"args": [n], "expected": n + 1} for n in range(400)],
    }


def _tagged(value: object) -> Any:
    return json.loads(literals.encode(value))


def _header(text: str, name: str) -> list[str]:
    mark = f"# {name}: "
    return [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]


def judged(entries: list[Entry], *, workers: int = 2) -> dict[str, ProgramJudgement | str]:
    """A judgement for each name; the message where the sandbox failed, which is no judgement."""

    def one(entry: Entry) -> ProgramJudgement | str:
        try:
            return judge(entry.source, entry.tests)
        except SandboxError as error:
            return str(error)

    with ThreadPoolExecutor(workers) as pool:
        return dict(zip([entry.name for entry in entries], pool.map(one, entries), strict=True))


@contextlib.contextmanager
def bait() -> Iterator[None]:
    """The answers, wherever a cheat that gets out would find them."""
    content = json.dumps(ANSWERS)
    with tempfile.NamedTemporaryFile("w", prefix="infuser_answers", dir="/tmp", suffix=".json") as file:
        file.write(content)
        file.flush()
        Path(file.name).chmod(0o644)
        os.environ["INFUSER_ANSWERS"] = content
        with contextlib.ExitStack() as stack:
            for address in (("127.0.0.1", PORT), "\0infuser_answers"):
                server = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
                stack.enter_context(server)
                # Another test process that serves the same answers will do.
                with contextlib.suppress(OSError):
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    server.bind(address)
                    server.listen()
                    # Closing alone does not wake a thread that waits for a connection.
                    stack.callback(server.shutdown, socket.SHUT_RDWR)
                    threading.Thread(target=_serve, args=(server, content.encode()), daemon=True).start()
            yield
        del os.environ["INFUSER_ANSWERS"]


def _serve(server: socket.socket, content: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            link, _ = server.accept()
            with link:
                link.sendall(content)


def main() -> None:
    """Every attack and a third of the honest programs, as JSON: what was judged wrongly, by name with the reason."""
    with bait():
        fooled, rejected = judged(cheats()), judged(honest()[::3])
    json.dump(
        {
            "user": os.geteuid(),
            "cheats": len(fooled),
            "honest": len(rejected),
            "false_accepts": [
                name for name, each in fooled.items() if isinstance(each, ProgramJudgement) and each.passed
            ],
            "false_rejects": {
                name: str(each)
                for name, each in rejected.items()
                if not isinstance(each, ProgramJudgement) or not each.passed
            },
            "failures": {name: each for name, each in fooled.items() if isinstance(each, str)},
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
