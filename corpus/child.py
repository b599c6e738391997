"""Runs work on hostile files in a short-lived process with limits: PDFium parses untrusted bytes in C.

`python -m corpus.child MODULE:FUNCTION` reads one JSON object from standard input, calls the function with it and
writes its result as JSON.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import DocumentError

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child process may use."""

    wall_seconds: float = 600.0
    """Time until the process group is killed, seconds."""
    cpu_seconds: int = 600
    """Processor time, seconds."""
    memory_bytes: int = 2 << 30
    """Address space, bytes."""


def call(function: str, argument: dict[str, Any], limits: Limits) -> Any:
    """The JSON result of `module:function` called with `argument` in a limited process.

    Raises DocumentError when the process crashes, exceeds a limit or reports an error of its own.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "corpus.child", function, str(limits.cpu_seconds), str(limits.memory_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Nothing of the parent's environment (tokens, proxies) is for a process that may be taken over.
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    try:
        out, err = process.communicate(json.dumps(argument).encode(), timeout=limits.wall_seconds)
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            f"{function}: still running after {limits.wall_seconds:g} s", hint="raise the wall limit or drop the file"
        ) from error
    finally:
        kill_group(process)
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or [f"exit status {process.returncode}"]
        raise DocumentError(f"{function}: {lines[-1][:300]}", hint="the file is damaged or needs more than the limits")
    return json.loads(out)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything it started, then collect it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _limit(cpu_seconds: int, memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Entry of the child."""
    function, cpu_seconds, memory_bytes = sys.argv[1:4]
    _limit(int(cpu_seconds), int(memory_bytes))
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
    sys.stdout.buffer.write(json.dumps(result).encode())


if __name__ == "__main__":
    main()
