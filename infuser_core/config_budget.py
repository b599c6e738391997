"""Settings of how a batch of documents is shared among sources."""

from typing import Literal

from pydantic import Field, model_validator

from infuser_core.config_sources import Settings


class BudgetSettings(Settings):
    """How the documents of an iteration are shared among the arms of the pool."""

    mode: Literal["uniform", "shares", "bandit"] = "uniform"
    """`uniform` draws from the whole pool; `shares` has constant weights; `bandit` follows recent mean influence."""
    by: Literal["domain", "source_id", "prompt_type"] = "domain"
    """Field of a document that names its arm."""
    shares: dict[str, float] = Field(default={})
    """`shares`: weight of every arm, 0 to leave it out. `bandit`: constant share of the batch of arms that it does not
    steer, such as a route without influence scores."""
    window: int = Field(default=5, gt=0)
    """Iterations that the bandit looks back."""
    exploration: float = Field(default=0.5, ge=0)
    """Width of the bandit's bounds, in deviations of the rewards of the window."""
    floor: float = Field(default=0.05, ge=0, lt=1)
    """Least share of an arm that the bandit steers; an equal share where it is above that."""

    @model_validator(mode="after")
    def _of_its_mode(self) -> "BudgetSettings":
        if self.mode == "uniform" and self.shares:
            raise ValueError("budget.shares is set and budget.mode is uniform: set the mode to shares or bandit")
        if any(weight < 0 for weight in self.shares.values()):
            raise ValueError("budget.shares holds a negative weight")
        total = sum(self.shares.values())
        if self.mode == "shares" and total <= 0:
            raise ValueError("budget.mode shares needs budget.shares, a weight for every arm, one of them above 0")
        if self.mode == "bandit" and total >= 1:
            raise ValueError(f"budget.shares take {total:g} of the batch: leave the bandit something, below 1 in all")
        return self
