"""A trainer and engines on the machines of a Ray cluster: three changes of weights, and what they went through.

Runs as `python handing_driver.py ADDRESS FOLDER RANKS TURNS`, with 0 ranks for the local trainer. A line of JSON
in FOLDER/told for each change: way of the weights, starts, findings of the proof, and what engines drew with them. In
the environment HANDING_FILES leaves the memory alone, HANDING_HOLE forgets the copies to other machines, HANDING_STAY
waits at the end.
"""

import json
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distributed_tiny import local, ranks, saved, step
from engine_tiny import make_checkpoint

from infuser_core.engines.cluster.machines import RayCluster
from infuser_core.engines.cluster.remote_memory import ClusterMemory
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.engines.service.weight_transfer import Board
from infuser_core.protocols import PromptGroup, SamplingParams

GROUPS = [PromptGroup(group_id=str(place), token_ids=[3 + place, 5, 9], seeds=[place, 7]) for place in range(6)]


class Forgetful(ClusterMemory):
    """Copies nothing."""

    def _copy(self, source: Any, targets: Any) -> None:
        assert targets


def changes(address: str, folder: Path, count: int, turns: bool) -> None:
    """The first is that of fresh engines."""
    cluster = RayCluster(address=address, ranks=count or 1, turns=turns)
    board = Board("float32", (Forgetful if os.environ.get("HANDING_HOLE") else ClusterMemory)(cluster).fill)
    boards: dict[str, Any] = {} if os.environ.get("HANDING_FILES") else {"board": board}
    anchor = make_checkpoint(folder / "first")
    sampler = ServiceSampler(
        dtype="float32",
        device="cpu",
        threads=1,
        worker=os.environ.get("HANDING_WORKER", "plain_engine"),
        cluster=cluster,
        **boards,
    )
    sampler.load(anchor)
    if count:
        trainer: Any = ranks(count, 3, cluster=cluster, **boards)
        trainer.load(anchor)
    else:
        trainer = local(anchor, **boards)
    tell(sampler, folder, anchor.path)
    for number in range(2):
        step(trainer, number)
        after = saved(trainer, folder / f"after {number}")
        sampler.load(after)
        tell(sampler, folder, after.path)
    if os.environ.get("HANDING_STAY"):
        sys.stdin.read()
    sampler.close()


def tell(sampler: ServiceSampler, folder: Path, path: str) -> None:
    """The line of a change."""
    drawn = sampler.sample(GROUPS, SamplingParams(temperature=0.7, max_tokens=12))
    line = {
        "checkpoint": Path(path).name,
        "channel": sampler.channel,
        "starts": sampler.starts,
        "engines": sampler.pids,
        "agreements": [asdict(each) for each in sampler.agreements],
        "drawn": [[[*row.token_ids], [*row.logprobs]] for rows in drawn for row in rows],
    }
    with (folder / "told").open("a") as told:
        told.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("always")
    changes(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), bool(int(sys.argv[4])))
