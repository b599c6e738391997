"""Engines without a model: the whole workflow runs on them in milliseconds, with real arithmetic where it matters.

Text is bytes. Replies come from a callable. The trainer is a policy of 16 weights that ignores the prompt, with the
real objective, AdamW, probe and files.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from infuser_core.algorithm.influence import norm, partial_sums
from infuser_core.algorithm.objective import clipped_objective
from infuser_core.engines.protocols import (
    Completion,
    Keep,
    Messages,
    Objective,
    Probed,
    Progress,
    PromptGroup,
    SamplingParams,
    Similarity,
    StepReport,
    TrainGroup,
    no_keep,
    no_progress,
)
from infuser_core.engines.training.adamw import AdamW, AdamWOptions, FlatParameters
from infuser_core.engines.training.checkpoint import (
    WEIGHTS,
    TrainerState,
    fill,
    read_moments,
    read_reference,
    read_state,
    read_tensors,
    write_moments,
    write_state,
    write_tensors,
)
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

END_TOKEN = 256
"""One past the last byte: ends a response."""

BUCKETS = 16
"""Weights of the fake policy: one logit per residue of the token id."""

LOGPROB = -0.5
"""Log-probability the scripted sampler claims for every token, nats."""

Reply = Callable[[str, int], str]
"""`reply(prompt text, seed) -> response text`."""

ChatReply = Callable[[Messages], str]
"""`reply(messages) -> response text`."""


class ByteTokenizer:
    """protocols.Tokenizer with one token per UTF-8 byte."""

    def render(self, messages: Messages) -> list[int]:
        """The turns as `role: content` lines, then the assistant's header."""
        turns = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return self.encode(turns + "assistant: ")

    def encode(self, text: str) -> list[int]:
        """UTF-8 bytes."""
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the bytes; the end token has none, broken characters become U+FFFD."""
        return bytes(token for token in token_ids if token < END_TOKEN).decode(errors="replace")


def echo(prompt: str, seed: int) -> str:
    """The default reply: the seed's last digit, so that samples differ."""
    del prompt
    return str(seed % 10)


class ScriptedSampler:
    """protocols.Sampler whose responses a callable writes; records the checkpoints it was given in `loaded`."""

    def __init__(self, *, reply: Reply = echo) -> None:
        self.loaded: list[str] = []
        self._reply = reply
        self._tokenizer = ByteTokenizer()

    @property
    def tokenizer(self) -> ByteTokenizer:
        """One token per byte."""
        return self._tokenizer

    def load(self, checkpoint: Checkpoint) -> None:
        """Remember the checkpoint's id."""
        self.loaded.append(checkpoint.checkpoint_id)

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """The callable's replies, cut at `max_tokens`."""
        results = []
        tokens = 0
        for done, group in enumerate(groups, start=1):
            prompt = self._tokenizer.decode(group.token_ids)
            results.append([self._completion(self._reply(prompt, seed), params) for seed in group.seeds])
            tokens += sum(len(completion.token_ids) for completion in results[-1])
            keep(done - 1, results[-1])
            progress(done, len(groups), tokens)
        return results

    def _completion(self, text: str, params: SamplingParams) -> Completion:
        token_ids = [*self._tokenizer.encode(text), END_TOKEN]
        cut = len(token_ids) > params.max_tokens
        token_ids = token_ids[: params.max_tokens]
        return Completion(
            token_ids=token_ids, logprobs=[LOGPROB] * len(token_ids), finish_reason="length" if cut else "stop"
        )


class ScriptedChat:
    """protocols.ChatModel whose replies a callable writes."""

    def __init__(self, *, reply: ChatReply, name: str = "rule-based: scripted") -> None:
        self._reply = reply
        self._name = name

    @property
    def name(self) -> str:
        """What the report shows."""
        return self._name

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """The callable's reply to each prompt."""
        del max_tokens
        replies = []
        for done, messages in enumerate(prompts, start=1):
            replies.append(self._reply(messages))
            progress(done, len(prompts), 0)
        return replies


