"""An engine process that computes with transformers' own model, and that can take new weights badly.

PLAIN_SPOIL says how: one matrix `missing` or `wrong`, the second layer of a tied one `untied`, or everything right but
the model that it goes on to compute with (`stale`). PLAIN_READS names a file that tells where weights were read from:
a line of process, machine's file in memory or else the checkpoint's, for each.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from engine_tiny import stock_logprobs
from torch import nn
from transformers import AutoModelForCausalLM

from infuser_core.engines.service.checksum import of_tensors
from infuser_core.engines.service.server import FORCED, Row, main


class PlainEngine:
    """One response a step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._folder, self._dtype = settings["model"], getattr(torch, settings["dtype"])
        self._model = self._working = self._read()
        self._waiting: list[tuple[dict[str, Any], str, list[int], int]] = []

    def _read(self) -> Any:
        if told := os.environ.get("PLAIN_READS"):
            with Path(told).open("a") as log:
                log.write(f"{os.getpid()} {Path(self._folder, 'model.safetensors').readlink()}\n")
        return AutoModelForCausalLM.from_pretrained(self._folder, dtype=self._dtype, attn_implementation="eager")

    def facts(self) -> dict[str, Any]:
        return {"max_num_seqs": 16}

    def busy(self) -> bool:
        return bool(self._waiting)

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        self._waiting.append((params, key, prompt, seed))

    @torch.inference_mode()
    def step(self) -> list[Row]:
        params, key, prompt, seed = self._waiting.pop(0)
        if FORCED in params:
            tokens = params[FORCED][key]
        else:
            tokens = [(seed * 7 + place) % 60 + 2 for place in range(params["max_tokens"] - seed)]
        logprobs = stock_logprobs(self._working, prompt, tokens, params["temperature"])
        return [Row(key=key, tokens=tokens, logprobs=logprobs.tolist(), reason="length")]

    def under_way(self) -> int:
        return 0

    @torch.no_grad()
    def load(self) -> None:
        old, self._model, spoil = self._model, self._read(), os.environ.get("PLAIN_SPOIL", "")
        layer, before = self._model.model.layers[0].self_attn.o_proj, old.model.layers[0].self_attn.o_proj
        if spoil == "missing":
            layer.weight.copy_(before.weight)
        elif spoil == "wrong":
            layer.weight.copy_(layer.weight.flip(0))
        elif spoil == "untied":
            self._model.lm_head.weight = nn.Parameter(old.lm_head.weight.clone())
        self._working = old if spoil == "stale" else self._model

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        held = dict(self._model.named_parameters(remove_duplicate=False))
        return {name: [one] for name, one in of_tensors({name: held[name] for name in shapes}, dtype).items()}

    def sleep(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """Nothing to take."""


if __name__ == "__main__":
    main(sys.argv[1:], PlainEngine)
