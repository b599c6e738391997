"""A sampler made of vLLM engines, one per accelerator or tensor-parallel group, each a process of its own.

Nothing here imports vllm. Groups wait in one queue and go to the engine with the least left to do, so that no engine
waits for another and a long response holds up nothing but itself.
"""

import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from infuser_core.adapters import base_of
from infuser_core.engines.hf.causal_lm import (
    choose_device,
    choose_dtype,
    device_name,
    folder_ends,
    link_model_files,
    read_config,
    save_merged,
)
from infuser_core.engines.hf.renderer import Renderer, require_room
from infuser_core.engines.protocols import (
    Completion,
    Keep,
    Progress,
    PromptGroup,
    SamplingParams,
    no_keep,
    no_progress,
)
from infuser_core.engines.vllm.process import EngineProcess, VLLMOptions, interpreter, launches
from infuser_core.engines.vllm.sync_check import PARAMS, Agreement, Reference, fixed_groups
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint, Role
from infuser_core.series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A group and the engine that it goes to."""

    engine: int
    """Place of the engine."""
    place: int
    """Place of the group in the caller's list."""


class GroupQueue:
    """Waiting groups, and what each engine was given and has not finished.

    An engine is given no more than `capacity` rows at a time: what it could not compute yet stays for the others. A
    group stays together, so that its prompt is computed once.
    """

    def __init__(self, groups: Sequence[PromptGroup], max_tokens: int, *, engines: int, capacity: int) -> None:
        self._rows = [len(group.seeds) for group in groups]
        self._costs = [len(group.token_ids) + len(group.seeds) * max_tokens for group in groups]
        places = [place for place, rows in enumerate(self._rows) if rows]
        self._waiting = deque(sorted(places, key=lambda place: -self._costs[place]))
        self._capacity = capacity
        self._rows_left = [0] * engines
        self._costs_left = [0.0] * engines

    def assign(self) -> list[Assignment]:
        """Groups that engines have room for now."""
        given = []
        while self._waiting:
            rows = self._rows[self._waiting[0]]
            free = [e for e, left in enumerate(self._rows_left) if left == 0 or left + rows <= self._capacity]
            if not free:
                break
            engine = min(free, key=lambda e: (self._costs_left[e], e))
            place = self._waiting.popleft()
            self._rows_left[engine] += rows
            self._costs_left[engine] += self._costs[place]
            given.append(Assignment(engine=engine, place=place))
        return given

    def finish_row(self, engine: int, place: int) -> None:
        """One response of a group is complete."""
        self._rows_left[engine] -= 1
        self._costs_left[engine] -= self._costs[place] / self._rows[place]

    def busy(self) -> list[int]:
        """Engines with work left."""
        return [engine for engine, left in enumerate(self._rows_left) if left]


TICK_SECONDS = 1.0
"""Longest time between two looks at engines that say nothing."""


