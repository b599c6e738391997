"""Settings of co-training: the two roles, their loss and optimizer, given questions, and the budget of documents."""

import math
from dataclasses import fields
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infuser_core.algorithm.advantage import SigmaB, SingleRow
from infuser_core.algorithm.preset import BatchStd, LengthNorm, Overlong, PartialMinibatch, RatioLevel, TisForm
from infuser_core.config.corpus import ModelSource
from infuser_core.config.optimizers import DEFAULT, OPTIMIZERS, Options, options_class
from infuser_core.config.recorded import Mark
from infuser_core.config.sources import Count, QuestionSource, Rows, Seed, Settings, Size, Whole
from infuser_core.errors import abbreviate
from infuser_core.plugins import ROUTES

ALL_LINEAR: Final = "all-linear"
"""Every linear layer of a model but its output layer."""


_CONSTANTS = {
    "weight_decay": "weight_decay",
    "gradient_clip": "max_grad_norm",
    "beta1": "beta1",
    "beta2": "beta2",
    "epsilon": "eps",
    "momentum": "momentum",
    "nesterov": "nesterov",
}
"""Fields of an optimizer's `Options` by the settings that several optimizers share."""


class OptimizerSettings(Settings):
    """The optimizer of both roles; influence is measured along its directions."""

    name: Annotated[str, AfterValidator(OPTIMIZERS.check), Mark.NEUTRAL_IN_KEYS] = DEFAULT
    """A file in `infuser_core/engines/training/optimizers`, or `my_package.my_optimizer`."""
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
    """Decay of a mean or sum of gradients; null takes the optimizer's default."""
    nesterov: Annotated[bool | None, Mark.NEUTRAL_IN_KEYS] = None
    """Whether a step with momentum looks ahead; null takes the optimizer's default."""
    constants: Annotated[dict[str, bool | Whole | Size | str], Mark.NEUTRAL] = Field(default={})
    """Constants that only this optimizer has, by name."""

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
        """All constants, as engines take them."""
        kind = options_class(self.name)
        names = {field.name for field in fields(kind)}
        values: dict[str, Any] = {to: getattr(self, key) for key, to in _CONSTANTS.items() if to in names}
        return kind(**{key: value for key, value in (values | self.constants).items() if value is not None})


