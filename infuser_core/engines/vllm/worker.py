"""The process around one vLLM engine: commands come through a pipe, finished responses go back through it.

Runs as `python -m infuser_core.engines.vllm.worker FD SETTINGS` in whichever environment holds vllm, and imports
nothing of the project but the logits processors. An exception ends the process: its last line is what the sampler
reports. Commands and replies are tuples of plain values, the first of which names them.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

BEAT_SECONDS = 1.0
"""Longest silence of an engine at work: the sampler tells a slow engine from a hung one by it."""

PROCESSORS = "infuser_core.engines.vllm.logits:"
"""Where vllm's own processes find the logits processors."""


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


class VLLMEngine:
    """A vLLM engine in this process: what a Server serves."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from vllm import SamplingParams, __version__
        from vllm.engine.arg_utils import EngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        self._version, self._params = __version__, SamplingParams
        # A response comes once, when it is complete: the engine copies what it has of each at every step otherwise.
        self._whole = RequestOutputKind.FINAL_ONLY
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                **settings,
                skip_tokenizer_init=True,
                trust_remote_code=False,
                enable_prefix_caching=True,
                # With the processors below, the "logit" of the sampled token is its log-probability at the sampling
                # temperature, which top-k and top-p leave as it is.
                logprobs_mode="processed_logits",
                logits_processors=[f"{PROCESSORS}NormaliseRaw", f"{PROCESSORS}NormaliseScaled"],
                generation_config="vllm",
                disable_log_stats=True,
            ),
            # Decides how many responses and tokens a step takes, where the settings do not: offline work, not serving.
            usage_context=UsageContext.LLM_CLASS,
        )

    def facts(self) -> dict[str, Any]:
        """Version, limits and dtype, in plain values."""
        config, limits = self._engine.model_config, self._engine.vllm_config.scheduler_config
        return {
            "vllm": self._version,
            "max_model_len": config.max_model_len,
            "dtype": str(config.dtype),
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
        }

    def busy(self) -> bool:
        """Whether responses are under way."""
        return bool(self._engine.has_unfinished_requests())

    def add(self, params: dict[str, Any], key: str, prompt: list[int], seed: int) -> None:
        """Take one more response to compute; `params` are SamplingParams by name and the tokens that end a response."""
        wanted = self._params(**params, seed=seed, logprobs=0, detokenize=False, output_kind=self._whole)
        self._engine.add_request(key, {"prompt_token_ids": prompt}, wanted)

    def step(self) -> list[Row]:
        """One token of every response under way, as far as memory goes; those that it completes."""
        return [_row(output) for output in self._engine.step()]

    def under_way(self) -> int:
        """Tokens of the responses that are not complete."""
        states = self._engine.output_processor.request_states.values()
        return sum(state.detokenizer.num_output_tokens() for state in states)

    def sleep(self) -> None:
        """Give the accelerator's memory back."""
        self._engine.sleep(level=1)

    def wake(self) -> None:
        """Take it again."""
        self._engine.wake_up()


def _row(output: Any) -> Row:
    (made,) = output.outputs
    tokens = list(made.token_ids)
    logprobs = [found[token].logprob for token, found in zip(tokens, made.logprobs, strict=True)]
    return Row(key=output.request_id, tokens=tokens, logprobs=logprobs, reason=str(made.finish_reason))


class Server:
    """An engine at its pipe."""

    def __init__(self, engine: VLLMEngine, pipe: Connection) -> None:
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
        for row in self._engine.step():
            self._say("done", row.key, row.tokens, row.logprobs, row.reason)
        if time.monotonic() - self._said > BEAT_SECONDS:
            self._say("beat", self._engine.under_way())

    def _obey(self, command: str, *values: Any) -> None:
        if command == "sample":
            params, prompt, rows = values
            for key, seed in rows:
                self._engine.add(params, key, list(prompt), seed)
            return
        {"sleep": self._engine.sleep, "wake": self._engine.wake}[command]()
        self._say("obeyed", command)

    def _say(self, *message: Any) -> None:
        self._said = time.monotonic()
        self._pipe.send(message)


def main(arguments: list[str], build: Callable[[dict[str, Any]], VLLMEngine] = VLLMEngine) -> None:
    """Build an engine from `FD SETTINGS` and serve it."""
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    pipe = Connection(int(arguments[0]))
    Server(build(json.loads(arguments[1])), pipe).serve()


def _follow_parent(parent: int) -> None:
    """End the whole process group when the sampler's process is gone, even in the middle of loading."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
