"""Settings of the questions that a run is given: dev, validation, and problems to train on."""

from typing import Literal

from pydantic import Field

from infuser_core.config_sources import QuestionSource, Settings


class ProblemSettings(Settings):
    """Rows of the training pool that are no textbook: problems with known answers (hybrid extension)."""

    source: QuestionSource
    """The problems; one that stands in it twice counts once."""
    count: int = Field(gt=0)
    """Rows: the problems repeated in turn until there are as many, then shuffled."""
    route: Literal["direct", "free_form", "mcq"] = "direct"
    """`direct` puts the problem itself to the solver; otherwise problem and answer are a text to write from."""
    seed: int = Field(default=42, ge=0)
    """Seed of the shuffle; the run's own seed does not change it."""
    exclude_dev: bool = True
    """Leave out problems of the dev set, by text. The authors' published pool keeps them."""
    domain: str = ""
    """Domain of the rows; each problem's own when empty."""


class DataSettings(Settings):
    """Where the target distribution is known from, and what else the solver is trained on."""

    dev: QuestionSource
    """The small set whose gradient guides the generator (eq:hat_g_dev)."""
    validation: QuestionSource
    """Selects the checkpoint; disjoint from dev."""
    problems: list[ProblemSettings] = Field(default=[])
    """Problems that join the pool; with the route `direct` they are the pool."""
