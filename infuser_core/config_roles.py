"""Settings of the two roles: how each is updated, who the generator is, and which questions the solver trains on."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infuser_core.config_pool import EndpointModel
from infuser_core.config_sources import FolderAnchor, HubAnchor, NanoAnchor, QuestionSource, Settings


class RoleSettings(Settings):
    """How one role is updated."""

    update: bool = True
    """False keeps the role at its anchor."""
    learning_rate: float = Field(ge=0)
    minibatch: int = Field(default=32, gt=0)
    """M: groups per optimizer step."""
    advantage: Literal["mean_centred", "dugrpo", "group_std", "batch_std", "batch_mean_std", "batch_pooled_std"]
    """`batch_std` is the preset's form of it."""


GeneratorModel = Annotated[NanoAnchor | FolderAnchor | HubAnchor | EndpointModel, Field(discriminator="type")]


class GeneratorRole(RoleSettings):
    """The generator's part."""

    model: GeneratorModel | None = None
    """Another model in the generator's place, never updated: files, or a server that is asked; the anchor when null."""

    @model_validator(mode="after")
    def _frozen(self) -> "GeneratorRole":
        if self.model is not None and self.update:
            raise ValueError("a generator with a model of its own is never updated: set generator.update to false")
        return self


class SolverRole(RoleSettings):
    """The solver's part."""

    accuracy_band: list[float] | None = Field(default=None, min_length=2, max_length=2)
    """[low, high]: questions that the solver answers with an accuracy outside are not trained on; all when null."""

    @model_validator(mode="after")
    def _ordered(self) -> "SolverRole":
        if self.accuracy_band is not None and not 0 <= self.accuracy_band[0] <= self.accuracy_band[1] <= 1:
            raise ValueError(f"accuracy_band {self.accuracy_band}: needs 0 <= low <= high <= 1")
        return self

    def band(self) -> tuple[float, float] | None:
        """The band as a pair."""
        return (self.accuracy_band[0], self.accuracy_band[1]) if self.accuracy_band else None


class ExampleSettings(Settings):
    """Questions by people that the generator sees before the document (R-Few)."""

    count: int = Field(gt=0)
    """Examples in one prompt, drawn anew for every document of every iteration."""
    source: QuestionSource | None = None
    """Where they are drawn from; the dev set when null."""
