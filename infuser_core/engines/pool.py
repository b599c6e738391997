"""A pool that keeps a run's samplers and trainers loaded, so that two requests for one checkpoint cost one load.

`hf`, `vllm`, `local`, `deepspeed` and `fake` are this project's engines; `my_package.module:Name` names an engine of
any other package. Torch and transformers are imported when the first engine is requested.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from threading import RLock
from typing import Any, Literal, cast

from infuser_core.algorithm.preset import Objective
from infuser_core.engines import traces
from infuser_core.engines.step_costs import GRADIENT, LOGPROBS, SCORING, STEP, CostMeter
from infuser_core.errors import EngineError
from infuser_core.prompts.reasoning import reply_text
from infuser_core.protocols import (
    ChatModel,
    Completion,
    Keep,
    Messages,
    ProbeResult,
    Progress,
    PromptGroup,
    Sampler,
    SamplingParams,
    StepReport,
    Tokenizer,
    Trainer,
    TrainGroup,
    no_keep,
    no_progress,
)
from infuser_core.schemas import Checkpoint, Role
from infuser_core.system import fault_points as faults

Placement = Literal["colocated", "split"]
"""Whether engines take turns on the same accelerators (colocated), or have separate ones (split)."""

ENGINES: Mapping[str, Mapping[str, str]] = {
    "sampler": {
        "hf": "infuser_core.engines.hf.sampler:HFSampler",
        "vllm": "infuser_core.engines.service.sampler:ServiceSampler",
        "fake": "infuser_core.engines.fake:ScriptedSampler",
    },
    "trainer": {
        "local": "infuser_core.engines.local.trainer:LocalTrainer",
        "deepspeed": "infuser_core.engines.deepspeed.trainer:DeepSpeedTrainer",
        "fake": "infuser_core.engines.fake:FakeTrainer",
    },
}
"""Engine classes by their names in a configuration."""


@dataclass(slots=True, kw_only=True)
class WarmEngine:
    """A loaded engine and the checkpoint that its state equals."""

    engine: Any
    checkpoint_id: str = ""
    """Empty once the state has changed, until `adopt` names the new checkpoint."""
    saved_step: int | None = None
    """Step at which the present state was saved; None if it has changed since."""
    asleep: bool = False
    """Whether it has freed its accelerator memory for others."""
    turn: Any = field(default_factory=RLock)
    """Lock for loading and sampling."""
    user: object = None
    """The ExclusiveTrainer that may use the trainer: the last one requested."""


Turn = Callable[[str, Checkpoint], AbstractContextManager[WarmEngine]]
"""`turn(kind, checkpoint)`: context manager for exclusive use of the engine, loaded with that checkpoint."""


class SharedSampler:
    """protocols.Sampler of one checkpoint. Phases that share its engine take turns, call by call."""

    def __init__(self, checkpoint: Checkpoint, turn: Turn) -> None:
        self._turn = turn
        self.load(checkpoint)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def load(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        with self._turn("sampler", checkpoint) as warm:
            # Stored here, so that it is available while another phase samples.
            self._tokenizer: Tokenizer = warm.engine.tokenizer

    def sample(
        self,
        groups: Sequence[PromptGroup],
        params: SamplingParams,
        *,
        progress: Progress = no_progress,
        keep: Keep = no_keep,
    ) -> list[list[Completion]]:
        with self._turn("sampler", self._checkpoint) as warm:
            completions: list[list[Completion]] = warm.engine.sample(groups, params, progress=progress, keep=keep)
            return completions


class ExclusiveTrainer:
    """protocols.Trainer for one phase; tells the pool when its state leaves the checkpoint: a retry then loads again.

    The engine is stateful: once another phase requests it, this handle raises EngineError. Other attributes are those
    of the engine. Measures every pass, and writes traces if asked for (see step_costs and traces).
    """

    def __init__(self, warm: WarmEngine, checkpoint: Checkpoint, *, for_update: bool) -> None:
        self._warm = warm
        warm.user = self
        self._meter = CostMeter(warm.engine, checkpoint)
        self._traces, self._for_update = traces.current(), for_update

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    @property
    def _trainer(self) -> Trainer:
        if self._warm.user is not self:
            raise EngineError(
                "another phase has taken over this trainer",
                hint="two phases that need one trainer cannot run at the same time",
            )
        trainer: Trainer = self._warm.engine
        return trainer

    def load(self, checkpoint: Checkpoint) -> None:
        self._warm.checkpoint_id, self._warm.saved_step = "", None
        self._trainer.load(checkpoint)
        self._warm.checkpoint_id = checkpoint.checkpoint_id
        self._meter.restart(checkpoint)

    def zero_grad(self) -> None:
        self._trainer.zero_grad()
        self._meter.close(GRADIENT)

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        if self._traces and self._for_update:
            self._traces.begin(STEP)
        self._meter.add(groups, only_trained=objective.only_credited)
        return self._trainer.forward_backward(groups, objective, denominator=denominator, progress=progress)

    def optim_step(self, learning_rate: float) -> float:
        self._warm.checkpoint_id, self._warm.saved_step = "", None
        norm = self._trainer.optim_step(learning_rate)
        self._meter.close(STEP, norm=norm)
        if self._traces:
            self._traces.end(STEP)
        return norm

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[Sequence[float]]]:
        self._meter.add(groups, gradient=False, only_trained=False)
        logprobs = self._trainer.logprobs(groups, temperature=temperature, progress=progress)
        self._meter.close(LOGPROBS)
        return logprobs

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> ProbeResult:
        if self._traces:
            progress = self._traces.begin_micro_batches(SCORING, progress)
        self._meter.add(groups)
        result = self._trainer.probe(groups, objective, reference, progress=progress)
        self._meter.close(SCORING)
        if self._traces:
            self._traces.end(SCORING)
        return result

    def save(self, path: Path) -> int:
        step = self._trainer.save(path)
        # Only a state that differs from its checkpoint becomes a new checkpoint.
        self._warm.saved_step = None if self._warm.checkpoint_id else step
        return step


class SamplerChat:
    """protocols.ChatModel over a sampler: greedy replies to chat turns."""

    def __init__(self, sampler: Sampler, *, name: str) -> None:
        self._sampler = sampler
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        tokenizer = self._sampler.tokenizer
        groups = [
            PromptGroup(group_id=f"chat/{place}", token_ids=tokenizer.render(messages), seeds=[0])
            for place, messages in enumerate(prompts)
        ]
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        completions = self._sampler.sample(groups, params, progress=progress)
        pairs = zip(groups, completions, strict=True)
        return [reply_text(tokenizer, group.token_ids, samples[0].token_ids) for group, samples in pairs]


class EnginePool:
    """Provides the samplers and trainers of a run; keeps one warm engine of each kind per role.

    A warm engine has a checkpoint loaded. `max_trainers` limits the warm trainers: with 1, roles take turns on a small
    accelerator. With `one_sampler`, generator and solver take turns in one sampler, which swaps their weights. The
    judge always uses the solver's sampler of vLLM: an accelerator has room for no other one. With placement `colocated`
    all engines share the accelerators: the requested engine is awake, and the others sleep if they can (`sleep` and
    `wake` of an engine). With `split` each has separate ones. An engine that has failed (`failed`) or whose ranks no
    longer answer (`alive`) is replaced when it is requested.

    Phases in several threads may share a pool. A sampler is shared call by call; a trainer, which is stateful, belongs
    to the last phase that requested it.
    """

    def __init__(
        self,
        *,
        sampler: str,
        trainer: str,
        placement: Placement,
        max_trainers: int,
        one_sampler: bool = False,
        sampler_options: Mapping[str, Any] | None = None,
        trainer_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._names = {"sampler": sampler, "trainer": trainer}
        self._options = {"sampler": dict(sampler_options or {}), "trainer": dict(trainer_options or {})}
        self._max_trainers, self._one_sampler = max_trainers, one_sampler
        self._placement = placement
        self._warm: dict[tuple[str, str], WarmEngine] = {}
        # Roles whose trainer now serves another role: the engine keeps their state in host memory.
        self._parked: dict[str, WarmEngine] = {}
        self._lock = RLock()

    def trainer(self, checkpoint: Checkpoint, *, for_update: bool = False) -> Trainer:
        """Return a trainer whose state equals the checkpoint, without accumulated gradients.

        Only steps of a trainer `for_update` are traced.
        """
        with self._turn("trainer", checkpoint) as warm:
            warm.engine.zero_grad()
            return cast(Trainer, ExclusiveTrainer(warm, checkpoint, for_update=for_update))

    def sampler(self, checkpoint: Checkpoint) -> Sampler:
        """Return a sampler of the checkpoint's weights, even if another phase loads others into its engine."""
        return SharedSampler(checkpoint, self._turn)

    def chat(self, checkpoint: Checkpoint) -> ChatModel:
        """Return the checkpoint as a greedy chat model, named after it."""
        return SamplerChat(self.sampler(checkpoint), name=checkpoint.checkpoint_id)

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Note that the warm trainer of the checkpoint's role was just saved as this checkpoint.

        Ignored unless a warm trainer was saved in its present state at the checkpoint's step: a stage reused from the
        store has trained nothing in this process, so that the next request loads.
        """
        with self._lock:
            own = self._warm.get(("trainer", checkpoint.role))
            warm = own or self._parked.get(checkpoint.role)
            if warm is not None and warm.saved_step == checkpoint.step:
                warm.checkpoint_id = checkpoint.checkpoint_id
                if own is not None and hasattr(own.engine, "adopt"):
                    own.engine.adopt(checkpoint)

    def close(self) -> None:
        """Close and forget every engine."""
        with self._lock:
            for key in list(self._warm):
                self._drop(key)
            self._parked.clear()

    @contextmanager
    def _turn(self, kind: str, checkpoint: Checkpoint) -> Iterator[WarmEngine]:
        """Reserve the engine of the checkpoint's role, loaded with the checkpoint, for the code inside."""
        warm = self._engine_of(kind, checkpoint.role)
        with warm.turn:
            if warm.asleep:
                warm.engine.wake()
                warm.asleep = False
            if warm.checkpoint_id != checkpoint.checkpoint_id:
                warm.checkpoint_id, warm.saved_step, warm.user = "", None, None
                self._load(kind, warm, checkpoint)
                warm.checkpoint_id = checkpoint.checkpoint_id
            engines = _recorded_engines.get()
            if engines is not None:
                engines[kind] = warm.engine
            yield warm

    def _load(self, kind: str, warm: WarmEngine, checkpoint: Checkpoint) -> None:
        """Load the checkpoint from host memory if the trainer's state is parked there, else from its files."""
        with self._lock:
            parked = self._parked.pop(checkpoint.role, None) if kind == "trainer" else None
        if parked is not None and parked.engine is warm.engine:
            if parked.checkpoint_id == checkpoint.checkpoint_id:
                warm.engine.take(checkpoint)
                return
            warm.engine.drop(checkpoint.role)
        faults.point(f"checkpoint:load-{kind}-{checkpoint.role}")
        warm.engine.load(checkpoint)

    def _engine_of(self, kind: str, role: str) -> WarmEngine:
        """Return the warm engine of a role, or a new one. With placement `colocated` the other engines go to sleep."""
        swaps = self._one_sampler if role == Role.GENERATOR else self._names["sampler"] == "vllm"
        key = (kind, Role.SOLVER if kind == "sampler" and swaps else role)
        with self._lock:
            if key in self._warm and not _works(self._warm[key].engine):
                self._drop(key)
            if self._placement == "colocated":
                for other, warm in self._warm.items():
                    if other != key and not warm.asleep and hasattr(warm.engine, "sleep"):
                        warm.engine.sleep()
                        warm.asleep = True
                        if getattr(warm.engine, "forgets", False):
                            warm.checkpoint_id, warm.saved_step = "", None
            if key not in self._warm:
                reused = self._make_room(kind)
                self._warm[key] = reused or WarmEngine(
                    engine=find_engine(self._names[kind], kind)(**self._options[kind])
                )
            # Moved to the end: the first entry of a kind is the least recently used one.
            warm = self._warm[key] = self._warm.pop(key)
        return warm

    def _make_room(self, kind: str) -> WarmEngine | None:
        """Drop trainers above the limit, the least recently used first; returns one to reuse, or None.

        A trainer that can park is reused for the next role. Its state is parked in host memory if it is a checkpoint,
        or was saved and may become one.
        """
        if kind != "trainer":
            return None
        trainers = [key for key in self._warm if key[0] == kind]
        reused = None
        for key in trainers[: max(0, len(trainers) - self._max_trainers + 1)]:
            warm, role = self._warm[key], key[1]
            warm.user = None
            if reused is None and hasattr(warm.engine, "park") and _works(warm.engine):
                del self._warm[key]
                is_worth_keeping = bool(warm.checkpoint_id) or warm.saved_step is not None
                if is_worth_keeping and warm.engine.park(role):
                    self._parked[role] = warm
                reused = WarmEngine(engine=warm.engine, asleep=warm.asleep)
            else:
                self._drop(key)
        return reused

    def _drop(self, key: tuple[str, str]) -> None:
        """Remove an engine, and end its processes if it has any."""
        engine = self._warm.pop(key).engine
        if hasattr(engine, "close"):
            engine.close()


