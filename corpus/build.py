"""Write a document pool that was built from sources: its tables and report, from the chunks of each source.

A source is a book or file; its retained chunks are the documents of the pool.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus import report
from corpus.chunk.chunk import Discard, Discarded, discard
from corpus.find.named_sources import SourceItem
from corpus.pool import (
    DISCARDED,
    DOCUMENTS,
    MARKDOWN,
    OVERLAPS,
    SOURCES,
    PoolSource,
    markdown_name,
    table_writer,
    write_table,
)
from corpus.read.doubt import Doubtful
from infuser_core.config.corpus import ChunkSettings, OverlapSettings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document, Judgement, Overlap, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSource:
    """A source after the build: its documents, its discarded spans, or why it was rejected."""

    item: SourceItem
    page: Page | None = None
    """The converted source; None if it was rejected before its conversion."""
    documents: Sequence[Document] = ()
    """Retained chunks, in the order of the Markdown."""
    discarded: Sequence[Discarded] = ()
    """All other spans; together with the documents they cover the Markdown without gaps."""
    num_chars: int = 0
    """Characters of the Markdown."""
    structure: str = ""
    """`rules` or the model that found front and back matter, and why a model could not; empty if that pass is off."""
    sizes: ChunkSettings = field(default_factory=ChunkSettings)

    def apply_verdicts(self, verdicts: Sequence[Judgement]) -> "BuiltSource":
        """Return the source with the chunks that the judge dropped moved to the discarded spans."""
        return self.drop({row.document_id: ("judge", row.reason, row.response) for row in verdicts if not row.keep})

    def drop(self, dropped: Mapping[str, tuple[str, str, str]]) -> "BuiltSource":
        """Return the source with some documents moved to the discarded spans: id to (stage, reason, response)."""
        spans = [discard(row, *dropped[row.document_id]) for row in self.documents if row.document_id in dropped]
        if not spans:
            return self
        documents = [row for row in self.documents if row.document_id not in dropped]
        return replace(
            self, documents=documents, discarded=sorted([*self.discarded, *spans], key=lambda row: row.start)
        )

    def row(self) -> PoolSource:
        """Row for the pool's table of sources."""
        source, page = self.item.source, self.page
        stage, reason = self._rejection()
        loss = Counter[str]()
        for span in self.discarded:
            if span.reason in set(Doubtful):
                loss[span.reason] += span.end - span.start
        return PoolSource(
            source_id=source.source_id,
            input=self.item.input,
            title=source.title,
            author=source.author,
            domain=source.discipline,
            subdomain=self.item.subdomain,
            licence=source.licence,
            licence_evidence=source.licence_evidence,
            sha256=source.sha256,
            num_bytes=source.num_bytes,
            converter=page.converter if page else "",
            chosen=page.chosen if page else "",
            num_pages=page.num_pages if page else 0,
            num_chars=self.num_chars,
            num_documents=len(self.documents),
            num_discarded=sum(row.is_span for row in self.discarded),
            markdown=f"{MARKDOWN}/{markdown_name(source.source_id)}" if page and not page.reason else "",
            status="rejected" if stage else "admitted",
            stage=stage,
            reason=reason,
            structure=self.structure,
            markdown_sha256=page.sha256 if page and not page.reason else "",
            page_starts=page.page_starts if page and not page.reason else [],
            doubt=loss.total() / max(self.num_chars, 1),
            doubtful_for=max(loss, key=lambda name: loss[name], default=""),
        )

    def _rejection(self) -> tuple[str, str]:
        """Stage that rejected the source, and the reason; both empty if it has documents."""
        if self.page is None:
            return self.item.stage, with_setting(self.item.source.reason)
        if self.page.reason:
            return "convert", with_setting(self.page.reason)
        if self.documents:
            return "", ""
        reasons = Counter(
            row.stage if row.stage in ("judge", "overlap") else row.reason for row in self.discarded if row.is_span
        )
        stage = next((name for name in ("overlap", "judge") if name in reasons), "chunk")
        counts = [f"{count} {'span' if count == 1 else 'spans'} {name}" for name, count in sorted(reasons.items())]
        return stage, f"no documents: {', '.join(counts)}{self._closest_lengths()}"

    def _closest_lengths(self) -> str:
        """Lengths of the discarded spans closest to the length limits, with those settings; empty if there are none."""
        short, long = (
            [row.num_tokens for row in self.discarded if row.reason == reason.value]
            for reason in (Discard.TOO_SHORT, Discard.TOO_LONG)
        )
        parts = []
        if short:
            parts.append(f"the longest has {max(short)} tokens, corpus.chunk.min_tokens is {self.sizes.min_tokens}")
        if long:
            parts.append(f"the shortest too long has {min(long)}, corpus.chunk.max_tokens is {self.sizes.max_tokens}")
        return f" ({'; '.join(parts)})" if parts else ""


_SETTINGS = {
    r"too_long: \d+ pages": "corpus.convert.max_pages",
    r"unreadable: (?:.*: )?(?:pandoc: )?(?:still running|used more than \d+ s)": "corpus.convert.seconds",
    "marker: ": "corpus.convert.marker_pages, corpus.convert.seconds",
    "licence not allowed: ": "corpus.catalogue.licences",
    "language ": "corpus.catalogue.languages",
    "ranked ": "corpus.catalogue.books_per_topic",
}
"""Patterns for the beginning of a rejection's reason, each with the settings that could admit the source."""


def with_setting(reason: str) -> str:
    """Append to the reason of a rejection the settings that could change it, if there are any."""
    settings = [setting for start, setting in _SETTINGS.items() if re.match(start, reason)]
    return f"{reason} ({settings[0]})" if settings else reason


def overlap_reason(row: Overlap) -> str:
    """Reason for dropping a document that overlaps with reference data."""
    return f"overlaps {row.shard} record {row.record_id or row.record}, run of {row.longest_run} words"


def overlapping_documents(
    findings: Sequence[Overlap], questions: Sequence[str], rules: OverlapSettings
) -> dict[str, tuple[str, str, str]]:
    """Choose the documents to drop because of an overlap: id to (stage, reason, response).

    The action is set separately for question sets, whose shards are `questions`, and for other reference data. Raises
    DocumentError if a match should stop the build.
    """
    dropped: dict[str, tuple[str, str, str]] = {}
    for row in sorted((row for row in findings if row.matched), key=lambda row: -row.longest_run):
        action = rules.matched if row.shard in questions else rules.reference_matched
        reason = overlap_reason(row)
        if action == "stop":
            raise DocumentError(
                f"{row.document_id} {reason}",
                hint="set corpus.overlap.matched or reference_matched to drop, or to report",
            )
        if action == "drop":
            dropped.setdefault(row.document_id, ("overlap", reason, ""))
    return dropped


def write_pool(
    folder: Path, built: Iterable[BuiltSource], findings: Sequence[Overlap] | None, inputs: report.ReportInputs
) -> dict[str, Any]:
    """Write the pool's tables and report to the folder that already has its Markdown; returns the report's figures.

    Only one source at a time is in memory.
    """
    sources = []
    with (
        table_writer(folder / DOCUMENTS, Document) as add_document,
        table_writer(folder / DISCARDED, Discarded) as add_discarded,
    ):
        for source in built:
            sources.append(source.row())
            for document in source.documents:
                add_document(document)
            for span in source.discarded:
                add_discarded(span)
    write_table(folder / SOURCES, sources, PoolSource)
    if findings is not None:
        write_table(folder / OVERLAPS, findings, Overlap)
    return report.write_report(folder, sources, inputs)
