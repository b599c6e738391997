"""Waits until all machines of a job have joined its Ray cluster, and names those that are late.

Runs as `python -m infuser_core.engines.cluster.wait ADDRESS SECONDS HOST...` on the machine with the cluster's head.
"""

import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address

from infuser_core.errors import EngineError

_LOOK = 1.0
"""Seconds between two looks."""


def wait_for(hosts: Sequence[str], joined: Callable[[], Iterable[str]], *, seconds: float) -> None:
    """Return when every host is among those that joined. Raises EngineError with the late ones after `seconds`."""
    deadline = time.monotonic() + seconds
    while late := missing(hosts, joined()):
        if time.monotonic() > deadline:
            raise EngineError(
                f"{len(late)} of {len(hosts)} machines have not joined Ray within {seconds:.0f} s: {', '.join(late)}",
                hint="the log of their `ray start` says why; leave them out of the job, or allow more seconds",
            )
        time.sleep(_LOOK)


def missing(hosts: Sequence[str], joined: Iterable[str]) -> list[str]:
    """Hosts that have not joined, in order, by name or address; a name counts with its domain and without."""
    there = {_short(name) for name in joined}
    return [host for host in hosts if _short(host) not in there]


def _short(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.partition(".")[0].lower()


class Cluster:
    """A Ray cluster that may not be up yet."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connected = False

    def hosts(self) -> list[str]:
        """Names and addresses of its living machines; none before its head listens."""
        import ray

        if not self._connected:
            host, _, port = self._address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=_LOOK).close()
                ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, RuntimeError):
                # Nobody listens, or the head listens and its own machine is not registered yet.
                return []
            self._connected = True
        names = ("NodeManagerHostname", "NodeManagerAddress")
        return [str(node[name]) for node in ray.nodes() if node["Alive"] for name in names]


def main(arguments: Sequence[str]) -> int:
    """Wait as the command line says; the exit code."""
    address, seconds, *hosts = arguments
    try:
        wait_for(hosts, Cluster(address).hosts, seconds=float(seconds))
    except EngineError as error:
        with suppress(BrokenPipeError):
            sys.stderr.write(f"infuser: {error.message}\n  hint: {error.hint}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
