"""Client for models served by an OpenAI-compatible HTTP API: concurrent chat completions, with retries.

As a sampler, such a model gets its prompts as chat turns and returns text without tokens. The API key comes from the
environment variable `INFUSER_API_KEY`; it is sent to the address and never shown.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.pool import ThreadPool
from typing import Any

import httpx

from infuser_core.errors import EngineError, UsageError
from infuser_core.prompts.reasoning import announce, replace_halves, with_reasoning
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
from infuser_core.seeding import seed_of

KEY = "INFUSER_API_KEY"
"""Environment variable with the API key."""
_ADDRESS = re.compile(r"openai:(?P<model>.+?)@(?P<url>https?://[^\s?#]+)")
_BUSY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Statuses after which a retry may succeed."""
_SEED_BITS = (1 << 31) - 1
"""Seeds are cut to 31 bits, which all servers accept."""
_LONGEST_WAIT = 60.0
_NEW_LIMIT = "max_completion_tokens"
"""Newer servers' name for the response limit; they mention it when they refuse the older one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request for one chat completion."""

    messages: Messages
    params: SamplingParams
    seed: int | None = None
    """None leaves it to the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """A server's reply to a chat request."""

    text: str
    """Begins with the thoughts that the server returns separately; empty if the prompt did not fit."""
    finish_reason: str
    """stop, length, prompt_too_long, or the server's own word."""
    prompt_tokens: int
    """Length of the prompt by the server's count, tokens; 0 if it reports none."""
    response_tokens: int
    """Length of the reply by the server's count, tokens; 0 if it reports none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Name and URL of a model on a server."""

    model: str
    """The server's name for it."""
    url: str
    """Includes the version, e.g. `http://127.0.0.1:8000/v1`."""


def parse_address(text: str) -> Address:
    """Parse `openai:MODEL@http://host:port/v1`. Raises UsageError for another form, or if it contains a password."""
    match = _ADDRESS.fullmatch(text)
    if match is None or "@" in match["url"]:
        masked = re.sub(r"//[^/]*@", "//...@", text)
        raise UsageError(f"{masked}: no endpoint", hint=f"openai:MODEL@http://host:port/v1; set the key in {KEY}")
    return Address(model=match["model"], url=match["url"].rstrip("/"))


class Endpoint:
    """HTTP client of one served model: a protocols.ChatModel, and sampled replies in order of arrival."""

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
        """Request one greedy reply per prompt; returns the texts in the order of the prompts."""
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
        """Yield (place, reply) as they arrive. Raises EngineError, and drops the rest, if a request fails for good."""
        stop, failed = threading.Event(), threading.Event()
        halves = 0

        def answer(place: int) -> list[tuple[int, ChatReply]]:
            # Nothing is requested after a failure: the reply would be dropped, and may cost money.
            if failed.is_set():
                return []
            try:
                return [(place, self._ask(requests[place], stop))]
            except EngineError:
                failed.set()
                raise

        # Its threads are daemons: an interrupted command does not wait for open requests.
        with ThreadPool(max(1, min(self._concurrency, len(requests)))) as workers:
            try:
                for answers in workers.imap_unordered(answer, range(len(requests))):
                    for place, reply in answers:
                        # A reply cut inside an emoji ends with half a character.
                        text, count = replace_halves(reply.text)
                        halves += count
                        yield place, replace(reply, text=text)
            finally:
                stop.set()
                announce(self.name, halves)

    def close(self) -> None:
        """Close the HTTP connections."""
        self._client.close()

    def _ask(self, request: ChatRequest, stop: threading.Event) -> ChatReply:
        """Request one reply, with retries. Raises EngineError if all attempts fail, or the server refuses."""
        trouble = ""
        for attempt in range(self._attempts):
            wait, body = self._first_wait * 2**attempt, self._body(request)
            try:
                response = self._client.post(f"{self._address.url}/chat/completions", json=body)
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                status = _status(response)
                if status == httpx.codes.BAD_REQUEST and _NEW_LIMIT in response.text and _NEW_LIMIT not in body:
                    self._limit = _NEW_LIMIT
                    continue
                if status not in _BUSY:
                    return self._read(response, status)
                trouble = f"HTTP {response.status_code}: {self._message(response)}"
                # The server may request a longer wait.
                with suppress(ValueError):
                    wait = max(wait, float(response.headers.get("retry-after", "")))
            # Spread by a number computed from the request, so that callers do not all retry at the same time.
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
        # OpenAI's interface has no top_k: it is sent only if it changes something.
        if params.top_k > 0:
            body["top_k"] = params.top_k
        if request.seed is not None:
            body["seed"] = request.seed & _SEED_BITS
        return body

    def _read(self, response: httpx.Response, status: int) -> ChatReply:
        """Read the reply from a response that no retry would change. Raises EngineError if the server refuses."""
        if status == httpx.codes.OK:
            return self._reply(response)
        message = self._message(response)
        if status in (400, 413, 422) and re.search("context[ _]length|context window", message, re.IGNORECASE):
            return ChatReply(text="", finish_reason="prompt_too_long", prompt_tokens=0, response_tokens=0)
        hint = "the server refuses this request; finished questions are kept"
        if status in (401, 403):
            hint = f"set {KEY} to a key that the server accepts"
        elif "top_k" in message:
            hint = "this server knows no top_k: `--config` with `sampling: {top_k: -1}` leaves it out"
        elif status == httpx.codes.NOT_FOUND:
            hint = "check the model's name and the address, which ends in /v1"
        raise EngineError(f"{self.name}: HTTP {response.status_code}: {message}", hint=hint)

    def _reply(self, response: httpx.Response) -> ChatReply:
        try:
            body = response.json()
            choice, usage = body["choices"][0], body.get("usage") or {}
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
                f"{self.name}: the answer has another form: {self._without_key(response.text[:120])!r}",
                hint="the address must be that of an OpenAI-compatible server, up to and with /v1",
            ) from error

    def _message(self, response: httpx.Response) -> str:
        """Read the server's error message, on one line and without the API key, which some servers repeat."""
        try:
            body: Any = response.json()
            error = body.get("error") or body if isinstance(body, dict) else body
            parts = [error.get("message"), error.get("code")] if isinstance(error, dict) else [error]
            text = " ".join(str(part) for part in parts if part) or response.text
        except ValueError:
            text = response.text
        return self._without_key(" ".join(text.split())[:300]) or response.reason_phrase

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _status(response: httpx.Response) -> int:
    """Return the HTTP status; for an error inside a response with status 200, the error's code, else 503 to retry."""
    try:
        body = response.json() if response.status_code == httpx.codes.OK else {}
        error = body.get("error") or body["choices"][0].get("error")
        code = str(error.get("code") or "") if isinstance(error, dict) else ""
    except (ValueError, LookupError, TypeError, AttributeError):
        return response.status_code
    if not error:
        return response.status_code
    return int(code) if re.fullmatch("[45][0-9]{2}", code) else int(httpx.codes.SERVICE_UNAVAILABLE)


