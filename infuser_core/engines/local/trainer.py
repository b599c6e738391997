"""A trainer on one device: packed forward and backward, AdamW, and the optimizer-aware probe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch

from infuser_core import faults
from infuser_core.engines.hf.causal_lm import (
    choose_device,
    choose_dtype,
    copy_companions,
    device_name,
    load_model,
    repeat_exactly,
)
from infuser_core.engines.local.memory import STATE, Asked, MemoryReader, TokenBudget, memory_of, need_of
from infuser_core.engines.probe.fast import FastProbe
from infuser_core.engines.probe.reference import Probe, ProbeLedger, ReferenceProbe
from infuser_core.engines.protocols import (
    Objective,
    Probed,
    Progress,
    Similarity,
    StepReport,
    TrainGroup,
    TrainRow,
    no_progress,
)
from infuser_core.engines.training.adamw import AdamW, AdamWOptions, FlatParameters
from infuser_core.engines.training.attention_choice import choose, heads_of
from infuser_core.engines.training.checkpoint import (
    WEIGHTS,
    TrainerState,
    flush,
    read_moments,
    read_reference,
    read_state,
    refuse_other_constants,
    write_moments,
    write_state,
    write_tensors,
)
from infuser_core.engines.training.packing import Packer
from infuser_core.engines.training.policy import Policy, ReportSums, batch_terms
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

TOKEN_BUDGETS = {"cpu": 2048, "cuda": 32_768}
"""Tokens of a micro-batch by device: what a CPU's cache holds best, and what keeps an accelerator busy."""

AUTOMATIC = {"cpu": 2048, "cuda": 131_072}
"""Most tokens of a micro-batch whose budget is found automatically."""

Result = TypeVar("Result")

PROBES: dict[str, Callable[[Policy, FlatParameters, AdamW, Packer], Probe]] = {
    "fast": FastProbe,
    "reference": ReferenceProbe,
}
"""Probes by configuration name."""


