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
    """Last value without a warning."""
    remedy: str
    """Settings to look at."""
    falling: bool = False
    """Whether the number should stay above the value, and not below it."""

    def broken(self, updates: Sequence[Update]) -> str:
        """The worst number and its limit in words; empty where every step keeps it."""
        values = [self.of(step) for step in updates if step.num_tokens]
        worst = (min if self.falling else max)(values, default=self.most)
        if worst == self.most or (worst < self.most) != self.falling:
            return ""
        return f"{self.name} is {worst:.3g}, {'below' if self.falling else 'above'} {self.most:g}: {self.remedy}"


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
    Limit(
        name="share of responses cut at the limit",
        of=lambda step: step.cut / step.num_responses,
        most=0.3,
        remedy="a larger cotrain.solver_tokens or generator_tokens, or cotrain.loss.overlong: mask",
    ),
    Limit(
        name="share of groups without variance",
        of=lambda step: step.flat_share,
        most=0.9,
        remedy="too easy, too hard, or a larger cotrain.group_size is needed; smaller learning_rates keep variety",
    ),
    Limit(
        name="entropy per token",
        of=lambda step: step.entropy,
        most=0.01,
        remedy="the policy has collapsed: a lower learning_rate, or a higher cotrain.loss.clip_high",
        falling=True,
    ),
)
"""Limits far outside of what a sound run shows; one step beyond them is enough for a warning."""


def complaints(role: str, updates: Sequence[Update]) -> list[str]:
    """One line per limit that some step is beyond, with its worst value."""
    return [f"{role}: {said}" for limit in LIMITS if (said := limit.broken(updates))]
