"""Forecast of a run's cost: phases, memory, files, GPU-hours, and scaling to more GPUs."""

from dataclasses import dataclass, field

from infuser_core.capacity.asked import Asked
from infuser_core.capacity.phases import ORDER, TERMS, Phase, phases_of, validation_seconds
from infuser_core.capacity.volume import Files, files_of
from infuser_core.memory.hardware import NODE, of_size
from infuser_core.memory.parts import Held, both, host


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of a run."""

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
    """Cost of a run: seconds, memory, files."""

    asked: Asked
    """The question."""
    timed: Timed
    """Seconds."""
    held: list[Held]
    """Memory of both roles."""
    host: float
    """Bytes in the memory of every node's host."""
    files: Files
    """Bytes in the store."""
    notes: list[str] = field(default_factory=list)
    """Remarks for a reader of these numbers."""

    @property
    def fits(self) -> bool:
        """Whether both roles fit into a GPU."""
        return all(held.fits for held in self.held)


def timed(asked: Asked) -> Timed:
    """From the phases to GPU-hours."""
    phases = phases_of(asked)
    overlap = asked.config.engine.overlap and not (asked.layout.turns or asked.layout.shared)
    iteration = _side_by_side(phases) if overlap else sum(phase.seconds for phase in phases)
    settings = asked.config.cotrain
    hours = iteration * settings.iterations / 3600
    every = settings.validate_every
    return Timed(
        phases=phases,
        iteration=iteration,
        validation=validation_seconds(asked),
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


def forecast(asked: Asked) -> Forecast:
    """Everything that can be said before the run."""
    return Forecast(
        asked=asked,
        timed=timed(asked),
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
    """Cost of a run on ever more GPUs."""

    sizes: list[Size]
    """In order of GPUs."""
    stops_at: int
    """Largest size that was still worth its last doubling."""
    reason: str
    """The terms that no longer shrink beyond it."""


def scale(asked: Asked) -> Scaled:
    """Simulate the run on ever more nodes of eight."""
    found: list[Size] = []
    for gpus in SIZES:
        done = timed(asked.on(of_size(asked.cluster.gpu, gpus)))
        before = found[-1].iteration if found else done.iteration
        found.append(_size(gpus, done, before))
    last = 0
    while last + 1 < len(found) and found[last + 1].speedup >= PAYS:
        last += 1
    return Scaled(sizes=found, stops_at=found[last].gpus, reason=_reason(asked, found, last))


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
