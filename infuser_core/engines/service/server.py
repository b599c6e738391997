"""Server loop of a sampling engine's process: receives commands through a pipe, and sends back finished responses.

A module that runs as `python -m MODULE FD SETTINGS` calls `main` with its engine's class. Only the standard library is
needed here: the process may run in another environment than the sampler. An exception ends the process, and the sampler
reports its last line. Commands and replies are tuples of plain values, the first of which names them.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from infuser_core.system.worker import connect

BEAT_SECONDS = 1.0
"""Longest silence of an engine at work: lets the sampler distinguish a slow engine from a hung one."""

FORCED = "forced"
"""Parameter of requests for log-probabilities of fixed responses: these responses by key of the request."""

ADAPTER = "adapter"
"""Folder with the adapter's files, in the working folder of an engine that takes adapters by request."""

COMMANDS = ("load", "checksums", "sleep", "wake")
"""Methods of an engine that the sampler calls by commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished response."""

    key: str
    """Key of the request."""
    tokens: list[int]
    """Response tokens."""
    logprobs: list[float]
    """Their log-probabilities, nats."""
    reason: str
    """`stop`, `length`, or why the engine gave it up."""


class Engine(Protocol):
    """A sampling engine, which computes several responses at the same time, step by step."""

    def facts(self) -> dict[str, Any]:
        """Describe the engine in plain values; `max_num_seqs`: number of responses that it computes at a time."""

    def busy(self) -> bool:
        """Whether unfinished responses remain."""

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        """Queue a response to compute.

        `params` are SamplingParams by name, `stop_token_ids`, and for fixed responses FORCED.
        """

    def step(self) -> list[Row]:
        """Compute the next step; returns the responses that it completes."""

    def under_way(self) -> int:
        """Count the tokens of unfinished responses."""

    def load(self) -> None:
        """Read the weights that are now in the model's folder, of the same shapes as before."""

    def checksums(self, shapes: dict[str, list[int]], dtype: str) -> dict[str, list[int]]:
        """Compute checksums (service.checksum) of tensors in `dtype`, one for each form in which it holds a tensor."""

    def sleep(self) -> int:
        """Free the accelerator's memory; returns 1 if it keeps its weights, 2 if it must `load` after `wake`."""

    def wake(self) -> None:
        """Allocate the accelerator's memory again."""


class Server:
    """Runs an engine on commands from a pipe, and sends results into it."""

    def __init__(self, engine: Engine, pipe: Connection) -> None:
        self._engine, self._pipe = engine, pipe
        self._last_message = time.monotonic()

    def serve(self) -> None:
        """Obey commands and compute until the pipe closes."""
        self._send("ready", self._engine.facts())
        with suppress(EOFError):
            while True:
                while not self._engine.busy() or self._pipe.poll():
                    self._obey(*self._pipe.recv())
                # One message: responses that an engine computed as one batch are stored together or not at all.
                if rows := self._engine.step():
                    self._send("done", [(row.key, row.tokens, row.logprobs, row.reason) for row in rows])
                if time.monotonic() - self._last_message > BEAT_SECONDS:
                    self._send("beat", self._engine.under_way())

    def _obey(self, command: str, *values: Any) -> None:
        if command == "sample":
            params, prompt, rows = values
            for key, seed in rows:
                self._engine.add(params, key, list(prompt), seed)
            return
        assert command in COMMANDS
        self._send("obeyed", command, getattr(self._engine, command)(*values))

    def _send(self, *message: Any) -> None:
        self._last_message = time.monotonic()
        self._pipe.send(message)


def main(arguments: list[str], build: Callable[[dict[str, Any]], Engine]) -> None:
    """Build an engine from `FD SETTINGS` and serve it."""
    pipe = connect(arguments[0])
    Server(build(json.loads(arguments[1])), pipe).serve()
