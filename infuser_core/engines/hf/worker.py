"""Worker process of the sampling service that runs the transformers sampler, one group of prompts at a time.

Runs as `python -m infuser_core.engines.hf.worker FD SETTINGS`. Each group is a batch alone, so that its responses are
bit for bit the same on any number of machines.
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
"""Responses that the service sends to an engine at a time: waiting ones cannot move to other engines."""


class HFEngine:
    """service.server.Engine over the transformers sampler."""

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
        """Whether groups of prompts wait to be sampled."""
        return bool(self._waiting)

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        """Queue one response to sample; responses of a group must be added one after another."""
        self._waiting.setdefault(key.partition("/")[0], []).append((params, key, prompt, seed))

    def step(self) -> list[Row]:
        """Sample the responses of the group that has waited longest."""
        rows, sampler = self._waiting.pop(next(iter(self._waiting))), self._awake()
        params, _, prompt, _ = rows[0]
        if forced := params.get(FORCED):
            return [
                Row(
                    key=key,
                    tokens=forced[key],
                    logprobs=sampler.score(prompt, forced[key], temperature=params["temperature"]),
                    reason="length",
                )
                for _, key, *_ in rows
            ]
        group = PromptGroup(group_id="", token_ids=prompt, seeds=[seed for *_, seed in rows])
        sampling = SamplingParams(**{name: value for name, value in params.items() if name != "stop_token_ids"})
        (completions,) = sampler.sample([group], sampling)
        return [
            Row(key=key, tokens=[*each.token_ids], logprobs=[*each.logprobs], reason=each.finish_reason)
            for (_, key, _, _), each in zip(rows, completions, strict=True)
        ]

    def under_way(self) -> int:
        """Return 0: between two steps, no response is in progress."""
        return 0

    def load(self) -> None:
        self._sampler.load(Checkpoint(checkpoint_id="served", role=Role.SOLVER, step=0, path=str(self._folder)))
        self._asleep = False

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        """Compute checksums of the model's tensors in memory."""
        weights = self._awake().weights()
        sums = of_tensors({name: weights[name] for name in shapes if name in weights}, dtype)
        return {name: [checksum] for name, checksum in sums.items()}

    def sleep(self) -> int:
        """Free the memory of the model, which `wake` reads again."""
        self._sampler.sleep()
        self._asleep = True
        return 1

    def wake(self) -> None:
        """Do nothing: the weights are loaded again when they are first needed."""

    def _awake(self) -> HFSampler:
        if self._asleep:
            self.load()
        return self._sampler


if __name__ == "__main__":
    main(sys.argv[1:], HFEngine)
