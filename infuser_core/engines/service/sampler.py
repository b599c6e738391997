"""A sampler made of engines in processes of their own: on this machine, or on every machine of a Ray cluster.

Nothing here imports vllm or ray.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from infuser_core.engines.cluster.layout import Cluster
from infuser_core.engines.cluster.remote_workers import RemoteEngines, engines_of
from infuser_core.engines.hf.causal_lm import choose_device, choose_dtype, device_name, folder_ends, read_config
from infuser_core.engines.hf.limits import most_positions
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
from infuser_core.engines.service.draw import Draw
from infuser_core.engines.service.handover import Board, fixed_prompts
from infuser_core.engines.service.launch import HF, START_SECONDS, VLLM, ServiceOptions, interpreter
from infuser_core.engines.service.local_engines import LocalEngines
from infuser_core.engines.service.sync_check import Agreement, Claim, HandedOver, Reference, precision
from infuser_core.errors import EngineError, EngineWarning
from infuser_core.schemas import Checkpoint, Role
from infuser_core.system.worker import Peer, WorkerProcess, wait

EngineGroups = Sequence[LocalEngines | RemoteEngines]
"""The engines of this machine, or of each machine of a cluster."""


class ServiceSampler:
    """protocols.Sampler over engines in processes of their own; `options` are the fields of ServiceOptions.

    With `cluster`, every machine of it has engines, and all of them must see the checkpoints' folders. Weights on the
    `board` are taken from there. Whatever goes wrong ends every engine; the next request starts fresh ones with the
    same checkpoint.
    """

    def __init__(
        self,
        *,
        dtype: str,
        device: str,
        threads: int,
        cluster: Cluster | None = None,
        board: Board | None = None,
        **options: Any,
    ) -> None:
        choose_dtype(dtype)
        self._dtype, self._device = dtype, choose_device(device)
        self._options = ServiceOptions(device=self._device.type, dtype=dtype, threads=threads, **options)
        if dtype == "float64" and self._options.worker == VLLM:
            raise EngineError("vLLM computes in float32 or bfloat16, not in float64", hint="set engine.dtype")
        interpreter(self._options.worker)
        self._cluster, self._board = cluster, board
        self._groups: EngineGroups = []
        self._bell = threading.Event()
        self._folder: Path | None = None
        self._renderer: Renderer | None = None
        self._engine_facts: dict[str, Any] = {}
        self._asleep = False
        self._shape: Any = None
        self._limit: int | None = None
        self._longest: int | None = None
        self._own: frozenset[str] = frozenset()
        self.channel = ""
        """Way that the weights took last: `fresh` engines, their own look at `files`, or the trainer's `memory`."""
        self.starts = 0
        """Times that engines were started; weights they took while they ran do not count."""
        self.agreements: list[Agreement] = []
        """Findings of the check after the last change of weights, by engine."""

    @property
    def tokenizer(self) -> Renderer:
        if self._renderer is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        return self._renderer

    def facts(self) -> dict[str, Any]:
        """Device and kernels, for an artifact's record."""
        return {
            "engine": {VLLM: "vllm", HF: "hf"}.get(self._options.worker, self._options.worker),
            "device": device_name(self._device),
            "dtype": self._dtype,
            "engines": len(self._engines),
            "machines": len(self._groups),
            "weights": self.channel,
            "max_model_len": self._limit,
            **{name: self._engine_facts[name] for name in ("vllm", "head_dtype") if name in self._engine_facts},
        }

    @property
    def pids(self) -> list[int]:
        """Process ids of the running engines, each on its own machine; each is the id of a process group."""
        return [engine.pid for engine in self._engines]

    def load(self, checkpoint: Checkpoint) -> None:
        """Take the checkpoint's weights and tokenizer.

        Raises EngineError where their log-probabilities are not the checkpoint's own.
        """
        folder = Path(checkpoint.path)
        config = read_config(folder)
        text = config.get_text_config()
        self._renderer = Renderer(folder)
        self._ends = folder_ends(folder, self._renderer.end_token)
        self._vocabulary = int(text.vocab_size)
        # Judges and other readers of the corpus are asked things of any length.
        longest = self._options.max_model_len if checkpoint.role in (Role.SOLVER, Role.GENERATOR) else None
        limits = [most_positions(config), longest]
        self._limit = min((limit for limit in limits if limit), default=None)
        self._longest = None if longest is None else self._limit
        self._folder = folder
        self._take(folder, shape=(self._longest, {**config.to_dict(), "_name_or_path": ""}))

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """One completion per seed and group, in order.

        Raises EngineError for an unusable prompt, and for an engine that died or hung, with its reason.
        """
        if self._folder is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        require_room(groups, params, self._limit, self._vocabulary)
        if not self._groups:
            self._take(self._folder, shape=self._shape)
        self.wake()
        return self._draw(self._engines, groups, params, progress, keep)

    def sleep(self) -> None:
        """Free the accelerators' memory until the next request: weights move to the host, cached prompts are lost."""
        if self._groups and not self._asleep:
            self._ask("sleep")
            self._asleep = True

    def wake(self) -> None:
        """Take the memory back."""
        if self._asleep:
            self._ask("wake")
            self._asleep = False

    def close(self) -> None:
        """End every engine."""
        self._end(keep_output=False)

    def __del__(self) -> None:
        if getattr(self, "_groups", None):
            self.close()

    @property
    def _engines(self) -> list[Peer]:
        return [engine for group in self._groups for engine in group.engines]

    @property
    def _places(self) -> set[str]:
        return {group.machine for group in self._groups}

    def _take(self, folder: Path, *, shape: Any) -> None:
        """Engines that hold the folder's weights, and the proof: those that run, or fresh ones.

        Fresh ones also follow engines that ran and failed the proof: vLLM's own reload gets some models wrong.
        """
        if self._groups and self._options.in_place and shape == self._shape:
            try:
                return self._renew(folder)
            except EngineError as error:
                text = f"fresh engines are started, since those that ran took the new weights badly: {error}"
                warnings.warn(text, EngineWarning, stacklevel=2)
        self.close()
        self._shape = shape
        with closing(Reference(folder, self._dtype)) as reference, self._whole():
            self._start(folder)
            self._prove(reference, fresh=True)
        self.channel = "fresh"

    def _renew(self, folder: Path) -> None:
        """Let running engines take weights that a trainer has given for them, or else those of the files."""
        handed = self._board.find(folder, self._places) if self._board else None
        claim = HandedOver(folder, self._dtype, handed) if handed else Reference(folder, self._dtype)
        with closing(claim), self._whole():
            self.wake()
            weights = {machine: file.path for machine, file in handed.files.items()} if handed else {}
            self._everywhere(lambda group: group.show(folder, weights.get(group.machine)))
            self._ask("load")
            self._prove(claim, fresh=False)
            if handed:
                # The memory is another's next: whoever looks again finds the checkpoint's own.
                self._everywhere(lambda group: group.show(folder))
        self.channel = "memory" if handed else "files"

    def _start(self, folder: Path) -> None:
        self.starts += 1
        self._groups = self._new_groups()
        self._everywhere(lambda group: group.start(folder, longest=self._longest))
        ready = [engine.expect("ready", seconds=START_SECONDS)[1] for engine in self._engines]
        self._capacity = min(facts["max_num_seqs"] for facts in ready)
        self._engine_facts = ready[0]

    def _new_groups(self) -> EngineGroups:
        if self._cluster is None:
            return [LocalEngines(self._options)]
        return engines_of(self._cluster, self._options, self._bell)

    def _prove(self, claim: Claim, *, fresh: bool) -> None:
        """Proof that every engine holds the checkpoint's weights; fresh ones may have own forms, with a warning.

        Raises EngineError for engines that do not hold them.
        """
        names, groups = [engine.name for engine in self._engines], fixed_prompts(self._vocabulary)
        held = self._ask("checksums", claim.shapes(), self._dtype)
        if not fresh:
            for name, each in zip(names, held, strict=True):
                claim.require_same(name, each, own=self._own)
        # By key of the request: two responses to each prompt.
        forced = {f"{number // 2}/{number % 2}": list(tokens) for number, tokens in enumerate(claim.forced)}
        drawn = [
            self._draw([engine], groups, claim.params, no_progress, no_keep, forced=forced) for engine in self._engines
        ]
        found = claim.check(names, groups, drawn, precision(self._dtype, self._options.vllm))
        if fresh and self._board:
            self._board.ask(self._places, [list(each.token_ids) for each in chain.from_iterable(drawn[0])])
        if fresh:
            self._own = frozenset(chain.from_iterable(map(claim.unlike, held)))
        if fresh and self._own:
            text = (
                f"{len(self._own)} tensors have another form in the engines, where log-probabilities alone prove them"
            )
            warnings.warn(f"{text}: {', '.join(sorted(self._own)[:3])}", EngineWarning, stacklevel=2)
        counted = [sum(bool(forms) for name, forms in each.items() if name not in self._own) for each in held]
        self.agreements = [replace(one, tensors=count) for one, count in zip(found, counted, strict=True)]

    def _everywhere(self, work: Callable[[LocalEngines | RemoteEngines], None]) -> None:
        """Let every machine do something, all at the same time."""
        with ThreadPoolExecutor(max_workers=len(self._groups)) as threads:
            list(threads.map(work, self._groups))

    def _draw(
        self,
        engines: Sequence[Peer],
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        progress: Progress,
        keep: Keep,
        *,
        forced: Mapping[str, Sequence[int]] | None = None,
    ) -> list[list[Completion]]:
        draw = Draw(
            engines,
            self._wait,
            groups,
            params,
            ends=[] if forced else self._ends,
            capacity=self._capacity,
            silent_seconds=self._options.silent_seconds,
            forced=forced,
        )
        with self._whole():
            return draw.run(progress, keep)

    def _wait(self, engines: Sequence[Peer], seconds: float) -> None:
        """Return when one of these engines has a message, or after `seconds`."""
        if self._cluster is None:
            return wait([engine for engine in engines if isinstance(engine, WorkerProcess)], seconds)
        self._bell.wait(seconds)
        # Before the engines are heard: whatever comes from here on rings again.
        self._bell.clear()

    def _ask(self, command: str, *values: Any) -> list[Any]:
        """Let every engine do something, all at the same time; their answers."""
        with self._whole():
            for engine in self._engines:
                engine.send(command, *values)
            return [engine.expect("obeyed", command, seconds=START_SECONDS)[2] for engine in self._engines]

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Whatever goes wrong inside ends every engine: they hold something else, or compute for nobody."""
        with ExitStack() as failed:
            failed.callback(self._end, keep_output=True)
            yield
            failed.pop_all()

    def _end(self, *, keep_output: bool) -> None:
        for group in self._groups:
            group.close(keep_output=keep_output)
        self._groups, self._asleep = [], False
