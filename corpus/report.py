"""Write the report on a document pool: its contents and its rejects with reasons, as Markdown and JSON."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corpus.chunk.chunk import CONVERT, Discarded
from corpus.find.registry import Coverage
from corpus.find.search import FailedQuery
from corpus.markup import controls_table, excerpt, records_table, table
from corpus.pool import DISCARDED, DOCUMENTS, FACTS, OVERLAPS, REPORT, PoolSource, write_json
from corpus.read.doubt import LARGE_LOSS, Doubtful
from infuser_core.cotrain.phases.parts.health import missing_inclusions_warning
from infuser_core.errors import quantity
from infuser_core.schemas import Document
from infuser_core.seeding import seed_of
from infuser_core.store.tables import TableRows
from infuser_core.system import durable

SAMPLES = 10
NO_AUDIT = "none was made: `infuser corpus audit --pool DIR --reference PATH` compares the pool with other data"
_HINTS = {
    "missing": "check the path",
    "needs_ocr": "a scanned book: `pip install 'infuser[scans]'` reads its text; for its formulas, `pip install "
    "marker-pdf` in a separate environment, and name its marker_single in INFUSER_MARKER",
    "no documents": "chunk sizes and the judge are settings: --config, --judge; discarded.parquet has every reason",
    "download": "the same command tries again; sources.parquet has the reason of each",
}
_HINT = "sources.parquet has the reason of each"
_MAX_REJECTED = 5
_OF_PAGES = "marker or docling (corpus.convert.helper), which read the printed page"
_READERS: Mapping[str, str] = {
    Doubtful.FORMULA: _OF_PAGES,
    Doubtful.TABLE: _OF_PAGES,
    Doubtful.SIGN: f"OCR (`pip install 'infuser[scans]'`), or {_OF_PAGES}",
    Doubtful.WORD: f"OCR (`pip install 'infuser[scans]'`), or {_OF_PAGES}",
}
"""Remedies for a PDF that loses much text, by the reason."""
_OTHER_EDITION = "another edition or format of the book"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """Information for the report that is not in the pool's tables."""

    judge: str
    """Name of the judge, or `none`."""
    tokenizer: str
    """Description of the token counter."""
    coverage: Sequence[Coverage] = ()
    """The (domain, subdomain) pairs for which each source was found; empty without a search."""
    failures: Sequence[FailedQuery] = ()
    """Queries that a catalogue did not answer."""
    audit: Mapping[str, Any] | None = None
    """Figures of the overlap audit; None without one."""


def write_report(folder: Path, sources: Sequence[PoolSource], inputs: ReportInputs) -> dict[str, Any]:
    """Write the report on the pool in a folder, as Markdown and JSON; returns its figures."""
    # A rejected source may have the same source_id as another one.
    texts = {row.source_id: row.markdown for row in sources if row.markdown}

    def text_of(row: Discarded) -> str:
        return (folder / texts[row.source_id]).read_bytes().decode("utf-8")[row.start : row.end]

    documents, discarded = TableRows(folder / DOCUMENTS, Document), TableRows(folder / DISCARDED, Discarded)
    facts = collect_facts(documents, discarded, sources, inputs)
    samples = draw_samples(documents, discarded, sources, text_of)
    durable.write(folder / REPORT, render_report(facts, sources, samples).encode("utf-8", "replace"))
    write_json(folder / FACTS, facts)
    return facts


