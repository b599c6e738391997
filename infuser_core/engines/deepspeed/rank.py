"""One trainer rank: its parts of every batch, its shard of every parameter.

Every method is a collective: all ranks of a group call it, in the same order, or none.
"""

import gc
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from socket import gethostname
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import AdamWOptions
from infuser_core.engines.cluster.ranks import Seat
from infuser_core.engines.deepspeed import files
from infuser_core.engines.deepspeed.probe import ShardProbe, company
from infuser_core.engines.deepspeed.split import Part
from infuser_core.engines.deepspeed.zero import Parked, Zero, ZeroOptions, empty_model
from infuser_core.engines.hf.causal_lm import choose_dtype, copy_companions, device_name
from infuser_core.engines.local.memory import free_host_memory
from infuser_core.engines.probe.choice import UnknownLayerError
from infuser_core.engines.probe.fast import Scored
from infuser_core.engines.service.checksum import Block, of_run
from infuser_core.engines.training.checkpoint import MOMENTS, WEIGHTS, TrainerState, read_state, write_state
from infuser_core.engines.training.fused_attention import choose
from infuser_core.engines.training.loss import Sums, Tally, Values, forward_terms, merged
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.engines.training.optimizers.adamw import AdamW
from infuser_core.engines.training.packing import Packer, Segment
from infuser_core.engines.training.policy import ModelPolicy, tied_names
from infuser_core.engines.training.recomputation import recomputed
from infuser_core.memory.sizes import Checkpointing, kept_tokens

COLLECTIVE = timedelta(hours=1)
"""Longest wait in a collective: the slowest rank's largest step. Dead and silent ranks are found from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions(ZeroOptions):
    """Options of a rank at its start, those of DeepSpeed's sharding included."""

    device: str
    """`cpu` or `cuda`."""
    dtype: str
    """Compute dtype; masters, gradients and moments are fp32."""
    threads: int
    """CPU threads."""
    token_budget: int
    """Most tokens of a micro-batch."""
    gradient_checkpointing: Checkpointing
    """Micro-batches whose activations are computed again in backward."""
    probe: str
    """See ProbeChoice; under `reference` all ranks share every question."""
    optimizer: AdamWOptions
    """AdamW's constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProbed:
    """A rank's part of the questions' scores."""

    scores: dict[int, list[float]]
    """The four sums of every question it knows them of, by place (see ShardProbe)."""
    logprobs: Values
    """Of the rows it computed."""
    tokens: int
    """Response tokens that it computed."""
    reference_norm: float
    """Norm of the reference direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """This rank's part of a state in host memory."""

    state: list[Tensor]
    """Masters and both moments, pinned where there is an accelerator."""
    steps: int
    """Optimizer steps since the anchor."""
    source: Path
    """Folder of the checkpoint that it was loaded from."""


