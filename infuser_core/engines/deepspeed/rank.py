"""One rank (process) of the DeepSpeed trainer, which computes parts of every batch and owns a shard of the state.

Every method is a collective: all ranks of a group call it in the same order, or none does.
"""

import gc
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import wraps
from pathlib import Path
from socket import gethostname
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.cluster.ranks import Seat
from infuser_core.engines.deepspeed import files
from infuser_core.engines.deepspeed.split import RankRows
from infuser_core.engines.deepspeed.zero import Zero, ZeroOptions, empty_model
from infuser_core.engines.hf.causal_lm import choose_dtype, copy_companions, device_name
from infuser_core.engines.service.checksum import Block, of_run
from infuser_core.engines.training.checkpoint import MOMENTS, WEIGHTS, TrainerState, read_state, write_state
from infuser_core.engines.training.compute_clock import ComputeClock, DeviceUse
from infuser_core.engines.training.fused_attention import choose_attention
from infuser_core.engines.training.fused_elementwise import choose_elementwise, fuse_elementwise
from infuser_core.engines.training.loss import PassTally, Sums, Values, forward_terms, merge_logprobs
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.engines.training.optimizers.adamw import AdamW, direction_sums
from infuser_core.engines.training.packing import Packer, Segment
from infuser_core.engines.training.parked import Parked, ParkedState, copy_to_host, host_bytes
from infuser_core.engines.training.policy import ModelPolicy, tied_names
from infuser_core.engines.training.recomputation import Recomputation, enable_recomputation
from infuser_core.errors import EngineError
from infuser_core.memory.hardware import free_host_memory
from infuser_core.memory.sizes import LEAST, Checkpointing
from infuser_core.protocols import TrainRow
from infuser_core.system import fault_points as faults

COLLECTIVE = timedelta(hours=1)
"""Longest wait in a collective, for the slowest rank's largest step. The driver notices dead and silent ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions(ZeroOptions):
    """Options of a rank, including those of DeepSpeed's sharding."""

    device: str
    """`cpu` or `cuda`."""
    dtype: str
    """Compute dtype; masters, gradients and moments are fp32."""
    threads: int
    """CPU threads."""
    token_budget: int
    """Most tokens of a micro-batch."""
    gradient_checkpointing: Checkpointing
    """Which micro-batches compute their activations again in backward."""
    elementwise: str
    """See choose_elementwise."""
    optimizer: AdamWOptions
    """Constants of AdamW."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProbed:
    """Influence sums and log-probabilities that one rank computed for a batch of questions."""

    scores: dict[int, list[float]]
    """Four sums of each question, by place (see Optimizer.sums)."""
    logprobs: Values
    """Log-probabilities of the rows that it computed."""
    tokens: int
    """Number of response tokens that it computed."""
    reference_norm: float


P = ParamSpec("P")
Result = TypeVar("Result")


class RankMemoryError(EngineError):
    """A rank ran out of memory in a pass. Others wait for it in a collective, so that no rank can repeat the pass."""


def within_memory(work: Callable[Concatenate["DeepSpeedRank", P], Result]) -> Callable[..., Result]:
    """Raise RankMemoryError if a pass runs out of memory, the communication library's included."""

    @wraps(work)
    def run(rank: "DeepSpeedRank", *arguments: P.args, **options: P.kwargs) -> Result:
        tokens, number = rank._packer.token_budget, dist.get_rank()
        try:
            if faults.runs_out_of_memory(f"rank-{number}:{tokens}-tokens"):
                raise torch.OutOfMemoryError("injected: out of memory")
            return work(rank, *arguments, **options)
        except (torch.OutOfMemoryError, dist.DistBackendError) as error:
            if "out of memory" not in str(error):
                raise
            text = str(error).splitlines()[0]
            raise RankMemoryError(
                f"a micro-batch of {tokens:,} tokens does not fit into the memory of rank {number}: {text}",
                hint=f"set engine.token_budget {max(LEAST, tokens // 2)}",
            ) from error

    return run


