"""Runs a program on its cases in a sandbox that was found and proved to work on this host."""

import marshal
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files

from infuser_core.settings import sandbox_mode
from infuser_core.system.child import Watch
from infuser_core.verifiers.sandbox.cell import Cell
from infuser_core.verifiers.sandbox.containment import Containment, candidates, contained, limited
from infuser_core.verifiers.sandbox.program import (
    Case,
    CaseOutcome,
    Limits,
    Program,
    SandboxError,
    SandboxUnavailable,
    Status,
)

# Returns the machinery of the inside as compiled by the interpreter that is going to run it.
COMPILE = """
import marshal
def compiled(text):
    return marshal.dumps(compile(text, "inside", "exec"))
"""
PROBE_LIMITS = Limits(seconds=30.0)


def find() -> Containment:
    """The sandbox that `INFUSER_SANDBOX` asks for. Raises SandboxUnavailable: it never falls back to a weaker one."""
    return _find(sandbox_mode(), os.geteuid())


@lru_cache(maxsize=8)
def _find(mode: str, user: int) -> Containment:
    if sys.platform != "linux":
        raise SandboxUnavailable(f"no sandbox on {sys.platform}", hint="programs can be run on Linux only")
    make = contained if mode == "bwrap" else limited
    problems: list[str] = []
    for interpreter in candidates():
        try:
            return proved(make(interpreter))
        except (SandboxError, SandboxUnavailable) as error:
            problems.append(f"{interpreter.executable}: {error.message}")
    hint = "install bubblewrap and allow user namespaces; or INFUSER_SANDBOX=unsafe to run with limits alone"
    if mode != "bwrap":
        hint = "install a Python that everybody may read, for example /usr/bin/python3"
    raise SandboxUnavailable(f"no sandbox {mode!r} on this host: {'; '.join(problems)}", hint=hint)


def proved(containment: Containment) -> Containment:
    """A containment with its machinery inside, after a start that worked. Raises SandboxError when it did not."""
    folder = files("infuser_core.verifiers.sandbox")
    parts = [(folder / name).read_text(encoding="utf-8") for name in ("literals.py", "inside.py")]
    text = "\n".join(parts)
    # Source is data that every interpreter reads; code is not.
    raw = replace(containment, boot=marshal.dumps(text, 2))
    program = Program(source=COMPILE, kind="call", entry="compiled")
    with Cell(raw, program, PROBE_LIMITS) as cell:
        loaded = cell.ask()
        if cell.answered(PROBE_LIMITS.seconds) is None and not cell.ended:
            cell.take(loaded)
            nonce = cell.ask((text,))
            if cell.answered(PROBE_LIMITS.seconds) is None and not cell.ended:
                return replace(raw, boot=cell.take(nonce))
    raise SandboxError(f"its interpreter did not answer: {cell.last_words()}", hint="see the message")


Stop = Callable[[int, CaseOutcome], bool]
"""`(number of the case, its outcome)`: whether the remaining cases are not wanted."""
NOT_REACHED = CaseOutcome(status=Status.MISSING, detail="not reached")


def run(
    program: Program,
    cases: Sequence[Case],
    limits: Limits = Limits(),
    *,
    stop: Stop = lambda number, outcome: False,
) -> tuple[CaseOutcome, ...]:
    """One outcome per case, in order; cases after `stop` are missing.

    A program can kill its process, and so can a person or a system without memory: what is killed runs once more.
    Raises SandboxError when the sandbox itself failed, which says nothing about the program, and SandboxUnavailable
    when this host has none.
    """
    containment = find()
    for _ in range(2):
        batch = _Batch(containment, program, cases, limits, stop)
        outcomes = batch.whole_programs() if program.kind == "stdin" else batch.calls()
        if not batch.killed:
            break
    return (*outcomes, *[NOT_REACHED] * (len(cases) - len(outcomes)))