def collect_facts(
    documents: Sequence[Document], discarded: Sequence[Discarded], sources: Sequence[PoolSource], inputs: ReportInputs
) -> dict[str, Any]:
    """Compute the figures of the report, as JSON values: counts and shares of the pool."""
    count = len(documents)
    characters = tokens = 0
    domains = Counter[str]()
    for row in documents:
        characters += len(row.text) or row.end - row.start
        tokens += row.num_tokens
        domains[row.domain or "unnamed"] += 1

    def reason_of(row: Discarded) -> str:
        if row.stage != "judge":
            return row.reason
        return "undecided" if row.reason.startswith("undecided") else "rejected by the judge"

    spans = Counter((row.stage, reason_of(row)) for row in discarded if row.is_span)
    doubtful = Counter((row.source_id, row.reason) for row in discarded if row.reason in set(Doubtful))
    rejected = [row for row in sources if row.status != "admitted"]
    return {
        "documents": count,
        "sources": len(sources),
        "admitted_sources": len(sources) - len(rejected),
        "rejected_sources": len(rejected),
        "discarded": spans.total(),
        "mean_characters": _mean(characters, count),
        "mean_tokens": _mean(tokens, count),
        "tokens": tokens,
        "kept_characters": _share(characters, sum(row.num_chars for row in sources)),
        "tokenizer": inputs.tokenizer,
        "judge": inputs.judge,
        "disciplines": [
            {"discipline": name, "documents": number, "share": _share(number, count)}
            for name, number in domains.most_common()
        ],
        "coverage": _count_coverage(sources, inputs.coverage),
        "source_rejects": _count_reasons((row.stage, row.reason.partition(":")[0]) for row in rejected),
        "span_rejects": _count_reasons(spans.elements()),
        "doubt": [
            {
                "source": row.source_id,
                "title": row.title or row.input,
                "share": round(row.doubt, 4),
                "chunks": sum(doubtful[row.source_id, reason] for reason in Doubtful),
                **{str(reason): doubtful[row.source_id, reason] for reason in Doubtful},
                "reader": _reader_of(row),
            }
            for row in sorted(sources, key=lambda row: -row.doubt)
            if row.doubt
        ],
        "left_out": _count_unconverted(discarded, sources),
        "licences": dict(Counter(row.licence or "none named" for row in sources).most_common()),
        "audit": dict(inputs.audit or {}),
        "search_failures": [asdict(row) for row in inputs.failures],
    }


def _reader_of(row: PoolSource) -> str:
    """Remedy for a book that loses much of its text to doubt; empty if it loses little."""
    if row.doubt <= LARGE_LOSS:
        return ""
    return _READERS.get(row.doubtful_for, _OTHER_EDITION) if row.converter.startswith("embedded") else _OTHER_EDITION


def _mean(total: int, count: int) -> float:
    return round(total / count, 1) if count else 0.0


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _count_coverage(sources: Sequence[PoolSource], coverage: Sequence[Coverage]) -> list[dict[str, Any]]:
    """Count sources and documents of each (domain, subdomain) pair; a book counts for every pair it was found for."""
    documents = {row.source_id: row.num_documents for row in sources if row.num_documents}
    pairs: dict[tuple[str, str], list[int]] = {}
    for row in coverage:
        counts = pairs.setdefault((row.domain, row.subdomain), [0, 0])
        counts[0] += row.source_id in documents
        counts[1] += documents.get(row.source_id, 0)
    return [
        {"domain": domain, "subdomain": subdomain, "sources": counts[0], "documents": counts[1]}
        for (domain, subdomain), counts in sorted(pairs.items())
    ]


def _count_reasons(reasons: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "reason": reason, "count": count} for (stage, reason), count in Counter(reasons).most_common()
    ]


def _count_unconverted(discarded: Iterable[Discarded], sources: Sequence[PoolSource]) -> list[dict[str, Any]]:
    """Count the printed lines that the converter left out, by reason, and their share of the sources' characters."""
    lines, characters = Counter[str](), Counter[str]()
    for row in discarded:
        if row.stage == CONVERT:
            lines[row.reason] += 1
            characters[row.reason] += len(row.text)
    total = sum(row.num_chars for row in sources) + characters.total()
    return [
        {"reason": name, "lines": count, "characters": characters[name], "share": _share(characters[name], total)}
        for name, count in lines.most_common()
    ]