class DeepSpeedRank:
    """One process of the trainer, which joins torch.distributed when it is created."""

    def __init__(self, seat: Seat, options: RankOptions) -> None:
        torch.set_num_threads(options.threads)
        join_group(seat, options.device)
        self._options = options
        self._device = device = torch.device(options.device)
        self._clock = ComputeClock(device)
        self._packer = Packer(token_budget=options.token_budget, device=device, dtype=torch.float32)
        self._zero: Zero | None = None
        self._adamw: AdamW
        self._recomputation: Recomputation | None = None
        self._sleeping: Parked | None = None
        self._parked: dict[str, ParkedState] = {}
        self.progress = (0, 0)

    def load(self, folder: str, limits: Mapping[str, Any]) -> int:
        """Load weights, moments and step of a checkpoint folder; returns the step. `limits`: see TokenBudget."""
        source = Path(folder)
        state = read_state(source)
        if self._zero is not None:
            self._zero.destroy()
            self._zero = self._sleeping = None
            del self._adamw
            gc.collect()
            self._empty_cache()
        model = empty_model(source)
        self._recomputation = recomputation = enable_recomputation(model, self._options.gradient_checkpointing)
        self._limit(limits)
        dtype = choose_dtype(self._options.dtype)
        config = model.config.get_text_config()
        layout, facts = choose_attention("auto", config, dtype=dtype, device=self._device)
        facts |= choose_elementwise(self._options.elementwise, dtype=dtype, device=self._device)
        if facts["elementwise"] == "fused":
            fuse_elementwise(model)
        self._kernels, self._packer = facts, replace(self._packer, layout=layout)
        self._tied = tied_names(model)
        policy = ModelPolicy(model, compute_dtype=dtype, recomputation=recomputation, device=self._device)
        self._source = source
        self._zero = zero = Zero(policy, self._options, device=self._device)
        self._adamw = AdamW(zero.shard, self._options.optimizer)
        self._adamw.steps = state.step
        # Elements of the padding for alignment belong to no parameter.
        zero.shard.data.zero_()
        files.read(source / WEIGHTS, self._contents(zero.shard.data), zero.shard)
        zero.publish()
        files.read(source / MOMENTS, self._moments(), zero.shard)
        return state.step

    def room(self) -> tuple[str, int, int]:
        """Return the name of this rank's machine, the bytes of its state, and the machine's free bytes."""
        return gethostname(), host_bytes(self._state()), free_host_memory()

    def park(self, name: str) -> None:
        """Copy this rank's training state to host memory, under the name of a role."""
        copies = copy_to_host(self._state())
        self._parked[name] = ParkedState(tensors=copies, steps=self._adamw.steps, source=self._source)

    def take(self, name: str, limits: Mapping[str, Any]) -> None:
        """Load the training state that `park` copied to host memory, and drop the copy. `limits`: see TokenBudget."""
        self._limit(limits)
        parked, zero = self._parked.pop(name), self._loaded()
        for tensor, copy in zip(self._state(), parked.tensors, strict=True):
            tensor.copy_(copy)
        self._adamw.steps, self._source = parked.steps, parked.source
        zero.publish()

    def drop(self, name: str) -> None:
        """Drop the copy of a training state in host memory."""
        self._parked.pop(name, None)

    def _limit(self, limits: Mapping[str, Any]) -> None:
        self._packer = replace(self._packer, **limits)
        if self._recomputation is not None:
            self._recomputation.kept_tokens = self._packer.kept_tokens

    def _state(self) -> list[Tensor]:
        return [self._loaded().shard.data, self._adamw.first, self._adamw.second]

    def facts(self) -> dict[str, Any]:
        """Describe device and kernels of this rank, for an artifact's record."""
        return {"device": device_name(self._device), **self._kernels}

    def take_use(self) -> DeviceUse:
        """Return how long this rank's device computed since the last call, waits for other ranks included."""
        return self._clock.take()

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        self._loaded().shard.gradient.zero_()

    @within_memory
    def forward_backward(self, parts: Sequence[RankRows], objective: Objective, denominator: int) -> Sums:
        """Accumulate the gradient of -J over all ranks' parts, divided by `denominator`."""
        return self._accumulate(parts, objective, denominator, self._loaded().shard.gradient).sums()

    def optim_step(self, learning_rate: float) -> float:
        """Make one AdamW step; returns the gradient's norm before clipping. Does nothing if the norm is not finite."""
        zero = self._loaded()
        with self._clock.computing():
            norm = self._adamw.step(learning_rate)
            if math.isfinite(norm):
                zero.publish()
        return norm

    def below_epsilon(self) -> float:
        """Return the share of all ranks' parameters whose second moment has a root below epsilon."""
        return self._adamw.below_epsilon()

    @within_memory
    @torch.no_grad()
    def logprobs(self, parts: Sequence[RankRows], temperature: float) -> Values:
        """Compute the log-probabilities of every response token of this rank's parts."""
        zero, tally = self._loaded(), self._tally()
        for segments in self._padded(self._packer.plan([part.group for part in parts], only_trained=False)):
            batch = self._packer.pack(segments or [padding()])
            with zero.sharded_after(), self._clock.computing():
                logprobs_S = zero.policy.logprobs(batch, temperature=temperature)
            if segments is not None:
                tally.note(segments, logprobs_S=logprobs_S)
                self.progress = (tally.rows, tally.tokens)
        return _by_place(parts, tally)

    @within_memory
    def probe(
        self, whole: Sequence[RankRows], shared: Sequence[Sequence[RankRows]], objective: Objective, reference: str
    ) -> RankProbed:
        """Score the `whole` questions on this rank alone, and its rows of the `shared` ones together with all ranks.

        A question that fits into a micro-batch is a gradient of this rank alone, which is never reduced: each
        parameter's part is scored when backward has computed it. A larger one is reduced to its owners, and scored
        shard by shard.
        """
        zero, tally = self._loaded(), self._tally()
        self.zero_grad()
        reference_shard = torch.zeros_like(zero.shard.data)
        files.read(Path(reference), self._contents(reference_shard), zero.shard)
        scores: dict[int, list[float]] = {}
        # Without short micro-batches, so that a question is one.
        packer = replace(self._packer, kept_tokens=0)
        batches = [batch for _, plan in packer.plan_alone([part.group for part in whole]) for batch in plan]
        assert len(batches) == len(whole), "a question of several micro-batches is shared"
        for segments in self._padded(batches):
            batch = packer.pack(segments or [padding()])
            with zero.sharded_after(), self._clock.computing():
                terms, logprobs_S = forward_terms(zero.own_policy, batch, objective, 1)
                sums = self._score_alone(terms.loss, reference_shard)
            if segments is not None:
                scores[whole[segments[0].group].place] = sums.tolist()
                tally.note(segments, logprobs_S=logprobs_S)
                self.progress = (tally.rows, tally.tokens)
        tokens, logprobs = tally.tokens, [_by_place(whole, tally)]
        gradient = zero.shard.gradient
        for parts in shared:
            part_tally = self._accumulate(parts, objective, 1, gradient)
            sums = self._adamw.sums(gradient, reference_shard)
            gradient.zero_()
            if dist.get_rank() == 0:
                scores[parts[0].place] = sums.tolist()
            tokens += part_tally.tokens
            logprobs.append(_by_place(parts, part_tally))
        norm = zero.shard.norm(reference_shard)
        return RankProbed(scores=scores, logprobs=merge_logprobs(logprobs), tokens=tokens, reference_norm=norm)

    def _score_alone(self, loss: Tensor, reference_shard: Tensor) -> Tensor:
        """Compute the sums of Optimizer.sums of this rank's own loss. All ranks call it: they gather what it needs."""
        shard, adamw, parts = self._loaded().shard, self._adamw, list[Tensor]()

        def score(name: str, gradient: Tensor) -> None:
            flat = gradient.reshape(-1)
            for run, others in shard.gathered(name, reference_shard, adamw.second):
                parts.append(direction_sums(shard.chunks(flat[run], *others), adamw.form))

        self._loaded().pass_gradients(loss, score)
        return torch.stack(parts).sum(0)

    def keep_gradient(self, path: str, at_once: bool) -> tuple[float, dict[str, str]]:
        """Write the accumulated gradient, negated to point uphill; returns its norm, and digests (see files.write)."""
        shard = self._loaded().shard
        digests = files.write({Path(path): self._contents(-shard.gradient)}, shard, at_once=at_once)
        return shard.norm(shard.gradient), digests

    def sleep(self) -> None:
        """Free the accelerator's memory: masters, moments and gradient move to the host, the rest is dropped."""
        zero = self._loaded()
        on_device = [
            tensor for tensor in [*self._state(), zero.shard.gradient] if tensor.device.type == self._device.type
        ]
        self._sleeping = Parked(state=on_device, scratch=zero.scratch())
        self._empty_cache()

    def wake(self) -> None:
        """Restore the state on the accelerator."""
        if self._sleeping is not None:
            self._sleeping.restore()
            self._sleeping = None
            self._loaded().publish()

    def save(self, path: str, at_once: bool) -> tuple[int, dict[str, str]]:
        """Write weights, moments, step, config and tokenizer files into an existing folder.

        Returns the step, and digests (see files.write).
        """
        zero, folder = self._loaded(), Path(path)
        contents = {folder / WEIGHTS: self._contents(zero.shard.data), folder / MOMENTS: self._moments()}
        digests = files.write(contents, zero.shard, at_once=at_once)
        if dist.get_rank() == 0:
            write_state(TrainerState(step=self._adamw.steps, optimizer=self._options.optimizer.to_json()), folder)
            copy_companions(self._source, folder)
        dist.barrier()
        return self._adamw.steps, digests

    def facts_of_weights(self) -> tuple[files.Shapes, dict[str, str]]:
        """Return the shapes of all parameters, and the names of tied ones (see WeightSource)."""
        return self._loaded().shard.shapes, self._tied

    def fill_file(self, path: str, dtype: str, part: tuple[int, int] | None) -> str:
        """Write this rank's shard to an allocated file of that dtype, or nothing if `path` is empty.

        With `part`, a number and a count, write that part of every parameter instead, gathered from all ranks. Returns
        an error's text, or an empty one: an exception would end the other ranks.
        """
        shard, kind = self._loaded().shard, getattr(torch, dtype)
        values = shard.own(shard.data) if part is None else shard.parts(shard.data.to(kind), *part)
        return files.fill(Path(path) if path else None, values)

    def checksums(self, dtype: str) -> dict[str, list[Block]]:
        """Compute checksums of this rank's blocks of every parameter, rounded to that dtype."""
        shard, kind = self._loaded().shard, getattr(torch, dtype)
        return {
            fragment.name: of_run(
                values.to(self._device, kind), fragment.start, math.prod(shard.shapes[fragment.name][1:])
            )
            for fragment, values in shard.own(shard.data)
        }

    def _accumulate(self, parts: Sequence[RankRows], objective: Objective, denominator: int, into: Tensor) -> PassTally:
        zero, tally = self._loaded(), self._tally()
        batches = self._packer.plan([part.group for part in parts], only_trained=objective.only_credited)
        for segments in self._padded(batches):
            batch = self._packer.pack(segments or [padding()])
            with zero.sharded_after(), self._clock.computing():
                terms, logprobs_S = forward_terms(zero.policy, batch, objective, denominator)
                # Padding must not add an entropy's gradient.
                zero.backward(terms.loss if segments else 0.0 * terms.loss, into)
            if segments is not None:
                tally.note(segments, terms=terms, logprobs_S=logprobs_S)
                self.progress = (tally.rows, tally.tokens)
        return tally

    def _padded(self, batches: Sequence[list[Segment]]) -> list[list[Segment] | None]:
        """Pad with None to the largest number of micro-batches of any rank: all must enter the same collectives."""
        return [*batches, *[None] * (self._largest(len(batches)) - len(batches))]

    def _largest(self, count: int) -> int:
        """Return the largest `count` of all ranks."""
        largest = torch.tensor(count, device=self._device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return int(largest)

    def _tally(self) -> PassTally:
        # Autocast would cache a copy of every weight, but gathered weights are temporary.
        torch.set_autocast_cache_enabled(False)
        self.progress = (0, 0)
        return PassTally()

    def _contents(self, buffer: Tensor) -> dict[str, tuple[str, Tensor]]:
        return {name: (name, buffer) for name in self._loaded().shard.shapes}

    def _moments(self) -> files.Contents:
        return named_moments(self._contents(self._adamw.first), self._contents(self._adamw.second))

    def _loaded(self) -> Zero:
        assert self._zero is not None, "the driver loads first"
        return self._zero

    def _empty_cache(self) -> None:
        if self._device.type == "cuda":
            # Return freed blocks to the device, since a sampler measures its free memory.
            torch.cuda.empty_cache()


def join_group(seat: Seat, device: str) -> None:
    """Join torch.distributed. DeepSpeed reads the same values from the environment."""
    os.environ.update(RANK=str(seat.rank), WORLD_SIZE=str(seat.ranks), LOCAL_RANK="0")
    if seat.local:
        os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    dist.init_process_group(
        "gloo" if device == "cpu" else "nccl",
        init_method=seat.meeting,
        rank=seat.rank,
        world_size=seat.ranks,
        timeout=COLLECTIVE,
    )


def padding() -> Segment:
    """Build a segment that adds nothing, for ranks without work: all ranks must enter the same collectives."""
    row = TrainRow(token_ids=[0], advantage=0.0, sampler_logprobs=[0.0])
    return Segment(group=0, group_id="", prompt=[0], places=[0], rows=[row], group_size=1)


def _by_place(parts: Sequence[RankRows], tally: PassTally) -> Values:
    """Sort log-probabilities by the groups' places in the caller's list; a rank may have several parts of a group."""
    return merge_logprobs({parts[number].place: rows} for number, rows in tally.logprobs.items())
