"""Settings that name a model or a set of questions, and the base class of all settings."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from infuser_core.config.recorded import Mark
from infuser_core.errors import abbreviate
from infuser_core.plugins import WORLDS
from infuser_core.system import hub


class Settings(BaseModel):
    """Base class of all settings: frozen, without unknown keys or silent conversions of text to numbers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        str_max_length=4096,
    )


# Upper limits beyond any experiment: a typing error fails at once, not after days or by running out of memory.
Count = Annotated[int, Field(gt=0, le=1_000_000)]
"""A positive number of documents, samples, requests, processes and the like."""
Rows = Annotated[int, Field(gt=0, le=100_000_000)]
"""A positive number of rows."""
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
"""A positive length, tokens."""
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
"""Seed of a random draw."""
Size = Annotated[float, Field(ge=-1e9, le=1e9)]
"""A real number of any sign."""
Whole = Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)]
"""A whole number of any sign."""


def _check_path(path: str) -> str:
    if any(len(os.fsencode(part)) > 255 for part in path.split("/")) or "\0" in path:
        raise ValueError(f"{abbreviate(path)} is no path: a file's name has at most 255 bytes, none of them 0")
    return path


FilePath = Annotated[str, AfterValidator(_check_path)]
"""Path of a file or a folder; relative paths start in the working directory of the command."""

Columns = Annotated[dict[str, Annotated[str, Field(min_length=1)]], Mark.NEUTRAL]
"""Mapping from the field names that a reader expects to the columns of a file; dots lead into objects and lists. An
empty mapping is not part of a recipe or of a run's name."""

World = Annotated[str, AfterValidator(WORLDS.check)]
"""Micro-world: a module in `infuser_core/nano/worlds`, or `my_package.my_world`."""
ShelfName = Literal["mixed", "by_domain"]
_LAB = Path(__file__).parents[1] / "nano"


class NanoAnchor(Settings):
    """The tiny pre-trained model that is shipped with the project."""

    type: Literal["nano"] = "nano"
    world: World = "basic"
    """Micro-world on which the model was trained, a module in `infuser_core/nano/worlds`."""

    @property
    def folder(self) -> Path:
        """Folder of the model in Hugging Face layout."""
        return _LAB / ("anchor" if self.world == "basic" else f"anchor_{self.world}")


class FolderAnchor(Settings):
    """A model folder in Hugging Face layout."""

    type: Literal["folder"]
    path: FilePath
    """Folder with config.json, weights and tokenizer."""


class HubAnchor(Settings):
    """A model on the Hugging Face hub, or in its local cache."""

    type: Literal["hub"]
    repo: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?$", max_length=96)
    """Repository, `owner/name`."""
    revision: str = hub.REVISION
    """Branch, tag or commit."""


class NanoQuestions(Settings):
    """Questions from a micro-world."""

    type: Literal["nano"] = "nano"
    split: Literal["train", "dev", "validation", "test"]
    """Part of the world's questions. `train`, `dev`, `validation` and `test` share no question."""
    topics: Literal["target", "transfer", "problems", "programs"] | list[str] = "target"
    """Topics: the world's `target`, its other topics (`transfer`), or a list of names, all with choices; or free-form
    `problems` or `programs` of the wide world."""
    size: Rows
    """Number of questions to draw."""
    world: World = "basic"
    """Micro-world of the questions, a module in `infuser_core/nano/worlds`."""


class FileQuestions(Settings):
    """Questions in a JSON, JSONL, CSV or parquet file with question_text, choices and ground_truth."""

    type: Literal["file"]
    path: FilePath
    """Path of the file, or `hf://datasets/OWNER/NAME` with `@REVISION` and `/FILE` as needed."""
    size: Rows | None = None
    """Expected number of rows; another number is an error for the dev set."""
    columns: Columns = Field(default={})
    """Columns of a file in another layout, e.g. `{question_text: problem, ground_truth: reward_model.ground_truth}`."""