def render_report(facts: Mapping[str, Any], sources: Sequence[PoolSource], samples: Sequence[str]) -> str:
    """Render the report in Markdown, from its figures and samples."""
    counts = [
        ["documents", facts["documents"]],
        ["sources admitted / given", f"{facts['admitted_sources']} / {facts['sources']}"],
        ["mean characters", facts["mean_characters"]],
        ["mean tokens", facts["mean_tokens"]],
        ["tokens in all", facts["tokens"]],
        ["share of the text kept", f"{facts['kept_characters']:.1%}"],
        ["token counts", facts["tokenizer"]],
        ["judge", facts["judge"]],
    ]
    disciplines = [{**row, "share": f"{row['share']:.1%}"} for row in facts["disciplines"]]
    parts = [
        "# Corpus report",
        table(["", ""], counts),
        f"judge: {facts['judge']}",
        "## Disciplines",
        records_table(disciplines, ["discipline", "documents", "share"]),
        "## Coverage",
        records_table(facts["coverage"], ["domain", "subdomain", "sources", "documents"]),
        "## Sources",
        _source_table(sources),
        "## Rejected, by stage",
        "Sources:",
        records_table(facts["source_rejects"], ["stage", "reason", "count"]),
        "Spans:",
        records_table(facts["span_rejects"], ["stage", "reason", "count"]),
        "Chunks lost to doubt, and the share of the book's characters in them:",
        records_table(
            [{**row, "share": f"{row['share']:.1%}"} for row in facts["doubt"]],
            ["title", "chunks", "share", *map(str, Doubtful), "reader"],
        ),
        "Left out by the converter:",
        records_table(facts["left_out"], ["reason", "lines", "characters", "share"]),
        "## Licences",
        table(["licence", "sources"], [[name, count] for name, count in facts["licences"].items()]),
        "## Overlap audit",
        *(_audit_section(facts["audit"]) if facts["audit"] else [NO_AUDIT]),
        *samples,
    ]
    if facts["search_failures"]:
        failures = Counter((row["catalogue"], row["reason"]) for row in facts["search_failures"])
        lines = [[catalogue, count, reason] for (catalogue, reason), count in failures.items()]
        parts += ["## Catalogues without an answer", table(["catalogue", "queries", "reason"], lines)]
    return "\n\n".join(parts) + "\n"


def _source_table(sources: Sequence[PoolSource]) -> str:
    rows = [
        {
            "title": row.title,
            "source": row.source_id,
            "pages": row.num_pages,
            "documents": row.num_documents,
            "discarded": row.num_discarded,
            "converter": row.converter,
            "state": f"{row.stage}: {row.reason}" if row.reason else "admitted",
        }
        for row in sources
    ]
    return records_table(rows, ["title", "source", "pages", "documents", "discarded", "converter", "state"])


def _audit_section(audit: Mapping[str, Any]) -> list[str]:
    """Section on the overlap audit: the data compared, the matches, and the recall of each mode on planted controls."""
    parts = [f"mode: {audit['mode']}. Every pair is in {OVERLAPS}."]
    parts += [f"Not compared with {name}: {reason}" for name, reason in audit["absent"].items()]
    if audit["references"]:
        rows = [
            [row["name"], row["read"], row["texts"], row["short"], row["matched_documents"]]
            for row in audit["references"]
        ]
        parts.append(table(["compared with", "records", "texts", "short", "matched documents"], rows))
        parts.append(
            f"{audit['matches']} matching pairs in {audit['matched_documents']} of {audit['documents']} documents; "
            f"{audit['dropped_documents']} documents dropped."
        )
    if audit["controls"]:
        parts += ["Planted controls, and the share of them that each mode finds:", controls_table(audit["controls"])]
    return parts