WIDTH = 4
"""Bytes of UTF-8 in one packed token: about the size of models' tokens."""

Ask = Callable[[Sequence[ChatRequest]], Iterator[tuple[int, ChatReply]]]
"""`ask(requests)`: (place, reply) in order of arrival, as from `Endpoint.replies`."""


class PackedText:
    """protocols.Tokenizer for models whose real tokens are unknown: each token holds four bytes of UTF-8.

    Prompts are the JSON of their turns, so that limits in tokens hold roughly and a prompt can be decoded.
    """

    end_token = None

    def render(self, messages: Messages, chat: str = "own") -> list[int]:
        """Encode the turns as JSON: the server applies the chat template."""
        del chat
        return self.encode(json.dumps(messages, ensure_ascii=False))

    def messages(self, token_ids: Sequence[int]) -> Messages:
        """Decode the turns of a prompt from `render`."""
        turns: Messages = json.loads(self.decode(token_ids))
        return turns

    def encode(self, text: str) -> list[int]:
        """Pack UTF-8 into tokens, padded with zero bytes."""
        raw = text.encode("utf-8", "replace")
        pieces = [raw[start : start + WIDTH] for start in range(0, len(raw), WIDTH)]
        return [int.from_bytes(piece.ljust(WIDTH, b"\0"), "big") for piece in pieces]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Unpack the text of tokens, without the padding."""
        raw = b"".join(token.to_bytes(WIDTH, "big") for token in token_ids)
        return raw.rstrip(b"\0").decode("utf-8", "replace")


class ChatSampler:
    """protocols.Sampler over an endpoint. Seeds are sent, but the server may ignore them.

    Log-probabilities are unknown and reported as 0: such responses cannot be trained on. A prompt that is too long for
    the server gets an empty response.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._tokenizer = PackedText()

    @property
    def tokenizer(self) -> PackedText:
        return self._tokenizer

    def load(self, checkpoint: Checkpoint) -> None:
        """Raise EngineError: a server's model cannot be replaced."""
        raise EngineError(f"an endpoint cannot load {checkpoint.checkpoint_id}", hint="it only answers prompts")

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """Sample one list of completions per group, in order. Raises EngineError if the server refuses for good."""
        places = [(place, row) for place, group in enumerate(groups) for row in range(len(group.seeds))]
        turns = [self._tokenizer.messages(group.token_ids) for group in groups]
        requests = [
            ChatRequest(messages=turns[place], params=params, seed=groups[place].seeds[row]) for place, row in places
        ]
        completions: list[dict[int, Completion]] = [{} for _ in groups]
        tokens = 0
        for count, (number, reply) in enumerate(self._ask(requests), 1):
            place, row = places[number]
            token_ids = self._tokenizer.encode(reply.text)
            completion = Completion(
                token_ids=token_ids,
                logprobs=[0.0] * len(token_ids),
                finish_reason="length" if reply.finish_reason == "length" else "stop",
            )
            completions[place][row] = completion
            tokens += reply.response_tokens
            keep(place, row, completion)
            progress(count, len(requests), tokens)
        return [[rows[row] for row in sorted(rows)] for rows in completions]
