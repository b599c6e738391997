"""Base class of trainers in one process: packed passes, optimizer steps, influence scores and checkpoint files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import options_of
from infuser_core.engines.training.checkpoint import (
    MOMENTS,
    Tensors,
    TrainerState,
    fill_tensors,
    read_reference,
    write_checkpoint,
    write_tensors,
)
from infuser_core.engines.training.compute_clock import ComputeClock, DeviceUse
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.loss import PassTally, Policy, forward_terms, order_logprobs, probe_result
from infuser_core.engines.training.optimizer import OptimizerSetting, build_optimizer
from infuser_core.engines.training.packing import Packer
from infuser_core.errors import EngineError
from infuser_core.protocols import ProbeResult, Progress, StepReport, TrainGroup, no_progress
from infuser_core.system import fault_points as faults

Result = TypeVar("Result")


class FlatTrainer:
    """protocols.Trainer over flat parameters, without `load`: subclasses define it and call `_hold` at its end."""

    _packer: Packer
    _clock: ComputeClock

    def __init__(self, optimizer: OptimizerSetting, *, write_beside: bool = False) -> None:
        self._options, self._write_beside = options_of(optimizer), write_beside
        self._folder: Path | None = None
        self._accumulated = False

    def _hold(
        self,
        policy: Policy,
        flat: FlatParameters,
        state: TrainerState,
        folder: Path,
        *,
        adapter: bool = False,
        buffers: Tensors | None = None,
    ) -> None:
        """Complete the load of a checkpoint folder, whose weights, or only its adapters, are already in `flat`.

        `buffers` are fixed tensors that every checkpoint contains in addition.
        """
        self._policy, self._flat, self._adapter, self._buffers = policy, flat, adapter, buffers or {}
        self._optimizer = build_optimizer(flat, self._options)
        self._optimizer.steps = state.step
        fill_tensors(self._optimizer.state(), folder / MOMENTS)
        self._folder = folder

    def zero_grad(self) -> None:
        self._loaded()
        self._flat.gradient.zero_()
        self._accumulated = False

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        """Accumulate the gradient of -J (eq:unified_obj); rows without a gradient only count in their group's n."""
        self._loaded()
        report = self._run_pass(lambda: self._accumulate(groups, objective, denominator, progress), groups)
        self._accumulated = True
        return report

    def _accumulate(
        self, groups: Sequence[TrainGroup], objective: Objective, denominator: int, progress: Progress
    ) -> StepReport:
        total, tally = sum(len(group.rows) for group in groups), PassTally()
        for segments in self._packer.plan(groups, only_trained=objective.only_credited):
            if faults.runs_out_of_memory("trainer:micro_batch"):
                raise torch.OutOfMemoryError("injected: out of memory")
            batch = self._packer.pack(segments)
            with self._clock.computing():
                terms, _ = forward_terms(self._policy, batch, objective, denominator)
                terms.loss.backward()
            tally.note(segments, terms=terms)
            progress(tally.rows, total, tally.tokens)
        progress(total, total, tally.tokens)
        return tally.sums().report(groups)

    def optim_step(self, learning_rate: float) -> float:
        self._loaded()
        with self._clock.computing():
            return self._optimizer.step(learning_rate)

    def below_epsilon(self) -> float:
        self._loaded()
        return self._optimizer.below_epsilon()

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[Sequence[float]]]:
        self._loaded()

        @torch.no_grad()
        def compute() -> list[list[Sequence[float]]]:
            total, tally = sum(len(group.rows) for group in groups), PassTally()
            for segments in self._packer.plan(groups, only_trained=False):
                batch = self._packer.pack(segments)
                with self._clock.computing():
                    logprobs_S = self._policy.logprobs(batch, temperature=temperature)
                tally.note(segments, logprobs_S=logprobs_S)
                progress(tally.rows, total, tally.tokens)
            return order_logprobs(groups, tally.logprobs)

        return self._run_pass(compute, groups, writes_gradient=False)

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> ProbeResult:
        """Compare the optimizer's direction for each group alone with `reference` (eq:adamw_moments); see Trainer."""
        self.zero_grad()
        direction = torch.zeros_like(self._flat.gradient)
        read_reference(reference, self._flat.views(direction))
        return self._run_pass(lambda: self._score(groups, objective, direction, progress), groups)

    def _score(
        self, groups: Sequence[TrainGroup], objective: Objective, direction: Tensor, progress: Progress
    ) -> ProbeResult:
        gradient, tally = self._flat.gradient, PassTally()
        sums = torch.zeros(len(groups), 4, dtype=torch.float64, device=gradient.device)
        for count, (place, batches) in enumerate(self._packer.plan_alone(groups), 1):
            for segments in batches:
                batch = self._packer.pack(segments)
                with self._clock.computing():
                    terms, logprobs_S = forward_terms(self._policy, batch, objective, 1)
                    terms.loss.backward()
                tally.note(segments, logprobs_S=logprobs_S)
            if batches:
                with torch.no_grad(), self._clock.computing():
                    sums[place] = self._optimizer.sums(gradient, direction)
                    gradient.zero_()
            progress(count, len(groups), tally.tokens)
        return probe_result(groups, sums, self._flat.norm(direction), tally.logprobs)

    def take_use(self) -> DeviceUse:
        """Return the time that the device computed since the last call, and the memory that it took at most."""
        return self._clock.take()

    def keep_gradient(self, path: Path) -> float:
        self._loaded()
        ascent = {name: -view.float() for name, view in self._flat.views(self._flat.gradient).items()}
        write_tensors(ascent, path, at_once=not self._write_beside)
        return self._flat.norm(self._flat.gradient)

    def save(self, path: Path) -> int:
        self._loaded()
        flat, optimizer = self._flat, self._optimizer
        write_checkpoint(
            path,
            weights={**flat.views(flat.data), **self._buffers},
            moments=optimizer.state(),
            state=TrainerState(step=optimizer.steps, optimizer=self._options.to_json()),
            adapter=self._adapter,
            at_once=not self._write_beside,
        )
        return optimizer.steps

    def _run_pass(
        self, work: Callable[[], Result], groups: Sequence[TrainGroup], *, writes_gradient: bool = True
    ) -> Result:
        """Run `work`, a whole pass over groups, which accumulates a gradient if `writes_gradient`."""
        return work()

    def _loaded(self) -> Path:
        if self._folder is None:
            raise EngineError("the trainer holds no checkpoint", hint="call load(checkpoint) first")
        return self._folder
