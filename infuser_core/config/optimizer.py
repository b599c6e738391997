"""Settings of the optimizer, and of adapters that it trains instead of a model's weights."""

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from infuser_core.config.sources import Settings

ALL_LINEAR: Final = "all-linear"
"""Every linear layer of a model but its output layer."""


class OptimizerSettings(Settings):
    """The optimizer of both roles; scores are of its own directions."""

    name: Literal["adamw", "muon", "sgd"] = "adamw"
    """A file in `infuser_core/engines/training/optimizers`."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment, of adamw and muon."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    epsilon: float = Field(default=1e-8, gt=0, le=1e6)
    """Added to the root of the second moment."""
    weight_decay: float = Field(default=0.01, ge=0, le=1e6)
    """Decoupled weight decay, on every parameter."""
    gradient_clip: float = Field(default=1.0, gt=0, le=1e12)
    """Global norm above which a step's gradient is scaled down."""
    momentum: float | None = Field(default=None, ge=0, lt=1)
    """Of muon and sgd; null is 0.95 and 0.9."""
    nesterov: bool | None = None
    """Whether muon's or sgd's step looks ahead; null is true and false."""

    @model_validator(mode="after")
    def _of_its_own(self) -> "OptimizerSettings":
        fields = type(self).model_fields
        others = {"adamw": ["momentum", "nesterov"], "sgd": ["beta1", "beta2", "epsilon"]}
        for key in others.get(self.name, []):
            if getattr(self, key) != fields[key].default:
                raise ValueError(f"{self.name} has no {key}")
        return self

    def recipe(self) -> dict[str, Any]:
        """The part of a recipe: constants that are set, and the name where it is not the default."""
        unset = {"name"} if self.name == "adamw" else set[str]()
        return self.model_dump(mode="json", exclude_none=True, exclude=unset)


class AdapterSettings(Settings):
    """Adapters that are trained instead of the model's weights; influence is measured in their space."""

    type: Literal["lora"] = "lora"
    rank: int = Field(default=16, gt=0, le=4096)
    """Rank of each adapter (r)."""
    alpha: float = Field(default=32.0, gt=0, le=1e6)
    """Adapters are added alpha / rank times."""
    targets: list[str] | Literal["all-linear"] = ALL_LINEAR
    """Last names of the linear layers that get one, e.g. [q_proj, v_proj]; `all-linear` is every one but the output."""
