"""Settings of the textbook corpus: catalogues, conversion, chunking, judging, overlap audit, and the document pool."""

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
    """A model served by an OpenAI-compatible API. The API key comes from `INFUSER_API_KEY`."""

    type: Literal["endpoint"]
    model: str = Field(min_length=1)
    """Name of the model on the server."""
    url: str = Field(pattern=r"^https?://[^\s?#@]+$")
    """Base address of the API, including the version, e.g. `http://127.0.0.1:8000/v1`."""
    concurrency: int = Field(default=16, gt=0, le=4096)
    """Requests that run at the same time."""


class RuleJudge(Settings):
    """Judge chunks by rules, not a model: drop licences, contents, indexes, source lists and text without sentences."""

    type: Literal["rules"]


class NoJudge(Settings):
    """Keep every chunk."""

    type: Literal["none"]


JudgeSource = Annotated[
    NanoAnchor | FolderAnchor | HubAnchor | EndpointModel | RuleJudge | NoJudge, Field(discriminator="type")
]
"""Judge of chunks: a model loaded from files, a model behind an API, rules, or none."""


ModelSource = Annotated[NanoAnchor | FolderAnchor | HubAnchor | EndpointModel, Field(discriminator="type")]
"""A model loaded from files, or a model behind an API."""


class CatalogueEntry(Settings):
    """One catalogue to search."""

    name: str = Field(min_length=1)
    """Module of corpus/find/catalogues, or your own `package.module`."""
    base: str = ""
    """Address of the catalogue; when empty its public address, if it has one."""


class CatalogueSettings(Settings):
    """Settings of the search for textbooks: the catalogues to search, and the books to take from them."""

    type: Literal["nano", "local", "catalogues"] = "nano"
    """`nano` serves the micro-world's textbooks on the loopback interface; `local` is a JSON catalogue at `url`;
    `catalogues` are those in the setting `catalogues`."""
    url: str = ""
    """Address of the JSON catalogue of type `local`."""
    world: World = "basic"
    """Micro-world whose textbooks the nano catalogue serves."""
    shelf: Annotated[ShelfName, Mark.NEUTRAL_IN_KEYS] = "mixed"
    """Textbooks of that world to serve: each `mixed` book treats every topic, each `by_domain` book a single domain."""
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
    """Catalogues to query with type `catalogues`, in this order."""
    licences: list[str] = Field(
        default=["CC0-1.0", "CC-PDM-1.0", "PDDL-1.0", "LicenseRef-public-domain", "CC-BY", "CC-BY-SA", "GFDL"]
    )
    """SPDX identifiers of admitted licences; `CC-BY` includes all of its versions; NC and ND must be listed."""
    languages: list[str] = Field(default=[])
    """Two-letter codes of the admitted languages; all when empty. Entries without a language are always admitted."""
    queries_per_topic: Count = 3
    """Most queries for one topic, a (domain, subdomain) pair."""
    books_per_topic: int = Field(default=5, ge=0, le=1_000_000)
    """Best-ranked books to take for one topic; 0 takes all."""
    model: ModelSource | None = None
    """Model that assigns topics to questions without one, phrases queries and ranks books; rules do so when null."""
    answers: Literal["live", "recorded"] = "live"
    """`live` queries the catalogues and records their answers; `recorded` uses only recorded answers."""
    answer_days: float = Field(default=7.0, ge=0, le=36_500)
    """Age up to which a recorded answer replaces a new query, days."""
    host_delay_seconds: float = Field(default=1.0, ge=0, le=3600)
    """Pause between two requests to one host, seconds; longer if the host requires it."""
    robots_exempt: list[str] = Field(default=[])
    """Address prefixes to request despite robots.txt, for sites whose owner permits it elsewhere."""

    @model_validator(mode="after")
    def _check_addresses(self) -> "CatalogueSettings":
        if self.type == "local" and not self.url:
            raise ValueError("a local catalogue needs `url`")
        if self.type == "catalogues" and not self.catalogues:
            raise ValueError("the list of catalogues is empty")
        return self


class ConvertSettings(Settings):
    """Settings of the conversion of PDF files to Markdown."""

    type: str = Field(default="auto", pattern=r"^[A-Za-z_][\w.]*$")
    """Converter: `pdfium` (reads the text layer), `marker`, `rapidocr`, `docling`, `http`, or
    `my_package.my_converter`; `auto` reads the text layer, and uses `helper` for files whose text layer is unusable."""
    helper: str = Field(default="marker", pattern=r"^([A-Za-z_][\w.]*)?$")
    """Converter that reads the rendered pages of files without a usable text layer; `rapidocr` reads the scans that it
    cannot. None when empty."""
    url: str = Field(default="", pattern=r"^(https?://[^\s#@]+)?$")
    """Address of the service to which the converter `http` posts files."""
    seconds: float = Field(default=600.0, gt=0, le=604_800)
    """Wall-clock limit for one file, or with `marker` and `rapidocr` for one range of pages, seconds."""
    max_pages: Count = 4000
    """Most pages of one source file."""
    marker_pages: Count = 40
    """Pages that one process of `marker` converts."""
    marker_gigabytes: float = Field(default=16.0, gt=0, le=65_536)
    """Resident memory at which a process of `marker` or `docling` is killed, GB."""


class RuleTokenizer(Settings):
    """Count tokens by a rule, without a model: close to current tokenizers on English text."""

    type: Literal["rules"]


TokenizerSource = Annotated[NanoAnchor | FolderAnchor | HubAnchor | RuleTokenizer, Field(discriminator="type")]


