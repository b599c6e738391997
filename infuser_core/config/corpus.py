"""Settings of the corpus: catalogues, conversion, chunking, judging, audit and pool."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infuser_core.config.recorded import Mark
from infuser_core.config.sources import (
    Count,
    FilePath,
    FolderAnchor,
    HubAnchor,
    NanoAnchor,
    Settings,
    ShelfName,
    Tokens,
    World,
)


class EndpointModel(Settings):
    """A model at an OpenAI-compatible address. The key comes from `INFUSER_API_KEY`."""

    type: Literal["endpoint"]
    model: str = Field(min_length=1)
    """Its name on the server."""
    url: str = Field(pattern=r"^https?://[^\s?#@]+$")
    """Address up to and with the version, e.g. `http://127.0.0.1:8000/v1`."""
    concurrency: int = Field(default=16, gt=0, le=4096)
    """Concurrent requests."""


class RuleJudge(Settings):
    """Rules without a model: licences, contents, indexes, lists of sources, and text without sentences are dropped."""

    type: Literal["rules"]


class NoJudge(Settings):
    """Every chunk is kept."""

    type: Literal["none"]


JudgeSource = Annotated[
    NanoAnchor | FolderAnchor | HubAnchor | EndpointModel | RuleJudge | NoJudge, Field(discriminator="type")
]
"""Judge of chunks: a model's files, a model at an address, rules, or none."""


ModelSource = Annotated[NanoAnchor | FolderAnchor | HubAnchor | EndpointModel, Field(discriminator="type")]
"""A model's files, or a model at an address."""


class CatalogueEntry(Settings):
    """One catalogue to search."""

    name: str = Field(min_length=1)
    """Module of corpus/find/catalogues, or your own `package.module`."""
    base: str = ""
    """Its address; the catalogue's public one when empty, if it has one."""


class CatalogueSettings(Settings):
    """Settings of the search for textbooks: catalogues, and which offers are taken."""

    type: Literal["nano", "local", "catalogues"] = "nano"
    """`nano` serves the micro-world's textbooks on loopback; `local` is a JSON catalogue at `url`; `catalogues` are
    those listed."""
    url: str = ""
    """Address of a local catalogue."""
    world: World = "basic"
    """Micro-world whose textbooks the nano catalogue serves."""
    shelf: Annotated[ShelfName, Mark.NEUTRAL_IN_KEYS] = "mixed"
    """Textbooks of that world: `mixed` ones treat every topic, `by_domain` ones a single domain."""
    catalogues: list[CatalogueEntry] = Field(
        default=[
            CatalogueEntry(name="open_textbook_library"),
            CatalogueEntry(name="openstax"),
            CatalogueEntry(name="libretexts"),
            CatalogueEntry(name="oapen"),
            CatalogueEntry(name="doab"),
            CatalogueEntry(name="arxiv"),
        ]
    )
    """Catalogues of the type `catalogues`, in the order of queries."""
    licences: list[str] = Field(
        default=["CC0-1.0", "CC-PDM-1.0", "PDDL-1.0", "LicenseRef-public-domain", "CC-BY", "CC-BY-SA", "GFDL"]
    )
    """SPDX identifiers that are admitted; `CC-BY` includes every version of it; NC and ND must be listed."""
    languages: list[str] = Field(default=[])
    """Two-letter codes of the admitted languages; all when empty. Entries without a language are always admitted."""
    queries_per_topic: Count = 3
    """Highest number of queries for one (domain, subdomain) pair."""
    books_per_topic: int = Field(default=5, ge=0, le=1_000_000)
    """Books taken for one pair, the best ranked; 0 takes all."""
    model: ModelSource | None = None
    """Model that labels questions without a pair, phrases queries and ranks books; rules do it when null."""
    answers: Literal["live", "recorded"] = "live"
    """`live` queries the catalogues and records their answers; `recorded` uses only the record."""
    answer_days: float = Field(default=7.0, ge=0, le=36_500)
    """Age up to which a recorded answer is used instead of a new query, days."""
    host_delay_seconds: float = Field(default=1.0, ge=0, le=3600)
    """Pause between two requests to one host, seconds; longer if the host requires it."""
    robots_exempt: list[str] = Field(default=[])
    """Address prefixes requested despite robots.txt, because their owner allows it elsewhere."""

    @model_validator(mode="after")
    def _check_addresses(self) -> "CatalogueSettings":
        if self.type == "local" and not self.url:
            raise ValueError("a local catalogue needs `url`")
        if self.type == "catalogues" and not self.catalogues:
            raise ValueError("the list of catalogues is empty")
        return self


class ConvertSettings(Settings):
    """PDF to Markdown."""

    type: str = Field(default="auto", pattern=r"^[A-Za-z_][\w.]*$")
    """Converter: `pdfium` (the text layer), `marker`, `docling`, `http`, or `my_package.my_converter`; `auto` reads the
    text layer, and uses the helper if that is unusable."""
    helper: str = Field(default="marker", pattern=r"^([A-Za-z_][\w.]*)?$")
    """Converter that reads the printed page, for files without a usable text layer; none when empty."""
    url: str = Field(default="", pattern=r"^(https?://[^\s#@]+)?$")
    """Address of the service that the converter `http` posts files to."""
    seconds: float = Field(default=600.0, gt=0, le=604_800)
    """Wall-clock limit for one file, or for one range of pages under marker, seconds."""
    max_pages: Count = 4000
    """Pages a source may have."""
    marker_pages: Count = 40
    """Pages that one marker process converts."""
    marker_gigabytes: float = Field(default=16.0, gt=0, le=65_536)
    """Resident memory at which a process of marker or docling is ended, GB."""


