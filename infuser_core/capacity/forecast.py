"""Forecast of a run's cost: phases, memory, files, GPU-hours, and scaling to more GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from infuser_core.capacity.hardware import NODE, Cluster, Efficiency, calibrated, cluster, from_file, of_size
from infuser_core.capacity.memory import Held, Layout, both, host, layout_of, on_more
from infuser_core.capacity.phases import (
    ORDER,
    TERMS,
    Machinery,
    Phase,
    packed_phases,
    published_phases,
    validation_seconds,
)
from infuser_core.capacity.shape import Shape, named, shape_of
from infuser_core.capacity.volume import Files, Lengths, Volume, changed, files_of, lengths_of, volume_of, within
from infuser_core.config.run import RunConfig
from infuser_core.errors import UsageError

SCHEDULES = ("published", "packed")
"""The published runs' order of work, on which the constants rest, and this program's."""
DISK = 3e9
"""Bytes/s of the store's disk where none is given: one fast NVMe drive, or a modest shared file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question to the planner, with everything looked up."""

    config: RunConfig
    """The run."""
    cluster: Cluster
    """On what."""
    shape: Shape
    """The model of both roles."""
    lengths: Lengths
    """Mean lengths and shares."""
    layout: Layout
    """How the GPUs are used."""
    disk: float = DISK
    """Bytes/s of the store."""
    efficiency: Efficiency = field(default_factory=calibrated)
    """Constants: those of the published runs, or one's own (`infuser plan --calibrate`)."""

    @staticmethod
    def of(config: RunConfig, gpus: str, *, shape: Shape | None = None) -> "Asked":
        """Look everything up for a run on `gpus`. Raises UsageError or ConfigError for what is not known."""
        found, chosen = cluster(gpus), shape or shape_of(config.anchor)
        lengths = within(lengths_of(chosen.name), config.cotrain)
        return Asked(config=config, cluster=found, shape=chosen, lengths=lengths, layout=layout_of(config, found))

    @property
    def volume(self) -> Volume:
        """Work of one iteration."""
        return volume_of(self.config, self.lengths)

    @property
    def sequence(self) -> int:
        """Tokens of the longest sequence."""
        return self.config.cotrain.prompt_tokens + max(
            self.config.cotrain.generator_tokens, self.config.cotrain.solver_tokens
        )

    def on(self, other: Cluster) -> "Asked":
        """The same run on other GPUs."""
        return replace(self, cluster=other, layout=on_more(self.layout, self.cluster, other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One schedule's seconds."""

    schedule: str
    """`published` or `packed`."""
    phases: list[Phase]
    """The phases of one iteration, and `other`."""
    iteration: float
    """Seconds of one iteration; less than the phases' sum where `engine.overlap` lets pools work side by side."""
    validation: float
    """Seconds of one validation."""
    validations: int
    """Validations of the run."""
    hours: float
    """Hours of all iterations, validations left out as in the paper's count."""
    gpu_hours: float
    """The same, times GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The answer."""

    asked: Asked
    """The question."""
    timed: list[Timed]
    """Both schedules, the one asked for first."""
    held: list[Held]
    """Memory of both roles."""
    host: float
    """Bytes in the memory of every node's host."""
    files: Files
    """Bytes in the store."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know about these numbers."""

    @property
    def fits(self) -> bool:
        """Whether both roles fit into a GPU."""
        return all(held.fits for held in self.held)


def ask(
    config: RunConfig,
    gpus: str,
    *,
    model: str | None,
    tokens: Sequence[str],
    disk: float,
    efficiency: Path | None = None,
) -> Asked:
    """The question as a command puts it: another model, other lengths, the disk in GB/s, a file of constants.

    Raises UsageError or ConfigError for what is not known.
    """
    asked = Asked.of(config, gpus, shape=named(model) if model else None)
    lengths = within(changed(asked.lengths, tokens), config.cotrain)
    constants = from_file(efficiency) if efficiency else asked.efficiency
    return replace(asked, lengths=lengths, disk=disk * 1e9, efficiency=constants)


def machinery(asked: Asked, efficiency: Efficiency) -> Machinery:
    """The run's machinery."""
    return Machinery(
        shape=asked.shape, cluster=asked.cluster, layout=asked.layout, efficiency=efficiency, disk=asked.disk
    )


def published(asked: Asked, efficiency: Efficiency | None = None) -> list[Phase]:
    """Phases under the published runs' schedule."""
    return published_phases(
        machinery(asked, efficiency or asked.efficiency),
        asked.volume,
        micro_rows=asked.lengths.micro_rows,
        prompt_limit=asked.config.cotrain.prompt_tokens,
    )


def packed(asked: Asked, efficiency: Efficiency | None = None) -> list[Phase]:
    """Phases under this program's schedule."""
    return packed_phases(machinery(asked, efficiency or asked.efficiency), asked.volume)


def timed(asked: Asked, schedule: str) -> Timed:
    """One schedule from its phases to GPU-hours."""
    phases = published(asked) if schedule == "published" else packed(asked)
    apart = not (asked.layout.turns or asked.layout.shared)
    overlap = schedule == "packed" and apart and asked.config.engine.overlap
    iteration = _side_by_side(phases) if overlap else sum(phase.seconds for phase in phases)
    settings = asked.config.cotrain
    hours = iteration * settings.iterations / 3600
    every = settings.validate_every
    return Timed(
        schedule=schedule,
        phases=phases,
        iteration=iteration,
        validation=validation_seconds(machinery(asked, asked.efficiency), asked.volume),
        validations=1 + -(-settings.iterations // every),
        hours=hours,
        gpu_hours=hours * asked.cluster.ranks,
    )


def _side_by_side(phases: list[Phase]) -> float:
    """Split pools: the dev gradient runs beside what is left to sample once the dev rollouts are there.

    Until then dev rollouts and questions share the sampling GPUs evenly, which saves nothing.
    """
    seconds = {name: 0.0 for name in ORDER} | {phase.name: phase.seconds for phase in phases}
    left = max(0.0, seconds["generate_questions"] - seconds["rollout_dev"]) + seconds["rollout_questions"]
    return sum(seconds.values()) - min(seconds["dev_gradient"], left)


def held(asked: Asked) -> list[Held]:
    """Memory of both roles on one GPU."""
    return both(asked.shape, asked.cluster.gpu, asked.layout, sequence=asked.sequence)


def forecast(asked: Asked, *, schedule: str = "published") -> Forecast:
    """Everything that can be said before the run."""
    if schedule not in SCHEDULES:
        raise UsageError(f"--schedule {schedule}: no such schedule", hint=f"one of {', '.join(SCHEDULES)}")
    order = [schedule, *(name for name in SCHEDULES if name != schedule)]
    return Forecast(
        asked=asked,
        timed=[timed(asked, name) for name in order],
        held=held(asked),
        host=host(asked.shape, asked.layout, per_node=asked.cluster.per_node),
        files=files_of(asked.config, asked.shape),
        notes=_notes(asked),
    )


def _notes(asked: Asked) -> list[str]:
    notes = []
    layout, engine, ranks = asked.layout, asked.config.engine, asked.cluster.ranks
    for kind, name, used in (
        ("trainer", engine.trainer, layout.trainer_ranks),
        ("sampler", engine.sampler, layout.sampler_ranks),
    ):
        if used < ranks:
            notes.append(f"this program, as configured: engine.{kind} {name} uses {used} of {ranks} GPUs")
    if engine.ranks > ranks:
        notes.append(f"engine.ranks {engine.ranks} is more than the {ranks} GPUs: planned with {ranks}")
    if asked.cluster.ranks > asked.config.cotrain.group_size:
        notes.append(
            f"the published schedule spreads a question's {asked.config.cotrain.group_size} responses over ranks: "
            "more ranks than that idle while it scores"
        )
    return notes


SIZES = (8, 16, 32, 64, 128, 256, 512)
"""GPUs simulated."""
PAYS = 1.25
"""Speed-up below which doubling does not pay: five eighths of the GPUs added would do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of the cluster."""

    gpus: int
    """GPUs."""
    iteration: float
    """Seconds of one iteration."""
    gpu_hours: float
    """Of the whole run."""
    speedup: float
    """Over the size before; 1 for the first."""
    phases: dict[str, float]
    """Seconds by phase."""
    terms: dict[str, float]
    """Seconds by term, over all phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The whole series."""

    schedule: str
    """Which schedule was simulated."""
    sizes: list[Size]
    """In order of GPUs."""
    stops_at: int
    """Largest size that was still worth its last doubling."""
    reason: str
    """What no longer shrinks beyond it."""


def scale(asked: Asked, schedule: str) -> Scaled:
    """Simulate the run on ever more nodes of eight."""
    found: list[Size] = []
    for gpus in SIZES:
        done = timed(asked.on(of_size(asked.cluster.gpu, gpus)), schedule)
        before = found[-1].iteration if found else done.iteration
        found.append(_size(gpus, done, before))
    last = 0
    while last + 1 < len(found) and found[last + 1].speedup >= PAYS:
        last += 1
    return Scaled(schedule=schedule, sizes=found, stops_at=found[last].gpus, reason=_reason(asked, found, last))


def _size(gpus: int, done: Timed, before: float) -> Size:
    terms = dict.fromkeys(TERMS, 0.0)
    for phase in done.phases:
        for name, seconds in phase.terms.items():
            terms[name] += seconds
    return Size(
        gpus=gpus,
        iteration=done.iteration,
        gpu_hours=done.gpu_hours,
        speedup=before / done.iteration,
        phases={phase.name: phase.seconds for phase in done.phases},
        terms={name: seconds for name, seconds in terms.items() if seconds},
    )


def _reason(asked: Asked, sizes: list[Size], last: int) -> str:
    """The terms that doubling leaves nearly as they are, largest first."""
    if last + 1 == len(sizes):
        return f"still pays at {sizes[-1].gpus} GPUs"
    here, there = sizes[last], sizes[last + 1]
    stuck = {name: seconds for name, seconds in there.terms.items() if seconds > 0.7 * here.terms.get(name, 0.0)}
    ranked = sorted(stuck, key=lambda name: -stuck[name])[:3]
    parts = [f"{TERMS[name]} {there.terms[name]:.0f} s ({there.terms[name] / there.iteration:.0%})" for name in ranked]
    return f"at {there.gpus} GPUs these no longer shrink: " + "; ".join(parts) + _per_rank(asked, there)


def _per_rank(asked: Asked, size: Size) -> str:
    volume = asked.volume
    if volume.scored is None:
        return ""
    each = volume.scored.groups / size.gpus
    return f". {each:.1f} scored questions per rank" if each < NODE else ""
