"""Division of a cluster's machines between trainer and samplers; trainer and sampler compute the same one."""

from collections.abc import Sequence
from dataclasses import dataclass

from infuser_core.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster and how a run shares it."""

    address: str
    """`host:port` of its head; `auto` for the cluster of RAY_ADDRESS, or the one that runs on this machine."""
    ranks: int = 1
    """Number of processes of the trainer."""
    turns: bool = False
    """Whether trainer and engines take turns on all machines, or have separate machines or accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A living machine of the cluster."""

    node: str
    """Ray's id of its node."""
    host: str
    cards: int
    """Number of accelerators."""
    cores: int
    """CPU cores that Ray may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a machine."""

    machine: Machine
    ranks: int
    """Number of the trainer's ranks; they take the first accelerators."""
    engines: bool
    """Whether it has engines: on the accelerators without a rank, or on all if they take turns."""


def shares(machines: Sequence[Machine], cluster: Cluster, *, cuda: bool) -> list[Share]:
    """A share for every machine, in order: ranks fill the first machine, which is the driver's, then the next.

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