class FakeTrainer:
    """protocols.Trainer over 16 fp32 logits: log pi(token) = log_softmax(weights)[token mod 16]."""

    def __init__(self, *, optimizer: AdamWOptions | Mapping[str, float] | None = None) -> None:
        self._options = optimizer if isinstance(optimizer, AdamWOptions) else AdamWOptions(**(optimizer or {}))
        self._weights = nn.Parameter(torch.zeros(BUCKETS))
        self._flat = FlatParameters({"weights": self._weights})
        self._adamw = AdamW(self._flat, self._options)
        self._loaded = False

    def load(self, checkpoint: Checkpoint) -> None:
        """Take weights, moments and step. Raises CheckpointError for a folder without optimizer state."""
        folder = Path(checkpoint.path)
        self._adamw.steps = read_state(folder).step
        fill(self._flat.views(self._flat.data), read_tensors(folder / WEIGHTS), folder / WEIGHTS)
        read_moments(self._flat.views(self._adamw.first), self._flat.views(self._adamw.second), folder)
        self._flat.gradient.zero_()
        self._loaded = True

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        self._check()
        self._flat.gradient.zero_()

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        """Accumulate the gradient of -J summed over groups, divided by `denominator`."""
        self._check()
        loss, clipped, ratio, tis, tokens = 0.0, 0.0, 0.0, 0.0, 0
        for done, group in enumerate(groups, start=1):
            for row in group.rows:
                current = self._logprobs(row.token_ids, objective.temperature)
                scale = 1.0 / (len(group.rows) * objective.length_norm * denominator)
                terms = clipped_objective(
                    current,
                    advantages_S=torch.full_like(current, row.advantage).detach(),
                    weights_S=torch.full_like(current, scale).detach(),
                    sampler_logprobs_S=torch.tensor(row.sampler_logprobs),
                    old_logprobs_S=None if row.old_logprobs is None else torch.tensor(row.old_logprobs),
                    clip_low=objective.clip_low,
                    clip_high=objective.clip_high,
                    dual_clip=objective.dual_clip,
                    tis_cap=objective.tis_cap,
                    tis_form=objective.tis_form,
                )
                terms.loss.backward()
                loss, clipped = loss + float(terms.loss.detach()), clipped + float(terms.clipped)
                ratio, tis, tokens = ratio + float(terms.ratio), tis + float(terms.tis), tokens + terms.tokens
            progress(done, len(groups), tokens)
        counted = max(1, tokens)
        return StepReport(
            loss=loss,
            num_tokens=tokens,
            clip_fraction=clipped / counted,
            mean_ratio=ratio / counted,
            mean_tis=tis / counted,
        )

    def optim_step(self, learning_rate: float) -> float:
        """One AdamW step; returns the gradient's norm before clipping."""
        self._check()
        return self._adamw.step(learning_rate)

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[list[float]]]:
        """Log-probability of every response token: [group][row][token], nats."""
        self._check()
        progress(len(groups), len(groups), 0)
        return [[self._logprobs(row.token_ids, temperature).tolist() for row in group.rows] for group in groups]

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> list[Similarity]:
        """Each group's own AdamW direction against `reference`; changes nothing."""
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
        """`probe` with log-probabilities and, with `denominator`, the update's gradient."""
        self._check()
        kept, scratch = torch.zeros_like(self._flat.gradient), torch.zeros_like(self._flat.gradient)
        read_reference(reference, self._flat.views(kept))
        self._flat.bind(scratch)
        results = []
        for done, group in enumerate(groups, start=1):
            scratch.zero_()
            self.forward_backward([group], objective, denominator=1)
            results.append(self._similarity(group.group_id, -scratch, kept))
            progress(done, len(groups), 0)
        scratch.zero_()
        report = self.forward_backward(groups, objective, denominator=denominator or 1)
        self._flat.bind(self._flat.gradient)
        if denominator is not None:
            self._flat.gradient.add_(scratch)
        logprobs = [
            [self._logprobs(row.token_ids, objective.temperature).tolist() if row.advantage else [] for row in rows]
            for rows in (group.rows for group in groups)
        ]
        return Probed(similarities=results, logprobs=logprobs, report=report)

    def keep_gradient(self, path: Path) -> float:
        """Write the ascent direction as fp32 safetensors; returns its norm."""
        self._check()
        write_tensors({"weights": -self._flat.gradient}, path)
        return self._flat.norm(self._flat.gradient)

    def add_gradient(self, path: Path) -> None:
        """Accumulate a kept gradient."""
        self._check()
        kept = torch.zeros_like(self._flat.gradient)
        read_reference(path, self._flat.views(kept))
        self._flat.gradient.sub_(kept)

    def save(self, path: Path) -> int:
        """Write weights, moments and step into an existing folder; returns the step."""
        self._check()
        return self._write(path)

    def _write(self, path: Path) -> int:
        write_tensors(self._flat.views(self._flat.data), path / WEIGHTS)
        write_moments(self._flat.views(self._adamw.first), self._flat.views(self._adamw.second), path)
        write_state(TrainerState(step=self._adamw.steps, optimizer=self._options.to_json()), path)
        return self._adamw.steps

    def _logprobs(self, token_ids: list[int], temperature: float) -> Tensor:
        index = torch.tensor([token % BUCKETS for token in token_ids], dtype=torch.int64)
        return torch.log_softmax(self._weights / temperature, dim=0)[index]

    def _similarity(self, group_id: str, gradient: Tensor, reference: Tensor) -> Similarity:
        beta2, eps, step = self._options.beta2, self._options.eps, self._adamw.steps
        sums = partial_sums(gradient, reference, self._adamw.second, step=step, beta2=beta2, eps=eps)
        dot, raw_dot, direction_sq, gradient_sq = sums.tolist()
        return Similarity(
            group_id=group_id,
            dot=dot,
            raw_dot=raw_dot,
            direction_norm=norm(direction_sq),
            gradient_norm=norm(gradient_sq),
            reference_norm=self._flat.norm(reference),
        )

    def _check(self) -> None:
        if not self._loaded:
            raise EngineError("the trainer holds no checkpoint", hint="call load(checkpoint) first")


def fake_anchor(folder: Path) -> None:
    """Write the first checkpoint of a fake run into `folder`: uniform weights, zero state, step 0."""
    folder.mkdir(parents=True, exist_ok=True)
    FakeTrainer()._write(folder)


SAMPLER = ScriptedSampler
TRAINER = FakeTrainer
"""What `fake` in a configuration means."""
