"""Protocols of the engines (tokenizer, sampler, trainer, chat model), and the dataclasses passed to and from them.

An engine only caches a checkpoint: its state can be dropped and loaded again without loss.
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
    """A `Progress` that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Settings for sampling responses: temperature, top-p, top-k and the length limit."""

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
    """A prompt to sample from, with one seed for each of its responses."""

    group_id: str
    """Question or document id."""
    token_ids: list[int]
    """Prompt tokens."""
    seeds: list[int]
    """One 63-bit seed per sample (see `seeding.seed_of`)."""
    max_tokens: int | None = None
    """Length limit of this prompt's responses, tokens, in addition to that in SamplingParams; None if it has none."""

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
"""`keep(place, row, completion)`: stores a finished response, that of seed number `row` of group number `place`."""


def no_keep(place: int, row: int, completion: Completion) -> None:
    """A `Keep` that does nothing."""


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
        """Sample responses; returns one list of completions per group, in the order of `groups`.

        A response depends only on (weights, prompt, seed). `keep` receives every response as soon as it is finished.
        If sampling stops after a call of `progress`, sampling only the responses that `keep` has not received gives
        the same results, up to rounding if the sampler forms its own batches.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """One response to train on, with the inputs of its loss."""

    token_ids: Sequence[int]
    """Response tokens."""
    advantage: float
    """Advantage of the response."""
    sampler_logprobs: Sequence[float]
    """Log-probabilities under the sampler (pi_rollout), nats, one per response token."""
    old_logprobs: Sequence[float] | None = None
    """The trainer's log-probabilities at the start of the update; None means the current policy (ratio 1)."""
    anchor_logprobs: Sequence[float] | None = None
    """Log-probabilities under the anchor; None if the loss has no KL term to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGroup:
    """A prompt with all its responses to train on."""

    group_id: str
    """Question or document id."""
    prompt_token_ids: Sequence[int]
    """Prompt tokens."""
    rows: list[TrainRow]
    """Responses of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Results of one `forward_backward` call; the names are those of `schemas.Update`."""

    loss: float
    """Negative objective, mean over groups."""
    num_tokens: int
    """Number of response tokens, including those of rows without a gradient."""
    means: Mapping[str, float]
    """Mean of each of `schemas.TOKEN_MEANS` over the computed tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarity:
    """Dot products and norms that compare one group's AdamW step Gamma with a reference (eq:adamw_moments).

    g is the gradient of the group's objective: Gamma, g and the reference all point uphill.
    """

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
    """Results of `Trainer.probe`: one comparison per group, and log-probabilities."""

    similarities: list[Similarity]
    """One per group, in the order of the groups."""
    logprobs: list[list[Sequence[float]]]
    """Log-probability of every response token under the trainer, nats: [group][row][token]; empty for rows of
    advantage 0."""


class Trainer(Protocol):
    """Holds one role's weights and optimizer state: accumulates gradients, takes optimizer steps, scores groups."""

    def load(self, checkpoint: Checkpoint) -> None:
        """Load weights, moments and step count. Raises CheckpointError if optimizer state is missing."""

    def zero_grad(self) -> None:
        """Reset the accumulated gradient to zero."""

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        """Accumulate the gradient of the negative objective, summed over groups and divided by `denominator`."""

    def below_epsilon(self) -> float:
        """Share of parameters whose second moment's root is below epsilon; 0 for optimizers without second moments."""

    def optim_step(self, learning_rate: float) -> float:
        """Take one AdamW step; returns the gradient's global norm before clipping. A non-finite norm skips the step."""

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[Sequence[float]]]:
        """Log-probability of every response token, nats, computed without a gradient: [group][row][token]."""

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> ProbeResult:
        """Compare each group's AdamW-preconditioned gradient with the gradient in the file `reference`.

        Also returns the log-probabilities. Changes neither weights nor optimizer state, and drops the accumulated
        gradient, whose memory it uses.
        """

    def keep_gradient(self, path: Path) -> float:
        """Write the accumulated gradient (of the objective: ascent) as fp32 safetensors; returns its norm."""

    def save(self, path: Path) -> int:
        """Write weights, moments and step count into an existing folder; returns the step count."""


class ChatModel(Protocol):
    """Answers chat prompts, by a language model or by rules: judges chunks, labels topics, chooses textbooks."""

    @property
    def name(self) -> str:
        """Name of the model in reports, or `rule-based: ...`."""

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """Reply to each prompt, decoding greedily; returns one text per prompt."""
