"""The transformers sampler as a process of the sampling service: one group of prompts at a time.

Runs as `python -m infuser_core.engines.hf.worker FD SETTINGS`. A group's responses depend on nothing that other groups
share a batch with, so that they are the same bits on any number of machines.
"""

import os
import sys
from pathlib import Path
from typing import Any

from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.service.checksum import of_tensors
from infuser_core.engines.service.server import FORCED, Row, main
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint, Role

ROOM = 64
"""Responses that the engine is given at a time: what waits here is lost to the others."""


class HFEngine:
    """See service.server.Engine."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._folder = Path(settings["model"])
        self._sampler = HFSampler(
            dtype=settings["dtype"],
            device=settings["device"],
            deterministic=settings["deterministic"],
            threads=int(os.environ["OMP_NUM_THREADS"]),
        )
        self._waiting: dict[str, list[tuple[dict[str, Any], str, list[int], int]]] = {}
        self._asleep = False
        self.load()

    def facts(self) -> dict[str, Any]:
        return {**self._sampler.facts(), "max_num_seqs": ROOM}

    def busy(self) -> bool:
        """Whether groups wait."""
        return bool(self._waiting)

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        """Take one more response; those of a group come together."""
        self._waiting.setdefault(key.partition("/")[0], []).append((params, key, prompt, seed))

    def step(self) -> list[Row]:
        """The group that has waited longest."""
        rows, sampler = self._waiting.pop(next(iter(self._waiting))), self._awake()
        params, _, prompt, _ = rows[0]
        if forced := params.get(FORCED):
            found = {key: sampler.score(prompt, forced[key], temperature=params["temperature"]) for _, key, *_ in rows}
            return [Row(key=key, tokens=forced[key], logprobs=found[key], reason="length") for key in found]
        group = PromptGroup(group_id="", token_ids=prompt, seeds=[seed for *_, seed in rows])
        own = SamplingParams(**{name: value for name, value in params.items() if name != "stop_token_ids"})
        (drawn,) = sampler.sample([group], own)
        return [
            Row(key=key, tokens=[*each.token_ids], logprobs=[*each.logprobs], reason=each.finish_reason)
            for (_, key, _, _), each in zip(rows, drawn, strict=True)
        ]

    def under_way(self) -> int:
        """Nothing is half done between two steps."""
        return 0

    def load(self) -> None:
        self._sampler.load(Checkpoint(checkpoint_id="served", role=Role.SOLVER, step=0, path=str(self._folder)))
        self._asleep = False

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        """Of the model's tensors as they lie in memory."""
        held = self._awake().weights()
        found = of_tensors({name: held[name] for name in shapes if name in held}, dtype)
        return {name: [one] for name, one in found.items()}

    def sleep(self) -> None:
        """Give the memory back."""
        self._sampler.sleep()
        self._asleep = True

    def wake(self) -> None:
        """Nothing yet: the weights come back when they are asked for, and not at all where others follow."""

    def _awake(self) -> HFSampler:
        if self._asleep:
            self.load()
        return self._sampler


if __name__ == "__main__":
    main(sys.argv[1:], HFEngine)
