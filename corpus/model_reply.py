"""JSON replies of a language model: checked, asked for again a bounded number of times, kept across a crash."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from infuser_core import faults
from infuser_core.engines.endpoint import ChatRequest, Endpoint
from infuser_core.engines.protocols import ChatModel, Messages, Progress, SamplingParams, no_progress

T = TypeVar("T")
MAX_CHARS = 50_000
"""What is read of one reply, characters."""


class ReplyProblem(ValueError):
    """Why a reply cannot be used; told to the model when it is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One reply of a model, and whether it could be used."""

    task: str
    """assign, merge, phrase or rank."""
    item: str
    """What was asked about: a pair, a question's id, a window of labels."""
    attempt: int
    """1 for the first time."""
    model: str
    """Name of the model."""
    reply: str
    """The reply; empty where it could repeat a question."""
    problem: str
    """Why it cannot be used; empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[T]):
    """Usable replies, and everything that was said."""

    values: list[T | None]
    """One per prompt, in order; None where no attempt gave a usable reply."""
    calls: list[ModelCall]
    """Every reply, in the order of the attempts."""


def ask(
    model: ChatModel,
    prompts: Sequence[Messages],
    parse: Callable[[int, dict[str, Any]], T],
    *,
    task: str,
    items: Sequence[str],
    max_tokens: int,
    attempts: int = 3,
    keep_replies: bool = True,
    progress: Progress = no_progress,
) -> Asked[T]:
    """One checked value per prompt. `parse(place, object)` raises ReplyProblem for an object that will not do.

    All prompts go to the model at once, then those without a usable reply with the problem named, `attempts` times in
    all: a greedy model repeats itself on an unchanged prompt.
    """
    values: list[T | None] = [None] * len(prompts)
    calls: list[ModelCall] = []
    ahead = {place: list(prompt) for place, prompt in enumerate(prompts)}
    for attempt in range(1, attempts + 1):
        if not ahead:
            break
        replies = model.complete(list(ahead.values()), max_tokens=max_tokens, progress=progress)
        for place, reply in zip(list(ahead), replies, strict=True):
            problem = ""
            try:
                values[place] = parse(place, first_object(reply))
                del ahead[place]
            except ReplyProblem as error:
                problem = str(error)
                ahead[place] = _again(prompts[place], problem)
            shown = reply if keep_replies else ""
            calls.append(
                ModelCall(task=task, item=items[place], attempt=attempt, model=model.name, reply=shown, problem=problem)
            )
    return Asked(values=values, calls=calls)


def first_object(reply: str) -> dict[str, Any]:
    """The first JSON object in a reply, after any thoughts. Raises ReplyProblem when there is none."""
    found = next(objects(reply.rpartition("</think>")[2]), None)
    if found is None:
        raise ReplyProblem("the reply has no JSON object")
    return found


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text, outermost ones, in order."""
    text = text[:MAX_CHARS]
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            yield found
        place = text.find("{", end)


def _again(prompt: Messages, problem: str) -> Messages:
    last = prompt[-1]
    note = f"An earlier reply to this could not be used: {problem}. Reply with the JSON object alone."
    return [*prompt[:-1], {**last, "content": f"{last['content']}\n\n{note}"}]


Ask = Callable[[Sequence[Messages], int], Iterator[tuple[int, str]]]
"""Prompts and a limit of the reply, tokens, to (place, reply) in order of arrival."""
AT_ONCE = 16
"""Prompts that a model on this machine is given at one time: what a kill can lose."""


def in_batches(open_model: Callable[[], ChatModel], at_once: int = AT_ONCE) -> Ask:
    """Ask a model batch by batch. It is opened when the first prompt needs it."""

    def ask(prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, str]]:
        model = open_model()
        for start in range(0, len(prompts), at_once):
            replies = model.complete(prompts[start : start + at_once], max_tokens=max_tokens)
            yield from enumerate(replies, start)

    return ask


def as_they_come(open_endpoint: Callable[[], Endpoint]) -> Ask:
    """Ask a model behind an address for greedy replies, several at a time."""

    def ask(prompts: Sequence[Messages], max_tokens: int) -> Iterator[tuple[int, str]]:
        endpoint = open_endpoint()
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        try:
            for place, reply in endpoint.replies([ChatRequest(messages=each, params=params) for each in prompts]):
                yield place, reply.text
        finally:
            endpoint.close()

    return ask


class KeptChat:
    """protocols.ChatModel whose replies outlive the process: one JSON line each, in `folder/<identity>.jsonl`."""

    def __init__(self, *, name: str, identity: str, ask: Ask, folder: Path) -> None:
        self._name, self._ask = name, ask
        self._path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.jsonl"
        self._known: dict[str, str] | None = None

    @property
    def name(self) -> str:
        """What the report shows."""
        return self._name

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """One reply per prompt: the kept one, or the model's. `progress` counts both."""
        known = self._read()
        keys = [_key(messages, max_tokens) for messages in prompts]
        ahead = {key: messages for key, messages in zip(keys, prompts, strict=True) if key not in known}
        names, before = list(ahead), len(prompts) - len(ahead)
        progress(before, len(prompts), 0)
        for done, (place, reply) in enumerate(self._ask(list(ahead.values()), max_tokens) if ahead else (), 1):
            self._keep(names[place], reply)
            known[names[place]] = reply
            progress(before + done, len(prompts), 0)
            faults.point("build:replied")
        return [known[key] for key in keys]

    def _read(self) -> dict[str, str]:
        """What is kept. A last line that a kill cut short is taken away, so that the next one stands by itself."""
        if self._known is None:
            self._known = {}
            data = self._path.read_bytes() if self._path.is_file() else b""
            whole = data[: data.rfind(b"\n") + 1]
            for line in whole.splitlines():
                row = json.loads(line)
                self._known[row["key"]] = row["reply"]
            if len(whole) < len(data):
                os.truncate(self._path, len(whole))
        return self._known

    def _keep(self, key: str, reply: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(json.dumps({"key": key, "reply": reply}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _key(messages: Messages, max_tokens: int) -> str:
    return hashlib.sha256(json.dumps([messages, max_tokens], sort_keys=True).encode()).hexdigest()
