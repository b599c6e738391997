"""Typed settings of a run: unknown keys, wrong types and impossible combinations fail here, before anything runs."""

from dataclasses import fields, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infuser_core.algorithm.preset import PRESETS, Preset
from infuser_core.algorithm.score import Influence
from infuser_core.config.corpus import CorpusSettings, ModelSource
from infuser_core.config.engine import ClusterSettings, EngineSettings
from infuser_core.config.optimizers import options_class
from infuser_core.config.recorded import Mark, recorded
from infuser_core.config.retired import add_retired, drop_retired
from infuser_core.config.roles import (
    AdapterSettings,
    BudgetSettings,
    DataSettings,
    ExampleSettings,
    GeneratorRole,
    LossSettings,
    OptimizerSettings,
    SolverRole,
    TurnSettings,
)
from infuser_core.config.sources import AnchorSource, Columns, Count, FilePath, Seed, Settings, Size, Tokens, World
from infuser_core.system.sealed import digest_of

Box = Literal["paper", "official", "strict-last", "phrase"]
"""Which answer of a response counts."""
TooLong = Literal["wrong", "drop"]
"""Treatment of questions that do not fit the prompt limit."""


class SamplingSettings(Settings):
    """Settings of sampling in evaluation."""

    temperature: float = Field(default=0.7, ge=0, le=1000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1, le=100_000_000)


class RolloutSampling(Settings):
    """Settings of sampling in co-training, which draws from the whole distribution."""

    temperature: float = Field(default=0.7, gt=0, le=1000)
    """At temperature 0 all samples are equal, so groups have no variance."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_limits(cls, values: object) -> object:
        neutral = {"top_p": (1,), "top_k": (-1, 0)}
        if not isinstance(values, dict):
            return values
        limits = [f"{key} {values[key]}" for key, off in neutral.items() if values.get(key, off[0]) not in off]
        if limits:
            raise ValueError(
                f"{' and '.join(limits)} would cut off tokens that the trainer counts, so that importance ratios are "
                "wrong: leave it out (evaluate.sampling may have it)"
            )
        return {key: value for key, value in values.items() if key not in neutral}

    def as_sampling(self) -> SamplingSettings:
        """The same temperature, without limits on the candidates."""
        return SamplingSettings(temperature=self.temperature)


class QuestionSettings(Settings):
    """Rules for a valid generated question."""

    min_choices: int = Field(default=4, ge=2, le=10)
    max_choices: int = Field(default=8, ge=2, le=10)
    choice_order: Literal["shuffled", "as_written"] = "shuffled"
    labeller: str = ""
    """`package.module:name` of a function that labels questions for the report only."""
    oracle: str = ""
    """`package.module:name` of a function from Question to Question, applied to every valid question: a control."""


class RewardSettings(Settings):
    """The generator's reward."""

    name: str = "influence"
    """Module in `infuser_core/cotrain/rewards`, or `package.module:name`."""
    invalid: Size = 0.0
    """rho_inv: reward of a text that is not a valid question."""


