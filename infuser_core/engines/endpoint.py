"""Models behind an OpenAI-compatible address: chat completions over HTTP, several at a time, tried again on trouble.

As a sampler, such a model gets its prompts as chat turns and gives its replies as text without tokens. The key comes
from `INFUSER_API_KEY`; it is sent to the address and shown nowhere.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.pool import ThreadPool
from typing import Any

import httpx

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
from infuser_core.errors import EngineError, UsageError
from infuser_core.prompts.reasoning import announce, replace_halves, with_reasoning
from infuser_core.schemas import Checkpoint
from infuser_core.seeding import seed_of

KEY = "INFUSER_API_KEY"
"""Environment variable with the key."""
_ADDRESS = re.compile(r"openai:(?P<model>.+?)@(?P<url>https?://[^\s?#]+)")
_BUSY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Answers that a later attempt may better."""
_SEED_BITS = (1 << 31) - 1
"""Seeds are cut to 31 bits: servers differ in what else they take."""
_LONGEST_WAIT = 60.0
_RENAMED = "max_completion_tokens"
"""Newer servers' name for the response limit; they say so when they refuse the older one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One reply that is asked for."""

    messages: Messages
    """Chat turns."""
    params: SamplingParams
    """How the reply is drawn."""
    seed: int | None = None
    """Seed of the draw; None leaves it to the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """Reply of an endpoint."""

    text: str
    """The reply, thoughts that the server keeps apart included in front; empty when the prompt did not fit."""
    finish_reason: str
    """stop, length, prompt_too_long, or the server's own word."""
    prompt_tokens: int
    """Length of the prompt as the server counts, tokens; 0 where it does not say."""
    response_tokens: int
    """Length of the reply as the server counts, tokens; 0 where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A model and where it answers."""

    model: str
    """Name that the server knows it by."""
    url: str
    """Address up to and with the version, e.g. `http://127.0.0.1:8000/v1`."""


def parse_address(text: str) -> Address:
    """`openai:MODEL@http://host:port/v1`. Raises UsageError for another form, or one that holds a password."""
    match = _ADDRESS.fullmatch(text)
    if match is None or "@" in match["url"]:
        shown = re.sub(r"//[^/]*@", "//...@", text)
        raise UsageError(f"{shown}: no endpoint", hint=f"openai:MODEL@http://host:port/v1; a key belongs into {KEY}")
    return Address(model=match["model"], url=match["url"].rstrip("/"))


class Endpoint:
    """protocols.ChatModel, and sampled replies in order of arrival."""

    def __init__(
        self,
        address: Address,
        *,
        concurrency: int,
        attempts: int = 6,
        timeout: float = 600.0,
        first_wait: float = 1.0,
    ) -> None:
        self._address = address
        self._concurrency, self._attempts, self._first_wait = concurrency, attempts, first_wait
        self._limit = "max_tokens"
        self._key = os.environ.get(KEY, "")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        # A redirect could carry the key elsewhere.
        self._client = httpx.Client(
            headers=headers,
            limits=limits,
            timeout=httpx.Timeout(timeout, connect=min(10.0, timeout)),
            follow_redirects=False,
        )

    @property
    def name(self) -> str:
        return f"{self._address.model}@{self._address.url}"

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """One greedy reply per prompt."""
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        requests = [ChatRequest(messages=messages, params=params) for messages in prompts]
        replies: dict[int, str] = {}
        tokens = 0
        for place, reply in self.replies(requests):
            replies[place] = reply.text
            tokens += reply.response_tokens
            progress(len(replies), len(prompts), tokens)
        return [replies[place] for place in range(len(prompts))]

    def replies(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]:
        """(place, reply) as they arrive. Raises EngineError once a request fails for good; the others are let go."""
        stop, failed = threading.Event(), threading.Event()
        halves = 0

        def answer(place: int) -> list[tuple[int, ChatReply]]:
            # Nobody would keep the reply, and it may cost money.
            if failed.is_set():
                return []
            try:
                return [(place, self._ask(requests[place], stop))]
            except EngineError:
                failed.set()
                raise

        # Its threads are daemons: an interrupted command does not wait for answers under way.
        with ThreadPool(max(1, min(self._concurrency, len(requests)))) as workers:
            try:
                for found in workers.imap_unordered(answer, range(len(requests))):
                    for place, reply in found:
                        # A reply cut inside of an emoji ends in half of one.
                        text, count = replace_halves(reply.text)
                        halves += count
                        yield place, replace(reply, text=text)
            finally:
                stop.set()
                announce(self.name, halves)

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _ask(self, request: ChatRequest, stop: threading.Event) -> ChatReply:
        trouble = ""
        for attempt in range(self._attempts):
            wait, body = self._first_wait * 2**attempt, self._body(request)
            try:
                answer = self._client.post(f"{self._address.url}/chat/completions", json=body)
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                status = _status(answer)
                if status == httpx.codes.BAD_REQUEST and _RENAMED in answer.text and _RENAMED not in body:
                    self._limit = _RENAMED
                    continue
                if status not in _BUSY:
                    return self._read(answer, status)
                trouble = f"HTTP {answer.status_code}: {self._said(answer)}"
                wait = _asked_wait(answer, wait)
            # Spread by a number of the request itself, so that callers do not come back all at once.
            spread = 0.5 + seed_of(attempt, str(request.seed), str(body["messages"])) / 2**63
            if attempt + 1 == self._attempts or stop.wait(min(wait * spread, _LONGEST_WAIT)):
                break
        raise EngineError(
            f"{self.name}: no answer in {self._attempts} attempts; last: {trouble}",
            hint="check the address and the server's load; finished questions are kept",
        )

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        params = request.params
        body: dict[str, Any] = {
            "model": self._address.model,
            "messages": request.messages,
            "temperature": params.temperature,
            "top_p": params.top_p,
            self._limit: params.max_tokens,
        }
        # Not in the original interface, so only sent where it changes something.
        if params.top_k > 0:
            body["top_k"] = params.top_k
        if request.seed is not None:
            body["seed"] = request.seed & _SEED_BITS
        return body

    def _read(self, answer: httpx.Response, status: int) -> ChatReply:
        if status == httpx.codes.OK:
            return self._reply(answer)
        said = self._said(answer)
        if status in (400, 413, 422) and _does_not_fit(said):
            return ChatReply(text="", finish_reason="prompt_too_long", prompt_tokens=0, response_tokens=0)
        raise EngineError(f"{self.name}: HTTP {answer.status_code}: {said}", hint=_remedy(status, said))

    def _reply(self, answer: httpx.Response) -> ChatReply:
        try:
            found = answer.json()
            choice, usage = found["choices"][0], found.get("usage") or {}
            thoughts = choice["message"].get("reasoning_content") or choice["message"].get("reasoning") or ""
            text = choice["message"].get("content") or ""
            if not (isinstance(thoughts, str) and isinstance(text, str)):
                raise TypeError("the reply is no text")
            return ChatReply(
                text=with_reasoning(thoughts, text),
                finish_reason=str(choice.get("finish_reason") or "stop"),
                prompt_tokens=int(usage.get("prompt_tokens") or 0),
                response_tokens=int(usage.get("completion_tokens") or 0),
            )
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineError(
                f"{self.name}: the answer has another form: {self._hidden(answer.text[:120])!r}",
                hint="the address must be that of an OpenAI-compatible server, up to and with /v1",
            ) from error

    def _said(self, answer: httpx.Response) -> str:
        """The server's message on one line, without the key that some servers repeat."""
        try:
            found: Any = answer.json()
            error = found.get("error") or found if isinstance(found, dict) else found
            parts = [error.get("message"), error.get("code")] if isinstance(error, dict) else [error]
            text = " ".join(str(part) for part in parts if part) or answer.text
        except ValueError:
            text = answer.text
        return self._hidden(" ".join(text.split())[:300]) or answer.reason_phrase

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _status(answer: httpx.Response) -> int:
    """The status; of an error that a gateway sends under 200 its own code, else 503: most such troubles pass."""
    try:
        found = answer.json() if answer.status_code == httpx.codes.OK else {}
        error = found.get("error") or found["choices"][0].get("error")
        code = str(error.get("code") or "") if isinstance(error, dict) else ""
    except (ValueError, LookupError, TypeError, AttributeError):
        return answer.status_code
    if not error:
        return answer.status_code
    return int(code) if re.fullmatch("[45][0-9]{2}", code) else int(httpx.codes.SERVICE_UNAVAILABLE)


