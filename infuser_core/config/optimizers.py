"""Constants of optimizers, and facts about them that configuration and planner need without loading torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from infuser_core.plugins import Registry

OPTIMIZERS = Registry(
    kind="optimizer", package="infuser_core.engines.training.optimizers", outside="my_package.my_optimizer"
)
"""Optimizer modules: each has a class of steps, `OPTIMIZER`, and the dataclass of its constants, `OPTIONS`."""
DEFAULT = "adamw"
"""Name of the paper's optimizer, which stored constants leave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Base class of an optimizer's constants, with those that all optimizers have."""

    name: ClassVar[str]
    """Name in a configuration: the optimizer's module name."""
    kept: ClassVar[tuple[str, ...]]
    """Constants on which stored moments depend: a checkpoint with other values is refused."""
    trainers: ClassVar[tuple[str, ...]] = ("local",)
    """Values of `engine.trainer` that can run the optimizer."""
    elementwise: ClassVar[bool] = True
    """Whether each element of a direction depends on its own gradient alone. Otherwise scoring needs memory for the
    direction of a whole matrix."""

    moment_bytes: ClassVar[float] = 4.0
    """Bytes of one number of a moment."""
    extra: ClassVar[str] = ""
    """Optional package that it needs, whose extra has the same name; empty for none."""

    weight_decay: float = 0.01
    """Decoupled weight decay, on every parameter."""
    max_grad_norm: float = 1.0
    """Global gradient norm above which the gradient is scaled down."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.removeprefix(f"{OPTIMIZERS.package}.")

    @classmethod
    def moments(cls, *, hidden: bool) -> str:
        """Letters of the moments of one parameter; `hidden` is whether it is a hidden matrix."""
        raise NotImplementedError

    @classmethod
    def direction_flops(cls, rows: int, columns: int) -> float:
        """FLOPs of the matrix products that turn one gradient of a hidden matrix into a direction."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        """Constants as plain values for the file `trainer.json`; the name of the default optimizer is left out.

        Old files have no name and mean AdamW; naming it would change the digest of a file with the same training state.
        Recipes record OptimizerSettings instead.
        """
        return asdict(self) | ({} if self.name == DEFAULT else {"name": self.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWOptions(Options):
    """Constants of the default optimizer, AdamW, available without torch; the defaults are the paper's."""

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
        """Letters of both moments, which every parameter has."""
        return "mv"


AdamWOptions.name = DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW8bitOptions(AdamWOptions):
    """Constants of AdamW with 8-bit moments: AdamW's own. Available without torch, as the planner suggests it."""

    trainers: ClassVar[tuple[str, ...]] = ("local",)
    block: ClassVar[int] = 256
    """Numbers of a moment that share a scale in fp32."""
    moment_bytes: ClassVar[float] = 1 + 4 / block
    extra: ClassVar[str] = "bitsandbytes"


AdamW8bitOptions.name = "adamw8bit"
_LIGHT: Mapping[str, type[Options]] = {kind.name: kind for kind in (AdamWOptions, AdamW8bitOptions)}


def options_class(name: str) -> type[Options]:
    """The class of constants of the optimizer called `name`. Raises ConfigError, listing all, for an unknown name."""
    if name in _LIGHT:
        return _LIGHT[name]
    options: type[Options] = OPTIMIZERS.find(name, "OPTIONS")[1]
    return options


def options_of(values: Options | Mapping[str, Any] | None) -> Options:
    """Convert an engine's argument to optimizer options: an instance, constants by name, or None for the defaults."""
    if isinstance(values, Options):
        return values
    constants = dict(values or {})
    return options_class(constants.pop("name", DEFAULT))(**constants)
