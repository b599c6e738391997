"""Programs to run in the sandbox, their limits and outcomes, and errors of the sandbox itself."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from infuser_core.errors import InfuserError


class SandboxError(InfuserError, RuntimeError):
    """Error: a sandbox did not start or failed, which says nothing about the program."""


class SandboxUnavailable(InfuserError, RuntimeError):
    """Error: this host cannot run untrusted code in the configured sandbox."""


Kind = Literal["stdin", "call"]


class Status(StrEnum):
    """The way in which a case ended. Only `returned` has a value or an output."""

    RETURNED = "returned"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Untrusted Python source and how to run it."""

    source: str
    kind: Kind = "stdin"
    """stdin: a new process per case, run as `__main__`. call: one process, in which `entry` is called per case."""
    entry: str = ""
    """call: a function, or `Class.method` of a new instance per case."""
    setup: str = ""
    """Trusted source that runs before the program in the same namespace."""
    scientific: bool = False
    """Whether the program may import numpy and the few other packages of `containment.SCIENTIFIC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test input, without the expected output."""

    stdin: str = ""
    args: tuple[Any, ...] = ()
    """call: positional arguments, plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on a program's time, memory, output, files and processes."""

    seconds: float = 6.0
    """Wall-clock time per case, and to load a program whose function is called; without the interpreter's start."""
    total_seconds: float = 300.0
    """Wall-clock time of all cases together."""
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
    """The outcome of one case. Everything but `status` is only the program's claim."""

    status: Status
    value: Any = None
    """call: the returned value, plain data."""
    stdout: str = ""
    detail: str = ""
    """Last line of the error, or the limit that was exceeded; for display only."""
