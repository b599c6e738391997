"""A document pool built from its sources: what each source became, and the tables, Markdown and report of the pool."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus import report
from corpus.chunk.chunk import Discard, Discarded, discard
from corpus.find.intake import Item
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
from infuser_core.config.corpus import ChunkSettings, OverlapSettings
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document, Judgement, Overlap, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Outcome of one source."""

    item: Item
    """The source as given."""
    page: Page | None = None
    """Its conversion; None when it was rejected before."""
    documents: Sequence[Document] = ()
    """Kept chunks in order."""
    discarded: Sequence[Discarded] = ()
    """All else; together with the documents a tiling of the Markdown."""
    num_chars: int = 0
    """Characters of the Markdown."""
    structure: str = ""
    """The cutter of front and back matter, and why a model that was asked did not; empty where nobody did."""
    sizes: ChunkSettings = field(default_factory=ChunkSettings)
    """Limits of a chunk's length."""

    def judged(self, verdicts: Sequence[Judgement]) -> "Built":
        """Without the chunks that the judge dropped."""
        return self.minus({row.document_id: ("judge", row.reason, row.response) for row in verdicts if not row.keep})

    def minus(self, dropped: Mapping[str, tuple[str, str, str]]) -> "Built":
        """Without some documents: they become discards, with (stage, reason, response)."""
        spans = [discard(row, *dropped[row.document_id]) for row in self.documents if row.document_id in dropped]
        if not spans:
            return self
        kept = [row for row in self.documents if row.document_id not in dropped]
        return replace(self, documents=kept, discarded=sorted([*self.discarded, *spans], key=lambda row: row.start))

    def row(self) -> PoolSource:
        """Row of the sources table."""
        source, page = self.item.source, self.page
        stage, reason = self._ending()
        return PoolSource(
            source_id=source.source_id,
            input=self.item.given,
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
        )

    def _ending(self) -> tuple[str, str]:
        """Stage and reason of a source that gave no documents; both empty for one that gave some."""
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
        told = [f"{count} {'span' if count == 1 else 'spans'} {name}" for name, count in sorted(reasons.items())]
        return stage, f"no documents: {', '.join(told)}{self._lengths()}"

    def _lengths(self) -> str:
        """The spans that came nearest to the limits of a chunk, with the settings; empty where length kept none out."""
        short, long = (
            [row.num_tokens for row in self.discarded if row.reason == reason.value]
            for reason in (Discard.TOO_SHORT, Discard.TOO_LONG)
        )
        told = []
        if short:
            told.append(f"the longest has {max(short)} tokens, corpus.chunk.min_tokens is {self.sizes.min_tokens}")
        if long:
            told.append(f"the shortest too long has {min(long)}, corpus.chunk.max_tokens is {self.sizes.max_tokens}")
        return f" ({'; '.join(told)})" if told else ""


_SETTINGS = {
    r"too_long: \d+ pages": "corpus.convert.max_pages",
    r"unreadable: (?:.*: )?(?:pandoc: )?(?:still running|used more than \d+ s)": "corpus.convert.seconds",
    "marker: ": "corpus.convert.marker_pages, corpus.convert.seconds",
    "licence not allowed: ": "corpus.catalogue.licences",
    "language ": "corpus.catalogue.languages",
    "ranked ": "corpus.catalogue.books_per_topic",
}
"""Beginnings of reasons, as patterns, and the settings that would have taken the book."""


def with_setting(reason: str) -> str:
    """A reason for a rejection with the setting that decides it, where there is one."""
    found = [setting for start, setting in _SETTINGS.items() if re.match(start, reason)]
    return f"{reason} ({found[0]})" if found else reason


def overlap_reason(row: Overlap) -> str:
    """Reason for which a document that matches is dropped."""
    return f"overlaps {row.shard} record {row.record_id or row.record}, run of {row.longest_run} words"


def overlapping(
    findings: Sequence[Overlap], questions: Sequence[str], rules: OverlapSettings
) -> dict[str, tuple[str, str, str]]:
    """Documents that the audit takes away, with (stage, reason, response); `questions` are shards of questions.

    Raises DocumentError where a match is to stop the build.
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


def write(
    folder: Path, built: Iterable[Built], findings: Sequence[Overlap] | None, told: report.Told
) -> dict[str, Any]:
    """Write the pool's tables and its report beside the Markdown that is there already; returns the report's facts.

    One source at a time is in memory.
    """
    sources = []
    with table_writer(folder / DOCUMENTS, Document) as keep, table_writer(folder / DISCARDED, Discarded) as leave:
        for one in built:
            sources.append(one.row())
            for document in one.documents:
                keep(document)
            for span in one.discarded:
                leave(span)
    write_table(folder / SOURCES, sources, PoolSource)
    if findings is not None:
        write_table(folder / OVERLAPS, findings, Overlap)
    return report.write(folder, sources, told)