def _works(engine: Any) -> bool:
    """Whether the engine can still compute: always, unless it has ranks that failed or do not answer."""
    return not getattr(engine, "failed", False) and (not hasattr(engine, "alive") or engine.alive())


def find_engine(name: str, kind: str) -> Callable[..., Any]:
    """Find an engine class by its name in a configuration. Raises EngineError for an unknown name."""
    path = ENGINES[kind].get(name, name)
    if ":" not in path:
        names = ", ".join(ENGINES[kind])
        raise EngineError(f"unknown {kind} {name!r}", hint=f"choose one of {names}, or name my_package.module:Name")
    engine: Callable[..., Any] = resolve_name(path)
    return engine


_recorded_engines: ContextVar[dict[str, Any] | None] = ContextVar("recorded_engines", default=None)


@contextmanager
def record_engines() -> Iterator[dict[str, Any]]:
    """Record the engines that this thread uses in the block, by kind: `sampler` and `trainer`."""
    engines: dict[str, Any] = {}
    token = _recorded_engines.set(engines)
    try:
        yield engines
    finally:
        _recorded_engines.reset(token)


def facts_of(engines: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Describe engines by kind, e.g. device and dtype: JSON values for an artifact's record, which its key ignores."""
    facts = {kind: engine.facts() for kind, engine in engines.items() if hasattr(engine, "facts")}
    return {kind: values for kind, values in facts.items() if values}
