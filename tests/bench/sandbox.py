"""What a sandbox costs: start-up, whole executions by mode and way of use, executions per second with two at once.

python tests/bench/sandbox.py [--runs 50]
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from infuser_core.verifiers.code import canary
from infuser_core.verifiers.sandbox import run as probe
from infuser_core.verifiers.sandbox.cell import Cell
from infuser_core.verifiers.sandbox.program import Case, Limits, Program, SandboxUnavailable, Status
from infuser_core.verifiers.sandbox.run import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import sandbox_corpus

TARGET_MS = 25.0
"""Longest start-up that was asked for, milliseconds."""
SCIENTIFIC_MS = 150.0
"""The same of a program that imports numpy, up to its first line of output."""
WHOLE = Program(source="print(input())")
NUMPY = Program(source="import numpy\nprint(input())", scientific=True)
CALLED = Program(source="def f(n): return n", kind="call", entry="f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result."""

    name: str
    """What was timed."""
    median_ms: float
    """Median, milliseconds."""
    p90_ms: float
    """Ninth decile, milliseconds."""
    per_second_of_two: float
    """Executions per second with two at once; 0 where that was not measured."""


def whole() -> None:
    """A whole program, from its start to the end of all of its processes."""
    assert run(WHOLE, [Case(stdin="1")])[0].stdout == "1\n"


def with_numpy() -> None:
    """A whole program that imports numpy."""
    assert run(NUMPY, [Case(stdin="1")])[0].stdout == "1\n"


def called() -> None:
    """A function, called once."""
    assert run(CALLED, [Case(args=(1,))])[0].status == Status.RETURNED


def started() -> None:
    """A sandbox that is ready to run its program, and nothing more; ending it is not timed."""
    _open.append(Cell(probe.find_containment(), CALLED, Limits()))


def bare() -> None:
    """The interpreter alone, for comparison."""
    interpreter = probe.find_containment().interpreter.executable
    subprocess.run([interpreter, "-I", "-S", "-c", "pass"], check=True, env={})


_open: list[Cell] = []


def timed(name: str, once: Callable[[], object], runs: int, *, at_once: bool = True) -> Row:
    """A row of `runs` executions, one after the other and then two at a time."""
    once()
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        once()
        found.append(1e3 * (time.perf_counter() - began))
        while _open:
            _open.pop().end()
    rate = 0.0
    if at_once:
        with ThreadPoolExecutor(2) as pool:
            began = time.perf_counter()
            list(pool.map(lambda _: once(), range(2 * runs)))
            rate = 2 * runs / (time.perf_counter() - began)
    deciles = statistics.quantiles(found, n=10)
    return Row(name=name, median_ms=statistics.median(found), p90_ms=deciles[8], per_second_of_two=rate)


def rows(runs: int) -> list[Row]:
    """Every mode that this host has."""
    found = [timed("bare interpreter", bare, runs, at_once=False)]
    for mode in ("bwrap", "unsafe"):
        os.environ["INFUSER_SANDBOX"] = mode
        try:
            probe.find_containment()
        except SandboxUnavailable as error:
            print(f"{mode}: {error}")
            continue
        found += [timed(f"{mode}: start-up", started, runs, at_once=False)]
        found += [timed(f"{mode}: whole program", whole, runs), timed(f"{mode}: function called", called, runs)]
        if mode == "bwrap":
            found.append(timed(f"{mode}: program with numpy", with_numpy, runs))
        found += [timed(f"{mode}: canary of a batch", canary, max(5, runs // 5), at_once=False)]
    return found


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="executions per row")
    arguments = parser.parse_args()
    print("\n".join(collections()))
    found = rows(arguments.runs)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, user {os.geteuid()}, {runs_of(found)}")
    print("| row | median ms | p90 ms | per second, two at once |")
    print("|---|---|---|---|")
    for row in found:
        rate = f"{row.per_second_of_two:.0f}" if row.per_second_of_two else ""
        print(f"| {row.name} | {row.median_ms:.1f} | {row.p90_ms:.1f} | {rate} |")


def runs_of(found: list[Row]) -> str:
    """Whether the start-up target is met."""
    limits = {"start-up": TARGET_MS, "with numpy": SCIENTIFIC_MS}
    slow = [
        row.name for row in found for end, most in limits.items() if row.name.endswith(end) and row.median_ms > most
    ]
    said = f"start-up under {TARGET_MS:g} ms, {SCIENTIFIC_MS:g} ms with numpy"
    return said if not slow else f"not {said}: {', '.join(slow)}"


def collections() -> Iterator[str]:
    """The attacks and the honest programs, without and with numpy in sight."""
    for scientific in (False, True):
        with sandbox_corpus.bait():
            fooled, honest = (
                sandbox_corpus.judged(
                    [replace(entry, tests=replace(entry.tests, scientific=scientific)) for entry in entries]
                )
                for entries in (sandbox_corpus.cheats(), sandbox_corpus.honest())
            )
        accepted = [name for name, each in fooled.items() if isinstance(each, str) or each.passed]
        refused = [name for name, each in honest.items() if isinstance(each, str) or not each.passed]
        yield f"numpy {scientific}: {len(fooled)} attacks, accepted {accepted}; {len(honest)} honest, refused {refused}"


if __name__ == "__main__":
    main()
