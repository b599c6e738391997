"""The corpus report: what is in a pool, what is not and why, as Markdown for people and as facts for programs."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corpus.chunk.chunk import CONVERT, Discarded
from corpus.find.registry import Coverage
from corpus.find.search import Failure
from corpus.markup import controls_table, excerpt, records_table, table
from corpus.pool import DISCARDED, DOCUMENTS, FACTS, OVERLAPS, REPORT, PoolSource, write_json
from infuser_core.schemas import Document
from infuser_core.seeding import seed_of
from infuser_core.store.tables import TableRows
from infuser_core.system import durable

SAMPLES = 10
NO_AUDIT = "none was made: `infuser corpus audit --pool DIR --reference PATH` compares the pool with other data"
_HINTS = {
    "missing": "check the path",
    "needs_ocr": "scanned books need the marker command (INFUSER_MARKER)",
    "no documents": "chunk sizes and the judge are settings: --config, --judge; discarded.parquet has every reason",
    "download": "the same command tries again; sources.parquet has the reason of each",
}
_HINT = "sources.parquet has the reason of each"
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Facts of the report beside the pool itself."""

    judge: str
    """Name of the judge, or `none`."""
    tokenizer: str
    """Tokenizer of the token counts, in words."""
    coverage: Sequence[Coverage] = ()
    """Which source was found for which pair; empty without a search for pairs."""
    failures: Sequence[Failure] = ()
    """Catalogues and queries without an answer."""
    audit: Mapping[str, Any] | None = None
    """Facts of the overlap audit; None without one."""


def write(folder: Path, sources: Sequence[PoolSource], told: Told) -> dict[str, Any]:
    """Write the report of the pool whose tables and Markdown lie in a folder; returns its facts."""
    # A rejected source may have the name of another one.
    texts = {row.source_id: row.markdown for row in sources if row.markdown}

    def text_of(row: Discarded) -> str:
        return (folder / texts[row.source_id]).read_bytes().decode("utf-8")[row.start : row.end]

    documents, discarded = TableRows(folder / DOCUMENTS, Document), TableRows(folder / DISCARDED, Discarded)
    found = facts(documents, discarded, sources, told)
    samples = samples_of(documents, discarded, sources, text_of)
    durable.write(folder / REPORT, markdown(found, sources, samples).encode("utf-8", "replace"))
    write_json(folder / FACTS, found)
    return found


def facts(
    documents: Sequence[Document], discarded: Sequence[Discarded], sources: Sequence[PoolSource], told: Told
) -> dict[str, Any]:
    """Everything that is counted, as JSON values."""
    count = len(documents)
    characters = tokens = 0
    domains = Counter[str]()
    for row in documents:
        characters += len(row.text) or row.end - row.start
        tokens += row.num_tokens
        domains[row.domain or "unnamed"] += 1
    spans = Counter((row.stage, _span_reason(row)) for row in discarded if row.is_span)
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
        "tokenizer": told.tokenizer,
        "judge": told.judge,
        "disciplines": [
            {"discipline": name, "documents": number, "share": _share(number, count)}
            for name, number in domains.most_common()
        ],
        "coverage": _covered(sources, told.coverage),
        "source_rejects": _counted((row.stage, row.reason.partition(":")[0]) for row in rejected),
        "span_rejects": _counted(spans.elements()),
        "left_out": _left_out(discarded, sources),
        "licences": dict(Counter(row.licence or "none named" for row in sources).most_common()),
        "audit": dict(told.audit or {}),
        "search_failures": [asdict(row) for row in told.failures],
    }


def _mean(total: int, count: int) -> float:
    return round(total / count, 1) if count else 0.0


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _covered(sources: Sequence[PoolSource], coverage: Sequence[Coverage]) -> list[dict[str, Any]]:
    """Sources and documents of every pair that was searched for; a book counts for each pair that it was found for."""
    documents = {row.source_id: row.num_documents for row in sources if row.num_documents}
    pairs: dict[tuple[str, str], list[int]] = {}
    for row in coverage:
        found = pairs.setdefault((row.domain, row.subdomain), [0, 0])
        found[0] += row.source_id in documents
        found[1] += documents.get(row.source_id, 0)
    return [
        {"domain": domain, "subdomain": subdomain, "sources": counts[0], "documents": counts[1]}
        for (domain, subdomain), counts in sorted(pairs.items())
    ]


def _counted(reasons: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "reason": reason, "count": count} for (stage, reason), count in Counter(reasons).most_common()
    ]


def _left_out(discarded: Iterable[Discarded], sources: Sequence[PoolSource]) -> list[dict[str, Any]]:
    """Printed lines that are in no Markdown, by reason, and their share of all characters of the sources."""
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


def _span_reason(row: Discarded) -> str:
    if row.stage != "judge":
        return row.reason
    return "undecided" if row.reason.startswith("undecided") else "rejected by the judge"


