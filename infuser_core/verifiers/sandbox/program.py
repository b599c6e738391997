"""A program to run in the sandbox, its limits, its outcomes, and the sandbox's own failures."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from infuser_core.errors import InfuserError


class SandboxError(InfuserError, RuntimeError):
    """A sandbox did not start or broke down."""


class SandboxUnavailable(InfuserError, RuntimeError):
    """This host cannot contain untrusted code as asked."""


Kind = Literal["stdin", "call"]


class Status(StrEnum):
    """The end of one case. Only `returned` carries a value or an output."""

    RETURNED = "returned"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Untrusted source code and how it is used."""

    source: str
    """Python source text."""
    kind: Kind = "stdin"
    """stdin: a fresh process per case, run as `__main__`. call: one process, in which `entry` is called per case."""
    entry: str = ""
    """call: a function, or `Class.method` of an instance made afresh per case."""
    setup: str = ""
    """Trusted source that runs before the program, in the same name space."""
    scientific: bool = False
    """Whether it may import numpy and the few other packages of `containment.SCIENTIFIC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input. What the program should make of it is not part of it."""

    stdin: str = ""
    """stdin: whole standard input."""
    args: tuple[Any, ...] = ()
    """call: positional arguments, plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on a program's time, memory, output, files and processes."""

    seconds: float = 6.0
    """Wall clock per case, and for loading a program whose functions are called; without the interpreter's start."""
    total_seconds: float = 300.0
    """Wall clock of all cases together."""
    memory_mb: int = 512
    """Resident memory of all processes together, MiB; one process may reserve 1 GiB more than it touches."""
    output_bytes: int = 16 << 20
    """Standard output of one case."""
    value_bytes: int = 8 << 20
    """One returned value, as tagged JSON."""
    disk_mb: int = 16
    """Files in the working directory, MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """The outcome of one case. Everything here is the program's claim except `status`."""

    status: Status
    """The case's end."""
    value: Any = None
    """call: the returned value, plain data only."""
    stdout: str = ""
    """stdin: whole standard output."""
    detail: str = ""
    """For people: last line of an error, the limit that was hit."""