class DeepSpeedRank:
    """One rank; it meets the others at its start."""

    def __init__(self, seat: Seat, options: RankOptions) -> None:
        torch.set_num_threads(options.threads)
        _meet(seat, options.device)
        self._options = options
        self._device = device = torch.device(options.device)
        self._packer = Packer(
            token_budget=options.token_budget,
            kept_tokens=kept_tokens(options.gradient_checkpointing),
            device=device,
            dtype=torch.float32,
        )
        self._zero: Zero | None = None
        self._probe: ShardProbe | None = None
        self._refused: UnknownLayerError | None = None
        self._parked: Parked | None = None
        self._waiting: dict[str, Waiting] = {}
        self.progress = (0, 0)

    def load(self, folder: str) -> int:
        """Take weights, moments and step of a checkpoint folder; returns the step."""
        source = Path(folder)
        state = read_state(source)
        self._unload()
        model = empty_model(source)
        recomputation = recomputed(model, self._options.gradient_checkpointing)
        dtype = choose_dtype(self._options.dtype)
        self._attention = choose("auto", model.config.get_text_config(), dtype=dtype, device=self._device)
        self._packer = replace(self._packer, layout=self._attention.make)
        self._tied = tied_names(model)
        policy = ModelPolicy(model, compute_dtype=dtype, recomputation=recomputation)
        self._look(policy)
        self._source = source
        self._zero = zero = Zero(policy, self._options, device=self._device)
        self._adamw = AdamW(zero.shard, self._options.optimizer)
        self._adamw.steps = state.step
        # Alignment leaves elements that belong to no parameter.
        zero.shard.data.zero_()
        files.read(source / WEIGHTS, self._held(zero.shard.data), zero.shard)
        zero.publish()
        files.read(source / MOMENTS, self._moments(), zero.shard)
        return state.step

    def room(self) -> tuple[str, int, int]:
        """Machine of this rank, bytes of its state, and bytes of host memory that are free there."""
        return gethostname(), sum(each.nbytes for each in self._state()), free_host_memory()

    def park(self, name: str) -> None:
        """Keep the state in host memory as well, under a name."""
        pinned = self._device.type == "cuda"
        copies = [torch.empty_like(each, device="cpu", pin_memory=pinned).copy_(each) for each in self._state()]
        self._waiting[name] = Waiting(state=copies, steps=self._adamw.steps, source=self._source)

    def take(self, name: str) -> None:
        """Hold a state that waited, without its copy."""
        waiting, zero = self._waiting.pop(name), self._loaded()
        for mine, theirs in zip(self._state(), waiting.state, strict=True):
            mine.copy_(theirs)
        self._adamw.steps, self._source = waiting.steps, waiting.source
        zero.publish()

    def drop(self, name: str) -> None:
        """Forget a state that waited."""
        self._waiting.pop(name, None)

    def _state(self) -> list[Tensor]:
        return [self._loaded().shard.data, self._adamw.first, self._adamw.second]

    def facts(self) -> dict[str, Any]:
        """Device and kernels of this rank."""
        return {"device": device_name(self._device), "attention": self._attention.name}

    def refused(self) -> UnknownLayerError | None:
        """Reason for which this model's questions cannot be scored by one rank each."""
        return self._refused

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        self._loaded().shard.gradient.zero_()

    def forward_backward(self, parts: Sequence[Part], objective: Objective, denominator: int) -> Sums:
        """Accumulate the gradient of -J of all ranks' parts, divided by `denominator`."""
        return self._accumulate(parts, objective, denominator, self._loaded().shard.gradient).sums()

    def optim_step(self, learning_rate: float) -> float:
        """One AdamW step; returns the norm before clipping. A norm that is not finite changes nothing."""
        zero = self._loaded()
        norm = self._adamw.step(learning_rate)
        if math.isfinite(norm):
            zero.publish()
        return norm

    def below_epsilon(self) -> float:
        """Share of all ranks' parameters whose second moment's root is below epsilon."""
        return self._adamw.below_epsilon()

    @torch.no_grad()
    def logprobs(self, parts: Sequence[Part], temperature: float) -> Values:
        """Log-probability of every response token of its parts."""
        zero, tally = self._loaded(), self._tally()
        for segments in self._padded(self._packer.plan([part.group for part in parts], only_trained=False)):
            batch = self._packer.pack(segments or [company()])
            with zero.settled():
                logprobs_S = zero.logprobs(batch, temperature=temperature)
            if segments is not None:
                tally.note(segments, logprobs_S=logprobs_S)
                self.progress = (tally.rows, tally.tokens)
        return _by_place(parts, tally)

    def probe(
        self, whole: Sequence[Part], shared: Sequence[Sequence[Part]], objective: Objective, reference: str
    ) -> RankProbed:
        """Score the `whole` questions alone, and with all ranks the `shared` ones, of which it has its rows."""
        zero = self._loaded()
        kept = torch.zeros_like(zero.shard.data)
        files.read(Path(reference), self._held(kept), zero.shard)
        norm = zero.shard.norm(kept)
        tally = self._tally()
        scores: dict[int, list[float]] = {}
        batches, split = self._packer.plan_whole([part.group for part in whole])
        assert not split, "a question over the budget belongs to all ranks"
        if self._agree(len(batches)):
            assert self._probe is not None, "without a layer probe all ranks share every question"

            def note(segments: list[Segment], scored: Scored) -> None:
                tally.note(segments, logprobs_S=scored.logprobs_S)
                self.progress = (tally.rows, tally.tokens)

            found = self._probe.run(zero, self._adamw, self._padded(batches), kept, objective, note)
            scores = {whole[place].place: sums.tolist() for place, sums in found.items()}
        tokens, logprobs = tally.tokens, [_by_place(whole, tally)]
        for parts in shared:
            alone = torch.zeros_like(zero.shard.gradient)
            own = self._accumulate(parts, objective, 1, alone)
            sums = self._adamw.sums(alone, kept).tolist()
            if dist.get_rank() == 0:
                scores[parts[0].place] = sums
            tokens += own.tokens
            logprobs.append(_by_place(parts, own))
        return RankProbed(scores=scores, logprobs=merged(logprobs), tokens=tokens, reference_norm=norm)

    def keep_gradient(self, path: str, at_once: bool) -> tuple[float, dict[str, str]]:
        """Write the ascent direction; returns the gradient's norm, and digests (see files.write)."""
        shard = self._loaded().shard
        digests = files.write({Path(path): self._held(-shard.gradient)}, shard, at_once=at_once)
        return shard.norm(shard.gradient), digests

    def sleep(self) -> None:
        """Free the accelerator: masters, moments and gradient move to the host, everything else is lost."""
        zero, adamw = self._loaded(), self._adamw
        kept = [zero.shard.data, zero.shard.gradient, adamw.first, adamw.second]
        on_device = [each for each in kept if each.device.type == self._device.type]
        self._parked = Parked(kept=on_device, lost=zero.scratch())
        self._forget_blocks()

    def wake(self) -> None:
        """Take the memory back, as it was."""
        if self._parked is not None:
            self._parked.restore()
            self._parked = None
            self._loaded().publish()

    def save(self, path: str, at_once: bool) -> tuple[int, dict[str, str]]:
        """Write weights, moments, step and companion files into an existing folder; returns the step, and digests (see
        files.write)."""
        zero, folder = self._loaded(), Path(path)
        contents = {folder / WEIGHTS: self._held(zero.shard.data), folder / MOMENTS: self._moments()}
        digests = files.write(contents, zero.shard, at_once=at_once)
        if dist.get_rank() == 0:
            write_state(TrainerState(step=self._adamw.steps, optimizer=self._options.optimizer.to_json()), folder)
            copy_companions(self._source, folder)
        dist.barrier()
        return self._adamw.steps, digests

    def facts_of_weights(self) -> tuple[files.Shapes, dict[str, str]]:
        """Shapes of all parameters, and the names of tied ones (see WeightSource)."""
        return self._loaded().shard.shapes, self._tied

    def fill_file(self, path: str, dtype: str, part: tuple[int, int] | None) -> str:
        """Fill what it holds into a file of that dtype, or with `part`, its number and of how many, so much of every
        parameter, gathered from all ranks, where there is a file. The reason where it cannot, which must not end the
        others."""
        shard, kind = self._loaded().shard, getattr(torch, dtype)
        values = shard.own(shard.data) if part is None else shard.parts(shard.data.to(kind), *part)
        return files.fill(Path(path) if path else None, values)

    def checksums(self, dtype: str) -> dict[str, list[Block]]:
        """Blocks of its part of every parameter, rounded to that dtype."""
        shard, kind = self._loaded().shard, getattr(torch, dtype)
        return {
            each.name: of_run(part.to(self._device, kind), each.start, math.prod(shard.shapes[each.name][1:]))
            for each, part in shard.own(shard.data)
        }

    def _look(self, policy: ModelPolicy) -> None:
        """Make the probe, before DeepSpeed takes the weights apart."""
        self._probe = self._refused = None
        try:
            self._probe = ShardProbe(policy, self._packer) if self._options.probe != "reference" else None
        except UnknownLayerError as error:
            # Without its frames, which hold the model.
            self._refused = error.with_traceback(None)

    def _accumulate(self, parts: Sequence[Part], objective: Objective, denominator: int, into: Tensor) -> Tally:
        zero, tally = self._loaded(), self._tally()
        batches = self._packer.plan([part.group for part in parts], only_trained=objective.only_credited)
        for segments in self._padded(batches):
            batch = self._packer.pack(segments or [company()])
            with zero.settled():
                terms, logprobs_S = forward_terms(zero, batch, objective, denominator)
                # What only keeps others company would like an entropy too.
                zero.backward(terms.loss if segments else 0.0 * terms.loss, into)
            if segments is not None:
                tally.note(segments, terms=terms, logprobs_S=logprobs_S)
                self.progress = (tally.rows, tally.tokens)
        return tally

    def _padded(self, batches: Sequence[list[Segment]]) -> list[list[Segment] | None]:
        """As many micro-batches as the rank with the most has: the others keep it company."""
        return [*batches, *[None] * (self._agree(len(batches)) - len(batches))]

    def _agree(self, count: int) -> int:
        most = torch.tensor(count, device=self._device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def _tally(self) -> Tally:
        # Autocast would keep a copy of every weight it has seen, and sharded weights come and go.
        torch.set_autocast_cache_enabled(False)
        self.progress = (0, 0)
        return Tally()

    def _held(self, buffer: Tensor) -> dict[str, tuple[str, Tensor]]:
        return {name: (name, buffer) for name in self._loaded().shard.shapes}

    def _moments(self) -> files.Held:
        return named_moments(self._held(self._adamw.first), self._held(self._adamw.second))

    def _loaded(self) -> Zero:
        assert self._zero is not None, "the driver loads first"
        return self._zero

    def _unload(self) -> None:
        if self._zero is not None:
            self._zero.destroy()
            self._zero = self._probe = self._parked = None
            del self._adamw
            gc.collect()
            self._forget_blocks()

    def _forget_blocks(self) -> None:
        if self._device.type == "cuda":
            # The allocator keeps freed blocks for itself, and a sampler counts what is free.
            torch.cuda.empty_cache()


def _meet(seat: Seat, device: str) -> None:
    """Join the group. The environment is where DeepSpeed looks for what torch.distributed was told."""
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


def _by_place(parts: Sequence[Part], tally: Tally) -> Values:
    """A tally's log-probabilities by the places of the caller's groups, of which a rank may have several parts."""
    return merged({parts[number].place: rows} for number, rows in tally.logprobs.items())