class LossSettings(Settings):
    """Constants of eq:unified_obj, and the preset's options one by one; null leaves an option to the preset."""

    clip_low: float = Field(default=0.2, gt=0, le=1e6)
    clip_high: float = Field(default=0.2, gt=0, le=1e6)
    """Clip range of the importance ratio, 1 - clip_low to 1 + clip_high: they need not be equal (DAPO: 0.2, 0.28)."""
    tis_cap: float | None = Field(default=2.0, gt=0, le=1e6)
    """rho_max of the truncated importance weight; null switches it off."""
    kl: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the KL divergence from the anchor that an update adds to its loss (GRPO's beta). Scores ignore it."""
    entropy: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the policy's entropy, nats per token, that an update adds to its objective. Scores ignore it."""
    ratio: RatioLevel = "token"
    """Importance ratios token by token, or `sequence`: one for a whole response, its geometric mean (GSPO), which needs
    a far narrower clip range."""
    overlong: Overlong = "keep"
    """`mask` gives no credit to a response that ends at the length limit; its reward stays in the mean (DAPO)."""
    dual_clip: Annotated[float, Field(gt=1, le=1e6)] | Literal["none"] | None = None
    """Bound of the loss of a negative advantage, in units of |A|; `none` is no bound."""
    tis_form: TisForm | None = None
    """Policy whose ratio to the sampler is truncated: the one before the update, or the current one."""
    length_norm: LengthNorm | None = None
    """C: the longest generation (`fixed`), or the mean response length of the batch (`token_mean`)."""
    sigma_b: SigmaB | None = None
    """Groups that enter sigma_B of `dugrpo`: all, or those with variance (`nonzero`)."""
    single_row: SingleRow | None = None
    """A group of one row: no credit (`zero`), or mean 0 and standard deviation 1 (`unit`)."""
    batch_std: BatchStd | None = None
    """The normaliser that the advantage `batch_std` means."""
    partial_minibatch: PartialMinibatch | None = None
    """Divisor of a smaller last minibatch: its groups (`real`), or those of a whole one (`nominal`)."""
    mid_eos_verdicts: list[Literal["no_answer", "unverified"]] | None = None
    """Verdicts that `mid_eos_penalty` applies to."""


class AdapterSettings(Settings):
    """Adapters that are trained instead of the model's weights; influence is measured in their space."""

    type: Literal["lora"] = "lora"
    rank: int = Field(default=16, gt=0, le=4096)
    """Rank of each adapter (r)."""
    alpha: float = Field(default=32.0, gt=0, le=1e6)
    """Adapters are added alpha / rank times."""
    targets: list[str] | Literal["all-linear"] = ALL_LINEAR
    """Last names of the linear layers that get one, e.g. [q_proj, v_proj]; `all-linear` is every one but the output."""


class ProblemSettings(Settings):
    """Rows of the training pool that are not from textbooks: problems with known answers (hybrid extension)."""

    source: QuestionSource
    """The problems; a duplicate counts once."""
    count: Rows
    """Rows: the problems repeated in turn until there are as many, then shuffled."""
    route: Annotated[str, AfterValidator(ROUTES.check)] = "direct"
    """`direct` puts the problem itself to the solver; for other routes problem and answer are a text to write from."""
    seed: Seed = 42
    """Seed of the shuffle, independent of the run's seed."""
    exclude_dev: bool = True
    """Leave out problems of the dev set, by text. The authors' published pool keeps them."""
    domain: str = ""
    """Domain of the rows; each problem's domain when empty."""


Overlap = Literal[
    "dev-validation", "dev-benchmarks", "validation-benchmarks", "problems-validation", "problems-benchmarks"
]
"""Two sets of questions: one that a run learns from or chooses by, and one that checks the result."""


def _expand_overlap(value: object) -> object:
    return {True: list(get_args(Overlap)), False: []}[value] if isinstance(value, bool) else value


class DataSettings(Settings):
    """Data of a run: dev and validation questions of the target, and problems of other sources."""

    dev: QuestionSource
    """The small set whose gradient guides the generator (eq:hat_g_dev)."""
    validation: QuestionSource
    """Selects the checkpoint; disjoint from dev."""
    problems: list[ProblemSettings] = Field(default=[])
    """Problems that join the pool; with the route `direct` they are the pool."""
    allow_overlap: Annotated[list[Overlap], BeforeValidator(_expand_overlap), Mark.UNRECORDED] = Field(default=[])
    """Pairs of sets that may share questions; true is all of them. Any other pair that shares some stops the run
    before it starts. It changes no result, is not part of a recipe or the run's name; a resumed run may change it."""


class BudgetSettings(Settings):
    """Settings for sharing an iteration's documents among the arms of the pool."""

    mode: Literal["uniform", "shares", "bandit"] = "uniform"
    """`uniform` draws from the whole pool; `shares` has constant weights; `bandit` follows recent mean influence."""
    by: Literal["domain", "source_id", "prompt_type"] = "domain"
    """Field of a document that names its arm."""
    shares: dict[str, Size] = Field(default={})
    """`shares`: weight of every arm, 0 to leave it out. `bandit`: constant share of the batch of arms that it does not
    steer, such as a route without influence scores."""
    window: Count = 5
    """Iterations that the bandit looks back."""
    exploration: float = Field(default=0.5, ge=0, le=1e6)
    """Width of the bandit's bounds, in deviations of the rewards of the window."""
    floor: float = Field(default=0.05, ge=0, lt=1)
    """Lowest share of an arm that the bandit steers, at most an equal share."""

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
    """Settings of one role's update."""

    update: bool = True
    """False keeps the role at its anchor."""
    learning_rate: float = Field(ge=0, le=1e6)
    """Highest step size."""
    warmup: int = Field(default=0, ge=0, le=10_000)
    """Iterations over which the step size rises linearly: (t + 1) / warmup of it in iteration t, from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the step size after the warm-up: constant, or down to 0 after the last iteration."""
    minibatch: Rows = 32
    """M: groups per optimizer step."""
    advantage: Literal[
        "mean_centred", "leave_one_out", "dugrpo", "group_std", "batch_std", "batch_mean_std", "batch_pooled_std"
    ]
    """`leave_one_out` has the mean of a group's other rewards as baseline; `batch_std` depends on the preset."""

    def step_size(self, iteration: int, *, iterations: int) -> float:
        """Step size of an iteration, counted from 0, of a run of `iterations`."""
        if iteration < self.warmup:
            return self.learning_rate * (iteration + 1) / self.warmup
        progress = (iteration - self.warmup) / max(1, iterations - self.warmup)
        if self.schedule == "constant":
            return self.learning_rate
        if self.schedule == "linear":
            return self.learning_rate * (1.0 - progress)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


class GeneratorRole(RoleSettings):
    """The generator's part."""

    model: ModelSource | None = None
    """Another model as generator, never updated: files or a server; the anchor when null."""

    @model_validator(mode="after")
    def _check_model(self) -> "GeneratorRole":
        if self.model is not None and self.update:
            raise ValueError("a generator with its own model is never updated: set generator.update to false")
        return self


class SolverRole(RoleSettings):
    """The solver's part."""

    accuracy_band: list[Size] | None = Field(default=None, min_length=2, max_length=2)
    """[low, high]: questions that the solver answers with an accuracy outside are not trained on; all when null."""
    accuracy_quantiles: list[Size] | None = Field(default=None, min_length=2, max_length=2)
    """[low, high]: the same with quantiles of the batch's accuracies, so that the band moves with the solver."""

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
        """The band as a pair, of accuracies or of their quantiles."""
        low_high = self.accuracy_band or self.accuracy_quantiles
        return (low_high[0], low_high[1]) if low_high else None


class ExampleSettings(Settings):
    """Questions that the generator sees before its task: by people (R-Few), or the run's own (Absolute Zero)."""

    count: Count
    """Examples in one prompt, drawn again for every document of every iteration."""
    source: QuestionSource | None = None
    """Source of the examples; the dev set when null."""
    earlier: int = Field(default=0, ge=0, le=100_000)
    """Newest valid questions of earlier iterations that they are drawn from instead; 0 for none."""

    @model_validator(mode="after")
    def _check_source(self) -> "ExampleSettings":
        if self.earlier and self.source is not None:
            raise ValueError("examples.earlier draws from the run's own questions: leave out examples.source")
        return self


class TurnSettings(Settings):
    """Turns of the two roles: some iterations update the generator alone, then some the solver alone."""

    generator: Count
    """Iterations of the generator's turn, which comes first."""
    solver: Count
    """Iterations of the solver's turn; then the generator's comes again."""
