"""Settings of a run, validated before it starts: unknown keys, wrong types and impossible combinations are errors."""

from dataclasses import fields, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infuser_core.algorithm.preset import PRESETS, Preset
from infuser_core.algorithm.score import Score
from infuser_core.config.corpus import CorpusSettings, ModelSource
from infuser_core.config.engine import ClusterSettings, EngineSettings
from infuser_core.config.loss import LossSettings
from infuser_core.config.optimizers import options_class
from infuser_core.config.recorded import Mark, recorded
from infuser_core.config.retired import add_retired, drop_retired
from infuser_core.config.roles import (
    AdapterSettings,
    BudgetSettings,
    DataSettings,
    ExampleSettings,
    GeneratorRole,
    OptimizerSettings,
    SolverRole,
    TurnSettings,
)
from infuser_core.config.sources import AnchorSource, Columns, Count, FilePath, Seed, Settings, Size, Tokens, World
from infuser_core.schemas import Box
from infuser_core.system.sealed import digest_of

TooLong = Literal["wrong", "drop"]
"""Treatment of questions longer than the prompt limit: counted as wrong, or left out."""


class SamplingSettings(Settings):
    """Sampling of responses in evaluation."""

    temperature: float = Field(default=0.7, ge=0, le=1000)
    """Sampling temperature; 0 always takes the most probable token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Samples only from the most probable tokens that together reach this probability; 1 for all."""
    top_k: int = Field(default=-1, ge=-1, le=100_000_000)
    """Samples only from this number of most probable tokens; -1 or 0 for all."""


class RolloutSampling(Settings):
    """Sampling of responses in co-training, always from the whole distribution, without top_p and top_k."""

    temperature: float = Field(default=0.7, gt=0, le=1000)
    """Sampling temperature, above 0: at 0 all samples are equal, so groups have no variance."""

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
        """Sampling settings with this temperature and without top_p and top_k."""
        return SamplingSettings(temperature=self.temperature)


class QuestionSettings(Settings):
    """Rules for a valid generated question."""

    min_choices: int = Field(default=4, ge=2, le=10)
    """Fewest choices of a valid question."""
    max_choices: int = Field(default=8, ge=2, le=10)
    """Most choices of a valid question."""
    choice_order: Literal["shuffled", "as_written"] = "shuffled"
    """Order in which the solver sees the choices. `shuffled` keeps a generator from teaching the place of the key."""
    labeller: str = ""
    """`package.module:name` of a function that labels generated questions, for the report only."""
    oracle: str = ""
    """`package.module:name` of a function that replaces every valid Question by another, for control experiments."""


class RewardSettings(Settings):
    """The generator's reward."""

    name: str = "influence"
    """Module in `infuser_core/cotrain/rewards`, or `package.module:name`."""
    invalid: Size = 0.0
    """Reward of a text that is not a valid question (rho_inv)."""


