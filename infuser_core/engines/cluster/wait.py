"""Wait until all machines of a job have joined its Ray cluster, and name those that are late.

Runs as `python -m infuser_core.engines.cluster.wait ADDRESS SECONDS HOST...` on the cluster's head machine.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address

from infuser_core.engines.cluster.machines import RayCluster, connected
from infuser_core.errors import EngineError

_LOOK = 1.0
"""Time between two checks, seconds."""


def wait_for(hosts: Sequence[str], joined: Callable[[], Iterable[str]], *, seconds: float) -> None:
    """Wait until every host has joined. Raises EngineError with the missing hosts after `seconds`."""
    deadline = time.monotonic() + seconds
    while late := missing(hosts, joined()):
        if time.monotonic() > deadline:
            raise EngineError(
                f"{len(late)} of {len(hosts)} machines have not joined Ray within {seconds:.0f} s: {', '.join(late)}",
                hint="the log of their `ray start` says why; leave them out of the job, or allow more seconds",
            )
        time.sleep(_LOOK)


def missing(hosts: Sequence[str], names: Iterable[str]) -> list[str]:
    """List the hosts that have not joined, in order, by name or address; the domain of a name is ignored."""
    short_names = {_short(name) for name in names}
    return [host for host in hosts if _short(host) not in short_names]


def _short(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.partition(".")[0].lower()


def living_hosts(address: str) -> list[str]:
    """List the names and addresses of a cluster's living machines; empty while its head does not answer."""
    try:
        ray = connected(RayCluster(address=address), cores=1)
    except EngineError:
        return []
    names = ("NodeManagerHostname", "NodeManagerAddress")
    return [str(node[name]) for node in ray.nodes() if node["Alive"] for name in names]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    address, seconds, *hosts = arguments
    try:
        wait_for(hosts, partial(living_hosts, address), seconds=float(seconds))
    except EngineError as error:
        with suppress(BrokenPipeError):
            sys.stderr.write(f"infuser: {error.message}\n  hint: {error.hint}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