class _Batch:
    """The cases of one program under one clock."""

    def __init__(
        self, containment: Containment, program: Program, cases: Sequence[Case], limits: Limits, stop: Stop
    ) -> None:
        self.containment = containment
        self.program = program
        self.cases = cases
        self.limits = limits
        self.stop = stop
        self.watch = Watch()
        self.killed = False
        """Whether a process was killed, by itself or from outside."""

    def whole_programs(self) -> list[CaseOutcome]:
        """A fresh process per case."""
        outcomes: list[CaseOutcome] = []
        for number, case in enumerate(self.cases):
            outcomes.append(self._whole_program(case))
            if self.stop(number, outcomes[-1]):
                break
        return outcomes

    def _whole_program(self, case: Case) -> CaseOutcome:
        if self._left() <= 0:
            return self._out_of_time()
        with Cell(self.containment, self.program, self.limits, self.watch) as cell:
            cell.feed(case.stdin)
            status = cell.wait(lambda: cell.ended, self._left())
            if status is None and cell.failed:
                status = self._death(cell)
            detail = cell.last_words() if status == Status.RAISED else self._limit(status)
            return CaseOutcome(status=status or Status.RETURNED, stdout=cell.output(), detail=detail)

    def calls(self) -> list[CaseOutcome]:
        """One process until it dies, then another for the cases that are left."""
        outcomes: list[CaseOutcome] = []
        stopped = False
        while len(outcomes) < len(self.cases) and not stopped:
            if self._left() <= 0:
                return [*outcomes, *[self._out_of_time()] * (len(self.cases) - len(outcomes))]
            with Cell(self.containment, self.program, self.limits, self.watch) as cell:
                failed = self._answer_of(cell, cell.ask())
                if failed.status != Status.RETURNED:
                    # It would fail to load for every case alike.
                    return [*outcomes, *[failed] * (len(self.cases) - len(outcomes))]
                stopped = self._some_calls(cell, outcomes)
        return outcomes

    def _some_calls(self, cell: Cell, outcomes: list[CaseOutcome]) -> bool:
        """Calls until the process ends; whether `stop` ended them."""
        for number in range(len(outcomes), len(self.cases)):
            outcome = self._answer_of(cell, cell.ask(self.cases[number].args))
            outcomes.append(outcome)
            if self.stop(number, outcome):
                return True
            if outcome.status != Status.RETURNED:
                return False
        return False

    def _answer_of(self, cell: Cell, nonce: bytes) -> CaseOutcome:
        status = cell.answered(self._left())
        if status is not None:
            return CaseOutcome(status=status, detail=self._limit(status))
        if not cell.is_answered():
            return CaseOutcome(status=self._death(cell), detail=cell.last_words() or "ended unasked")
        try:
            return CaseOutcome(status=Status.RETURNED, value=cell.take(nonce))
        except (ValueError, RecursionError) as error:
            cell.end()
            return CaseOutcome(status=Status.MISSING, detail=f"no answer: {error!s:.200}")

    def _death(self, cell: Cell) -> Status:
        """Reason of a process's end before its answer; its last words, its own, change only the name of a failure."""
        self.killed = self.killed or cell.killed
        return Status.MEMORY if cell.last_words().startswith("MemoryError") else Status.RAISED

    def _left(self) -> float:
        """Time for the next case."""
        return min(self.limits.seconds, self.limits.total_seconds - self.watch.look())

    def _out_of_time(self) -> CaseOutcome:
        return CaseOutcome(status=Status.TIMEOUT, detail=f"{self.limits.total_seconds:g} s for all cases")

    def _limit(self, status: Status | None) -> str:
        limits, whole = self.limits, self.program.kind == "stdin"
        passed = {
            Status.TIMEOUT: f"more than {limits.seconds:g} s",
            Status.MEMORY: f"more than {limits.memory_mb} MiB",
            Status.OUTPUT_LIMIT: f"more than {limits.output_bytes if whole else limits.value_bytes} bytes",
        }
        return passed.get(status, "") if status else ""
