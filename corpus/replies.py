"""A model's replies, kept one by one as they arrive: a killed build asks only for what was under way.

Replies are found again by model, prompt and limit, so an unchanged text is never judged twice, in whatever source.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from infuser_core import faults
from infuser_core.engines.endpoint import ChatRequest, Endpoint
from infuser_core.engines.protocols import ChatModel, Messages, Progress, SamplingParams, no_progress

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
