"""An engine process without vLLM and without a model, which dies or hangs when told to: tokens are a function of the
seed, and the distribution is uniform.

A prompt that starts with DIE kills the process, one that starts with HANG stops it answering, and one that starts with
TOGETHER ends in the same step as all that wait. SCRIPTED_LOGPROB is the log-probability it claims in place of the
uniform one, SCRIPTED_RELOADED the one that it claims after it took other weights, and SCRIPTED_SECONDS what a response
takes.
"""

import math
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from infuser_core.engines.service.server import Row, main

DIE, HANG, TOGETHER = 63, 62, 61
VOCABULARY = 64


def reply(seed: int, limit: int, ends: list[int]) -> tuple[list[int], str]:
    """Response tokens of a seed, and why they end."""
    draw, tokens = random.Random(seed), []
    while len(tokens) < limit:
        tokens.append(draw.randrange(VOCABULARY))
        if tokens[-1] in ends:
            return tokens, "stop"
    return tokens, "length"


class ScriptedEngine:
    """One response a step, in the order they came; all at once where the next prompt says so."""

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["max_num_seqs"] > 0, "no room"
        self._room = settings["max_num_seqs"]
        assert not Path(settings["model"], "optimizer.safetensors").exists()
        self._waiting: list[tuple[dict[str, Any], str, list[int], int]] = []
        self._awake = True
        assert Path(settings["model"], "model.safetensors").is_file()
        self._logprob = float(os.environ.get("SCRIPTED_LOGPROB") or -math.log(VOCABULARY))

    def facts(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "max_num_seqs": self._room}

    def busy(self) -> bool:
        return bool(self._waiting)

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        self._waiting.append((params, key, prompt, seed))

    def step(self) -> list[Row]:
        assert self._awake, "asleep"
        count = len(self._waiting) if self._waiting[0][2][0] == TOGETHER else 1
        ending, self._waiting = self._waiting[:count], self._waiting[count:]
        return [self._end(*each) for each in ending]

    def _end(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> Row:
        if prompt[0] == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt[0] == HANG:
            time.sleep(600)
        time.sleep(float(os.environ.get("SCRIPTED_SECONDS") or 0))
        tokens, reason = reply(seed, params["max_tokens"], params["stop_token_ids"])
        return Row(key=key, tokens=tokens, logprobs=[self._logprob] * len(tokens), reason=reason)

    def under_way(self) -> int:
        return 0

    def load(self) -> None:
        assert self._awake and Path("model/model.safetensors").is_file()
        self._logprob = float(os.environ.get("SCRIPTED_RELOADED") or self._logprob)

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        return {}

    def sleep(self) -> int:
        self._awake = False
        return 1

    def wake(self) -> None:
        self._awake = True


if __name__ == "__main__":
    main(sys.argv[1:], ScriptedEngine)