class Draw:
    """One call of `sample`: the queue, what has come back, and the engines that compute the rest."""

    def __init__(
        self,
        engines: Sequence[EngineProcess],
        bell: threading.Event,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        ends: Sequence[int],
        capacity: int,
        silent_seconds: float,
    ) -> None:
        self._engines, self._bell, self._groups, self._silent = engines, bell, groups, silent_seconds
        self._params = {**asdict(params), "stop_token_ids": list(ends)}
        self._queue = GroupQueue(groups, params.max_tokens, engines=len(engines), capacity=capacity)
        self._rows: list[list[Completion | None]] = [[None] * len(group.seeds) for group in groups]
        self._missing = [len(group.seeds) for group in groups]
        self._done, self._tokens = 0, 0
        # Tokens of unfinished responses, by engine, as it last told.
        self._under_way = [0] * len(engines)

    def run(self, progress: Progress, keep: Keep) -> list[list[Completion]]:
        """Every group's completions. Raises EngineError for an engine that died or hung."""
        total = sum(self._missing)
        self._give()
        while busy := self._queue.busy():
            self._bell.wait(TICK_SECONDS)
            # Before the engines are heard: whatever comes from here on rings again.
            self._bell.clear()
            for engine in busy:
                self._hear(engine, keep)
            self._give()
            progress(self._done, total, self._tokens + sum(self._under_way))
        return [[row for row in rows if row is not None] for rows in self._rows]

    def _give(self) -> None:
        idle = set(range(len(self._engines))) - set(self._queue.busy())
        for given in self._queue.assign():
            group, engine = self._groups[given.place], self._engines[given.engine]
            if given.engine in idle:
                # It had nothing to say until now.
                engine.heard = time.monotonic()
            rows = [(f"{given.place}/{i}", seed) for i, seed in enumerate(group.seeds)]
            engine.send("sample", self._params, list(group.token_ids), rows)

    def _hear(self, engine: int, keep: Keep) -> None:
        """Everything that an engine has said by now. Raises EngineError for one that died or is late."""
        process = self._engines[engine]
        while (said := process.receive()) is not None:
            kind, *values = said
            if kind == "beat":
                self._under_way[engine] = values[0]
            else:
                assert kind == "done"
                self._finish(engine, keep, *values)
        process.require_pace(self._silent)

    def _finish(self, engine: int, keep: Keep, key: str, tokens: list[int], logprobs: list[float], reason: Any) -> None:
        if reason not in ("stop", "length"):
            raise self._engines[engine].hung(f"gave up a response: {reason}")
        place, row = map(int, key.split("/"))
        self._rows[place][row] = Completion(
            token_ids=Series.of(tokens, int), logprobs=Series.of(logprobs, float), finish_reason=reason
        )
        self._queue.finish_row(engine, place)
        self._under_way[engine] = max(0, self._under_way[engine] - len(tokens))
        self._done, self._tokens = self._done + 1, self._tokens + len(tokens)
        self._missing[place] -= 1
        if not self._missing[place]:
            keep(place, [completion for completion in self._rows[place] if completion is not None])


