"""Named points where a process can be told to die, so that crash safety is tested by real SIGKILLs.

`INFUSER_CRASH_AT=phase:point` kills at the first pass, `phase:point:3` at the third. Unset, a point costs one
dictionary look-up.
"""

import os
import signal

_passes: dict[str, int] = {}


def point(name: str) -> None:
    """Die here, uncleanly, if the environment asks for it."""
    wanted = os.environ.get("INFUSER_CRASH_AT")
    if not wanted:
        return
    target, _, count = wanted.rpartition(":")
    if not count.isdigit():
        target, count = wanted, "1"
    if target != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] >= int(count):
        os.kill(os.getpid(), signal.SIGKILL)