class ChunkSettings(Settings):
    """Settings of chunking, which splits books at headings into chunks of T_min to T_max tokens."""

    mode: Literal["offsets", "langchain"] = "offsets"
    """Splitter of long sections. With `offsets`, each chunk is an exact slice of the book; `langchain` is the paper's
    splitter, which rewrites white space, so that some chunks have no place in the book."""
    min_tokens: int = Field(default=200, ge=0, le=100_000_000)
    """T_min: a section with fewer tokens is too short to ask about, and is treated as `small_sections` says."""
    max_tokens: Tokens = 2048
    """T_max: a longer section is cut. Prompts must hold it: keep it below `cotrain.prompt_tokens`."""
    max_doubt: Annotated[float, Mark.NEUTRAL] = Field(default=0.0, ge=0, le=1)
    """Largest share of a chunk's characters in paragraphs that may read differently than the book: unreadable formulas,
    signs without a Unicode value, stray markup, words of no language. At 0 one such paragraph drops its chunk; at 1
    none does."""
    small_sections: Literal["merge", "drop"] = "merge"
    """Treatment of a section below `min_tokens`: joined with its neighbour (`merge`), or left out (`drop`)."""
    tokenizer: TokenizerSource | None = None
    """Model whose tokenizer counts tokens, or `rules`; null takes the run's anchor, its pre-trained base model."""

    @model_validator(mode="after")
    def _check_limits(self) -> "ChunkSettings":
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        return self


class ExcludeSettings(Settings):
    """Textbooks and chunks of the pool from which no questions are written.

    They remain in the pool, and another document replaces them in each batch that would have drawn them: iterations
    before the first such batch are the same as without the exclusion, and are not computed again.
    """

    sources: list[str] = Field(default=[])
    """Identifiers of textbooks."""
    documents: list[str] = Field(default=[])
    """Identifiers of chunks."""


Mode = Literal["exact", "paper", "loose"]
"""Method by which the overlap audit decides."""


class OverlapSettings(Settings):
    """Settings of the overlap audit, which compares the accepted chunks with questions and other data."""

    mode: Mode = "exact"
    """`exact` compares n-grams in both directions, `loose` shorter ones; `paper` decides on MinHash estimates."""
    n: int = Field(default=0, ge=0, le=1000)
    """Words per n-gram; 0 takes the mode's default: 13, or 5 for `loose`."""
    containment: float = Field(default=0.0, ge=0, le=1)
    """Share of one text's n-grams contained in the other from which two texts match. Mode `paper` estimates it, and
    also matches texts whose Jaccard similarity reaches it. 0 takes the mode's default: 0.8, or 0.5 for `loose`."""
    run_words: Count = 50
    """Length of a common passage from which two texts match, words: a quotation in a long text does not reach
    `containment`. Not used in mode `paper`."""
    min_words: Count = 5
    """A text with fewer words matches only an equal text, because any book contains so few words. Not used in mode
    `paper`."""
    min_chars: int = Field(default=200, ge=0, le=1_000_000)
    """Mode `paper` ignores texts with fewer characters."""
    matched: Literal["drop", "stop", "report"] = "drop"
    """Treatment of a chunk that overlaps with a dev, validation or benchmark question: drop it, stop the run, or only
    report it."""
    references: list[FilePath] = Field(default=[])
    """Further data to compare the chunks with: parquet, jsonl or json files, or folders of them."""
    reference_matched: Literal["drop", "stop", "report"] = "report"
    """Treatment of a chunk that overlaps with the data in `references`."""
    mixture: list[FilePath] = Field(default=[])
    """Data on which an instruction-finetuned base model was trained, as parquet, jsonl or json files, or folders of
    them. It is compared with the accepted chunks, the dev set and the validation set."""
    sft_matched: Literal["report", "stop"] = "report"
    """Treatment of a chunk or a question that overlaps with the data in `mixture`: report it, or stop the run."""

    def with_defaults(self) -> "OverlapSettings":
        """These settings with the mode's default n and containment instead of 0."""
        n, containment = (5, 0.5) if self.mode == "loose" else (13, 0.8)
        return self.model_copy(update={"n": self.n or n, "containment": self.containment or containment})


class CorpusSettings(Settings):
    """Settings of the textbook corpus, from topics to the document pool."""

    pool: FilePath = ""
    """Existing documents to use as the pool instead of building one: a folder or file, read as by
    `infuser corpus convert`. The overlap audit checks them like others."""
    catalogue: CatalogueSettings = CatalogueSettings()
    convert: ConvertSettings = ConvertSettings()
    structure: Literal["off", "headings", "model"] = "headings"
    """Removal of front and back matter before chunking: `headings` recognises it by its headings; `model` shows all
    headings to the judge's model, which names the first chapter and the closing matter; `off` removes nothing and
    leaves the decision to the judge of chunks."""
    chunk: ChunkSettings = ChunkSettings()
    judge_tokens: Tokens = 512
    """Length limit of the judge's reply, tokens."""
    judge: JudgeSource | None = None
    """Judge of chunks; null takes the run's anchor, its pre-trained base model."""
    overlap: OverlapSettings = OverlapSettings()
    exclude: ExcludeSettings = ExcludeSettings()
    group: Count = 16
    """Topics or textbooks per stored artifact: after a change only the affected artifacts are computed again."""

    @model_validator(mode="after")
    def _check_judge(self) -> "CorpusSettings":
        if self.structure == "model" and self.judge is not None and self.judge.type in ("rules", "none"):
            raise ValueError(f"structure `model` asks the judge's model, and judge `{self.judge.type}` has none")
        return self
