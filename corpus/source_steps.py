"""One source's steps: its Markdown, then its chunks. Each finished step is a file named by all that it depends on."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from corpus.chunk import front_matter, langchain_chunk
from corpus.chunk.chunk import Chunk, Discard, chunk
from corpus.chunk.front_matter import find_bounds
from corpus.chunk.split import RULE, count_tokens
from corpus.find.intake import Item
from corpus.pool import DISCARDED, DOCUMENTS, Discarded, write_json, write_table
from corpus.read import embedded, marker
from corpus.read.convert import ChoiceConfig, convert_auto
from corpus.read.embedded import ConvertConfig
from corpus.read.marker import MarkerConfig
from infuser_core import faults
from infuser_core.config.corpus import ChunkSettings
from infuser_core.engines.protocols import ChatModel
from infuser_core.prompts.load import Template
from infuser_core.schemas import Document, Page
from infuser_core.store.tables import foreign_rows, read_rows

VERSION = 2
STRUCTURE = "structure.json"
_BY_STRUCTURE = frozenset({Discard.FRONT_MATTER, Discard.BACK_MATTER})
# A process that was ended for its time or memory may succeed another time: its page is not kept.
_PASSING = ("unreadable:",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadingReader:
    """A model that names the first chapter and the end marker of a book from its headings."""

    model: ChatModel
    """Answers prompts; a KeptChat does not answer the same one twice."""
    template: Template
    """Prompt with the slot `{headings}`."""
    identity: str
    """Digest of model and prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """How a source becomes chunks."""

    choice: ChoiceConfig = field(default_factory=lambda: ChoiceConfig(embedded=ConvertConfig(), marker=MarkerConfig()))
    """Which converter, and its settings."""
    structure: Literal["off", "headings", "model"] = "headings"
    """Whether front and back matter is cut, by rules on the headings or by the model that reads them."""
    reader: HeadingReader | None = None
    """The model for `structure: model`."""
    splitter: Literal["offsets", "langchain"] = "offsets"
    """Which chunker."""
    chunk: ChunkSettings = field(default_factory=ChunkSettings)
    """Token bounds."""
    count: Callable[[str], int] = count_tokens
    """Tokens of a text."""
    tokenizer: str = RULE
    """Name or digest of what counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What the conversion says of a source; its Markdown lies in `kept`."""

    sha256: str
    """Digest of the Markdown."""
    num_pages: int
    """Pages of the file."""
    converter: str
    """Converter name and version."""
    chosen: str
    """Why it was taken."""
    reason: str
    """Why there is no Markdown; empty when there is."""
    kept: Path | None
    """Parquet file with the page; None where it was refused for this time only."""

    def page(self) -> Page:
        """The page with its text."""
        assert self.kept is not None, "a refused page has no text"
        return read_rows(self.kept, Page)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunked:
    """A source's chunks and what is left over: together a tiling of its Markdown."""

    documents: list[Document]
    """Chunks in order."""
    discarded: list[Discarded]
    """Everything else in order."""
    num_chars: int
    """Characters of the Markdown."""
    structure: str
    """Who cut front and back matter, and why a model that was asked did not; empty where nobody did."""


def converted(item: Item, work: Path, config: SourceConfig) -> Converted | None:
    """The item's Markdown, from the work folder where it was converted before; None for an item without a file."""
    if item.path is None:
        return None
    choice = asdict(config.choice)
    choice["marker"].pop("work")
    choice["marker_installed"] = marker.is_installed(config.choice.marker.command)
    names = [item.source.source_id, item.source.sha256, item.path.suffix.lower(), embedded.CONVERTER, choice]
    kept = work / "pages" / f"{key(*names)}.parquet"
    if not kept.is_file():
        page = _with_plain_line_ends(convert_auto(item.path, item.source.source_id, config.choice))
        if page.reason.startswith(_PASSING):
            return _facts(asdict(page), None)
        write_table(kept, [page], Page)
        faults.point("build:converted")
    # The text stays on disk: many books at once would not fit into memory.
    light = ["sha256", "num_pages", "converter", "chosen", "reason"]
    return _facts(next(iter(foreign_rows(kept, columns=light))), kept)


def _facts(row: dict[str, Any], kept: Path | None) -> Converted:
    names = ("sha256", "num_pages", "converter", "chosen", "reason")
    return Converted(kept=kept, **{name: row[name] for name in names})


