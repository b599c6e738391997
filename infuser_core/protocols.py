"""Interfaces of samplers, trainers and chat models, and the plain data that they exchange with the algorithm.

Engines are caches of checkpoints: their state can be dropped and loaded again without loss. The anchor is the
pre-trained base model from which generator and solver both start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from infuser_core.algorithm.preset import Objective
from infuser_core.schemas import Checkpoint

Messages = list[dict[str, str]]
"""Chat turns: `[{"role": "system" | "user", "content": text}, ...]`."""

Progress = Callable[[int, int, int], None]
"""`progress(rows, total, tokens)`: finished rows, all rows, tokens processed so far."""


def no_progress(rows: int, total: int, tokens: int) -> None:
    """Progress callback that reports nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Settings of sampling: temperature, top-p, top-k and response limit."""

    temperature: float
    """Softmax temperature; 0 means greedy."""
    top_p: float = 1.0
    """Nucleus mass; 1 keeps all tokens."""
    top_k: int = -1
    """Number of candidate tokens; -1 keeps all."""
    max_tokens: int
    """Response limit, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGroup:
    """A prompt and the random seeds of its samples: one response per seed."""

    group_id: str
    """Question or document id."""
    token_ids: list[int]
    """Prompt tokens."""
    seeds: list[int]
    """One 63-bit seed per sample (see `seeding.seed_of`)."""
    max_tokens: int | None = None
    """Additional limit for responses to this prompt, tokens; None for `SamplingParams.max_tokens` alone."""

    def limit(self, params: SamplingParams) -> int:
        """Return the most tokens that a response to this prompt may have."""
        return params.max_tokens if self.max_tokens is None else min(self.max_tokens, params.max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled response."""

    token_ids: Sequence[int]
    """Response tokens, the end-of-sequence token included if it was sampled."""
    logprobs: Sequence[float]
    """Log-probability of each token at the sampling temperature, before top-p and top-k, nats."""
    finish_reason: Literal["stop", "length"]
    """`stop` if the model ended the response, `length` if the limit did."""


Keep = Callable[[int, int, Completion], None]
"""`keep(place, row, completion)`: stores the finished response to seed number `row` of group number `place`."""


def no_keep(place: int, row: int, completion: Completion) -> None:
    """Callback for finished responses that stores nothing."""


class Tokenizer(Protocol):
    """Converts text to tokens and back, and applies the chat template."""

    @property
    def end_token(self) -> int | None:
        """Token that ends a reply; None if there is none."""

    def render(self, messages: Messages, chat: str = "own") -> list[int]:
        """Convert chat turns to the tokens of a prompt, which ends just before the assistant's reply.

        `chat` is `own` for the model's template, `off` for plain text, or a template in Jinja.
        """

    def encode(self, text: str) -> list[int]:
        """Convert plain text to tokens, without special tokens."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Convert tokens to text, without special tokens."""


class Sampler(Protocol):
    """Draws responses from a checkpoint's model."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def load(self, checkpoint: Checkpoint) -> None:
        """Load the checkpoint's weights."""

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """Sample one response per seed; returns one list of completions per group, in the order of `groups`.

        A response is a function of (weights, prompt, seed) alone. `keep` receives every response as it ends. After an
        interruption in a call of `progress`, sampling only the responses that `keep` has not received gives the same
        results, up to rounding if the sampler forms its batches itself.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """A response and the numbers that its loss needs."""

    token_ids: Sequence[int]
    """Response tokens."""
    advantage: float
    """Advantage of the response."""
    sampler_logprobs: Sequence[float]
    """pi_rollout, nats, one per response token."""
    old_logprobs: Sequence[float] | None = None
    """The trainer's log-probabilities at the start of the update; None means the current policy (ratio 1)."""
    anchor_logprobs: Sequence[float] | None = None
    """The anchor's log-probabilities, if the loss contains a distance to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGroup:
    """A prompt and the responses to it."""

    group_id: str
    """Question or document id."""
    prompt_token_ids: Sequence[int]
    """Prompt tokens."""
    rows: list[TrainRow]
    """Responses of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Loss and token means of one `forward_backward`, named as in `schemas.Update`."""

    loss: float
    """Negative objective, mean over groups."""
    num_tokens: int
    """Number of response tokens, those of rows without a gradient included."""
    means: Mapping[str, float]
    """Means over the computed tokens, one for each of `schemas.TOKEN_MEANS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarity:
    """Products and norms of a group's gradient g, its AdamW direction Gamma and the reference (eq:adamw_moments)."""

    group_id: str
    """Question id."""
    dot: float
    """<reference, Gamma>."""
    raw_dot: float
    """<reference, g>."""
    direction_norm: float
    """||Gamma||."""
    gradient_norm: float
    """||g||."""
    reference_norm: float
    """||reference||."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Results of one pass that scores the influence of questions (`Trainer.probe`)."""

    similarities: list[Similarity]
    """One per group, in order."""
    logprobs: list[list[Sequence[float]]]
    """Log-probability of every response token under the trainer, nats: [group][row][token]; empty for rows of
    advantage 0."""


class Trainer(Protocol):
    """Holds one role's weights and optimizer state; accumulates gradients, makes steps, scores influence."""

    def load(self, checkpoint: Checkpoint) -> None:
        """Load weights, moments and step count. Raises CheckpointError for a folder without optimizer state."""

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        """Accumulate the gradient of the negative objective, summed over groups and divided by `denominator`."""

    def below_epsilon(self) -> float:
        """Share of parameters whose second moment has a root below epsilon; 0 for optimizers without second moments."""

    def optim_step(self, learning_rate: float) -> float:
        """Make one optimizer step; returns the gradient's global norm before clipping. No step if it is not finite."""

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[Sequence[float]]]:
        """Compute the log-probability of every response token, nats, without gradients: [group][row][token]."""

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> ProbeResult:
        """Compare each group's AdamW-preconditioned direction with the gradient in the file `reference`.

        Also returns the pass's log-probabilities. Weights, optimizer state and accumulated gradients do not change.
        """

    def keep_gradient(self, path: Path) -> float:
        """Write the accumulated gradient, negated to point uphill, as fp32 safetensors; returns its norm."""

    def save(self, path: Path) -> int:
        """Write weights, moments and step into an existing folder; returns the step."""


class ChatModel(Protocol):
    """Answers chat prompts: those of the judge, of taxonomy labels, and of the choice of textbooks."""

    @property
    def name(self) -> str:
        """Name in reports: the model's, or `rule-based: ...`."""

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """One reply per prompt, greedy."""
