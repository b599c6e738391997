"""Named points at which tests make a process die or misbehave.

`INFUSER_CRASH_AT=phase:point` sends SIGKILL at the first pass, `phase:point:3` at the third. A word before an `@`
selects another fault: `raise@judge:inside` raises an error, `hang@` sleeps, `stuck@` sleeps and blocks signals, `stop@`
stops the process until SIGCONT, `memory@` runs out of memory once where a trainer checks for it, `until-NAME@` waits
until another thread has passed the point NAME, `until-NAME:2@` for its second pass. `INFUSER_POINTS=FILE` logs the
passed points. If both are unset, a point costs two dictionary look-ups.
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
    """Misbehave here if the environment requests it."""
    fault, log = os.environ.get("INFUSER_CRASH_AT"), os.environ.get("INFUSER_POINTS")
    if log:
        with Path(log).open("a", encoding="utf-8") as handle:
            handle.write(f"{name}\n")
    if not fault:
        return
    action, _, target = fault.rpartition("@")
    extra_passes = _count_extra_passes(name, target)
    # A repeated stage meets the same fault, except a stop, which would never let it end.
    if extra_passes == 0 or (extra_passes is not None and extra_passes > 0 and action != "stop"):
        _misbehave(action or KILL, name)


def runs_out_of_memory(name: str) -> bool:
    """Whether memory must run out here: only at the pass that the environment requests."""
    action, _, target = os.environ.get("INFUSER_CRASH_AT", "").rpartition("@")
    return action == "memory" and _count_extra_passes(name, target) == 0


def _count_extra_passes(name: str, target: str) -> int | None:
    """Count a pass of this point; returns the passes beyond the target's, None if the target is another point."""
    place, number = _parse_target(target)
    if place != name:
        return None
    _passes[name] = _passes.get(name, 0) + 1
    return _passes[name] - number


def _parse_target(target: str) -> tuple[str, int]:
    """The point of a target, and the number of its pass."""
    place, _, count = target.rpartition(":")
    return (place, int(count)) if count.isdigit() else (target, 1)


def _misbehave(action: str, name: str) -> None:
    if action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        # Sent to this thread: a signal to the process may reach another thread first.
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
