"""Random models and groups of the shapes the influence benchmark measures."""

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from objectives import objective as objective
from stock_engines import hf_sampler as hf_sampler
from stock_engines import local_trainer as local_trainer

from infuser_core.algorithm.preset import Objective
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.training.packing import Packer, Segment, runs_within
from infuser_core.protocols import TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Qwen3 of random weights."""

    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


NANO = Shape(hidden=128, layers=3, ffn=384, heads=4, kv_heads=2, head_dim=32, vocabulary=649)
MIDDLE = Shape(hidden=384, layers=8, ffn=1152, heads=6, kv_heads=3, head_dim=64, vocabulary=4096)
SHAPES = {
    "qwen3-0.6b": Shape(hidden=1024, layers=28, ffn=3072, heads=16, kv_heads=8, head_dim=128, vocabulary=151_936),
    "qwen3-0.6b-short": Shape(hidden=1024, layers=4, ffn=3072, heads=16, kv_heads=8, head_dim=128, vocabulary=151_936),
    "qwen3-1.7b": Shape(hidden=2048, layers=28, ffn=6144, heads=16, kv_heads=8, head_dim=128, vocabulary=151_936),
    "qwen3-4b": Shape(hidden=2560, layers=36, ffn=9728, heads=32, kv_heads=8, head_dim=128, vocabulary=151_936),
    "tiny": Shape(hidden=32, layers=2, ffn=64, heads=4, kv_heads=2, head_dim=8, vocabulary=300),
}


class Repeating(Packer):
    """Gives every response its own copy of the prompt."""

    def plan(self, groups: Sequence[TrainGroup], *, only_trained: bool = True) -> list[list[Segment]]:
        shared = [segment for batch in super().plan(groups, only_trained=only_trained) for segment in batch]
        single = [
            replace(segment, places=[place], rows=[row])
            for segment in shared
            for place, row in zip(segment.places, segment.rows, strict=True)
        ]
        return runs_within(single, self.token_budget, lambda segment: segment.num_tokens)


def config_of(shape: Shape) -> Qwen3Config:
    """The configuration of a shape."""
    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        eos_token_id=1,
        bos_token_id=None,
        pad_token_id=0,
    )


def make_checkpoint(folder: Path, shape: Shape) -> Checkpoint:
    """An anchor of the shape in `folder`, with AdamW state at zero."""
    torch.manual_seed(0)
    Qwen3ForCausalLM(config_of(shape)).save_pretrained(folder / "source")
    prepare_anchor(folder / "source", folder / "anchor")
    return Checkpoint(checkpoint_id="anchor", role="solver", path=str(folder / "anchor"), step=0)


def make_groups(
    count: int, *, prompt: int, rows: int, response: int, vocabulary: int, seed: int = 0, spread: int = 0
) -> list[TrainGroup]:
    """Groups of rewards 0 and 1, never flat; response lengths vary by `spread` tokens to either side."""
    draw = random.Random(seed)

    def tokens(length: int) -> list[int]:
        return [draw.randrange(2, vocabulary) for _ in range(length)]

    groups = []
    for place in range(count):
        rewards = [0, 1, *(draw.randrange(2) for _ in range(rows - 2))]
        mean = sum(rewards) / rows
        members = []
        for reward in rewards:
            length = response + draw.randint(-spread, spread)
            logprob = -float(torch.tensor(float(vocabulary)).log())
            members.append(
                TrainRow(token_ids=tokens(length), advantage=reward - mean, sampler_logprobs=[logprob] * length)
            )
        groups.append(TrainGroup(group_id=f"q{place}", prompt_token_ids=tokens(prompt), rows=members))
    return groups


class Trainers:
    """Trainers of one checkpoint in the same state: a reference gradient and one step behind them."""

    def __init__(self, folder: Path, shape: Shape, *, objective: Objective) -> None:
        self._checkpoint = make_checkpoint(folder, shape)
        self._shape = shape
        self.objective = objective
        self.reference = folder / "reference.safetensors"

    def make(self, *, repeated_prompts: bool = False, **options: Any) -> LocalTrainer:
        """A trainer with these options. The first one made writes the reference gradient."""
        trainer = local_trainer(**{"dtype": "float32"} | options)
        if repeated_prompts:
            trainer._packer = Repeating(**{each.name: getattr(trainer._packer, each.name) for each in fields(Packer)})
        trainer.load(self._checkpoint)
        if not self.reference.is_file():
            dev = make_groups(8, prompt=24, rows=4, response=12, vocabulary=self._shape.vocabulary, seed=101)
            trainer.forward_backward(dev, self.objective, denominator=len(dev))
            trainer.keep_gradient(self.reference)
            trainer.zero_grad()
        start = make_groups(4, prompt=24, rows=4, response=12, vocabulary=self._shape.vocabulary, seed=102)
        trainer.forward_backward(start, self.objective, denominator=len(start))
        trainer.optim_step(1e-4)
        trainer.zero_grad()
        return trainer


def seconds(work: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each piece of work, its repeats taking turns with the others'; one warm-up round."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name, run in work.items():
            start = time.process_time()
            run()
            if turn:
                found[name].append(time.process_time() - start)
    return {name: median(values) for name, values in found.items()}
