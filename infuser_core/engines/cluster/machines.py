"""Connect to a Ray cluster, list its machines, and divide them between trainer and samplers.

A process starts or joins Ray once. Trainer and sampler compute the same division.
"""

import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from infuser_core.errors import EngineError

OBJECT_STORE = 512 * 2**20
"""Bytes of Ray's shared memory: rows of a batch pass through it, never weights."""

ANSWER_SECONDS = 10.0
"""Longest wait for a connection to a cluster's head."""

LONGEST_FOLDER = 107 - len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Most bytes of the path of a temporary folder: Ray puts sockets below it, whose paths Linux limits to 107 bytes."""
SHORT_FOLDER = "/tmp"

_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """Address of a Ray cluster, and how trainer and samplers share its machines."""

    address: str
    """`host:port` of its head; `auto` for the cluster of RAY_ADDRESS, or the one that runs on this machine."""
    ranks: int = 1
    """Number of processes of the trainer."""
    turns: bool = False
    """Whether trainer and engines take turns on all machines, or have separate machines or accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A running machine of a Ray cluster, with its accelerators and cores."""

    node: str
    """Ray's id of its node."""
    host: str
    cards: int
    """Number of accelerators."""
    cores: int
    """CPU cores that Ray may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Use of one machine: ranks of the trainer, and whether sampling engines run on it."""

    machine: Machine
    ranks: int
    """Number of the trainer's ranks; they take the first accelerators."""
    engines: bool
    """Whether it has engines: on the accelerators without a rank, or on all if they take turns."""


def connected(cluster: RayCluster | None, *, cores: int) -> Any:
    """Return the module `ray`, connected to the cluster or to a Ray that this process starts with `cores` cores.

    Raises EngineError if no cluster answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lowers the priority of its workers, but ranks are the main work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if cluster is None:
        # Otherwise Ray replaces a loopback address by the machine's own. With this setting it listens on loopback
        # alone, its metrics servers included.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    with _lock:
        if not ray.is_initialized():
            # Started from a thread that lives as long as this process: Linux kills Ray's processes with the thread that
            # started them, and on the main thread Ray would replace the signal handlers. A daemon thread, since the
            # interpreter joins all others before Ray disconnects, which then waits a minute for a dead server.
            start: Future[None] = Future()
            threading.Thread(target=_keep_started, args=(start, ray, cluster, cores), name="ray", daemon=True).start()
            start.result()
    return ray


def living_machines(ray: Any) -> list[Machine]:
    """List the running machines with cores or accelerators: this machine first, the others by host name."""
    here = ray.get_runtime_context().get_node_id()
    alive = [
        Machine(
            node=node["NodeID"],
            host=str(node["NodeManagerHostname"]),
            cards=int(node["Resources"].get("GPU", 0)),
            cores=int(node["Resources"].get("CPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"] and (node["Resources"].get("GPU") or node["Resources"].get("CPU"))
    ]
    return sorted(alive, key=lambda machine: (machine.node != here, machine.host, machine.node))


def shares(machines: Sequence[Machine], cluster: RayCluster, *, cuda: bool) -> list[Share]:
    """Divide the machines, one share each: the trainer's ranks fill the first machine, the driver's, then the next.

    On CPUs, engines avoid the trainer's machines if there are others. Raises EngineError if the ranks do not fit, or
    leave nothing for engines.
    """
    remaining, ranks = cluster.ranks, []
    for machine in machines:
        ranks.append(min(remaining, machine.cards if cuda else machine.cores))
        remaining -= ranks[-1]
    what = "accelerators" if cuda else "CPU cores"
    available = ", ".join(f"{each.host} {each.cards if cuda else each.cores}" for each in machines)
    if remaining:
        raise EngineError(
            f"{cluster.ranks} ranks need as many {what}, and the cluster has {available}",
            hint="set engine.ranks to fewer",
        )
    is_apart = not all(ranks)
    if cuda:
        serving = [cluster.turns or machine.cards > count for machine, count in zip(machines, ranks, strict=True)]
    else:
        serving = [cluster.turns or not (count and is_apart) for count in ranks]
    if not any(serving):
        raise EngineError(
            f"{cluster.ranks} ranks leave none of the cluster's {what} to the sampler ({available})",
            hint="set engine.ranks to fewer, or engine.placement to colocated",
        )
    return [
        Share(machine=machine, ranks=count, engines=engines)
        for machine, count, engines in zip(machines, ranks, serving, strict=True)
    ]


_LOGS = "Ray's logs on that machine say more"


def name_of(ray: Any, node: str) -> str:
    """Return the name of a node's machine: empty for this process's own (weight_transfer.HERE), else the node's id."""
    return "" if node == ray.get_runtime_context().get_node_id() else node


def answer(ray: Any, reference: Any, *, host: str, doing: str, seconds: float) -> Any:
    """Wait for the result of a remote call. Raises the call's EngineError, or an EngineError for any other failure."""
    try:
        return ray.get(reference, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise EngineError(f"{host} has not answered `{doing}` within {seconds:.0f} s", hint=_LOGS) from error
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, EngineError):
            raise cause from error
        raise EngineError(f"{host}: {type(cause).__name__}: {cause}", hint=_LOGS) from error


def strategy_for(machine: Machine) -> Any:
    """Build the scheduling strategy that places an actor on a machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=machine.node, soft=False)


def actor_on(ray: Any, machine: Machine, kind: type, *arguments: Any, group: str = "") -> Any:
    """Start an actor of a class on a machine. Calls of the concurrency group `group` do not queue with the others."""
    groups = {"concurrency_groups": {group: 1}} if group else {}
    actor = ray.remote(max_restarts=0, **groups)(kind)
    return actor.options(num_cpus=0, scheduling_strategy=strategy_for(machine)).remote(*arguments)


def _socket_folder() -> str:
    """Choose the folder of Ray's sockets: Ray's default, or one in `/tmp` if that path is too long for a socket."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        if "RAY_TMPDIR" in os.environ or not os.access(SHORT_FOLDER, os.W_OK | os.X_OK):
            raise EngineError(
                f"{folder} is too long for Ray's sockets: {len(os.fsencode(folder))} bytes, at most {LONGEST_FOLDER}",
                hint="set RAY_TMPDIR to a writable folder with a short path",
            )
        folder = SHORT_FOLDER
    return f"{folder}/ray"


def _keep_started(start: Future[None], ray: Any, cluster: RayCluster | None, cores: int) -> None:
    """Start or join Ray, report it to `start`, and stay alive if it runs."""
    try:
        _start(ray, cluster, cores)
    except BaseException as error:
        start.set_exception(error)
        return
    start.set_result(None)
    threading.Event().wait()


def _start(ray: Any, cluster: RayCluster | None, cores: int) -> None:
    if cluster is None:
        ray.init(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _node_ip_address="127.0.0.1",
            _temp_dir=_socket_folder(),
            log_to_driver=False,
            logging_level="error",
        )
        return
    host, _, port = cluster.address.rpartition(":")
    try:
        if host and port.isdigit():
            # Checked before Ray connects, which would retry for minutes.
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"no Ray cluster answers at {cluster.address!r}: {error}",
            hint="start one with `ray start --head`, and name its host:port in cluster.address",
        ) from error