def _asked_wait(answer: httpx.Response, wait: float) -> float:
    """Seconds that the server asks for, or our own."""
    try:
        return max(wait, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return wait


def _does_not_fit(said: str) -> bool:
    lowered = said.lower()
    return "context length" in lowered or "context_length" in lowered or "context window" in lowered


def _remedy(status: int, said: str) -> str:
    if status in (401, 403):
        return f"set {KEY} to a key that the server accepts"
    if "top_k" in said:
        return "this server knows no top_k: `--config` with `sampling: {top_k: -1}` leaves it out"
    if status == httpx.codes.NOT_FOUND:
        return "check the model's name and the address, which ends in /v1"
    return "the server refuses the request as it is; finished questions are kept"


WIDTH = 4
"""Bytes of UTF-8 in one token of our own: about what models' tokens hold."""

Ask = Callable[[Sequence[ChatRequest]], Iterator[tuple[int, ChatReply]]]
"""`ask(requests)`: (place, reply) in order of arrival, as `Endpoint.replies` gives them."""


class PackedText:
    """protocols.Tokenizer for text whose real tokens nobody tells: four bytes of UTF-8 a token, nothing lost.

    Prompts are the JSON of their turns, so that limits in tokens hold roughly and a prompt can be read back.
    """

    end_token = None

    def render(self, messages: Messages, chat: str = "own") -> list[int]:
        """The turns as JSON: the server has the chat template."""
        del chat
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
        places = [(place, row) for place, group in enumerate(groups) for row in range(len(group.seeds))]
        turns = [self._tokenizer.messages(group.token_ids) for group in groups]
        requests = [
            ChatRequest(messages=turns[place], params=params, seed=groups[place].seeds[row]) for place, row in places
        ]
        found: list[dict[int, Completion]] = [{} for _ in groups]
        tokens = 0
        for done, (number, reply) in enumerate(self._ask(requests), 1):
            place, row = places[number]
            found[place][row] = ended = self._completion(reply)
            tokens += reply.response_tokens
            keep(place, row, ended)
            progress(done, len(requests), tokens)
        return [[rows[row] for row in sorted(rows)] for rows in found]

    def _completion(self, reply: ChatReply) -> Completion:
        token_ids = self._tokenizer.encode(reply.text)
        return Completion(
            token_ids=token_ids,
            logprobs=[0.0] * len(token_ids),
            finish_reason="length" if reply.finish_reason == "length" else "stop",
        )
