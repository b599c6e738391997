"""Lines of the influence benchmark, and how far two forms of the same computation are apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infuser_core.algorithm.influence import cosine
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import Similarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result."""

    name: str
    """What is compared."""
    ratio: float
    """Times faster, or share of the plain time: see `target`."""
    target: str
    """What was asked for; empty for information."""
    error: float
    """Largest deviation of a cosine, or relative distance of gradients, from the plain form."""
    device: str
    """Where it ran."""
    detail: str = ""
    """Numbers behind the ratio, where they say more than it does."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met."""
        if not self.target:
            return None
        sign, bound = self.target.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown."""
    yield "| row | ratio | target | met | error | |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        met = {True: "yes", False: "no", None: ""}[row.met]
        yield f"| {row.name} | {row.ratio:.2f} | {row.target} | {met} | {row.error:.1e} | {row.detail} |"


def cosines(found: Sequence[Similarity]) -> list[float]:
    pairs = [(each.dot, each.direction_norm) for each in found] + [(each.raw_dot, each.gradient_norm) for each in found]
    return [cosine(dot, length, found[0].reference_norm) for dot, length in pairs]


def probe_error(one: Sequence[Similarity], other: Sequence[Similarity]) -> float:
    return max(abs(left - right) for left, right in zip(cosines(one), cosines(other), strict=True))


def gradient_error(one: LocalTrainer, other: LocalTrainer) -> float:
    left, right = one._flat.gradient, other._flat.gradient
    return float((left - right).norm() / right.norm())
