"""Named points where a process can be told to die or to misbehave, so that crash safety is tested for real.

`INFUSER_CRASH_AT=phase:point` sends SIGKILL at the first pass, `phase:point:3` at the third. A word before an `@`
asks for another fault: `raise@judge:inside` fails, `hang@` sleeps, `stuck@` sleeps and hears no signal, `stop@` stops
the process until it gets SIGCONT, `memory@` is want of memory, once, where a trainer asks for it, `until-NAME@` waits
until another thread has passed the point NAME, `until-NAME:2@` for its second pass. `INFUSER_POINTS=FILE` lists the
points that are passed. Unset, a point costs two dictionary look-ups.
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
    """Misbehave here, if the environment asks for it."""
    wanted, listed = os.environ.get("INFUSER_CRASH_AT"), os.environ.get("INFUSER_POINTS")
    if listed:
        with Path(listed).open("a", encoding="utf-8") as handle:
            handle.write(f"{name}\n")
    if not wanted:
        return
    action, _, target = wanted.rpartition("@")
    late = _late(name, target)
    # A repeated stage meets the same fault; only a stop would keep it from ever ending.
    if late == 0 or (late is not None and late > 0 and action != "stop"):
        _misbehave(action or KILL, name)


def runs_out_of_memory(name: str) -> bool:
    """Whether memory is to run out here: at the pass that the environment names, and at no later one."""
    action, _, target = os.environ.get("INFUSER_CRASH_AT", "").rpartition("@")
    return action == "memory" and _late(name, target) == 0


def _late(name: str, target: str) -> int | None:
    """Passes of this point beyond the one that is meant; None where another point is."""
    place, meant = _pass_of(target)
    if place != name:
        return None
    _passes[name] = _passes.get(name, 0) + 1
    return _passes[name] - meant


def _pass_of(target: str) -> tuple[str, int]:
    """A point, and which pass of it is meant."""
    place, _, count = target.rpartition(":")
    return (place, int(count)) if count.isdigit() else (target, 1)


def _misbehave(action: str, name: str) -> None:
    if action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        # Sent to this very thread: a signal to the process may reach another one first, and this one would go on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif action == "raise":
        raise RuntimeError(f"told to fail at {name}")
    elif action.startswith(_UNTIL):
        _wait_for(action.removeprefix(_UNTIL))
    else:
        if action == "stuck":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGINT, signal.SIGTERM})
        time.sleep(3600)


def _wait_for(target: str) -> None:
    """Wait until the list of passed points has the pass. Raises TimeoutError after two minutes."""
    listed, end, (name, meant) = Path(os.environ["INFUSER_POINTS"]), time.monotonic() + _PATIENCE, _pass_of(target)
    while listed.read_text(encoding="utf-8").split().count(name) < meant:
        if time.monotonic() > end:
            raise TimeoutError(f"nothing passed {target} within {_PATIENCE:.0f} s")
        time.sleep(0.01)