class VLLMSampler:
    """protocols.Sampler over vLLM engines; `options` are the fields of VLLMOptions.

    Whatever goes wrong ends every engine; the next request starts fresh ones with the same checkpoint.
    """

    def __init__(self, *, dtype: str = "bfloat16", device: str = "auto", threads: int = 1, **options: Any) -> None:
        choose_dtype(dtype)
        if dtype == "float64":
            raise EngineError("vLLM computes in float32 or bfloat16, not in float64", hint="set engine.dtype")
        self._options = VLLMOptions(**options)
        interpreter(self._options)
        self._dtype, self._device, self._threads = dtype, choose_device(device), threads
        self._engines: list[EngineProcess] = []
        self._bell = threading.Event()
        self._folder: Path | None = None
        self._scratch: Path | None = None
        self._renderer: Renderer | None = None
        self._asleep = False
        self._limit: int | None = None
        self._longest: int | None = None
        self.agreements: list[Agreement] = []
        """Findings of the check after the last change of weights, by engine."""

    @property
    def tokenizer(self) -> Renderer:
        """The loaded checkpoint's tokenizer."""
        if self._renderer is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        return self._renderer

    def facts(self) -> dict[str, Any]:
        """Device and kernels, for an artifact's record."""
        return {
            "engine": "vllm",
            "device": device_name(self._device),
            "dtype": self._dtype,
            "engines": len(self._engines),
            "max_model_len": self._limit,
        }

    @property
    def pids(self) -> list[int]:
        """Process ids of the running engines; each is the id of a process group."""
        return [engine.pid for engine in self._engines]

    def load(self, checkpoint: Checkpoint) -> None:
        """Take the checkpoint's weights and tokenizer, and check that the engines compute with them.

        Raises EngineError where their log-probabilities are not the checkpoint's own.
        """
        folder = Path(checkpoint.path)
        config = read_config(folder).get_text_config()
        self._renderer = Renderer(folder)
        self._ends = folder_ends(folder, self._renderer.end_token)
        self._vocabulary = int(config.vocab_size)
        # Judges and other readers of the corpus are asked things of any length.
        longest = self._options.max_model_len if checkpoint.role in (Role.SOLVER, Role.GENERATOR) else None
        limits = [getattr(config, "max_position_embeddings", None), longest]
        self._limit = min((limit for limit in limits if limit), default=None)
        self._longest = None if longest is None else self._limit
        self._folder = folder
        self._take(folder)

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """One completion per seed and group, in the caller's order; `keep(place, completions)` as groups end.

        Raises EngineError for an unusable prompt, and for an engine that died or hung, with its reason.
        """
        if self._folder is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        require_room(groups, params, self._limit)
        if not self._engines:
            self._take(self._folder)
        self.wake()
        return self._draw(self._engines, groups, params, progress, keep)

    def sleep(self) -> None:
        """Free the accelerators' memory until the next request: weights move to the host, cached prompts are lost."""
        if self._engines and not self._asleep:
            self._ask("sleep")
            self._asleep = True

    def wake(self) -> None:
        """Take the memory back."""
        if self._asleep:
            self._ask("wake")
            self._asleep = False

    def close(self) -> None:
        """End every engine."""
        self._end()
        if self._scratch is not None:
            rmtree(self._scratch, ignore_errors=True)

    def __del__(self) -> None:
        if getattr(self, "_engines", None):
            self.close()

    def _take(self, folder: Path) -> None:
        """Fresh engines that hold the folder's weights, and the proof. vLLM's own reload gets some models wrong."""
        with self._whole(), closing(Reference(folder)) as reference:
            self.close()
            self._start(folder)
            groups = fixed_groups(self._vocabulary)
            drawn = [self._draw([engine], groups, PARAMS, no_progress, no_keep) for engine in self._engines]
            names = [engine.name for engine in self._engines]
            self.agreements = reference.check(names, groups, drawn, self._dtype)

    def _view(self, folder: Path, scratch: Path) -> str:
        """Name in `scratch` of a folder of links to the model's files: the engine would take optimizer state for
        weights. With adapters merged, where these are what the folder holds."""
        view = scratch / "model"
        view.mkdir()
        if base_of(folder) is None:
            link_model_files(folder, view)
        else:
            save_merged(folder, view, dtype=choose_dtype(self._dtype))
        return f"./{view.name}"

    def _start(self, folder: Path) -> None:
        self._scratch = scratch = Path(tempfile.mkdtemp(prefix="infuser-vllm-"))
        planned = launches(
            replace(self._options, max_model_len=self._longest),
            model=self._view(folder, scratch),
            scratch=scratch,
            dtype=self._dtype,
            device=self._device,
            threads=self._threads,
        )
        for launch in planned:
            self._engines.append(EngineProcess(launch, self._bell))
        ready = [engine.expect("ready", seconds=self._options.start_seconds)[1] for engine in self._engines]
        self._capacity = min(facts["max_num_seqs"] for facts in ready)

    def _draw(
        self,
        engines: Sequence[EngineProcess],
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        progress: Progress,
        keep: Keep,
    ) -> list[list[Completion]]:
        draw = Draw(
            engines,
            self._bell,
            groups,
            params,
            ends=self._ends,
            capacity=self._capacity,
            silent_seconds=self._options.silent_seconds,
        )
        with self._whole():
            return draw.run(progress, keep)

    def _ask(self, command: str) -> None:
        """Let every engine do something, all at the same time."""
        with self._whole():
            for engine in self._engines:
                engine.send(command)
            for engine in self._engines:
                engine.expect("obeyed", command, seconds=self._options.start_seconds)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Whatever goes wrong inside ends every engine: they hold something else, or compute for nobody."""
        with ExitStack() as failed:
            failed.callback(self._fail)
            yield
            failed.pop_all()

    def _fail(self) -> None:
        """End every engine and let its output lie, which the error names."""
        self._end()
        self._scratch = None

    def _end(self) -> None:
        for engine in self._engines:
            engine.kill()
        self._engines, self._asleep = [], False
