"""The process around one engine: commands come through a pipe, finished responses go back through it.

A module that runs as `python -m MODULE FD SETTINGS` calls `main` with its engine's class. Only the standard library is
needed here: the process may run in another environment than the sampler. An exception ends the process: its last line
is what the sampler reports. Commands and replies are tuples of plain values, the first of which names them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from infuser_core.system.worker import connect

BEAT_SECONDS = 1.0
"""Longest silence of an engine at work: the sampler tells a slow engine from a hung one by it."""

FORCED = "forced"
"""Parameter of requests that want the log-probabilities of given responses: these, by the key of the request."""

COMMANDS = ("load", "checksums", "sleep", "wake")
"""Methods of an engine that are called from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One complete response."""

    key: str
    """Group and sample, as the sampler named them."""
    tokens: list[int]
    """Response tokens."""
    logprobs: list[float]
    """Their log-probabilities, nats."""
    reason: str
    """Why it ended."""


class Engine(Protocol):
    """Computes responses beside each other, one step at a time."""

    def facts(self) -> dict[str, Any]:
        """Plain values; `max_num_seqs` are the responses that it wants to hold at a time."""

    def busy(self) -> bool:
        """Whether responses are under way."""

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        """Take one more response to compute; `params` are SamplingParams by name, the tokens that end a response, and
        for fixed responses FORCED."""

    def step(self) -> list[Row]:
        """Go on with what is under way; the responses that are complete."""

    def under_way(self) -> int:
        """Tokens of the responses that are not complete."""

    def load(self) -> None:
        """Take the weights that lie in the model's folder now, of the same shapes as before."""

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        """Checksums (service.checksum) in that dtype of tensors that it knows as they are held, one for each form."""

    def sleep(self) -> None:
        """Give the accelerator's memory back."""

    def wake(self) -> None:
        """Take it again."""


class Server:
    """An engine at its pipe."""

    def __init__(self, engine: Engine, pipe: Connection) -> None:
        self._engine, self._pipe = engine, pipe
        self._said = time.monotonic()

    def serve(self) -> None:
        """Obey until the pipe closes."""
        self._say("ready", self._engine.facts())
        try:
            while True:
                self._turn()
        except EOFError:
            return

    def _turn(self) -> None:
        """Take all waiting commands, waiting for one where there is no work; then one step of the engine."""
        while not self._engine.busy() or self._pipe.poll():
            self._obey(*self._pipe.recv())
        # One message: what an engine computed as one batch is kept as a whole or not at all.
        if rows := self._engine.step():
            self._say("done", [(row.key, row.tokens, row.logprobs, row.reason) for row in rows])
        if time.monotonic() - self._said > BEAT_SECONDS:
            self._say("beat", self._engine.under_way())

    def _obey(self, command: str, *values: Any) -> None:
        if command == "sample":
            params, prompt, rows = values
            for key, seed in rows:
                self._engine.add(params, key, list(prompt), seed)
            return
        assert command in COMMANDS
        self._say("obeyed", command, getattr(self._engine, command)(*values))

    def _say(self, *message: Any) -> None:
        self._said = time.monotonic()
        self._pipe.send(message)


def main(arguments: list[str], build: Callable[[dict[str, Any]], Engine]) -> None:
    """Build an engine from `FD SETTINGS` and serve it."""
    pipe = connect(arguments[0])
    Server(build(json.loads(arguments[1])), pipe).serve()