def _with_plain_line_ends(page: Page) -> Page:
    """Line ends as line feeds: readers of text files change the others, and offsets would no longer fit."""
    if "\r" not in page.markdown:
        return page
    text = page.markdown.replace("\r\n", "\n").replace("\r", "\n")
    starts = [start if start == 0 else len(page.markdown[:start].replace("\r\n", "\n")) for start in page.page_starts]
    return replace(page, markdown=text, sha256=hashlib.sha256(text.encode()).hexdigest(), page_starts=starts)


def chunked(item: Item, made: Converted, work: Path, config: SourceConfig) -> Chunked:
    """The source's chunks, from the work folder where it was chunked before."""
    source = item.source
    reader = config.reader.identity if config.reader and config.structure == "model" else ""
    settings = [
        config.chunk.model_dump(),
        config.structure,
        reader,
        config.splitter,
        config.tokenizer,
        source.discipline,
    ]
    folder = work / "chunks" / key(VERSION, source.source_id, made.sha256, settings)
    if not (folder / DOCUMENTS).is_file():
        page = made.page()
        rows, by = _chunks(page, source.discipline, config)
        documents = [row.document for row in rows if row.discard is None]
        dropped = [_discarded(row) for row in rows if row.discard is not None]
        write_table(folder / DISCARDED, tiled(page, documents, dropped), Discarded)
        write_json(folder / STRUCTURE, {"num_chars": len(page.markdown), "structure": by})
        write_table(folder / DOCUMENTS, documents, Document)
        faults.point("build:chunked")
    told = json.loads((folder / STRUCTURE).read_bytes())
    documents = read_rows(folder / DOCUMENTS, Document)
    return Chunked(documents=documents, discarded=read_rows(folder / DISCARDED, Discarded), **told)


def _chunks(page: Page, domain: str, config: SourceConfig) -> tuple[list[Chunk], str]:
    if config.splitter == "langchain":
        return langchain_chunk.chunk_langchain(page, config.count, config.chunk, domain), ""
    if config.structure != "model" or config.reader is None:
        mode: Literal["off", "headings"] = "off" if config.structure == "off" else "headings"
        excluded = front_matter.exclude(page, mode=mode)
        return chunk(page, config.count, config.chunk, domain, excluded=excluded), "" if mode == "off" else "rules"
    found = find_bounds(page, config.reader.model, config.reader.template)
    by = found.bounds.decided_by + (f": {found.bounds.problem}" if found.bounds.problem else "")
    excluded = front_matter.exclude(page, mode="headings", bounds=found.bounds)
    return chunk(page, config.count, config.chunk, domain, excluded=excluded), by


def _discarded(row: Chunk) -> Discarded:
    assert row.discard is not None
    return Discarded(
        source_id=row.document.source_id,
        start=row.document.start,
        end=row.document.end,
        stage="structure" if row.discard in _BY_STRUCTURE else "chunk",
        reason=row.discard.value,
        header_path=row.document.header_path,
        num_tokens=row.document.num_tokens,
        response="",
    )


def tiled(page: Page, documents: Sequence[Document], discarded: Sequence[Discarded]) -> list[Discarded]:
    """The discards with blank spans between rows added, so that nothing of the Markdown is unaccounted for."""
    spans = [(row.start, row.end) for row in documents] + [(row.start, row.end) for row in discarded]
    spans = sorted(span for span in spans if span[0] >= 0)
    edges = [(0, 0), *spans, (len(page.markdown), len(page.markdown))]
    gaps = [(left[1], right[0]) for left, right in pairwise(edges) if left[1] < right[0]]
    blanks = [
        Discarded(
            source_id=page.source_id,
            start=start,
            end=end,
            stage="chunk",
            # The comparison splitter rewrites text: what it cannot be traced to is named, too.
            reason="blank" if not page.markdown[start:end].strip() else "not_traced",
            header_path="",
            num_tokens=0,
            response="",
        )
        for start, end in gaps
    ]
    return sorted([*discarded, *blanks], key=lambda row: row.start)


def key(*parts: Any) -> str:
    """Name of a finished step: digest of what it depends on."""
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    return asdict(value) if hasattr(value, "__dataclass_fields__") else str(value)