class RuleTokenizer(Settings):
    """Tokens by rule, without a model: close to current tokenizers on English text."""

    type: Literal["rules"]


TokenizerSource = Annotated[NanoAnchor | FolderAnchor | HubAnchor | RuleTokenizer, Field(discriminator="type")]


class ChunkSettings(Settings):
    """Header-aware chunking (T_min, T_max)."""

    mode: Literal["offsets", "langchain"] = "offsets"
    min_tokens: int = Field(default=200, ge=0, le=100_000_000)
    max_tokens: Tokens = 2048
    small_sections: Literal["merge", "drop"] = "merge"
    tokenizer: TokenizerSource | None = None
    """Model whose tokenizer counts, or `rules`; the run's anchor when null."""

    @model_validator(mode="after")
    def _check_limits(self) -> "ChunkSettings":
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        return self


class ExcludeSettings(Settings):
    """Textbooks and chunks of the pool from which no questions are written.

    They stay in the pool, and another document replaces them in the batches that would have drawn them: iterations
    before the first such batch are the same as without the exclusion, and are not computed again.
    """

    sources: list[str] = Field(default=[])
    """Identifiers of textbooks."""
    documents: list[str] = Field(default=[])
    """Identifiers of chunks."""


Mode = Literal["exact", "paper", "loose"]
"""How the overlap audit decides."""


class OverlapSettings(Settings):
    """The audit of the kept chunks against questions and other data."""

    mode: Mode = "exact"
    """`exact` compares n-grams in both directions, `loose` shorter ones; `paper` decides on MinHash estimates."""
    n: int = Field(default=0, ge=0, le=1000)
    """Words per n-gram; 0 takes the mode's number, 13 or, if loose, 5."""
    containment: float = Field(default=0.0, ge=0, le=1)
    """Share of one text's n-grams in the other from which a pair matches, in the paper's mode estimated, and the
    Jaccard similarity as well; 0 takes the mode's own, 0.8 or, if loose, 0.5."""
    run_words: Count = 50
    """Common run from which a pair matches, words, as a quotation in a long text reaches no containment; not in the
    paper's mode."""
    min_words: Count = 5
    """A shorter text matches whole texts only, words, as any book has its few words; not in the paper's mode."""
    min_chars: int = Field(default=200, ge=0, le=1_000_000)
    """Texts shorter than this are left out in the paper's mode, characters."""
    matched: Literal["drop", "stop", "report"] = "drop"
    """Treatment of a chunk that overlaps with a dev, validation or benchmark question."""
    references: list[FilePath] = Field(default=[])
    """Further data to compare with: parquet, jsonl or json files, or folders of them."""
    reference_matched: Literal["drop", "stop", "report"] = "report"
    """Treatment of a chunk that overlaps with one of these."""
    mixture: list[FilePath] = Field(default=[])
    """Data that an instruction-finetuned anchor was trained on, as parquet, jsonl or json files, or folders of them:
    it is compared with the kept chunks, the dev set and the validation set."""
    sft_matched: Literal["report", "stop"] = "report"
    """Treatment of a chunk or a question that overlaps with it: a line of the report, or the end of the run."""

    def with_defaults(self) -> "OverlapSettings":
        """The same settings with the mode's n and containment instead of 0."""
        n, containment = (5, 0.5) if self.mode == "loose" else (13, 0.8)
        return self.model_copy(update={"n": self.n or n, "containment": self.containment or containment})


class CorpusSettings(Settings):
    """From topics to the document pool."""

    pool: FilePath = ""
    """An existing pool instead of a new one: a folder or file of documents, read as `infuser corpus convert` does. The
    overlap audit checks it like any other."""
    catalogue: CatalogueSettings = CatalogueSettings()
    convert: ConvertSettings = ConvertSettings()
    structure: Literal["off", "headings", "model"] = "headings"
    """Whether front and back matter is cut before chunking: by headings, or by the judge's model, which sees the
    headings alone and names the first chapter and the closing matter; `off` leaves the decision to the judge of
    chunks."""
    chunk: ChunkSettings = ChunkSettings()
    judge_tokens: Tokens = 512
    """Length limit of the judge's reply, tokens."""
    judge: JudgeSource | None = None
    """Model that judges chunks; the run's anchor when null."""
    overlap: OverlapSettings = OverlapSettings()
    exclude: ExcludeSettings = ExcludeSettings()
    group: Count = 16
    """Topics, or textbooks, per artifact: a change of one artifact leaves the others."""

    @model_validator(mode="after")
    def _check_judge(self) -> "CorpusSettings":
        if self.structure == "model" and self.judge is not None and self.judge.type in ("rules", "none"):
            raise ValueError(f"structure `model` asks the judge's model, and judge `{self.judge.type}` has none")
        return self
