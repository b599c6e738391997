"""A trainer on one device: packed forward and backward, AdamW, and the optimizer-aware probe."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from infuser_core.algorithm.influence import norm, partial_sums
from infuser_core.algorithm.objective import ObjectiveTerms, clipped_objective
from infuser_core.engines.adamw import AdamW, AdamWOptions
from infuser_core.engines.causal_lm import choose_device, choose_dtype, copy_companions, load_model
from infuser_core.engines.flat import FlatParameters
from infuser_core.engines.packing import MicroBatch, Segment, pack, plan
from infuser_core.engines.policy import Policy
from infuser_core.engines.protocols import (
    Objective,
    Progress,
    Similarity,
    StepReport,
    TrainGroup,
    no_progress,
)
from infuser_core.engines.trainer_files import (
    WEIGHTS,
    TrainerState,
    flush,
    read_moments,
    read_reference,
    read_state,
    write_moments,
    write_state,
    write_tensors,
)
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.schemas import Checkpoint

TOKEN_BUDGETS = {"cpu": 2048, "cuda": 32_768}
"""Tokens of a micro-batch by device: what a CPU's cache holds best, and what keeps an accelerator busy."""


class LocalTrainer:
    """protocols.Trainer on one device.

    `dtype` is the compute dtype; master weights, gradients and moments are fp32 (fp64 for float64). `token_budget`
    bounds the tokens of a micro-batch (None: see TOKEN_BUDGETS); gradients do not depend on it.
    `shared_prompts=False` gives every response its own copy of the prompt: slower, kept as the plain reference.
    `threads` applies to the whole process.
    """

    def __init__(
        self,
        *,
        dtype: str = "float32",
        device: str = "auto",
        threads: int = 1,
        token_budget: int | None = None,
        shared_prompts: bool = True,
        gradient_checkpointing: bool = False,
        optimizer: AdamWOptions | Mapping[str, float] | None = None,
    ) -> None:
        torch.set_num_threads(threads)
        self._compute_dtype = choose_dtype(dtype)
        self._master_dtype = torch.float64 if self._compute_dtype == torch.float64 else torch.float32
        self._device = choose_device(device)
        self._token_budget = token_budget or TOKEN_BUDGETS.get(self._device.type, TOKEN_BUDGETS["cuda"])
        self._shared_prompts = shared_prompts
        self._gradient_checkpointing = gradient_checkpointing
        self._options = optimizer if isinstance(optimizer, AdamWOptions) else AdamWOptions(**(optimizer or {}))
        self._folder: Path | None = None

    def load(self, checkpoint: Checkpoint) -> None:
        """Take weights, moments and step. Raises CheckpointError for a folder without optimizer state."""
        folder = Path(checkpoint.path)
        state = read_state(folder)
        self._refuse_other_optimizer(state, folder)
        model = load_model(folder, dtype=self._master_dtype, device=self._device)
        if self._gradient_checkpointing:
            # transformers renamed the method within the range we support.
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
            model.train()
        self._flat = FlatParameters(dict(model.named_parameters()))
        self._policy = Policy(model, compute_dtype=self._compute_dtype)
        self._adamw = AdamW(self._flat, self._options)
        self._adamw.steps = state.step
        read_moments(self._flat.views(self._adamw.first), self._flat.views(self._adamw.second), folder)
        self._folder = folder

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        self._loaded()
        self._flat.gradient.zero_()

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        """Accumulate the gradient of -J summed over groups, divided by `denominator` (eq:unified_obj).

        Rows of advantage 0 are not computed; they stay in their group's n. Token means are over computed tokens.
        """
        self._loaded()
        total = sum(len(group.rows) for group in groups)
        sums: list[Tensor] = []
        computed, done = 0, 0
        for segments in self._plan(groups):
            terms = self._backward(segments, objective, denominator)
            sums.append(torch.stack([each.double() for each in (terms.loss, terms.clipped, terms.ratio, terms.tis)]))
            computed += terms.tokens
            done += sum(len(segment.rows) for segment in segments)
            progress(done, total, computed)
        progress(total, total, computed)
        loss, clipped, ratio, tis = torch.stack(sums).sum(0).tolist() if sums else (0.0, 0.0, 0.0, 0.0)
        return StepReport(
            loss=loss,
            num_tokens=sum(len(row.token_ids) for group in groups for row in group.rows),
            clip_fraction=clipped / max(1, computed),
            mean_ratio=ratio / computed if computed else 1.0,
            mean_tis=tis / computed if computed else 1.0,
        )

    def optim_step(self, learning_rate: float) -> float:
        """One AdamW step; returns the gradient's norm before clipping, which is not finite where it was skipped."""
        self._loaded()
        return self._adamw.step(learning_rate)

    @torch.no_grad()
    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[list[float]]]:
        """Log-probability of every response token at `temperature`: [group][row][token], nats."""
        self._loaded()
        results: list[list[list[float]]] = [[[] for _ in group.rows] for group in groups]
        total, done, tokens = sum(len(group.rows) for group in groups), 0, 0
        for segments in self._plan(groups, only_trained=False):
            values = iter(self._policy.logprobs(self._pack(segments), temperature=temperature).tolist())
            for segment in segments:
                for place, row in zip(segment.places, segment.rows, strict=True):
                    results[segment.group][place] = list(islice(values, len(row.token_ids)))
                    tokens += len(row.token_ids)
                    done += 1
            progress(done, total, tokens)
        return results

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> list[Similarity]:
        """Each group's own AdamW direction against `reference`, one backward per group (eq:adamw_moments).

        Weights, optimizer state and accumulated gradients are left as they were.
        """
        self._loaded()
        kept = torch.zeros_like(self._flat.gradient)
        read_reference(reference, self._flat.views(kept))
        reference_norm = self._flat.norm(kept)
        scratch = torch.zeros_like(self._flat.gradient)
        self._flat.bind(scratch)
        try:
            return list(self._probe(groups, objective, kept, reference_norm, scratch, progress))
        finally:
            self._flat.bind(self._flat.gradient)

    def keep_gradient(self, path: Path) -> float:
        """Write the ascent direction, minus the accumulated gradient of -J, as fp32; returns its norm."""
        self._loaded()
        ascent = {name: -view.float() for name, view in self._flat.views(self._flat.gradient).items()}
        write_tensors(ascent, path)
        return self._flat.norm(self._flat.gradient)

    def save(self, path: Path) -> int:
        """Write weights, moments, step, config and tokenizer files into an existing folder; returns the step."""
        folder = self._loaded()
        write_tensors(self._flat.views(self._flat.data), path / WEIGHTS)
        write_moments(self._flat.views(self._adamw.first), self._flat.views(self._adamw.second), path)
        write_state(TrainerState(step=self._adamw.steps, optimizer=self._options.to_json()), path)
        for copied in copy_companions(folder, path):
            flush(copied)
        return self._adamw.steps

    def _probe(
        self,
        groups: Sequence[TrainGroup],
        objective: Objective,
        reference: Tensor,
        reference_norm: float,
        scratch: Tensor,
        progress: Progress,
    ) -> Iterator[Similarity]:
        tokens = 0
        for done, group in enumerate(groups, start=1):
            scratch.zero_()
            for segments in self._plan([group]):
                tokens += self._backward(segments, objective, 1).tokens
            dot, raw_dot, direction_sq, gradient_sq = self._sums(scratch, reference).tolist()
            yield Similarity(
                group_id=group.group_id,
                # The buffer holds the gradient of -J; Gamma is odd in g, so turning the sign turns both products.
                dot=-dot,
                raw_dot=-raw_dot,
                direction_norm=norm(direction_sq),
                gradient_norm=norm(gradient_sq),
                reference_norm=reference_norm,
            )
            progress(done, len(groups), tokens)

    @torch.no_grad()
    def _sums(self, gradient: Tensor, reference: Tensor) -> Tensor:
        options, step = self._options, self._adamw.steps
        chunks = self._flat.chunks(gradient, reference, self._adamw.second)
        return torch.stack(
            [partial_sums(g, ref, v, step=step, beta2=options.beta2, eps=options.eps) for g, ref, v in chunks]
        ).sum(0)

    def _backward(self, segments: list[Segment], objective: Objective, denominator: int) -> ObjectiveTerms:
        batch = self._pack(segments)
        terms = clipped_objective(
            self._policy.logprobs(batch, temperature=objective.temperature),
            advantages_S=batch.advantages_S,
            weights_S=batch.weights_S / (objective.length_norm * denominator),
            sampler_logprobs_S=batch.sampler_logprobs_S,
            old_logprobs_S=batch.old_logprobs_S,
            clip_low=objective.clip_low,
            clip_high=objective.clip_high,
            dual_clip=objective.dual_clip,
            tis_cap=objective.tis_cap,
        )
        terms.loss.backward()
        return terms

    def _plan(self, groups: Sequence[TrainGroup], *, only_trained: bool = True) -> list[list[Segment]]:
        return plan(
            groups,
            token_budget=self._token_budget,
            shared_prompts=self._shared_prompts,
            only_trained=only_trained,
        )

    def _pack(self, segments: list[Segment]) -> MicroBatch:
        return pack(segments, device=self._device, dtype=self._master_dtype)

    def _loaded(self) -> Path:
        if self._folder is None:
            raise EngineError("the trainer holds no checkpoint", hint="call load(checkpoint) first")
        return self._folder

    def _refuse_other_optimizer(self, state: TrainerState, folder: Path) -> None:
        """Moments of other decay rates mean something else; before the first step there are none."""
        for key in ("beta1", "beta2", "eps"):
            mine, stored = self._options.to_json()[key], state.optimizer.get(key)
            if state.step and (stored is None or not math.isclose(mine, stored)):
                raise CheckpointError(
                    f"{folder} was trained with {key} {stored}, and the trainer is set to {mine}",
                    hint="keep the optimizer's constants for a whole run",
                )


TRAINER = LocalTrainer
"""What `trainer: local` in a configuration means."""
