"""Constants of an optimizer, and the facts that configuration and planner need without torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from infuser_core.plugins import Registry

OPTIMIZERS = Registry(
    kind="optimizer", package="infuser_core.engines.training.optimizers", outside="my_package.my_optimizer"
)
"""Optimizers of both roles: `OPTIMIZER`, a class of steps, and `OPTIONS`, the dataclass of its constants."""
DEFAULT = "adamw"
"""The paper's optimizer; records of its constants do not name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Constants that all optimizers have."""

    name: ClassVar[str]
    """Name in a configuration: that of the module."""
    kept: ClassVar[tuple[str, ...]]
    """Constants that stored moments depend on: a checkpoint with others is refused."""
    trainers: ClassVar[tuple[str, ...]] = ("local",)
    """Values of `engine.trainer` that can run it."""
    elementwise: ClassVar[bool] = True
    """Whether each element of a direction depends on its own gradient alone. Otherwise questions are scored one by one,
    and `Optimizer.elementwise` is None."""

    weight_decay: float = 0.01
    """Decoupled weight decay, on every parameter."""
    max_grad_norm: float = 1.0
    """Global gradient norm above which the gradient is scaled down."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.removeprefix(f"{OPTIMIZERS.package}.")

    @classmethod
    def moments(cls, *, hidden: bool) -> str:
        """Letters of the moments of a parameter, which is a hidden matrix or not."""
        raise NotImplementedError

    @classmethod
    def direction_flops(cls, rows: int, columns: int) -> float:
        """FLOPs of matrix products in the direction of one gradient of a hidden matrix."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for `trainer.json`.

        A file's format and no recipe, which records OptimizerSettings: files from before there were names mean AdamW,
        and one that names it would have another digest than the same training wrote before.
        """
        return asdict(self) | ({} if self.name == DEFAULT else {"name": self.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWOptions(Options):
    """Constants of the default optimizer, which plans know without torch; the defaults are the paper's."""

    kept: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "eps")
    trainers: ClassVar[tuple[str, ...]] = ("local", "deepspeed", "fake")

    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""

    @classmethod
    def moments(cls, *, hidden: bool) -> str:
        """Both, of every parameter."""
        return "mv"


AdamWOptions.name = DEFAULT


def options_class(name: str) -> type[Options]:
    """The constants of the optimizer called `name`. Raises ConfigError listing what exists for an unknown name."""
    if name == DEFAULT:
        return AdamWOptions
    options: type[Options] = OPTIMIZERS.find(name, "OPTIONS")[1]
    return options


def options_of(values: Options | Mapping[str, Any] | None) -> Options:
    """Options of an engine's argument: an instance, constants by name, or the default optimizer's for None."""
    if isinstance(values, Options):
        return values
    constants = dict(values or {})
    return options_class(constants.pop("name", DEFAULT))(**constants)
