"""Settings of co-training: generator and solver, their optimizer, data sets, and shares of documents."""

import math
from dataclasses import fields
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infuser_core.config.corpus import ModelSource
from infuser_core.config.optimizers import DEFAULT, OPTIMIZERS, Options, options_class
from infuser_core.config.recorded import Mark
from infuser_core.config.sources import Count, QuestionSource, Rows, Seed, Settings, Size, Whole
from infuser_core.errors import abbreviate
from infuser_core.plugins import ROUTES

ALL_LINEAR: Final = "all-linear"
"""Value of `targets` for every linear layer of a model except the output layer."""


_CONSTANTS = {
    "weight_decay": "weight_decay",
    "gradient_clip": "max_grad_norm",
    "beta1": "beta1",
    "beta2": "beta2",
    "epsilon": "eps",
    "momentum": "momentum",
    "nesterov": "nesterov",
}
"""Settings that several optimizers share, with the field of `Options` that each one sets."""


class OptimizerSettings(Settings):
    """Settings of the optimizer of both roles; influence scores are computed from its update directions."""

    name: Annotated[str, AfterValidator(OPTIMIZERS.check), Mark.NEUTRAL_IN_KEYS] = DEFAULT
    """Module in `infuser_core/engines/training/optimizers`, or `my_package.my_optimizer`."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment, for optimizers that have it."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    epsilon: float = Field(default=1e-8, gt=0, le=1e6)
    """Added to the root of the second moment."""
    weight_decay: float = Field(default=0.01, ge=0, le=1e6)
    """Decoupled weight decay, on every parameter."""
    gradient_clip: float = Field(default=1.0, gt=0, le=1e12)
    """Global norm above which a step's gradient is scaled down."""
    momentum: Annotated[float | None, Mark.NEUTRAL_IN_KEYS] = Field(default=None, ge=0, lt=1)
    """Momentum: decay of a mean or sum of gradients; null takes the optimizer's default."""
    nesterov: Annotated[bool | None, Mark.NEUTRAL_IN_KEYS] = None
    """Whether to use Nesterov momentum; null takes the optimizer's default."""
    constants: Annotated[dict[str, bool | Whole | Size | str], Mark.NEUTRAL] = Field(default={})
    """Constants that only the chosen optimizer has, by name."""

    @model_validator(mode="after")
    def _check_constants(self) -> "OptimizerSettings":
        defaults = {field.name: field.default for field in fields(options_class(self.name))}
        for key, constant in _CONSTANTS.items():
            if constant not in defaults and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{self.name} has no {key}")
        own = {name: default for name, default in defaults.items() if name not in _CONSTANTS.values()}
        for key, value in self.constants.items():
            if key not in own:
                raise ValueError(f"constants.{key}: {self.name} has only {', '.join(sorted(own)) or 'none'}")
            if type(value) is not type(own[key]) and (type(value), type(own[key])) != (int, float):
                raise ValueError(f"constants.{key} = {abbreviate(value)}: expected a {type(own[key]).__name__}")
        return self

    def options(self) -> Options:
        """All constants of the optimizer, as engines take them."""
        kind = options_class(self.name)
        names = {field.name for field in fields(kind)}
        values: dict[str, Any] = {to: getattr(self, key) for key, to in _CONSTANTS.items() if to in names}
        return kind(**{key: value for key, value in (values | self.constants).items() if value is not None})


class AdapterSettings(Settings):
    """Settings of LoRA adapters, trained instead of the model's weights; influence is computed in their space."""

    type: Literal["lora"] = "lora"
    rank: int = Field(default=16, gt=0, le=4096)
    """Rank of each adapter (r)."""
    alpha: float = Field(default=32.0, gt=0, le=1e6)
    """Scale of the adapters: their product is multiplied by alpha / rank before it is added to the weights."""
    targets: list[str] | Literal["all-linear"] = ALL_LINEAR
    """Last names of the linear layers with adapters, e.g. [q_proj, v_proj]; `all-linear`: all but the output layer."""
    base: Annotated[Literal["full", "nf4"], Mark.NEUTRAL] = "full"
    """Numbers of the model under the adapters: in `engine.dtype` (`full`), or 4 bits for a weight of its linear layers
    except the output layer (`nf4`), which changes every result. `nf4` needs the extra `bitsandbytes`."""


class ProblemSettings(Settings):
    """Problems with known answers that join the training pool next to textbook chunks (hybrid extension)."""

    source: QuestionSource
    """Source of the problems; duplicates are used once."""
    count: Rows
    """Number of rows that they have in the pool: the problems are repeated in turn to this number, then shuffled."""
    route: Annotated[str, AfterValidator(ROUTES.check)] = "direct"
    """`direct` gives the problem itself to the solver; for other routes, the generator writes a question from the
    problem and its answer."""
    seed: Seed = 42
    """Seed of the shuffle, independent of the run's seed."""
    exclude_dev: bool = True
    """Whether to leave out problems whose text is in the dev set. The authors' published pool keeps them."""
    domain: str = ""
    """Domain of all rows; when empty, each problem's own domain."""


Overlap = Literal[
    "dev-validation", "dev-benchmarks", "validation-benchmarks", "problems-validation", "problems-benchmarks"
]
"""Pair of question sets: one that a run learns from or selects by, and one that tests the result."""


