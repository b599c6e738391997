"""Costs of a stage's passes over a trainer, as rows: time, tokens, FLOPs and memory.

FLOPs are those of the model: the matrix products of its layers for every token, attention over the pairs of a causal
sequence, and the output layer for response tokens. A prompt counts once per group, a gradient as three forward passes
(two with adapters, whose model needs no gradient), the optimizer and recomputed activations not at all.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from infuser_core.errors import ConfigError
from infuser_core.memory.hardware import find_gpu
from infuser_core.memory.shape import Shape, gradient_passes, read_shape
from infuser_core.protocols import TrainGroup
from infuser_core.schemas import Checkpoint, StepCost
from infuser_core.store.adapter_files import base_folder

STEP, TRIAL, GRADIENT, SCORING, LOGPROBS = "step", "trial", "gradient", "scoring", "logprobs"
"""Kinds of passes: a gradient with an optimizer step, one whose step a load undid, one without a step, influence
scores, and log-probabilities."""

_costs: ContextVar[list[StepCost] | None] = ContextVar("step_costs", default=None)


@contextmanager
def record_costs() -> Iterator[list[StepCost]]:
    """List the costs of the passes of this thread's trainers in the block."""
    costs: list[StepCost] = []
    token = _costs.set(costs)
    try:
        yield costs
    finally:
        _costs.reset(token)


class CostMeter:
    """Measures the passes of a trainer that one phase uses.

    The time of a row begins where that of the row before it ends, so that a phase's rows leave no gap.
    """

    def __init__(self, engine: Any, checkpoint: Checkpoint) -> None:
        self._engine = engine
        costs = _costs.get()
        self._rows = [] if costs is None else costs
        self._began = time.perf_counter()
        self._take_use()
        self.restart(checkpoint)

    def restart(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint that was loaded: steps since then become trials, as their weights are gone."""
        self._rows[:] = [replace(row, work=TRIAL) if row.work == STEP else row for row in self._rows]
        self._role, self._step = str(checkpoint.role), checkpoint.step
        folder = Path(checkpoint.path)
        base = base_folder(folder)
        self._gradient_passes = gradient_passes(adapters=base is not None)
        self._shape: Shape | None = None
        # The planner does not know every kind of model: its FLOPs are null.
        with suppress(ConfigError):
            self._shape = read_shape(base or folder)
        self._clear()

    def add(self, groups: Sequence[TrainGroup], *, gradient: bool = True, only_trained: bool = True) -> None:
        """Count the tokens and FLOPs of a pass over groups; `only_trained` leaves out rows whose advantage is 0."""
        passes = self._gradient_passes if gradient else 1
        for group in groups:
            rows = [row for row in group.rows if row.advantage or not only_trained]
            lengths = [length for row in rows if (length := len(row.token_ids))]
            self._num_tokens += sum(len(row.token_ids) for row in group.rows)
            if lengths:
                prompt = len(group.prompt_token_ids)
                self._computed += prompt + sum(lengths)
                self._flops += passes * self._shape.group_flops(prompt, lengths) if self._shape else 0.0
        self._is_open = True

    def close(self, work: str, *, norm: float = math.nan) -> None:
        """Add the row of the passes since the last one, if there were any; a finite `norm` is that of a step taken."""
        if not self._is_open:
            return
        use = self._take_use()
        now = time.perf_counter()
        seconds, self._began = now - self._began, now
        self._step += math.isfinite(norm)
        facts = self._engine.facts() if hasattr(self._engine, "facts") else {}
        device = str(facts.get("device", ""))
        gpu = find_gpu(device)
        flops = self._flops if self._shape else None
        rate = None if flops is None else flops / seconds
        self._rows.append(
            StepCost(
                role=self._role,
                work=work,
                step=self._step,
                num_tokens=self._num_tokens,
                computed_tokens=self._computed,
                seconds=seconds,
                tokens_per_second=self._computed / seconds,
                flops=flops,
                flops_per_second=rate,
                mfu=rate / (gpu.flops * facts.get("ranks", 1)) if gpu and rate is not None else None,
                idle_share=None if use is None else max(0.0, 1.0 - use.seconds / seconds),
                peak_memory=None if use is None else use.peak_memory,
                device=device,
            )
        )
        self._clear()

    def _clear(self) -> None:
        self._num_tokens, self._computed, self._flops, self._is_open = 0, 0, 0.0, False

    def _take_use(self) -> Any:
        return self._engine.take_use() if hasattr(self._engine, "take_use") else None