def draw_samples(
    documents: Sequence[Document],
    discarded: Sequence[Discarded],
    sources: Sequence[PoolSource],
    text_of: Callable[[Discarded], str],
) -> list[str]:
    """Draw random documents and discarded spans and quote them in Markdown; `text_of` returns the text of a span."""
    draw = random.Random(seed_of(0, "corpus-report"))
    sample = [documents[n] for n in draw.sample(range(len(documents)), min(SAMPLES, len(documents)))]
    spans = [place for place, row in enumerate(discarded) if row.is_span]
    dropped = [discarded[place] for place in draw.sample(spans, min(SAMPLES, len(spans)))]
    titles = {row.source_id: row.title for row in sources}
    parts = [f"## {len(sample)} random documents"]
    parts += [
        excerpt(f"{titles.get(r.source_id, r.source_id)}: {r.header_path or 'no heading'}", r.text) for r in sample
    ]
    parts += [f"## {len(dropped)} random discarded spans"]
    parts += [excerpt(f"{titles.get(r.source_id, r.source_id)}: {r.stage}: {r.reason}", text_of(r)) for r in dropped]
    return parts


def empty_pool_message(sources: Sequence[PoolSource]) -> str:
    """Error message for a pool without documents: the first rejected source and its reason."""
    rows = [row for row in sources if row.reason]
    if not rows:
        return "no source gave documents: there was none"
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"no source gave documents: {rows[0].input}: {rows[0].reason}{more}"


def empty_pool_hint(sources: Sequence[PoolSource]) -> str:
    """Remedy for a pool without documents, by the reason of its first rejected source."""
    reasons = [row.reason for row in sources if row.reason]
    return next((text for kind, text in _HINTS.items() if reasons and reasons[0].startswith(kind)), _HINT)


def summary_text(facts: Mapping[str, Any], sources: Sequence[PoolSource], out: Path, *, changed: bool) -> str:
    """Summary of a build for the terminal: counts, rejected sources, the audit, and the files."""
    rejected = [row for row in sources if row.status != "admitted"]
    lines = [
        f"{quantity(facts['documents'], 'document')} of {quantity(facts['admitted_sources'], 'source')}, "
        f"mean {facts['mean_tokens']:g} tokens; {quantity(facts['discarded'], 'span')} discarded; "
        f"judge: {facts['judge']}",
        *[f"rejected: {row.input}: {row.reason}" for row in rejected[:_MAX_REJECTED]],
    ]
    if len(rejected) > _MAX_REJECTED:
        lines.append(f"rejected: {len(rejected) - _MAX_REJECTED} more, see {REPORT}")
    losses = [row for row in facts["doubt"] if row["reader"]]
    lines += [
        f"doubt: {row['share']:.0%} of {row['title']} is lost; to read it: {row['reader']}"
        for row in losses[:_MAX_REJECTED]
    ]
    if len(losses) > _MAX_REJECTED:
        lines.append(f"doubt: {len(losses) - _MAX_REJECTED} more books lose a third or more, see {REPORT}")
    missing = sum(row["lines"] for row in facts["left_out"] if row["reason"] == "missing")
    if warning := missing_inclusions_warning(missing):
        lines.append(f"warning: {warning}")
    if facts["search_failures"]:
        names = sorted({row["catalogue"] for row in facts["search_failures"]})
        lines.append(f"no answer from {', '.join(names)}: see {REPORT}; the same command asks again")
    if facts["audit"]:
        lines += _audit_lines(facts["audit"])
    return "\n".join([*lines, f"{'written' if changed else 'unchanged'}: {out / DOCUMENTS}, {out / REPORT}"])


def _audit_lines(audit: Mapping[str, Any]) -> list[str]:
    lines = []
    if audit["references"]:
        exact = [row for row in audit["controls"] if row["expected"]]
        planted = sum(row["planted"] for row in exact)
        recall = sum(row["planted"] * row[audit["mode"]] for row in exact) / planted if planted else 0.0
        lines.append(
            f"overlap ({audit['mode']}): {audit['matched_documents']} of {audit['documents']} documents match "
            f"{audit['read']} records, {audit['dropped_documents']} dropped; "
            f"planted controls found: {recall:.0%} of {planted}"
        )
    if audit["absent"]:
        lines.append(f"not compared with {', '.join(audit['absent'])}: see {REPORT}")
    return lines