class LocalTrainer:
    """protocols.Trainer on one device.

    `dtype` is the compute dtype; master weights, gradients and moments are fp32 (fp64 for float64). `token_budget`
    bounds the tokens of a micro-batch (None: see TOKEN_BUDGETS; `auto`: see token_budget, with `roles` trainers on the
    device in the end); gradients do not depend on it. Where an accelerator runs out of memory, the pass starts again
    with half the budget. `attention`: see attention_choice. `deterministic`: see exactness.
    `shared_prompts=False` gives every response its own copy of the prompt: slower, kept as the plain reference.
    `probe="reference"` scores one question per backward: slower, and for any parameter kind. `threads` applies to the
    whole process.
    """

    def __init__(
        self,
        *,
        dtype: str = "float32",
        device: str = "auto",
        threads: int = 1,
        token_budget: Asked | None = None,
        shared_prompts: bool = True,
        gradient_checkpointing: bool = False,
        probe: str = "fast",
        attention: str = "auto",
        deterministic: bool = False,
        roles: int = 1,
        memory: MemoryReader | None = None,
        optimizer: AdamWOptions | Mapping[str, float] | None = None,
    ) -> None:
        torch.set_num_threads(threads)
        repeat_exactly(deterministic)
        self._deterministic = deterministic
        self._compute_dtype = choose_dtype(dtype)
        self._master_dtype = torch.float64 if self._compute_dtype == torch.float64 else torch.float32
        self._device = choose_device(device)
        self._memory, self._roles = memory or memory_of(self._device), roles
        asked = token_budget or TOKEN_BUDGETS.get(self._device.type, TOKEN_BUDGETS["cuda"])
        self._budget = TokenBudget(asked, most=AUTOMATIC.get(self._device.type, AUTOMATIC["cuda"]))
        self._attention, self._attention_facts = attention, dict[str, Any]()
        self._packer = Packer(
            token_budget=self._budget.tokens,
            shared_prompts=shared_prompts,
            device=self._device,
            dtype=self._master_dtype,
            stretches=self._budget.automatic,
        )
        if probe not in PROBES:
            raise EngineError(f"unknown probe {probe!r}", hint=f"choose one of {', '.join(PROBES)}")
        self._probe_name = probe
        self._gradient_checkpointing = gradient_checkpointing
        self._options = optimizer if isinstance(optimizer, AdamWOptions) else AdamWOptions(**(optimizer or {}))
        self._folder: Path | None = None
        self._accumulated = False

    forgets = True
    """Asleep it holds nothing: whoever wakes it loads a checkpoint."""

    def load(self, checkpoint: Checkpoint) -> None:
        """Take weights, moments and step. Raises CheckpointError for a folder without optimizer state."""
        folder = Path(checkpoint.path)
        state = read_state(folder)
        refuse_other_constants(self._options, state, folder)
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
        self._choose_attention(model.config.get_text_config())
        self._folder = folder
        self._use_budget()
        self.zero_grad()
        if not self._budget.settled:
            self._settle_budget(folder)

    def sleep(self) -> None:
        """Give the memory to others: what it holds lies in a checkpoint."""
        self._folder = None
        for name in ("_flat", "_policy", "_adamw", "_probe"):
            self.__dict__.pop(name, None)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Nothing comes back by itself: load."""

    def facts(self) -> dict[str, Any]:
        """What it computes on and how, for an artifact's record."""
        return {
            "engine": "local",
            "device": device_name(self._device),
            "dtype": str(self._compute_dtype).removeprefix("torch."),
            "deterministic": self._deterministic,
            **self._attention_facts,
            **self._budget.facts(),
        }

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        self._loaded()
        self._flat.gradient.zero_()
        self._accumulated = False

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        """Accumulate the gradient of -J summed over groups, divided by `denominator` (eq:unified_obj).

        Rows of advantage 0 are not computed; they stay in their group's n. Token means are over computed tokens.
        """
        self._loaded()
        report = self._patiently(lambda: self._pass(groups, objective, denominator, progress))
        self._accumulated = True
        return report

    def _pass(
        self, groups: Sequence[TrainGroup], objective: Objective, denominator: int, progress: Progress
    ) -> StepReport:
        total, done = sum(len(group.rows) for group in groups), 0
        sums = ReportSums()
        for segments in self._packer.plan(groups):
            if faults.runs_out_of_memory("trainer:micro_batch"):
                raise torch.OutOfMemoryError("told to run out of memory")
            batch = self._packer.pack(segments)
            logprobs_S = self._policy.logprobs(batch, temperature=objective.temperature)
            terms = batch_terms(logprobs_S, batch, objective, denominator)
            terms.loss.backward()
            sums.add(terms)
            done += sum(len(segment.rows) for segment in segments)
            progress(done, total, sums.tokens)
        progress(total, total, sums.tokens)
        return sums.report(groups)

    def optim_step(self, learning_rate: float) -> float:
        """One AdamW step; returns the gradient's norm before clipping, which is not finite where it was skipped."""
        self._loaded()
        return self._adamw.step(learning_rate)

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[list[float]]]:
        """Log-probability of every response token at `temperature`: [group][row][token], nats."""
        self._loaded()
        return self._patiently(lambda: self._logprobs(groups, temperature, progress))

    @torch.no_grad()
    def _logprobs(
        self, groups: Sequence[TrainGroup], temperature: float, progress: Progress
    ) -> list[list[list[float]]]:
        results: list[list[list[float]]] = [[[] for _ in group.rows] for group in groups]
        total, done, tokens = sum(len(group.rows) for group in groups), 0, 0
        for segments in self._packer.plan(groups, only_trained=False):
            values = iter(self._policy.logprobs(self._packer.pack(segments), temperature=temperature).tolist())
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
        """Each group's own AdamW direction against `reference` (eq:adamw_moments).

        Weights, optimizer state and accumulated gradients are left as they were.
        """
        return self.probe_once(groups, objective, reference, progress=progress).similarities

    def probe_once(
        self,
        groups: Sequence[TrainGroup],
        objective: Objective,
        reference: Path,
        *,
        denominator: int | None = None,
        progress: Progress = no_progress,
    ) -> Probed:
        """`probe`, its forward pass's log-probabilities and, with `denominator`, the update's gradient as well."""
        self._loaded()
        kept = torch.zeros_like(self._flat.gradient)
        read_reference(reference, self._flat.views(kept))
        norm = self._flat.norm(kept)

        def score() -> Probed:
            ledger = ProbeLedger(groups, reference_norm=norm, device=self._device, progress=progress)
            self._probe.run(groups, objective, kept, ledger, denominator=denominator)
            return ledger.close(divisor=denominator or 1)

        probed = self._patiently(score)
        self._accumulated = self._accumulated or denominator is not None
        return probed

    def keep_gradient(self, path: Path) -> float:
        """Write the ascent direction, minus the accumulated gradient of -J, as fp32; returns its norm."""
        self._loaded()
        ascent = {name: -view.float() for name, view in self._flat.views(self._flat.gradient).items()}
        write_tensors(ascent, path)
        return self._flat.norm(self._flat.gradient)

    def add_gradient(self, path: Path) -> None:
        """Accumulate a kept gradient: the inverse of `keep_gradient`, in fp32."""
        self._loaded()
        kept = torch.zeros_like(self._flat.gradient)
        read_reference(path, self._flat.views(kept))
        self._flat.gradient.sub_(kept)
        self._accumulated = True

    def save(self, path: Path) -> int:
        """Write weights, moments, step, config and tokenizer files into an existing folder; returns the step."""
        folder = self._loaded()
        write_tensors(self._flat.views(self._flat.data), path / WEIGHTS)
        write_moments(self._flat.views(self._adamw.first), self._flat.views(self._adamw.second), path)
        write_state(TrainerState(step=self._adamw.steps, optimizer=self._options.to_json()), path)
        for copied in copy_companions(folder, path):
            flush(copied)
        return self._adamw.steps

    def _patiently(self, work: Callable[[], Result]) -> Result:
        """A whole pass; where memory runs out, again with half the budget and the gradient there was."""
        kept = self._flat.gradient.to("cpu", copy=True) if self._accumulated else None
        while True:
            try:
                return work()
            except torch.OutOfMemoryError as error:
                self._budget.halve(error, place="a pass over groups")
            # Outside of the handler: the error held the tensors of the pass.
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            self._use_budget()
            if kept is None:
                self._flat.gradient.zero_()
            else:
                self._flat.gradient.copy_(kept)

    def _use_budget(self) -> None:
        self._packer = replace(self._packer, token_budget=self._budget.tokens)
        self._probe: Probe = PROBES[self._probe_name](self._policy, self._flat, self._adamw, self._packer)

    def _choose_attention(self, config: Any) -> None:
        if self._attention_facts:
            return
        choice = choose(
            self._attention,
            heads=heads_of(config),
            dtype=self._compute_dtype,
            device=self._device,
            exact=self._deterministic,
        )
        self._packer = replace(self._packer, layout=choice.make)
        passed_over = {"attention_passed_over": dict(choice.passed_over)} if choice.passed_over else {}
        self._attention_facts = {"attention": choice.name, **passed_over}

    def _settle_budget(self, folder: Path) -> None:
        width, master = self._compute_dtype.itemsize, self._master_dtype.itemsize
        need = need_of(folder, width=width, master=master, checkpointing=self._gradient_checkpointing)
        others = (self._roles - 1) * STATE * self._flat.data.numel()

        def probe(tokens: int) -> None:
            self._pass(_samples(tokens), Objective(), 1, no_progress)
            self.zero_grad()

        self._budget.settle(need, self._memory, probe, reserved=others)
        self._use_budget()

    def _loaded(self) -> Path:
        if self._folder is None:
            raise EngineError("the trainer holds no checkpoint", hint="call load(checkpoint) first")
        return self._folder


def _samples(tokens: int) -> list[TrainGroup]:
    """Groups of that many tokens in all, for a measurement: what they say does not matter."""
    rows = [TrainRow(token_ids=[0] * 28, advantage=sign, sampler_logprobs=[0.0] * 28) for sign in (1.0, -1.0)]
    return [
        TrainGroup(group_id=str(place), prompt_token_ids=[0] * 8, rows=rows) for place in range(max(1, tokens // 64))
    ]


TRAINER = LocalTrainer
"""What `trainer: local` in a configuration means."""
