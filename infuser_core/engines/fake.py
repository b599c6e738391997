"""Fake sampler, trainer and chat model without a language model: the whole workflow runs on them in milliseconds.

Text is bytes. Replies come from a callable. The trainer is a policy of 16 weights that ignores the prompt, with the
real objective, AdamW, probe and files.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from infuser_core.config.optimizers import options_of
from infuser_core.engines.local.passes import FlatTrainer
from infuser_core.engines.training.checkpoint import (
    WEIGHTS,
    TrainerState,
    fill_tensors,
    read_state,
    write_checkpoint,
)
from infuser_core.engines.training.compute_clock import ComputeClock
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import OptimizerSetting, first_moments
from infuser_core.engines.training.packing import MicroBatch, Packer
from infuser_core.protocols import (
    Completion,
    Keep,
    Messages,
    Progress,
    PromptGroup,
    SamplingParams,
    no_keep,
    no_progress,
)
from infuser_core.schemas import Checkpoint

END_TOKEN = 256
"""One past the last byte: ends a response."""

BUCKETS = 16
"""Weights of the fake policy: one logit per residue of the token id."""

LOGPROB = -0.5
"""Log-probability that the scripted sampler reports for every token, nats."""

Reply = Callable[[str, int], str]
"""`reply(prompt text, seed) -> response text`."""

ChatReply = Callable[[Messages], str]
"""`reply(messages) -> response text`."""


class ByteTokenizer:
    """protocols.Tokenizer with one token per UTF-8 byte."""

    end_token = END_TOKEN

    def render(self, messages: Messages, chat: str = "own") -> list[int]:
        """Encode the turns as `role: content` lines and the assistant's header; ignores the template."""
        del chat
        turns = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return self.encode(turns + "assistant: ")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode the bytes to text, without the end token; broken characters become U+FFFD."""
        return bytes(token for token in token_ids if token < END_TOKEN).decode(errors="replace")


def echo(prompt: str, seed: int) -> str:
    """Reply with the seed's last digit, so that samples differ."""
    del prompt
    return str(seed % 10)


class ScriptedSampler:
    """protocols.Sampler with responses from a callable; `loaded` lists the checkpoints that it has loaded."""

    def __init__(self, *, reply: Reply = echo) -> None:
        self.loaded: list[str] = []
        self._reply = reply
        self._tokenizer = ByteTokenizer()

    @property
    def tokenizer(self) -> ByteTokenizer:
        return self._tokenizer

    def load(self, checkpoint: Checkpoint) -> None:
        self.loaded.append(checkpoint.checkpoint_id)

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """Return the callable's reply for every seed, cut at the group's limit."""
        results = []
        tokens = 0
        for place, group in enumerate(groups):
            prompt = self._tokenizer.decode(group.token_ids)
            limit = group.limit(params)
            completions = []
            for seed in group.seeds:
                reply = [*self._tokenizer.encode(self._reply(prompt, seed)), END_TOKEN]
                token_ids = reply[:limit]
                completion = Completion(
                    token_ids=token_ids,
                    logprobs=[LOGPROB] * len(token_ids),
                    finish_reason="length" if len(reply) > limit else "stop",
                )
                tokens += len(token_ids)
                completions.append(completion)
            for row, completion in enumerate(completions):
                keep(place, row, completion)
            results.append(completions)
            progress(place + 1, len(groups), tokens)
        return results


class ScriptedChat:
    """protocols.ChatModel with replies from a callable."""

    def __init__(self, *, reply: ChatReply, name: str = "rule-based: scripted") -> None:
        self._reply = reply
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """Return the callable's reply to each prompt."""
        del max_tokens
        replies = []
        for messages in prompts:
            replies.append(self._reply(messages))
            progress(len(replies), len(prompts), 0)
        return replies


class BucketPolicy:
    """loss.Policy over 16 fp32 logits: log pi(token) = log_softmax(weights)[token mod 16]."""

    def __init__(self) -> None:
        self.weights = nn.Parameter(torch.zeros(BUCKETS))

    def logprobs(self, batch: MicroBatch, *, temperature: float) -> Tensor:
        return torch.log_softmax(self.weights / temperature, dim=0)[batch.targets_S % BUCKETS]

    def with_entropy(self, batch: MicroBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        logprobs_S = self.logprobs(batch, temperature=temperature)
        entropy = torch.distributions.Categorical(logits=self.weights / temperature).entropy()
        return logprobs_S, entropy.expand_as(logprobs_S)


class FakeTrainer(FlatTrainer):
    """protocols.Trainer of a BucketPolicy."""

    def __init__(self, *, optimizer: OptimizerSetting = None) -> None:
        super().__init__(optimizer)
        device = torch.device("cpu")
        self._packer = Packer(token_budget=1 << 20, device=device, dtype=torch.float32)
        self._clock = ComputeClock(device)

    def load(self, checkpoint: Checkpoint) -> None:
        folder = Path(checkpoint.path)
        state, policy = read_state(folder, self._options), BucketPolicy()
        flat = FlatParameters({"weights": policy.weights})
        fill_tensors(flat.views(flat.data), folder / WEIGHTS)
        self._hold(policy, flat, state, folder)


def fake_anchor(folder: Path) -> None:
    """Write the anchor, a run's first checkpoint, into `folder`: uniform weights, zero optimizer state, step 0."""
    folder.mkdir(parents=True, exist_ok=True)
    weights, options = {"weights": torch.zeros(BUCKETS)}, options_of(None)
    state = TrainerState(step=0, optimizer=options.to_json())
    write_checkpoint(folder, weights=weights, moments=first_moments(options, weights, ()), state=state)
