"""Warnings about the health of a run: figures beyond their limits, and the settings to change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from infuser_core.errors import quantity
from infuser_core.schemas import KeyAccuracy, Leak, Update

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimit(Generic[Row]):
    """A metric of rows, such as an update's steps, its limit (the last value without a warning) and the remedy."""

    name: str
    metric: Callable[[Row], float]
    value: float
    remedy: str
    is_minimum: bool = False

    def warning(self, rows: Sequence[Row]) -> str:
        """Warning with the worst value of all rows, the limit and the remedy; empty if all are within the limit."""
        values = map(self.metric, rows)
        worst = (min if self.is_minimum else max)(values, default=self.value)
        if worst == self.value or (worst < self.value) != self.is_minimum:
            return ""
        return f"{self.name} is {worst:.3g}, {'below' if self.is_minimum else 'above'} {self.value:g}: {self.remedy}"


LIMITS: tuple[HealthLimit[Update], ...] = (
    HealthLimit(
        name="KL between sampler and trainer per token",
        metric=lambda step: step.sampler_kl,
        value=0.05,
        remedy="compute alike: engine.dtype, engine.attention; cotrain.loss.tis_cap bounds its effect",
    ),
    HealthLimit(
        name="share of importance weights cut at the cap",
        metric=lambda step: step.truncated,
        value=0.05,
        remedy="sampler and trainer disagree: engine.dtype, engine.attention, or a higher cotrain.loss.tis_cap",
    ),
    HealthLimit(
        name="share of clipped tokens",
        metric=lambda step: step.clip_fraction,
        value=0.3,
        remedy="fewer or smaller steps: a larger minibatch, a lower learning_rate",
    ),
    HealthLimit(
        name="KL from the policy before the update per token",
        metric=lambda step: step.policy_kl,
        value=0.1,
        remedy="smaller steps: a lower learning_rate",
    ),
    HealthLimit(
        name="share of responses cut at the limit",
        metric=lambda step: step.cut / step.num_responses,
        value=0.3,
        remedy="a larger cotrain.solver_tokens or generator_tokens, or cotrain.loss.overlong: mask",
    ),
    HealthLimit(
        name="share of groups without variance",
        metric=lambda step: step.flat_share,
        value=0.9,
        remedy="too easy, too hard, or a larger cotrain.group_size is needed; smaller learning_rates keep variety",
    ),
    HealthLimit(
        name="entropy per token",
        metric=lambda step: step.entropy,
        value=0.01,
        remedy="the policy has collapsed: a lower learning_rate, or a higher cotrain.loss.clip_high",
        is_minimum=True,
    ),
)
"""Limits far outside of what a healthy run shows; one step beyond a limit is enough for a warning."""
_FIRST = "divided by that of the first iterations"
_SLOWER = "a lower cotrain.generator.learning_rate"
GAUGES: tuple[HealthLimit[Mapping[str, float]], ...] = (
    HealthLimit(
        name="share of questions that copy an earlier one",
        metric=lambda row: row["copies"],
        value=0.5,
        remedy=f"the generator repeats itself: {_SLOWER}, a higher cotrain.sampling.temperature, or more documents",
    ),
    HealthLimit(
        name=f"effective number of topics, {_FIRST},",
        metric=lambda row: row["topics_change"],
        value=0.2,
        remedy=f"the questions narrow down: {_SLOWER}, a dev set on more topics, or cotrain.budget",
        is_minimum=True,
    ),
    HealthLimit(
        name=f"length of a question, {_FIRST},",
        metric=lambda row: row["characters_change"],
        value=2.0,
        remedy=f"the questions grow: read some (`infuser why RUN`); {_SLOWER}",
    ),
    HealthLimit(
        name=f"length of a question, {_FIRST},",
        metric=lambda row: row["characters_change"],
        value=0.5,
        remedy=f"the questions shrink: read some (`infuser why RUN`); {_SLOWER}",
        is_minimum=True,
    ),
    HealthLimit(
        name=f"share of texts in the right format, {_FIRST},",
        metric=lambda row: row["valid_change"],
        value=0.5,
        remedy=f"the generator forgets the format: {_SLOWER}",
        is_minimum=True,
    ),
)
"""Limits of an iteration's row of the SQL view `question_gauges`; right keys have their own, `cotrain.key_floor`."""


def health_warnings(role: str, updates: Sequence[Update]) -> list[str]:
    """One line per limit that a step exceeds, with the worst value."""
    steps = [step for step in updates if step.num_tokens]
    return [f"{role}: {warning}" for limit in LIMITS if (warning := limit.warning(steps))]


def missing_inclusions_warning(missing: int) -> str:
    """The warning if books include files that they do not contain; else empty."""
    if not missing:
        return ""
    files = quantity(missing, "inclusion names a file", "inclusions name files")
    return f"{files} outside of the book, so that text or code is missing: name the folder that contains all its files"


def small_pool_warning(documents: int, available: int) -> str:
    """The warning if an iteration draws more documents than the pool has; else empty."""
    if available >= documents:
        return ""
    return f"cotrain.documents = {documents:,} and the pool has {available:,}: every iteration draws all {available:,}"


def key_warning(row: KeyAccuracy, floor: float) -> str:
    """The warning if the whole interval of the share of right keys is below `floor`; else empty."""
    if row.high >= floor:
        return ""
    return (
        f"keys right by the {row.told_by} of {row.questions} questions: {row.accuracy:.2f} "
        f"[{row.low:.2f}, {row.high:.2f}], below cotrain.key_floor = {floor:g}: the solver learns what wrong keys "
        "say; a stronger cotrain.generator.model, or cotrain.labels: majority"
    )


def leak_warning(leaks: Sequence[Leak]) -> str:
    """The warning shown with the selected checkpoint; empty if nothing leaks."""
    overlap, total = sum(leak.num_seen for leak in leaks), sum(leak.num_questions for leak in leaks)
    if not overlap:
        return ""
    entire = [leak.benchmark for leak in leaks if 0 < leak.num_questions == leak.num_seen]
    text = f"{overlap:,} of {total:,} benchmark questions are in the validation set that chooses the checkpoint"
    return f"{text}; it contains {', '.join(entire)} whole" if entire else text
