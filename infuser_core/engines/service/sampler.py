"""A sampler that runs engines in separate processes: on this machine, or on every machine of a Ray cluster.

After every change of weights it checks that all engines hold those of the checkpoint. Nothing here imports vllm or ray.
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

from infuser_core.engines.cluster.machines import RayCluster
from infuser_core.engines.cluster.remote_workers import RemoteEngines, engines_of
from infuser_core.engines.hf.causal_lm import choose_device, choose_dtype, device_name, read_config, read_end_tokens
from infuser_core.engines.hf.limits import most_positions
from infuser_core.engines.hf.renderer import Renderer, require_room
from infuser_core.engines.service.launch import (
    HF,
    START_SECONDS,
    VLLM,
    ServiceOptions,
    adapter_settings,
    interpreter,
)
from infuser_core.engines.service.local_engines import LocalEngines
from infuser_core.engines.service.sample_call import SampleCall
from infuser_core.engines.service.sync_check import (
    Agreement,
    ExpectedWeights,
    PlainModel,
    TransferredWeights,
    precision,
)
from infuser_core.engines.service.weight_transfer import Board, fixed_prompts
from infuser_core.errors import EngineError, EngineWarning
from infuser_core.protocols import (
    Completion,
    Keep,
    Progress,
    PromptGroup,
    SamplingParams,
    no_keep,
    no_progress,
)
from infuser_core.schemas import Checkpoint, Role
from infuser_core.store.adapter_files import BASE_KEY, base_folder, read_adapter
from infuser_core.system.worker import Peer, WorkerProcess, wait

EngineHosts = Sequence[LocalEngines | RemoteEngines]
"""This machine with its engines, or the machines of a cluster."""


class ServiceSampler:
    """protocols.Sampler over engines in separate processes; `options` are the fields of ServiceOptions.

    With `cluster`, all its machines have engines and must see the checkpoints' folders. Weights that a trainer
    publishes on the `board` are read from memory. Any error ends every engine; the next request starts fresh ones with
    the same checkpoint.
    """

    def __init__(
        self,
        *,
        dtype: str,
        device: str,
        threads: int,
        cluster: RayCluster | None = None,
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
        self._hosts: EngineHosts = []
        self._bell = threading.Event()
        self._folder: Path | None = None
        self._renderer: Renderer | None = None
        self._engine_facts: dict[str, Any] = {}
        self._asleep = False
        self._shape: Any = None
        self._merged = False
        self._limit: int | None = None
        self._longest: int | None = None
        self._converted: frozenset[str] = frozenset()
        self.channel = ""
        """How engines took the last weights: `fresh` ones at their start, running ones from `files` or from
        `memory`."""
        self.starts = 0
        """Number of times that engines were started; weights taken by running engines do not count."""
        self.forgets = False
        """Whether a sleeping engine has dropped its weights: a checkpoint must be loaded after `wake`."""
        self._levels: list[int] = []
        self.agreements: list[Agreement] = []
        """Results of the check after the last change of weights, by engine."""

    @property
    def tokenizer(self) -> Renderer:
        if self._renderer is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        return self._renderer

    def facts(self) -> dict[str, Any]:
        """Describe engines and device, for an artifact's record."""
        return {
            "engine": {VLLM: "vllm", HF: "hf"}.get(self._options.worker, self._options.worker),
            "device": device_name(self._device),
            "dtype": self._dtype,
            "engines": len(self._engines),
            "machines": len(self._hosts),
            "weights": self.channel,
            "max_model_len": self._limit,
            **({"sleep_levels": sorted(set(self._levels))} if self._levels else {}),
            **{name: self._engine_facts[name] for name in ("vllm", "head_dtype") if name in self._engine_facts},
        }

    @property
    def pids(self) -> list[int]:
        """Process ids of the running engines, each on its own machine; each is the id of a process group."""
        return [engine.pid for engine in self._engines]

    def load(self, checkpoint: Checkpoint) -> None:
        """Load the checkpoint's weights into all engines, and its tokenizer.

        Raises EngineError if the engines' log-probabilities are not those of the checkpoint.
        """
        folder = Path(checkpoint.path)
        config = read_config(folder)
        text = config.get_text_config()
        self._renderer = Renderer(folder)
        self._ends = read_end_tokens(folder, self._renderer.end_token)
        self._vocabulary = int(text.vocab_size)
        # Other roles, such as the judge of the corpus, get prompts of any length.
        longest = self._options.max_model_len if checkpoint.role in (Role.SOLVER, Role.GENERATOR) else None
        limits = [most_positions(config), longest]
        self._limit = min((limit for limit in limits if limit), default=None)
        self._longest = None if longest is None else self._limit
        self._folder = folder
        base = base_folder(folder)
        self._merged = base is not None and not adapter_settings(self._options, folder)
        # An engine that takes adapters keeps its base model, and room for adapters of one shape.
        adapter = (base, {**(read_adapter(folder) or {}), BASE_KEY: ""})
        self._take(folder, shape=(self._longest, {**config.to_dict(), "_name_or_path": ""}, adapter))

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        """Sample one completion per seed and group, in order.

        Raises EngineError for an unusable prompt, and for an engine that died or hung, with its reason.
        """
        if self._folder is None:
            raise EngineError("the sampler holds no checkpoint", hint="call load(checkpoint) first")
        require_room(groups, params, self._limit, self._vocabulary)
        if not self._hosts or self.forgets:
            self._take(self._folder, shape=self._shape)
        self.wake()
        return self._draw(self._engines, groups, params, progress, keep)

    def sleep(self) -> None:
        """Free the accelerators' memory until the next request: weights move to the host if its memory has room for
        them, else they are dropped. Cached prompts are lost."""
        if self._hosts and not self._asleep:
            self._levels = self._ask("sleep")
            self._asleep, self.forgets = True, 2 in self._levels

    def wake(self) -> None:
        """Let the engines take back the memory that `sleep` freed."""
        if self._asleep:
            self._ask("wake")
            self._asleep = False

    def close(self) -> None:
        """End every engine."""
        self._end(keep_output=False)

    def __del__(self) -> None:
        if getattr(self, "_hosts", None):
            self.close()

    @property
    def _engines(self) -> list[Peer]:
        return [engine for host in self._hosts for engine in host.engines]

    @property
    def _machines(self) -> set[str]:
        return {host.machine for host in self._hosts}

    def _take(self, folder: Path, *, shape: Any) -> None:
        """Load the folder's weights into running or fresh engines, and check them.

        Fresh ones also replace engines that fail the check: vLLM's own reload gets some models wrong.
        """
        if self._hosts and self._options.in_place and shape == self._shape:
            try:
                return self._renew(folder)
            except EngineError as error:
                text = f"fresh engines are started, since the running ones failed to take the new weights: {error}"
                warnings.warn(text, EngineWarning, stacklevel=2)
        self.close()
        self._shape = shape
        with closing(PlainModel(folder, self._dtype, merged=self._merged)) as expected, self._end_on_error():
            self.starts += 1
            self._hosts = self._new_hosts()
            self._on_all_machines(lambda host: host.start(folder, longest=self._longest))
            try:
                ready = [engine.expect("ready", seconds=START_SECONDS)[1] for engine in self._engines]
            except EngineError as error:
                if not adapter_settings(self._options, folder):
                    raise
                hint = "engine.weight_updates: fresh merges adapters for a model with which vLLM cannot take them"
                raise EngineError(error.message, hint=f"{error.hint}; {hint}") from error
            self._capacity = min(facts["max_num_seqs"] for facts in ready)
            self._engine_facts = ready[0]
            self._prove(expected, fresh=True)
        self.channel = "fresh"

    def _renew(self, folder: Path) -> None:
        """Load new weights into running engines: those that a trainer has transferred, or else those of the files."""
        transfer = self._board.find(folder, self._machines) if self._board else None
        expected = (
            TransferredWeights(folder, self._dtype, transfer)
            if transfer
            else PlainModel(folder, self._dtype, merged=self._merged)
        )
        with closing(expected), self._end_on_error():
            self.wake()
            weights = {machine: file.path for machine, file in transfer.files.items()} if transfer else {}
            self._on_all_machines(lambda host: host.show(folder, weights.get(host.machine)))
            self._ask("load")
            self._prove(expected, fresh=False)
            if transfer:
                # The transferred file will be reused: later reads must get the checkpoint's own files.
                self._on_all_machines(lambda host: host.show(folder))
        self.channel, self.forgets = "memory" if transfer else "files", False

    def _new_hosts(self) -> EngineHosts:
        """Create the engines of every machine, not yet started."""
        if self._cluster is None:
            return [LocalEngines(self._options)]
        return engines_of(self._cluster, self._options, self._bell)

    def _prove(self, expected: ExpectedWeights, *, fresh: bool) -> None:
        """Check that every engine holds the expected weights. Raises EngineError if one does not.

        Fresh engines may hold some tensors in another form, which gives a warning.
        """
        names, prompts = [engine.name for engine in self._engines], fixed_prompts(self._vocabulary)
        checksums = self._ask("checksums", expected.shapes(), self._dtype)
        if not fresh:
            for name, each in zip(names, checksums, strict=True):
                expected.require_same(name, each, converted=self._converted)
        # Every engine answers all prompts, all engines at the same time. Keys are those of requests, place/row: two
        # responses to each prompt.
        engines, forced = len(names), enumerate(expected.forced)
        rows = self._draw(
            self._engines,
            [prompt for prompt in prompts for _ in names],
            expected.params,
            no_progress,
            no_keep,
            forced={
                f"{number // 2 * engines + engine}/{number % 2}": list(tokens)
                for number, tokens in forced
                for engine in range(engines)
            },
            owners=[*range(engines)] * len(prompts),
        )
        responses = [rows[engine::engines] for engine in range(engines)]
        agreements = expected.check(names, prompts, responses, precision(self._dtype, self._options.vllm))
        if fresh:
            # Engines that get merged copies cannot take adapters from memory.
            if self._board and not self._merged:
                first = [list(completion.token_ids) for completion in chain.from_iterable(responses[0])]
                self._board.request(self._machines, first)
            self._converted = frozenset(chain.from_iterable(map(expected.differing, checksums)))
            if self._converted:
                examples = ", ".join(sorted(self._converted)[:3])
                text = (
                    f"{len(self._converted)} tensors have another form in the engines, where log-probabilities alone "
                    f"prove them: {examples}"
                )
                warnings.warn(text, EngineWarning, stacklevel=2)
        counts = [sum(bool(forms) for name, forms in each.items() if name not in self._converted) for each in checksums]
        self.agreements = [replace(one, tensors=count) for one, count in zip(agreements, counts, strict=True)]

    def _on_all_machines(self, work: Callable[[LocalEngines | RemoteEngines], None]) -> None:
        """Call `work` for every machine, all at the same time."""
        with ThreadPoolExecutor(max_workers=len(self._hosts)) as threads:
            list(threads.map(work, self._hosts))

    def _draw(
        self,
        engines: Sequence[Peer],
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        progress: Progress,
        keep: Keep,
        *,
        forced: Mapping[str, Sequence[int]] | None = None,
        owners: Sequence[int] | None = None,
    ) -> list[list[Completion]]:
        call = SampleCall(
            engines,
            self._wait,
            groups,
            params,
            ends=[] if forced else self._ends,
            capacity=self._capacity,
            silent_seconds=self._options.silent_seconds,
            forced=forced,
            owners=owners,
        )
        with self._end_on_error():
            return call.run(progress, keep)

    def _wait(self, engines: Sequence[Peer], seconds: float) -> None:
        """Wait until one of these engines has a message, at most `seconds`."""
        if self._cluster is None:
            return wait([engine for engine in engines if isinstance(engine, WorkerProcess)], seconds)
        self._bell.wait(seconds)
        # Cleared before messages are received: a later message sets it again.
        self._bell.clear()

    def _ask(self, command: str, *values: Any) -> list[Any]:
        """Send a command to all engines at the same time; returns their answers."""
        with self._end_on_error():
            for engine in self._engines:
                engine.send(command, *values)
            return [engine.expect("obeyed", command, seconds=START_SECONDS)[2] for engine in self._engines]

    @contextmanager
    def _end_on_error(self) -> Iterator[None]:
        """End every engine if the code in the block raises: engines may hold other weights, or still compute."""
        with ExitStack() as failed:
            failed.callback(self._end, keep_output=True)
            yield
            failed.pop_all()

    def _end(self, *, keep_output: bool) -> None:
        for host in self._hosts:
            host.close(keep_output=keep_output)
        self._hosts, self._asleep, self.forgets = [], False, False
