"""What a build tells: its report, its counts, its last lines on the terminal."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corpus import report
from corpus.build import Pool
from corpus.build_audit import Overlapping
from corpus.find.registry import Coverage
from corpus.find.search import Failure
from corpus.pool import DOCUMENTS, FACTS, OVERLAPS, REPORT, Discarded, write_json
from infuser_core import durable
from infuser_core.schemas import Topic

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
    """What the report says beside the pool itself."""

    judge: str
    """Name of the judge, or `none`."""
    tokenizer: str
    """What counted tokens, in words."""
    topics: Sequence[Topic] = ()
    """Pairs that were searched for."""
    failures: Sequence[Failure] = field(default=())
    """Catalogues and queries without an answer."""
    coverage: Sequence[Coverage] = field(default=())
    """Which source was found for which pair; empty without topics."""


def write(pool: Pool, out: Path, told: Told) -> dict[str, Any]:
    """Write report.md and report.json unless they are there; returns the facts."""
    rows = {source.item.source.source_id: source for source in pool.sources}
    read: dict[str, str] = {}

    def text_of(row: Discarded) -> str:
        # Only sampled spans are asked for: the texts of a large pool would not fit into memory together.
        if row.source_id not in read:
            made = rows[row.source_id].made
            read.clear()
            read[row.source_id] = made.page().markdown if made else ""
        return read[row.source_id][row.start : row.end]

    given = report.ReportInput(
        documents=pool.documents,
        discarded=pool.discarded,
        sources=[source.row for source in pool.sources],
        text_of=text_of,
        judge=told.judge,
        tokenizer=told.tokenizer,
        topics=told.topics,
    )
    covered = _coverage(pool, told.coverage)
    facts = {
        **report.facts(given),
        **({"coverage": covered} if covered else {}),
        "audit": {**pool.overlap.facts, "dropped_documents": len(pool.overlap.dropped)} if pool.overlap else {},
        "search_failures": [asdict(row) for row in told.failures],
    }
    text = report.markdown(given)
    if covered:
        text = _instead(text, "Coverage", _covered(covered))
    if pool.overlap:
        text = _instead(text, "Overlap audit", _audit(pool.overlap))
    data = (text + _failures(told.failures)).encode("utf-8", "replace")
    path = out / REPORT
    if not path.is_file() or path.read_bytes() != data:
        durable.write(path, data)
        write_json(out / FACTS, facts)
    return {**facts, "changed": pool.changed}


def _instead(text: str, title: str, section: str) -> str:
    """The report with another text under one heading."""
    before, heading, after = text.partition(f"## {title}\n\n")
    _, following, rest = after.partition("\n\n## ")
    return f"{before}{heading}{section}{following}{rest}"


def _coverage(pool: Pool, found: Sequence[Coverage]) -> list[dict[str, Any]]:
    """Sources and documents of every pair that was searched for; a book counts for each pair that it was found for."""
    documents = {one.item.source.source_id: len(one.documents) for one in pool.sources if one.documents}
    pairs: dict[tuple[str, str], list[str]] = {}
    for row in found:
        have = pairs.setdefault((row.domain, row.subdomain), [])
        have += [row.source_id] if row.source_id in documents else []
    return [
        {"domain": domain, "subdomain": sub, "sources": len(names), "documents": sum(documents[n] for n in names)}
        for (domain, sub), names in sorted(pairs.items())
    ]


def _covered(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"| {row['domain']} | {row['subdomain']} | {row['sources']} | {row['documents']} |" for row in rows]
    return "\n".join(["| domain | subdomain | sources | documents |", "|---|---|---|---|", *lines])


def _audit(found: Overlapping) -> str:
    """What the pool was compared with, the matches, and how much of what was planted is found by each mode."""
    facts = found.facts
    lines = [f"mode: {facts['mode']}. Every pair is in {OVERLAPS}."]
    lines += [f"Not compared with {name}: {reason}" for name, reason in facts.get("absent", {}).items()]
    if facts["references"]:
        rows = [
            f"| {row['name']} | {row['read']} | {row['texts']} | {row['short']} | {row['matched_documents']} |"
            for row in facts["references"]
        ]
        head = "| compared with | records | texts | short | matched documents |\n|---|---|---|---|---|"
        lines.append("\n".join([head, *rows]))
        lines.append(
            f"{facts['matches']} matching pairs in {facts['matched_documents']} of {facts['documents']} documents; "
            f"{len(found.dropped)} documents dropped."
        )
    if facts.get("controls"):
        lines.append(
            "Planted controls, and the share of them that each mode finds:\n\n"
            + report.controls_table(facts["controls"])
        )
    return "\n\n".join(lines)


def _failures(rows: Sequence[Failure]) -> str:
    if not rows:
        return ""
    counts = Counter((row.catalogue, row.reason) for row in rows)
    lines = [f"| {catalogue} | {count} | {' '.join(reason.split())} |" for (catalogue, reason), count in counts.items()]
    return "\n## Catalogues without an answer\n\n" + "\n".join(
        ["| catalogue | queries | reason |", "|---|---|---|", *lines, ""]
    )


def why_empty(pool: Pool) -> str:
    """One line on a pool without documents."""
    rows = [source.row for source in pool.sources if source.row.reason]
    if not rows:
        return "no source gave documents: there was none"
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"no source gave documents: {rows[0].input}: {rows[0].reason}{more}"


def hint(pool: Pool) -> str:
    """What to do about a pool without documents."""
    reasons = [source.row.reason for source in pool.sources if source.row.reason]
    return next((text for kind, text in _HINTS.items() if reasons and reasons[0].startswith(kind)), _HINT)


def terminal(pool: Pool, out: Path, facts: dict[str, Any]) -> str:
    """A few lines: counts, refused sources, the audit, where everything is."""
    rejected = [source.row for source in pool.sources if source.row.status != "admitted"]
    state = "written" if pool.changed else "unchanged"
    lines = [
        f"{facts['documents']} documents of {facts['admitted_sources']} sources, mean {facts['mean_tokens']:g} tokens; "
        f"{facts['discarded']} spans discarded; judge: {facts['judge']}",
        *[f"rejected: {row.input}: {row.reason}" for row in rejected[:_SHOWN]],
    ]
    if len(rejected) > _SHOWN:
        lines.append(f"rejected: {len(rejected) - _SHOWN} more, see {REPORT}")
    if facts["search_failures"]:
        names = sorted({row["catalogue"] for row in facts["search_failures"]})
        lines.append(f"no answer from {', '.join(names)}: see {REPORT}; the same command asks again")
    if pool.overlap:
        lines += _audit_lines(pool.overlap)
    return "\n".join([*lines, f"{state}: {out / DOCUMENTS}, {out / REPORT}"])


def _audit_lines(found: Overlapping) -> list[str]:
    facts = found.facts
    lines = []
    if facts["references"]:
        exact = [row for row in facts.get("controls", []) if row["expected"]]
        planted = sum(row["planted"] for row in exact)
        recall = sum(row["planted"] * row[facts["mode"]] for row in exact) / planted if planted else 0.0
        lines.append(
            f"overlap ({facts['mode']}): {facts['matched_documents']} of {facts['documents']} documents match "
            f"{facts['read']} records, {len(found.dropped)} dropped; planted controls found: {recall:.0%} of {planted}"
        )
    if facts.get("absent"):
        lines.append(f"not compared with {', '.join(facts['absent'])}: see {REPORT}")
    return lines
