"""Run an untrusted program on test inputs in a sandbox, which is tested on this host before its first use."""

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
from infuser_core.verifiers.sandbox.containment import (
    Containment,
    contain_with_bwrap,
    contain_with_limits,
    find_interpreters,
)
from infuser_core.verifiers.sandbox.program import (
    Case,
    CaseOutcome,
    Limits,
    Program,
    SandboxError,
    SandboxUnavailable,
    Status,
)

# Compiles `inside.py` with the interpreter that is going to run it.
COMPILE = """
import marshal
def compiled(text):
    return marshal.dumps(compile(text, "inside", "exec"))
"""
PROBE_LIMITS = Limits(seconds=30.0)


def find_containment() -> Containment:
    """The sandbox that `INFUSER_SANDBOX` selects. Raises SandboxUnavailable instead of falling back to a weaker one."""
    return _find_containment(sandbox_mode(), os.geteuid())


@lru_cache(maxsize=8)
def _find_containment(mode: str, user: int) -> Containment:
    if sys.platform != "linux":
        raise SandboxUnavailable(f"no sandbox on {sys.platform}", hint="programs can be run on Linux only")
    make = contain_with_bwrap if mode == "bwrap" else contain_with_limits
    problems: list[str] = []
    for interpreter in find_interpreters():
        try:
            return prove(make(interpreter))
        except (SandboxError, SandboxUnavailable) as error:
            problems.append(f"{interpreter.executable}: {error.message}")
    hint = "install bubblewrap and allow user namespaces; or INFUSER_SANDBOX=unsafe to run with limits alone"
    if mode != "bwrap":
        hint = "install a Python that everybody may read, for example /usr/bin/python3"
    raise SandboxUnavailable(f"no sandbox {mode!r} on this host: {'; '.join(problems)}", hint=hint)


def prove(containment: Containment) -> Containment:
    """Test a containment and return it with the compiled `inside.py`. Raises SandboxError if it does not start."""
    folder = files("infuser_core.verifiers.sandbox")
    parts = [(folder / name).read_text(encoding="utf-8") for name in ("literals.py", "inside.py")]
    text = "\n".join(parts)
    # Any interpreter can load source text; compiled code needs the same version.
    raw = replace(containment, boot=marshal.dumps(text, 2))
    program = Program(source=COMPILE, kind="call", entry="compiled")
    with Cell(raw, program, PROBE_LIMITS) as cell:
        loaded = cell.ask()
        if cell.wait_for_answer(PROBE_LIMITS.seconds) is None and not cell.has_ended:
            cell.take_answer(loaded)
            nonce = cell.ask((text,))
            if cell.wait_for_answer(PROBE_LIMITS.seconds) is None and not cell.has_ended:
                return replace(raw, boot=cell.take_answer(nonce))
    raise SandboxError(f"its interpreter did not answer: {cell.last_words()}", hint="see the message")


Stop = Callable[[int, CaseOutcome], bool]
"""Function of a case's number and outcome: whether to skip the remaining cases."""
NOT_REACHED = CaseOutcome(status=Status.MISSING, detail="not reached")


def run(
    program: Program,
    cases: Sequence[Case],
    limits: Limits = Limits(),
    *,
    stop: Stop = lambda number, outcome: False,
) -> tuple[CaseOutcome, ...]:
    """Run a program on its cases. Returns one outcome per case, in order; cases after `stop` are `NOT_REACHED`.

    If a process is killed, by the program or from outside, all cases run once more. Raises SandboxError if the
    sandbox itself failed, which says nothing about the program, and SandboxUnavailable if this host has none.
    """
    containment = find_containment()
    for _ in range(2):
        batch = _ProgramBatch(containment, program, cases, limits, stop)
        outcomes = batch.run_whole() if program.kind == "stdin" else batch.run_calls()
        if not batch.killed:
            break
    return (*outcomes, *[NOT_REACHED] * (len(cases) - len(outcomes)))


class _ProgramBatch:
    """Runs the cases of one program within a common time limit."""

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

    def run_whole(self) -> list[CaseOutcome]:
        """Run a whole program, in a new process per case."""
        outcomes: list[CaseOutcome] = []
        for number, case in enumerate(self.cases):
            if self._seconds_left() <= 0:
                outcome = self._out_of_time()
            else:
                with Cell(self.containment, self.program, self.limits, self.watch) as cell:
                    cell.send_stdin(case.stdin)
                    status = cell.wait_for_end(self._seconds_left())
                    if status is None and cell.failed:
                        status = self._status_of_death(cell)
                    detail = cell.last_words() if status == Status.RAISED else self._exceeded_limit(status)
                    outcome = CaseOutcome(status=status or Status.RETURNED, stdout=cell.output(), detail=detail)
            outcomes.append(outcome)
            if self.stop(number, outcome):
                break
        return outcomes

    def run_calls(self) -> list[CaseOutcome]:
        """Call the function per case in one process; if the process ends, another one gets the remaining cases."""
        outcomes: list[CaseOutcome] = []
        while len(outcomes) < len(self.cases):
            if self._seconds_left() <= 0:
                return [*outcomes, *[self._out_of_time()] * (len(self.cases) - len(outcomes))]
            with Cell(self.containment, self.program, self.limits, self.watch) as cell:
                failed = self._outcome_of_answer(cell, cell.ask())
                if failed.status != Status.RETURNED:
                    # The program does not load, so every case fails.
                    return [*outcomes, *[failed] * (len(self.cases) - len(outcomes))]
                for number in range(len(outcomes), len(self.cases)):
                    outcome = self._outcome_of_answer(cell, cell.ask(self.cases[number].args))
                    outcomes.append(outcome)
                    if self.stop(number, outcome):
                        return outcomes
                    if outcome.status != Status.RETURNED:
                        break
        return outcomes

    def _outcome_of_answer(self, cell: Cell, nonce: bytes) -> CaseOutcome:
        status = cell.wait_for_answer(self._seconds_left())
        if status is not None:
            return CaseOutcome(status=status, detail=self._exceeded_limit(status))
        if not cell.has_answer():
            return CaseOutcome(status=self._status_of_death(cell), detail=cell.last_words() or "ended unasked")
        try:
            return CaseOutcome(status=Status.RETURNED, value=cell.take_answer(nonce))
        except (ValueError, RecursionError) as error:
            cell.end()
            return CaseOutcome(status=Status.MISSING, detail=f"no answer: {error!s:.200}")

    def _status_of_death(self, cell: Cell) -> Status:
        """Status of a process that ended before its answer. Its own error text decides only which failure it is."""
        self.killed = self.killed or cell.killed
        return Status.MEMORY if cell.last_words().startswith("MemoryError") else Status.RAISED

    def _seconds_left(self) -> float:
        """Time limit of the next case."""
        return min(self.limits.seconds, self.limits.total_seconds - self.watch.look())

    def _out_of_time(self) -> CaseOutcome:
        return CaseOutcome(status=Status.TIMEOUT, detail=f"{self.limits.total_seconds:g} s for all cases")

    def _exceeded_limit(self, status: Status | None) -> str:
        limits, whole = self.limits, self.program.kind == "stdin"
        passed = {
            Status.TIMEOUT: f"more than {limits.seconds:g} s",
            Status.MEMORY: f"more than {limits.memory_mb} MiB",
            Status.OUTPUT_LIMIT: f"more than {limits.output_bytes if whole else limits.value_bytes} bytes",
        }
        return passed.get(status, "") if status else ""