class DataSettings(Settings):
    """Question sets of a run: dev and validation questions of the target task, and problems of other sources."""

    dev: QuestionSource
    """The dev set: a small set whose gradient guides the generator (eq:hat_g_dev)."""
    validation: QuestionSource
    """The validation set, by which the checkpoint is selected; disjoint from the dev set."""
    problems: list[ProblemSettings] = Field(default=[])
    """Problems that join the training pool; with the route `direct` they are the whole pool."""
    allow_overlap: Annotated[
        list[Overlap],
        BeforeValidator(lambda pairs: list(get_args(Overlap) if pairs else ()) if isinstance(pairs, bool) else pairs),
        Mark.UNRECORDED,
    ] = Field(default=[])
    """Pairs of question sets that may share questions; true means all pairs. If another pair shares questions, the run
    does not start. The setting changes no result and is not part of a recipe or the run's name; a resumed run may
    change it."""


class BudgetSettings(Settings):
    """Settings of the shares of an iteration's documents among the arms of the pool, e.g. its domains."""

    mode: Literal["uniform", "shares", "bandit"] = "uniform"
    """`uniform` draws from the whole pool; `shares` uses constant weights; `bandit` follows recent mean influence."""
    by: Literal["domain", "source_id", "prompt_type"] = "domain"
    """Field of a document by which the pool is divided into arms."""
    shares: dict[str, Size] = Field(default={})
    """Mode `shares`: weight of every arm, 0 to leave it out. Mode `bandit`: constant share of the batch for arms that
    the bandit does not control, such as a route without influence scores."""
    window: Count = 5
    """Number of past iterations from which the bandit computes mean influence."""
    exploration: float = Field(default=0.5, ge=0, le=1e6)
    """Width of the bandit's confidence bounds, in standard deviations of the rewards of the window."""
    floor: float = Field(default=0.05, ge=0, lt=1)
    """Lowest share of an arm that the bandit controls, at most an equal share."""

    @model_validator(mode="after")
    def _check_shares(self) -> "BudgetSettings":
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


class RoleSettings(Settings):
    """Settings of one role's updates."""

    update: bool = True
    """Whether the role is trained; if not, it remains the anchor."""
    learning_rate: float = Field(ge=0, le=1e6)
    """Highest learning rate, reached after the warm-up."""
    warmup: int = Field(default=0, ge=0, le=10_000)
    """Iterations of linear warm-up: iteration t, from 0, has (t + 1) / warmup of the learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or falling to 0 after the last iteration."""
    minibatch: Rows = 32
    """M: groups per optimizer step."""
    advantage: Literal[
        "mean_centred", "leave_one_out", "dugrpo", "group_std", "batch_std", "batch_mean_std", "batch_pooled_std"
    ]
    """Advantage estimator. `leave_one_out` takes the mean of a group's other rewards as baseline; `batch_std` depends
    on `loss.batch_std`, by default the preset's."""

    def step_size(self, iteration: int, *, iterations: int) -> float:
        """Learning rate in an iteration, counted from 0, of a run of `iterations`."""
        if iteration < self.warmup:
            return self.learning_rate * (iteration + 1) / self.warmup
        progress = (iteration - self.warmup) / max(1, iterations - self.warmup)
        if self.schedule == "constant":
            return self.learning_rate
        if self.schedule == "linear":
            return self.learning_rate * (1.0 - progress)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


class GeneratorRole(RoleSettings):
    """Settings of the generator."""

    model: ModelSource | None = None
    """Another model to use as generator, which is never trained: model files or an API; the anchor when null."""

    @model_validator(mode="after")
    def _check_model(self) -> "GeneratorRole":
        if self.model is not None and self.update:
            raise ValueError("a generator with its own model is never updated: set generator.update to false")
        return self


class SolverRole(RoleSettings):
    """Settings of the solver."""

    accuracy_band: list[Size] | None = Field(default=None, min_length=2, max_length=2)
    """[low, high]: train only on questions that the solver answers with an accuracy in this range; on all when null."""
    accuracy_quantiles: list[Size] | None = Field(default=None, min_length=2, max_length=2)
    """[low, high]: like `accuracy_band`, but in quantiles of the batch's accuracies, so the band follows the solver."""

    @model_validator(mode="after")
    def _check_bands(self) -> "SolverRole":
        if self.accuracy_band is not None and not 0 <= self.accuracy_band[0] <= self.accuracy_band[1] <= 1:
            raise ValueError(f"accuracy_band {self.accuracy_band}: needs 0 <= low <= high <= 1")
        ranks = self.accuracy_quantiles
        if ranks is not None and not 0 <= ranks[0] < ranks[1] <= 1:
            raise ValueError(f"accuracy_quantiles {ranks}: needs 0 <= low < high <= 1")
        if ranks is not None and self.accuracy_band is not None:
            raise ValueError("accuracy_band and accuracy_quantiles are two bands: set one of them to null")
        return self

    def band(self) -> tuple[float, float] | None:
        """The band as a pair (low, high), of accuracies or of their quantiles."""
        low_high = self.accuracy_band or self.accuracy_quantiles
        return (low_high[0], low_high[1]) if low_high else None


class ExampleSettings(Settings):
    """Example questions in the generator's prompt: human-written (R-Few), or the run's own (Absolute Zero)."""

    count: Count
    """Number of examples in one prompt, drawn anew for every document of every iteration."""
    source: QuestionSource | None = None
    """Source of the examples; the dev set when null."""
    earlier: int = Field(default=0, ge=0, le=100_000)
    """Number of newest valid questions of earlier iterations from which examples are drawn instead; 0 for none."""

    @model_validator(mode="after")
    def _check_source(self) -> "ExampleSettings":
        if self.earlier and self.source is not None:
            raise ValueError("examples.earlier draws from the run's own questions: leave out examples.source")
        return self


class TurnSettings(Settings):
    """Alternating turns of the two roles: some iterations update only the generator, then some only the solver."""

    generator: Count
    """Iterations of the generator's turn, which comes first."""
    solver: Count
    """Iterations of the solver's turn; then the generator's turn begins again."""
