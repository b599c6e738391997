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
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM

from infuser_core.engines.service.checksum import of_adapter, of_tensors
from infuser_core.engines.service.server import ADAPTER, FORCED, Row, main
from infuser_core.store.adapter_files import WEIGHTS, read_scale


class PlainEngine:
    """One response a step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._folder, self._dtype = settings["model"], getattr(torch, settings["dtype"])
        self._adapted = settings.get("enable_lora", False)
        self._model = self._working = self._read()
        self._waiting: list[tuple[dict[str, Any], str, list[int], int]] = []

    def _read(self) -> Any:
        if told := os.environ.get("PLAIN_READS"):
            file = Path(ADAPTER, WEIGHTS) if self._adapted else Path(self._folder, "model.safetensors")
            with Path(told).open("a") as log:
                log.write(f"{os.getpid()} {file.readlink()}\n")
        model = AutoModelForCausalLM.from_pretrained(self._folder, dtype=self._dtype, attn_implementation="eager")
        return PeftModel.from_pretrained(model, ADAPTER, autocast_adapter_dtype=False) if self._adapted else model

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
        layer, before = (_layer(model, self._adapted) for model in (self._model, old))
        if spoil == "missing":
            layer.weight.copy_(before.weight)
        elif spoil == "wrong":
            layer.weight.copy_(layer.weight.flip(0))
        elif spoil == "untied":
            self._model.lm_head.weight = nn.Parameter(old.lm_head.weight.clone())
        self._working = old if spoil == "stale" else self._model

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        found = {
            name.replace(".default.", ".").replace(".base_layer.", "."): each
            for name, each in self._model.named_parameters(remove_duplicate=False)
        }
        adapter = {name: each for name, each in found.items() if ".lora_" in name}
        held = {name.removeprefix("base_model.model."): each for name, each in found.items() if name not in adapter}
        sums = of_tensors({name: each for name, each in held.items() if name in shapes}, dtype)
        if adapter:
            sums |= of_adapter(adapter, dtype, scale=read_scale(Path(ADAPTER)))
        return {name: [one] for name, one in sums.items()}

    def sleep(self) -> int:
        """At the level of PLAIN_LEVEL; level 2 takes the weights."""
        level = int(os.environ.get("PLAIN_LEVEL", "1"))
        if level == 2:
            with torch.no_grad():
                for parameter in self._model.parameters():
                    parameter.zero_()
        return level

    def wake(self) -> None:
        """Nothing to take."""


def _layer(model: Any, adapted: bool) -> Any:
    """The layer that is spoiled: of the model, or A of its adapter."""
    if not adapted:
        return model.model.layers[0].self_attn.o_proj
    return model.base_model.model.model.layers[0].self_attn.o_proj.lora_A.default


if __name__ == "__main__":
    main(sys.argv[1:], PlainEngine)