class CotrainSettings(Settings):
    """Algorithm 2."""

    preset: Literal["paper", "official"] = "paper"
    """`official` follows the authors' code if it differs from the paper (table in `algorithm/preset.py`)."""

    iterations: int = Field(default=100, ge=0, le=10_000)
    """T: iterations of co-training."""
    documents: Count = 128
    """B: documents per iteration."""
    route: str = ""
    """Route of all documents, a module in `infuser_core/cotrain/routes`; each document's prompt type when empty.
    A route that needs no document builds no corpus: `direct` trains on `data.problems` alone."""
    budget: BudgetSettings = BudgetSettings()
    """Division of the documents among domains, sources or routes."""
    frozen_batch: bool = False
    """True draws the first iteration's documents every time: a control."""
    dev_only: bool = False
    """True trains the solver on dev rollouts alone: an ablation."""
    group_size: int = Field(default=8, ge=2, le=10_000)
    """n: questions per document and answers per question."""
    prompt_tokens: Tokens = 4096
    generator_tokens: Tokens = 8192
    solver_tokens: Tokens = 8192
    sampling: RolloutSampling = RolloutSampling()
    question: QuestionSettings = QuestionSettings()
    reward: RewardSettings = RewardSettings()
    influence: Influence = "preconditioned_cosine"
    optimizer: OptimizerSettings = OptimizerSettings()
    adapter: Annotated[AdapterSettings | None, Mark.NEUTRAL_IN_KEYS] = None
    """Adapters of the anchor that both roles train; null trains all weights."""
    loss: LossSettings = LossSettings()
    generator: GeneratorRole
    solver: SolverRole
    turns: TurnSettings | None = None
    """Turns of the roles (R-Zero, DARC); null updates both in every iteration."""
    examples: ExampleSettings | None = None
    """Questions in the generator's prompt; none when null."""
    aims: list[Size] = Field(default=[], max_length=16)
    """Accuracies of the solver that questions should have (DARC), cycled over documents. In the solver's turn they
    follow each other over its iterations, so that it learns in this order. No aim when empty."""
    label_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the samples that must agree on a majority's label; questions below it are not trained on."""
    labels: Literal["reference", "majority", "document"] = "reference"
    """Key for answers to generated questions: the generator's (`reference`), the majority of the solver's answers, or
    the majority of its answers with the question's document in the prompt (`document`)."""
    key_floor: float = Field(default=0.4, ge=0, le=1)
    """Share of right keys below which an iteration warns, if the whole 95% interval is below; 0: no warning."""
    key_solver: ModelSource | None = None
    """A strong model (files or a server) that answers every generated question once. Its agreement with the keys
    estimates the share of right keys; without it a labeller or the solver's majority does."""
    mid_eos_penalty: float = Field(default=0.0, ge=-1e9, le=0)
    """Added, in the solver's update, to the reward of a response that stopped without an answer (hybrid: -0.5)."""
    exclude_questions: list[str] = Field(default=[])
    """Generated questions, by identifier, that neither role is updated on."""
    validate_every: Count = 5
    """Iterations between validations; the anchor and the last iteration are always validated."""
    validation_samples: Count = 1
    """Responses per validation question."""

    def updates(self, role: Literal["generator", "solver"], iteration: int) -> bool:
        """Whether the role is updated in an iteration, from 0."""
        if self.turns is not None:
            place = iteration % (self.turns.generator + self.turns.solver)
            return (role == "generator") == (place < self.turns.generator)
        return (self.generator if role == "generator" else self.solver).update

    def aims_of(self, iteration: int) -> list[float]:
        """Accuracies that the documents of an iteration, from 0, aim at in turn."""
        if not self.aims or self.turns is None or self.updates("generator", iteration):
            return self.aims
        place = iteration % (self.turns.generator + self.turns.solver) - self.turns.generator
        return [self.aims[place * len(self.aims) // self.turns.solver]]

    def options(self) -> Preset:
        """The algorithm's named options: the preset's, with those that `loss` sets itself."""
        own = {field.name: getattr(self.loss, field.name) for field in fields(Preset)}
        changed = {name: value for name, value in own.items() if value is not None}
        if changed.get("dual_clip") == "none":
            changed["dual_clip"] = None
        if "mid_eos_verdicts" in changed:
            changed["mid_eos_verdicts"] = tuple(changed["mid_eos_verdicts"])
        return replace(PRESETS[self.preset], **changed)

    @model_validator(mode="after")
    def _check_combinations(self) -> "CotrainSettings":
        if self.dev_only and self.generator.update:
            raise ValueError("dev_only trains no generator: set generator.update to false")
        if self.question.min_choices > self.question.max_choices:
            raise ValueError("question.min_choices is above question.max_choices")
        if self.budget.mode == "bandit" and (self.frozen_batch or not self.generator.update):
            raise ValueError("budget.mode bandit needs generator.update true (its scores) and frozen_batch false")
        if self.turns and not (self.generator.update and self.solver.update):
            raise ValueError("turns alternate two roles: set generator.update and solver.update to true")
        if any(not 0 < aim < 1 for aim in self.aims):
            raise ValueError(f"aims {self.aims}: accuracies above 0 and below 1")
        return self


class BenchmarkSettings(Settings):
    """One benchmark of the final evaluation."""

    name: str
    """Module in `infuser_core/evaluation/benchmarks`."""
    path: FilePath = ""
    """Data file or folder, if the benchmark reads one."""
    columns: Columns = Field(default={})
    """Columns of another layout, by the names that the benchmark reads, e.g. `{problem: prompt}`."""
    label: str = ""
    """Name in tables; the module's name when empty."""
    only: list[str] = Field(default=[])
    """Domains or subdomains to use, as spelt in the data; all when empty."""
    samples: Count | None = None
    """Responses per question; null takes the benchmark's number."""
    max_tokens: Tokens | None = None
    """Response limit; null takes the benchmark's, else the solver's."""
    world: World = "basic"
    """Micro-world of the nano benchmarks."""


class EvaluateSettings(Settings):
    """Checkpoint selection and final evaluation."""

    sampling: SamplingSettings = SamplingSettings(temperature=0.7, top_p=0.8, top_k=20)
    box: Box = "paper"
    """Which answer counts: the first boxed span, the authors' extractors, or the last closed box with our rules."""
    too_long: TooLong = "wrong"
    """Questions longer than the prompt limit: counted as wrong, or left out as in the authors' code."""
    selection: Literal["best", "within_noise"] = "best"
    """The checkpoint with the highest validation accuracy, the earliest of equals; or the earliest that is lower by
    less than one standard error of the paired difference."""
    benchmarks: list[BenchmarkSettings] = Field(default=[])

    @model_validator(mode="after")
    def _check_labels(self) -> "EvaluateSettings":
        labels = [benchmark.label or benchmark.name for benchmark in self.benchmarks]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"two benchmarks are called {twice[0]}: give each its own `label`")
        return self


class KeepSettings(Settings):
    """Checkpoints that stay during a run, besides the anchor, pinned ones and candidates for selection."""

    full: Count = 2
    """Newest checkpoints of each role that stay complete."""
    weights_every: int = Field(default=5, ge=0, le=10_000)
    """Iterations between checkpoints whose weights stay; 0 for none."""


class StoreSettings(Settings):
    """Disk space of a run in the store."""

    keep: KeepSettings | None = None
    """Retention after every iteration, so that the disk stays under a bound: everything removed can be computed again.
    Null removes nothing before `infuser gc --apply`."""


class RunConfig(Settings):
    """A whole run."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)
    """Short name of the base configuration."""
    variant: str = Field(default="", pattern=r"^[a-z0-9-]*$", max_length=100)
    """Set by overlays, e.g. `fixed-generator`."""
    seed: Seed = 42
    prompts: FilePath = "paper"
    """Prompt profile: a folder in `infuser_core/prompts`, or a path."""
    anchor: AnchorSource
    data: DataSettings
    corpus: CorpusSettings
    cotrain: CotrainSettings
    engine: EngineSettings = EngineSettings()
    cluster: Annotated[ClusterSettings | None, Mark.UNRECORDED] = None
    """Machines that share a run's work: the trainer `deepspeed` fills them with ranks, this one first, and samplers
    run on all others, or on all under placement colocated. Null is this machine alone. It changes no result, is not
    part of a recipe or of the run's name, and a resumed run may have other settings."""
    evaluate: EvaluateSettings = EvaluateSettings()
    store: Annotated[StoreSettings, Mark.UNRECORDED] = StoreSettings()
    """Disk space. It changes no result and is not part of a recipe or the run's name; a resumed run may change it."""
    track: Annotated[list[str], Mark.UNRECORDED] = Field(default=[], max_length=8)
    """Trackers that the run's numbers go to, modules in `infuser_core/results/trackers` or `package.module:name`.
    They are not part of a recipe or of the run's name, and a resumed run may have others."""

    _drop_retired = model_validator(mode="before")(drop_retired)

    @model_validator(mode="after")
    def _check_engine(self) -> "RunConfig":
        trainer, name = self.engine.trainer, self.cotrain.optimizer.name
        if self.cotrain.adapter is not None and trainer != "local":
            raise ValueError(f"cotrain.adapter needs engine.trainer local, and it is {trainer}")
        if self.engine.vllm.get("quantization") is not None and self.cotrain.loss.tis_cap is None:
            raise ValueError("engine.vllm.quantization needs cotrain.loss.tis_cap, which corrects what it changes")
        optimizer = options_class(name)
        if trainer not in optimizer.trainers:
            able = " or ".join(optimizer.trainers)
            raise ValueError(f"cotrain.optimizer.name {name} needs engine.trainer {able}, and it is {trainer}")
        if not optimizer.elementwise and self.engine.probe == "fast":
            raise ValueError(f"engine.probe fast cannot score {name}'s directions: set it to auto or reference")
        return self

    def digest(self) -> str:
        """Digest of the settings that make a run what it is."""
        return digest_of(add_retired(recorded(self, naming=True)))

    @property
    def label(self) -> str:
        """Base configuration and variant, as comparisons name it."""
        return f"{self.name}-{self.variant}".rstrip("-")

    def run_name(self) -> str:
        """Default name of a run: the same settings always give the same run."""
        parts = [self.name, self.variant, f"s{self.seed}", self.digest()[:6]]
        return "-".join(part for part in parts if part)
