"""From few GPUs to many: seconds by size, where doubling stops paying, and which term is in the way."""

from dataclasses import dataclass

from infuser_core.capacity.forecast import Asked, Timed, timed
from infuser_core.capacity.hardware import NODE, of_size
from infuser_core.capacity.phases import TERMS

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