def markdown(found: Mapping[str, Any], sources: Sequence[PoolSource], samples: Sequence[str]) -> str:
    """The report of these facts."""
    counts = [
        ["documents", found["documents"]],
        ["sources admitted / given", f"{found['admitted_sources']} / {found['sources']}"],
        ["mean characters", found["mean_characters"]],
        ["mean tokens", found["mean_tokens"]],
        ["tokens in all", found["tokens"]],
        ["share of the text kept", f"{found['kept_characters']:.1%}"],
        ["token counts", found["tokenizer"]],
        ["judge", found["judge"]],
    ]
    disciplines = [{**row, "share": f"{row['share']:.1%}"} for row in found["disciplines"]]
    parts = [
        "# Corpus report",
        table(["", ""], counts),
        f"judge: {found['judge']}",
        "## Disciplines",
        records_table(disciplines, ["discipline", "documents", "share"]),
        "## Coverage",
        records_table(found["coverage"], ["domain", "subdomain", "sources", "documents"]),
        "## Sources",
        _sources(sources),
        "## Rejected, by stage",
        "Sources:",
        records_table(found["source_rejects"], ["stage", "reason", "count"]),
        "Spans:",
        records_table(found["span_rejects"], ["stage", "reason", "count"]),
        "Left out by the converter:",
        records_table(found["left_out"], ["reason", "lines", "characters", "share"]),
        "## Licences",
        table(["licence", "sources"], [[name, count] for name, count in found["licences"].items()]),
        "## Overlap audit",
        *(_audit(found["audit"]) if found["audit"] else [NO_AUDIT]),
        *samples,
        *_failures(found["search_failures"]),
    ]
    return "\n\n".join(parts) + "\n"


def _sources(sources: Sequence[PoolSource]) -> str:
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


def _audit(found: Mapping[str, Any]) -> list[str]:
    """Data that the pool was compared with, the matches, and how much of what was planted is found by each mode."""
    parts = [f"mode: {found['mode']}. Every pair is in {OVERLAPS}."]
    parts += [f"Not compared with {name}: {reason}" for name, reason in found["absent"].items()]
    if found["references"]:
        rows = [
            [row["name"], row["read"], row["texts"], row["short"], row["matched_documents"]]
            for row in found["references"]
        ]
        parts.append(table(["compared with", "records", "texts", "short", "matched documents"], rows))
        parts.append(
            f"{found['matches']} matching pairs in {found['matched_documents']} of {found['documents']} documents; "
            f"{found['dropped_documents']} documents dropped."
        )
    if found["controls"]:
        parts += ["Planted controls, and the share of them that each mode finds:", controls_table(found["controls"])]
    return parts


def samples_of(
    documents: Sequence[Document],
    discarded: Sequence[Discarded],
    sources: Sequence[PoolSource],
    text_of: Callable[[Discarded], str],
) -> list[str]:
    """Some documents and discarded spans; `text_of` gives the text of a span."""
    draw = random.Random(seed_of(0, "corpus-report"))
    kept = [documents[n] for n in draw.sample(range(len(documents)), min(SAMPLES, len(documents)))]
    spans = [place for place, row in enumerate(discarded) if row.is_span]
    dropped = [discarded[place] for place in draw.sample(spans, min(SAMPLES, len(spans)))]
    titles = {row.source_id: row.title for row in sources}
    parts = [f"## {len(kept)} random documents"]
    parts += [excerpt(f"{titles.get(r.source_id, r.source_id)}: {r.header_path or 'no heading'}", r.text) for r in kept]
    parts += [f"## {len(dropped)} random discarded spans"]
    parts += [excerpt(f"{titles.get(r.source_id, r.source_id)}: {r.stage}: {r.reason}", text_of(r)) for r in dropped]
    return parts


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    counts = Counter((row["catalogue"], row["reason"]) for row in rows)
    lines = [[catalogue, count, reason] for (catalogue, reason), count in counts.items()]
    return ["## Catalogues without an answer", table(["catalogue", "queries", "reason"], lines)]


def why_empty(sources: Sequence[PoolSource]) -> str:
    """One line on a pool without documents."""
    rows = [row for row in sources if row.reason]
    if not rows:
        return "no source gave documents: there was none"
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"no source gave documents: {rows[0].input}: {rows[0].reason}{more}"


def hint(sources: Sequence[PoolSource]) -> str:
    """Remedy for a pool without documents."""
    reasons = [row.reason for row in sources if row.reason]
    return next((text for kind, text in _HINTS.items() if reasons and reasons[0].startswith(kind)), _HINT)


def terminal(found: Mapping[str, Any], sources: Sequence[PoolSource], out: Path, *, changed: bool) -> str:
    """A few lines: counts, refused sources, the audit, where everything is."""
    rejected = [row for row in sources if row.status != "admitted"]
    lines = [
        f"{found['documents']} documents of {found['admitted_sources']} sources, mean {found['mean_tokens']:g} tokens; "
        f"{found['discarded']} spans discarded; judge: {found['judge']}",
        *[f"rejected: {row.input}: {row.reason}" for row in rejected[:_SHOWN]],
    ]
    if len(rejected) > _SHOWN:
        lines.append(f"rejected: {len(rejected) - _SHOWN} more, see {REPORT}")
    if found["search_failures"]:
        names = sorted({row["catalogue"] for row in found["search_failures"]})
        lines.append(f"no answer from {', '.join(names)}: see {REPORT}; the same command asks again")
    if found["audit"]:
        lines += _audit_lines(found["audit"])
    return "\n".join([*lines, f"{'written' if changed else 'unchanged'}: {out / DOCUMENTS}, {out / REPORT}"])


def _audit_lines(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if found["references"]:
        exact = [row for row in found["controls"] if row["expected"]]
        planted = sum(row["planted"] for row in exact)
        recall = sum(row["planted"] * row[found["mode"]] for row in exact) / planted if planted else 0.0
        lines.append(
            f"overlap ({found['mode']}): {found['matched_documents']} of {found['documents']} documents match "
            f"{found['read']} records, {found['dropped_documents']} dropped; "
            f"planted controls found: {recall:.0%} of {planted}"
        )
    if found["absent"]:
        lines.append(f"not compared with {', '.join(found['absent'])}: see {REPORT}")
    return lines