class Quota(Settings):
    """Number of questions that a sample takes from one or several benchmarks."""

    benchmarks: list[str] = Field(min_length=1)
    """Modules in `infuser_core/evaluation/benchmarks`; several are pooled and share the quota."""
    count: Rows
    """Number of questions."""
    subdomain: str = ""
    """Restricts the quota to questions with this `subdomain`, e.g. `lettered` or `open` of `bbeh`."""


# The paper's validation set (appendix, tab:val_set_composition): 2,000 questions.
PAPER_QUOTAS = [
    Quota(benchmarks=["aime2024", "aime2025"], count=60),
    Quota(benchmarks=["gpqa_diamond"], count=198),
    Quota(benchmarks=["hmmt"], count=93),
    Quota(benchmarks=["mmlu_pro"], count=275),
    Quota(benchmarks=["math500"], count=275),
    Quota(benchmarks=["medxpertqa"], count=275),
    Quota(benchmarks=["olympiadbench_math", "olympiadbench_phys"], count=275),
    Quota(benchmarks=["bbeh"], subdomain="lettered", count=70),
    Quota(benchmarks=["bbeh"], subdomain="open", count=205),
    Quota(benchmarks=["supergpqa"], count=274),
]


class BenchmarkQuestions(Settings):
    """A stratified sample of benchmark questions, by default the paper's validation set."""

    type: Literal["benchmarks"]
    quotas: list[Quota] = Field(default=PAPER_QUOTAS, min_length=1)
    """Number of questions from each benchmark."""
    seed: Seed = 42
    """Seed of the sample, independent of the run's seed."""
    leak_free: bool = False
    """Whether to leave out every question whose text is in one of `evaluate.benchmarks`."""
    shortfall: Literal["spread", "leave"] = "spread"
    """If a quota lacks questions: `spread` adds them to the other quotas in proportion to their size; `leave` makes the
    sample smaller."""
    paths: dict[str, FilePath] = {}
    """File or folder of each benchmark, by name; other benchmarks come from the data folder or the hub.

    A file may have more questions in the same layout: evaluated ones are removed by text, and the others can be drawn.
    """

    @model_validator(mode="after")
    def _check_quotas(self) -> "BenchmarkQuestions":
        subdomains: dict[str, list[str]] = {}
        for quota in self.quotas:
            for name in quota.benchmarks:
                parts = subdomains.setdefault(name, [])
                if parts and ("" in (quota.subdomain, *parts) or quota.subdomain in parts):
                    raise ValueError(f"two quotas draw from {name}: give each its own `subdomain`")
                parts.append(quota.subdomain)
        return self


SingleSource = Annotated[NanoQuestions | FileQuestions | BenchmarkQuestions, Field(discriminator="type")]


class MixPart(Settings):
    """One source in a mixed set of questions."""

    source: SingleSource
    """Source of the questions."""
    count: Rows | None = None
    """Number of questions to draw from the source; all when null."""
    seed: Seed = 42
    """Seed of the draw, independent of the run's seed."""


class MixQuestions(Settings):
    """Questions of several sources as one set, e.g. science questions with choices and free-form mathematics."""

    type: Literal["mix"]
    parts: list[MixPart] = Field(min_length=1)
    """Sources, joined in this order; an identifier that an earlier source has gets the number of its part as prefix."""


def _hub_anchor(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(hub.SCHEME):
        return value
    where = hub.parse_address(value)
    if where.kind != "model" or where.path:
        raise ValueError(f"{value} is no model: give hf://OWNER/NAME, or hf://OWNER/NAME@REVISION")
    return {"type": "hub", "repo": where.repo, "revision": where.revision}


# The address of a hub file or model may replace its section.
QuestionSource = Annotated[
    Annotated[NanoQuestions | FileQuestions | BenchmarkQuestions | MixQuestions, Field(discriminator="type")],
    BeforeValidator(
        lambda value: (
            {"type": "file", "path": value} if isinstance(value, str) and value.startswith(hub.SCHEME) else value
        )
    ),
]
AnchorSource = Annotated[
    Annotated[NanoAnchor | FolderAnchor | HubAnchor, Field(discriminator="type")], BeforeValidator(_hub_anchor)
]