class CotrainSettings(Settings):
    """Settings of co-training, the paper's Algorithm 2."""

    preset: Literal["paper", "official"] = "paper"
    """`official` follows the authors' code where it differs from the paper (table in `algorithm/preset.py`)."""

    iterations: int = Field(default=100, ge=0, le=10_000)
    """Iterations of co-training (T)."""
    documents: Count = 128
    """Documents per iteration (B)."""
    route: str = ""
    """Route from documents to questions, a module in `infuser_core/cotrain/routes`, for all documents; when empty, each
    document's prompt type. With a route that needs no documents no corpus is built: `direct` trains on `data.problems`
    alone."""
    budget: BudgetSettings = BudgetSettings()
    """Division of the documents among domains, sources or routes."""
    frozen_batch: bool = False
    """Whether every iteration uses the documents of the first one, as a control experiment."""
    dev_only: bool = False
    """Whether the solver is trained only on its answers to the dev set, as an ablation."""
    group_size: int = Field(default=8, ge=2, le=10_000)
    """Questions per document, and answers per question (n)."""
    prompt_tokens: Tokens = 4096
    """Length limit of a prompt, tokens, for both roles. A document with a longer prompt gives no question."""
    generator_tokens: Tokens = 8192
    """Length limit of the generator's text, tokens, its reasoning included."""
    solver_tokens: Tokens = 8192
    """Length limit of a solver's response, tokens, in training and validation."""
    sampling: RolloutSampling = RolloutSampling()
    question: QuestionSettings = QuestionSettings()
    reward: RewardSettings = RewardSettings()
    influence: Score = "preconditioned_cosine"
    """Form of the score: cosine or dot product of the dev gradient with AdamW's step on the question
    (`preconditioned_`), or with the question's plain gradient; or `measured`, the change of the dev objective after
    real steps on the question, which takes a gradient per step and a pass over the dev answers per question."""
    influence_steps: Annotated[int, Mark.NEUTRAL] = Field(default=1, ge=1, le=100)
    """Real steps on each question that `influence: measured` takes."""
    optimizer: OptimizerSettings = OptimizerSettings()
    adapter: Annotated[AdapterSettings | None, Mark.NEUTRAL_IN_KEYS] = None
    """Adapters that both roles train on top of the anchor; null trains all weights."""
    loss: LossSettings = LossSettings()
    generator: GeneratorRole
    solver: SolverRole
    turns: TurnSettings | None = None
    """Alternating turns of the roles (R-Zero, DARC); null updates both roles in every iteration."""
    examples: ExampleSettings | None = None
    """Example questions in the generator's prompt; none when null."""
    aims: list[Size] = Field(default=[], max_length=16)
    """Accuracies of the solver at which the generator is asked to aim (DARC), assigned to documents in turn. In the
    solver's turn, its iterations take them one after another, so that it learns in this order. No aim when empty."""
    label_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the samples that must agree on a majority's answer key; questions with less are not trained on."""
    labels: Literal["reference", "majority", "document"] = "reference"
    """Answer key of generated questions: the generator's (`reference`), the majority of the solver's answers
    (`majority`), or the majority of its answers with the question's document in the prompt (`document`)."""
    key_floor: float = Field(default=0.4, ge=0, le=1)
    """Share of right answer keys below which an iteration prints a warning, if the whole 95% interval is below it; 0
    for no warning."""
    key_solver: ModelSource | None = None
    """Strong model (model files or an API) that answers every generated question once. Its agreement with the answer
    keys estimates the share of right keys; when null, a labeller or the solver's majority does."""
    mid_eos_penalty: float = Field(default=0.0, ge=-1e9, le=0)
    """Penalty added, in the solver's update, to the reward of a response that stopped without an answer (hybrid
    extension: -0.5)."""
    exclude_questions: list[str] = Field(default=[])
    """Identifiers of generated questions on which neither role is trained."""
    validate_every: Count = 5
    """Iterations between validations; the anchor and the last checkpoint are always validated."""
    validation_samples: Count = 1
    """Responses per validation question."""

    def updates(self, role: Literal["generator", "solver"], iteration: int) -> bool:
        """Whether a role is trained in an iteration, counted from 0."""
        if self.turns is not None:
            place = iteration % (self.turns.generator + self.turns.solver)
            return (role == "generator") == (place < self.turns.generator)
        return (self.generator if role == "generator" else self.solver).update

    def aims_of(self, iteration: int) -> list[float]:
        """Target accuracies that are assigned in turn to the documents of an iteration, counted from 0."""
        if not self.aims or self.turns is None or self.updates("generator", iteration):
            return self.aims
        place = iteration % (self.turns.generator + self.turns.solver) - self.turns.generator
        return [self.aims[place * len(self.aims) // self.turns.solver]]

    def options(self) -> Preset:
        """The algorithm's options: the preset's, replaced by those that `loss` sets."""
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
    """Settings of one benchmark in the final evaluation."""

    name: str
    """Module in `infuser_core/evaluation/benchmarks`."""
    path: FilePath = ""
    """Data file or folder, if the benchmark reads one; when empty, from the data folder or the hub."""
    columns: Columns = Field(default={})
    """Columns of a file in another layout, by the names that the benchmark reads, e.g. `{problem: prompt}`."""
    label: str = ""
    """Name in tables; the module's name when empty."""
    only: list[str] = Field(default=[])
    """Domains or subdomains to use, spelt as in the data; all when empty."""
    samples: Count | None = None
    """Responses per question; null takes the benchmark's default."""
    max_tokens: Tokens | None = None
    """Length limit of a response, tokens; null takes the benchmark's, else the solver's."""
    world: World = "basic"
    """Micro-world of the nano benchmarks."""


class EvaluateSettings(Settings):
    """Settings of checkpoint selection and final evaluation."""

    sampling: SamplingSettings = SamplingSettings(temperature=0.7, top_p=0.8, top_k=20)
    box: Box = "paper"
    """Rule that selects the answer in a response: the first LaTeX box (`paper`), the authors' extractors (`official`),
    the last closed box (`strict-last`), or that box and without one an answer phrase (`phrase`)."""
    too_long: TooLong = "wrong"
    """Treatment of questions longer than the prompt limit: counted as wrong, or left out as in the authors' code."""
    selection: Literal["best", "within_noise"] = "best"
    """Selected checkpoint: `best` takes the highest validation accuracy, the earliest of equals; `within_noise` takes
    the earliest that is lower by less than one standard error of the paired difference."""
    benchmarks: list[BenchmarkSettings] = Field(default=[])
    """Benchmarks that the anchor and the selected checkpoint answer after training."""

    @model_validator(mode="after")
    def _check_labels(self) -> "EvaluateSettings":
        labels = [benchmark.label or benchmark.name for benchmark in self.benchmarks]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"two benchmarks are called {twice[0]}: give each its own `label`")
        return self


class KeepSettings(Settings):
    """Checkpoints to keep during a run, besides the anchor, pinned ones and candidates for selection."""

    full: Count = 2
    """Number of newest checkpoints of each role to keep complete, with optimizer state."""
    weights_every: int = Field(default=5, ge=0, le=10_000)
    """Iterations between checkpoints whose weights are kept; 0 for none."""


class StoreSettings(Settings):
    """Settings of a run's disk space in the store."""

    keep: KeepSettings | None = None
    """Rule for removing checkpoints after every iteration, which bounds disk use: everything removed can be computed
    again. Null removes nothing before `infuser gc --apply`."""


class RunConfig(Settings):
    """All settings of a run."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)
    """Short name of the base configuration."""
    variant: str = Field(default="", pattern=r"^[a-z0-9-]*$", max_length=100)
    """Short name of the variant, set by overlays, e.g. `fixed-generator`."""
    seed: Seed = 42
    """Seed of every random draw of the run: two runs with the same settings and seed have the same rows."""
    prompts: FilePath = "paper"
    """Prompt profile: a folder in `infuser_core/prompts`, or a path."""
    anchor: AnchorSource
    """The model from which both roles, generator and solver, start."""
    data: DataSettings
    corpus: CorpusSettings
    cotrain: CotrainSettings
    engine: EngineSettings = EngineSettings()
    cluster: Annotated[ClusterSettings | None, Mark.UNRECORDED] = None
    """Ray cluster whose machines share a run's work: the trainer `deepspeed` fills them with ranks, this machine first,
    and samplers run on all others, or on all machines with placement `colocated`. Null uses this machine alone. The
    setting changes no result and is not part of a recipe or the run's name; a resumed run may change it."""
    evaluate: EvaluateSettings = EvaluateSettings()
    store: Annotated[StoreSettings, Mark.UNRECORDED] = StoreSettings()
    """Disk space of the run. It changes no result and is not part of a recipe or the run's name; a resumed run may
    change it."""
    track: Annotated[list[str], Mark.UNRECORDED] = Field(default=[], max_length=8)
    """Trackers that receive the run's numbers, modules in `infuser_core/results/trackers` or `package.module:name`.
    They are not part of a recipe or the run's name; a resumed run may change them."""

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
        return self

    def digest(self) -> str:
        """Digest of all settings on which the run's name depends."""
        return digest_of(add_retired(recorded(self, naming=True)))

    @property
    def label(self) -> str:
        """Name of the configuration in comparisons: base name and variant."""
        return f"{self.name}-{self.variant}".rstrip("-")

    @property
    def has_one_sampler(self) -> bool:
        """Whether generator and solver take turns in one sampler of vLLM: not if phases overlap, which would wait, nor
        if the generator is another model."""
        engine = self.engine
        swaps = engine.sampler == "vllm" and engine.in_place and not engine.overlap
        return swaps and self.cotrain.generator.model is None

    def run_name(self) -> str:
        """Default name of a run, made of name, variant, seed and digest: equal settings give equal names."""
        parts = [self.name, self.variant, f"s{self.seed}", self.digest()[:6]]
        return "-".join(part for part in parts if part)
