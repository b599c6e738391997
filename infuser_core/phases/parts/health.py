"""Warnings about an update: numbers that a practitioner would watch, with their limits and the settings to turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infuser_core.schemas import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One number of an update that should stay on one side of a value."""

    name: str
    """The number in words."""
    of: Callable[[Update], float]
    """The number of a step."""
    most: float
    """Largest value without a warning."""
    remedy: str
    """Settings to look at."""


LIMITS = (
    Limit(
        name="KL between sampler and trainer per token",
        of=lambda step: step.sampler_kl,
        most=0.05,
        remedy="compute alike: engine.dtype, engine.attention; cotrain.loss.tis_cap bounds what it does",
    ),
    Limit(
        name="share of importance weights cut at the cap",
        of=lambda step: step.truncated,
        most=0.05,
        remedy="sampler and trainer disagree: engine.dtype, engine.attention, or a higher cotrain.loss.tis_cap",
    ),
    Limit(
        name="share of clipped tokens",
        of=lambda step: step.clip_fraction,
        most=0.3,
        remedy="fewer or smaller steps: a larger minibatch, a lower learning_rate",
    ),
    Limit(
        name="KL from the policy before the update per token",
        of=lambda step: step.policy_kl,
        most=0.1,
        remedy="smaller steps: a lower learning_rate",
    ),
)
"""Limits far outside of what a sound run shows; one step beyond them is enough for a warning."""


def complaints(role: str, updates: Sequence[Update]) -> list[str]:
    """One line per limit that some step exceeds, with its largest value."""
    found = []
    for limit in LIMITS:
        worst = max((limit.of(step) for step in updates), default=0.0)
        if worst > limit.most:
            found.append(f"{role}: {limit.name} is {worst:.3g}, above {limit.most:g}: {limit.remedy}")
    return found
