"""A sampler whose model answers elsewhere: prompts go out as chat turns, replies come back as text without tokens."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from infuser_core.engines.endpoint import ChatReply, ChatRequest
from infuser_core.engines.protocols import (
    Completion,
    Keep,
    Messages,
    Progress,
    PromptGroup,
    SamplingParams,
    no_keep,
    no_progress,
)
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

WIDTH = 4
"""Bytes of UTF-8 in one token of our own: about what models' tokens hold."""

Ask = Callable[[Sequence[ChatRequest]], Iterator[tuple[int, ChatReply]]]
"""`ask(requests)`: (place, reply) in order of arrival, as `Endpoint.replies` gives them."""


class PackedText:
    """protocols.Tokenizer for text whose real tokens nobody tells: four bytes of UTF-8 a token, nothing lost.

    Prompts are the JSON of their turns, so that limits in tokens hold roughly and a prompt can be read back.
    """

    def render(self, messages: Messages) -> list[int]:
        """The turns as JSON."""
        return self.encode(json.dumps(messages, ensure_ascii=False))

    def messages(self, token_ids: Sequence[int]) -> Messages:
        """The turns that `render` was given."""
        turns: Messages = json.loads(self.decode(token_ids))
        return turns

    def encode(self, text: str) -> list[int]:
        """UTF-8, filled up with zero bytes at the end."""
        raw = text.encode("utf-8", "replace")
        return [int.from_bytes(raw[at : at + WIDTH].ljust(WIDTH, b"\0"), "big") for at in range(0, len(raw), WIDTH)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text; the zero bytes at its end were none of it."""
        raw = b"".join(token.to_bytes(WIDTH, "big") for token in token_ids)
        return raw.rstrip(b"\0").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    group: int
    """Index of the group."""
    sample: int
    """Index in it."""


class ChatSampler:
    """protocols.Sampler over an endpoint. Seeds go along, and whether they are obeyed is the server's business.

    Log-probabilities are not told and stand as 0: such responses cannot be trained on. A prompt that the server finds
    too long gives an empty response.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._tokenizer = PackedText()

    @property
    def tokenizer(self) -> PackedText:
        """Text in packed bytes."""
        return self._tokenizer

    def load(self, checkpoint: Checkpoint) -> None:
        """Raises EngineError: the model is the server's."""
        raise EngineError(f"an endpoint cannot load {checkpoint.checkpoint_id}", hint="it only answers prompts")

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """One list of completions per group, in order. Raises EngineError where the server refuses for good."""
        places = [_Place(group=i, sample=j) for i, group in enumerate(groups) for j in range(len(group.seeds))]
        turns = [self._tokenizer.messages(group.token_ids) for group in groups]
        requests = [
            ChatRequest(messages=turns[place.group], params=params, seed=groups[place.group].seeds[place.sample])
            for place in places
        ]
        found: list[dict[int, Completion]] = [{} for _ in groups]
        tokens = 0
        for done, (number, reply) in enumerate(self._ask(requests), 1):
            place = places[number]
            found[place.group][place.sample] = self._completion(reply)
            tokens += reply.response_tokens
            if len(found[place.group]) == len(groups[place.group].seeds):
                keep(place.group, [found[place.group][j] for j in sorted(found[place.group])])
            progress(done, len(requests), tokens)
        return [[samples[j] for j in sorted(samples)] for samples in found]

    def _completion(self, reply: ChatReply) -> Completion:
        token_ids = self._tokenizer.encode(reply.text)
        return Completion(
            token_ids=token_ids,
            logprobs=[0.0] * len(token_ids),
            finish_reason="length" if reply.finish_reason == "length" else "stop",
        )
