"""Fault injection for tests: named points in the code at which a process can be killed or made to misbehave.

`INFUSER_CRASH_AT=phase:point` sends SIGKILL when the point is first passed, `phase:point:3` at the third pass. A word
before an `@` selects another fault: `raise@judge:inside` raises an error, `hang@` sleeps, `stuck@` sleeps and blocks
signals, `stop@` stops the process until SIGCONT, `memory@` simulates lack of memory once where an engine checks for it,
`until-NAME@` waits until another thread has passed the point NAME, `until-NAME:2@` until its second pass.
`INFUSER_POINTS=FILE` logs the passed points. If both are unset, a point costs two dictionary look-ups.
"""

import os
import signal
import threading
import time
from pathlib import Path

KILL = "kill"
_UNTIL = "until-"
_PATIENCE = 120.0
_passes: dict[str, int] = {}


def point(name: str) -> None:
    """Mark a point of the code, at which the process misbehaves if the environment variables request it."""
    fault, log = os.environ.get("INFUSER_CRASH_AT"), os.environ.get("INFUSER_POINTS")
    if log:
        with Path(log).open("a", encoding="utf-8") as handle:
            handle.write(f"{name}\n")
    if not fault:
        return
    action, _, target = fault.rpartition("@")
    extra_passes = _count_extra_passes(name, target)
    # Repeat the fault when the stage is repeated, except `stop`: a stage that stops every time would never end.
    if extra_passes == 0 or (extra_passes is not None and extra_passes > 0 and action != "stop"):
        _misbehave(action or KILL, name)


def variables() -> dict[str, str]:
    """Return the environment variables that request faults, for a process that does not inherit them."""
    return {name: os.environ[name] for name in ("INFUSER_CRASH_AT", "INFUSER_POINTS") if name in os.environ}


def runs_out_of_memory(name: str) -> bool:
    """Whether the caller must simulate lack of memory at this point: only at the pass that is requested."""
    action, _, target = os.environ.get("INFUSER_CRASH_AT", "").rpartition("@")
    return action == "memory" and _count_extra_passes(name, target) == 0


def _count_extra_passes(name: str, target: str) -> int | None:
    """Count a pass of this point; returns passes minus the requested number, None if the target is another point."""
    place, number = _parse_target(target)
    if place != name:
        return None
    _passes[name] = _passes.get(name, 0) + 1
    return _passes[name] - number


def _parse_target(target: str) -> tuple[str, int]:
    """Split a target into the name of the point and the number of the pass, by default 1."""
    place, _, count = target.rpartition(":")
    return (place, int(count)) if count.isdigit() else (target, 1)


def _misbehave(action: str, name: str) -> None:
    if action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        # Send the signal to this thread: sent to the process, it may reach another thread first.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif action == "raise":
        raise RuntimeError(f"told to fail at {name}")
    elif action.startswith(_UNTIL):
        target = action.removeprefix(_UNTIL)
        other, number = _parse_target(target)
        log, deadline = Path(os.environ["INFUSER_POINTS"]), time.monotonic() + _PATIENCE
        while log.read_text(encoding="utf-8").split().count(other) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing passed {target} within {_PATIENCE:.0f} s")
            time.sleep(0.01)
    else:
        if action == "stuck":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGINT, signal.SIGTERM})
        time.sleep(3600)
