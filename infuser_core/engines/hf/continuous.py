"""Decode rows of many groups at once: a row joins as another one ends, and an accelerator replays a captured step.

As many rows run as the memory that is free holds at their present lengths. When they have grown, the cache is moved to
a longer one; rows that no longer fit wait with the tokens that they have, and later continue. The host waits for the
device once every `BURST` tokens. Shapes: _R rows of the cache, _V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.engines.draws import pick_tokens, uniforms
from infuser_core.engines.hf.causal_lm import hidden_states
from infuser_core.engines.hf.layouts import PrefillLayout, SlotCache
from infuser_core.engines.hf.limits import most_positions, require_finite
from infuser_core.engines.hf.output_head import OutputHead
from infuser_core.engines.local.memory import SHARE, free_memory
from infuser_core.errors import EngineError
from infuser_core.protocols import Completion, Keep, Progress, PromptGroup, SamplingParams
from infuser_core.store.series import Series
from infuser_core.system import fault_points as faults

BURST = 8
"""Tokens of every row between two looks at them: a row that has ended computes half as many in vain."""
GRAIN = 256
"""The cache's capacity, in tokens of a row, is a multiple of this."""
SLACK = 1.25
"""Capacity of a new cache over what its rows need: moving copies all of it."""
MOST_ROWS = 512
"""More rows make a step longer by nearly as much as they add tokens."""
LOGIT_BYTES = 24
"""Bytes per logit of a step: fp32 logits, log-probabilities and probabilities, and fp64 sums."""
EAGER_STEPS = 32
"""Steps of a new cache before one is captured, which takes as long as dozens of them."""
TOLERANCE = 0.05
"""Largest mean difference of log-probabilities between a captured and a plain step, nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRow:
    """State of one response: its group and seed, the prompt that it continues, and its tokens."""

    place: int
    """Number of its group."""
    number: int
    """Number of its seed."""
    prompt: list[int]
    seed: int
    limit: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def need(self) -> int:
        """Cached tokens after the next burst."""
        return len(self.prompt) + len(self.tokens) - 1 + BURST

    def completion(self, reason: Literal["stop", "length"]) -> Completion:
        """Return the finished response."""
        return Completion(
            token_ids=Series.of(np.array(self.tokens, dtype=np.int64), int),
            logprobs=Series.of(np.array(self.logprobs, dtype=np.float32), float),
            finish_reason=reason,
        )


class Decoder:
    """Decodes the responses to some groups; `free` measures the free memory of a device, bytes."""

    _replay: Callable[[], None] | None
    _logits_RV: Tensor | None

    def __init__(
        self,
        model: PreTrainedModel,
        params: SamplingParams,
        ends: Sequence[int],
        *,
        prefill_tokens: int,
        free: Callable[[torch.device], int] = free_memory,
    ) -> None:
        self._model, self._params, self._ends = model, params, frozenset(ends)
        self._head, self._device, self._prefill_tokens = OutputHead(model), model.device, prefill_tokens
        self._logit_bytes = LOGIT_BYTES * int(model.config.get_text_config().vocab_size)
        self._last_position = (most_positions(model.config) or 1 << 62) - 1
        self._records, self._most_rows, self._waiting = self._device.type == "cuda", MOST_ROWS, list[DecodedRow]()
        self._facts: dict[str, Any] = {"decoding": "continuous"}
        self._use(SlotCache(1, 1, self._device), 1)
        self._forward()
        self._token_bytes = self._cache.bytes_per_token()
        self._use(SlotCache(0, 0, self._device), 0)
        self._memory = SHARE * free(self._device)

    def facts(self) -> dict[str, Any]:
        """Describe the decoding, for an artifact's record: most rows at a time, a refused capture, lack of memory."""
        return self._facts

    def run(self, groups: Sequence[PromptGroup], progress: Progress, keep: Keep) -> list[list[Completion]]:
        """Decode until every row has ended or reached its limit; completions come in the order of groups and seeds."""
        rows = [
            DecodedRow(place=place, number=number, prompt=group.token_ids, seed=seed, limit=group.limit(self._params))
            for place, group in enumerate(groups)
            for number, seed in enumerate(group.seeds)
        ]
        results: dict[tuple[int, int], Completion] = {}
        tokens = 0
        # Taken from the end: longest prompts first, so that a prefill call pads little.
        self._waiting = sorted(rows, key=lambda row: (len(row.prompt), -row.place, -row.number))
        while self._waiting or any(self._rows):
            for row, completion in self._advance():
                results[row.place, row.number] = completion
                tokens += len(row.tokens)
                keep(row.place, row.number, completion)
            progress(len(results), len(rows), tokens)
        return [[results[place, number] for number in range(len(group.seeds))] for place, group in enumerate(groups)]

    def _advance(self) -> list[tuple[DecodedRow, Completion]]:
        """Admit rows and decode a burst; returns the rows that ended. If memory runs out, half of the rows continue."""
        try:
            has_moved = self._move()
            if self._admit() or has_moved:
                self._upload()
            return self._collect(*self._decode())
        except torch.OutOfMemoryError as error:
            if self._count <= 1:
                raise EngineError(
                    f"one response does not fit into the memory: {str(error).splitlines()[0]}",
                    hint="choose a smaller model, or lower the limits of prompts and responses",
                ) from error
            self._facts.setdefault("ran_out_of_memory", []).append(f"{self._count} rows")
        # Outside of the handler: the error's frames hold tensors.
        self._most_rows = self._count // 2
        self._waiting += [row for row in self._rows if row]
        self._use(SlotCache(0, 0, self._device), 0)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return []

    def _move(self) -> bool:
        """Move to another cache if rows outgrow this one, or if it is twice as large as they need; tells whether."""
        running = [row for row in self._rows if row]
        need = max(row.need for row in [*running, *self._waiting[-1:]])
        capacity = -(-int(SLACK * need) // GRAIN) * GRAIN
        is_wide = not self._waiting and 2 * len(running) <= len(self._rows)
        if need <= self._cache.longest < 2 * capacity and not is_wide:
            return False
        most = min(self._most_rows, int(self._memory // (capacity * self._token_bytes + self._logit_bytes)))
        self._count = max(1, min(most, len(running) + len(self._waiting)))
        # Rows with the most tokens stay: the keys of others are sooner computed again.
        running.sort(key=lambda row: -len(row.tokens))
        stay = running[: self._count]
        # Frees the memory of a captured step.
        self._replay = self._logits_RV = None
        cache = self._cache.resized([self._rows.index(row) for row in stay], self._count, capacity)
        self._waiting += running[self._count :]
        self._use(cache, self._count)
        self._rows[: len(stay)] = stay
        self._facts["rows"] = max(self._count, self._facts.get("rows", 0))
        return True

    def _use(self, cache: SlotCache, count: int) -> None:
        """Start with a cache of `count` rows, none of them in use."""
        self._cache, self._count, self._steps = cache, count, 0
        self._replay = self._logits_RV = None
        self._rows: list[DecodedRow | None] = [None] * count
        self._inputs_R, self._seeds_R, self._positions_R = torch.zeros(3, count, dtype=torch.int64, device=self._device)

    def _admit(self) -> bool:
        """Give free rows of the cache to waiting responses, and compute their keys; returns whether there were any."""
        joining: dict[tuple[int, ...], list[int]] = {}
        for place, row in enumerate(self._rows):
            if row is None and self._waiting and self._waiting[-1].need <= self._cache.longest:
                new = self._rows[place] = self._waiting.pop()
                joining.setdefault(tuple([*new.prompt, *new.tokens][:-1]), []).append(place)
        # The last token is the next step's input. Longest first: the first prompt of a call sets its width.
        texts = sorted(filter(None, joining), key=lambda text: -len(text))
        while texts:
            width = len(texts[0])
            call = texts[: max(1, self._prefill_tokens // width)]
            texts = texts[len(call) :]
            ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in call], device=self._device)
            pairs = [(place, number) for number, text in enumerate(call) for place in joining[text]]
            layout = PrefillLayout(self._cache.joining(pairs), 0, width)
            hidden_states(self._model, ids, torch.arange(width, device=self._device).expand(len(call), width), layout)
        return bool(joining)

    def _upload(self) -> None:
        """Write the last token, seed and counts of every row to the device."""
        state = np.zeros((4, len(self._rows)), dtype=np.int64)
        for place, row in enumerate(self._rows):
            if row:
                counts = len(row.prompt) + len(row.tokens) - 1, len(row.tokens)
                state[:, place] = (*row.prompt, *row.tokens)[-1], np.uint64(row.seed).view(np.int64), *counts
        tensors = (self._inputs_R, self._seeds_R, self._cache.lengths_R, self._positions_R)
        for tensor, values in zip(tensors, torch.from_numpy(state).to(self._device), strict=True):
            tensor.copy_(values)

    def _decode(self) -> tuple[Tensor, Tensor]:
        """Decode `BURST` tokens of every row: tokens and log-probabilities [BURST, R] on the CPU."""
        if faults.runs_out_of_memory("sampler:burst"):
            raise torch.OutOfMemoryError("injected: out of memory")
        results = []
        for _ in range(BURST):
            results.append(pick_tokens(self._step(), uniforms(self._seeds_R, self._positions_R), self._params))
            self._inputs_R.copy_(results[-1][0])
            self._positions_R.add_(1)
            # A row without a response, or past its end, may not leave the cache.
            self._cache.lengths_R.add_(1).clamp_(max=self._cache.longest - 1)
        tokens, logprobs = (torch.stack(each).cpu() for each in zip(*results, strict=True))
        return tokens, logprobs

    def _step(self) -> Tensor:
        """Compute the next token's logits [R, V] of every row, and store the keys of its input."""
        if self._records and self._steps == EAGER_STEPS:
            self._record()
        self._steps += 1
        if self._replay is None or self._logits_RV is None:
            return self._forward()
        self._replay()
        return self._logits_RV

    def _forward(self) -> Tensor:
        positions_R = self._cache.lengths_R.clamp(max=self._last_position)
        hidden = hidden_states(self._model, self._inputs_R[:, None], positions_R[:, None], self._cache)
        return self._head.logits(hidden[:, 0])

    def _record(self) -> None:
        """Capture a step, if the model allows it and the captured step computes what the plain one does."""
        plain_RV = self._forward()
        try:
            replay, logits_RV = self._capture()
            replay()
            gap = float((logits_RV - plain_RV).abs().mean())
            reason = "" if gap <= TOLERANCE else f"logits differ by {gap:.2g}"
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:200]
        if reason:
            self._records, self._facts["not_captured"] = False, reason
        else:
            self._replay, self._logits_RV = replay, logits_RV

    def _capture(self) -> tuple[Callable[[], None], Tensor]:
        """Capture a step on CUDA: a function that repeats it, and the logits that it overwrites."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, e.g. to write files.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            logits_RV = self._forward()
        return graph.replay, logits_RV

    def _collect(self, tokens_BR: Tensor, logprobs_BR: Tensor) -> list[tuple[DecodedRow, Completion]]:
        """Add a burst to every row; returns the rows that ended, which leave the cache."""
        completions = []
        running = [place for place, row in enumerate(self._rows) if row]
        require_finite(self._model, logprobs_BR[:, running])
        for place, tokens, logprobs in zip(
            running, tokens_BR.T[running].tolist(), logprobs_BR.T[running].tolist(), strict=True
        ):
            row = self._rows[place]
            assert row is not None
            count = min(BURST, row.limit - len(row.tokens))
            count = next((length for length, token in enumerate(tokens[:count], 1) if token in self._ends), count)
            row.tokens.extend(tokens[:count])
            row.logprobs.extend(logprobs[:count])
            reason: Literal["stop", "length"] = "stop" if row.tokens[-1] in self._ends else "length"
            if reason == "stop" or len(row.tokens) == row.limit:
                self._rows[place] = None
                completions.append((row, row.completion(reason)))
        return completions
