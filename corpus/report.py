"""The corpus report: what is in a pool, what is not and why, as Markdown for people and as facts for programs."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpus.pool import Discarded, PoolSource
from infuser_core.schemas import Document, Topic
from infuser_core.seeding import seed_of

SAMPLES = 10
EXCERPT_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInput:
    """What a report is written about."""

    documents: Sequence[Document]
    """The pool."""
    discarded: Sequence[Discarded]
    """Spans that are not in it."""
    sources: Sequence[PoolSource]
    """Every source that was given."""
    text_of: Callable[[Discarded], str]
    """Text of a discarded span."""
    judge: str
    """Name of the judging model, or `none`."""
    tokenizer: str
    """What the token counts are counted with."""
    topics: Sequence[Topic] = ()
    """Pairs that the pool should cover; empty when it was built for none."""
    audit: Mapping[str, float] = field(default_factory=dict)
    """Summary of an overlap audit; empty when there was none."""
    seed: int = 0
    """Seed of the samples."""


def facts(given: ReportInput) -> dict[str, Any]:
    """Everything that is counted, as JSON values."""
    documents, sources = given.documents, given.sources
    spans = [row for row in given.discarded if row.reason != "blank"]
    return {
        "documents": len(documents),
        "sources": len(sources),
        "admitted_sources": sum(row.status == "admitted" for row in sources),
        "rejected_sources": sum(row.status != "admitted" for row in sources),
        "discarded": len(spans),
        "mean_characters": _mean([len(row.text) for row in documents]),
        "mean_tokens": _mean([row.num_tokens for row in documents]),
        "tokens": sum(row.num_tokens for row in documents),
        "kept_characters": _share(sum(len(row.text) for row in documents), sum(row.num_chars for row in sources)),
        "tokenizer": given.tokenizer,
        "judge": given.judge,
        "disciplines": _shares(documents),
        "coverage": _coverage(given),
        "source_rejects": _counted((row.stage, _short(row.reason)) for row in sources if row.status != "admitted"),
        "span_rejects": _counted((row.stage, _span_reason(row)) for row in spans),
        "licences": dict(Counter(row.licence or "none named" for row in sources).most_common()),
        "audit": dict(given.audit),
    }


def _mean(values: Sequence[int]) -> float:
    return round(sum(values) / len(values), 1) if values else 0.0


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _shares(documents: Sequence[Document]) -> list[dict[str, Any]]:
    counts = Counter(row.domain or "unnamed" for row in documents)
    return [
        {"discipline": name, "documents": count, "share": _share(count, len(documents))}
        for name, count in counts.most_common()
    ]


def _coverage(given: ReportInput) -> list[dict[str, Any]]:
    """Sources and documents of every pair that was asked for or found."""
    pairs = {(topic.domain, topic.subdomain): [0, 0] for topic in given.topics}
    for row in given.sources:
        if row.domain or row.subdomain:
            found = pairs.setdefault((row.domain, row.subdomain), [0, 0])
            found[0] += row.status == "admitted"
            found[1] += row.num_documents
    return [
        {"domain": domain, "subdomain": subdomain, "sources": counts[0], "documents": counts[1]}
        for (domain, subdomain), counts in sorted(pairs.items())
    ]


def _counted(reasons: Any) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "reason": reason, "count": count} for (stage, reason), count in Counter(reasons).most_common()
    ]


def _short(reason: str) -> str:
    """The kind of a reason: what stands before its first colon."""
    return reason.partition(":")[0]


def _span_reason(row: Discarded) -> str:
    if row.stage != "judge":
        return row.reason
    return "undecided" if row.reason.startswith("undecided") else "rejected by the judge"


def markdown(given: ReportInput) -> str:
    """The report."""
    found = facts(given)
    parts = [
        "# Corpus report",
        table(
            ["", ""],
            [
                ["documents", found["documents"]],
                ["sources admitted / given", f"{found['admitted_sources']} / {found['sources']}"],
                ["mean characters", found["mean_characters"]],
                ["mean tokens", found["mean_tokens"]],
                ["tokens in all", found["tokens"]],
                ["share of the text kept", f"{found['kept_characters']:.1%}"],
                ["token counts", found["tokenizer"]],
                ["judge", found["judge"]],
            ],
        ),
        f"judge: {found['judge']}",
        "## Disciplines",
        _rows_table(found["disciplines"], ["discipline", "documents", "share"]),
        "## Coverage",
        _rows_table(found["coverage"], ["domain", "subdomain", "sources", "documents"]),
        "## Sources",
        _sources(given.sources),
        "## Rejected, by stage",
        "Sources:",
        _rows_table(found["source_rejects"], ["stage", "reason", "count"]),
        "Spans:",
        _rows_table(found["span_rejects"], ["stage", "reason", "count"]),
        "## Licences",
        table(["licence", "sources"], [[name, count] for name, count in found["licences"].items()]),
        "## Overlap audit",
        _audit(given.audit),
        *_samples(given),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def controls_table(controls: Sequence[Mapping[str, Any]]) -> str:
    """The share of each kind of planted control that each mode of an audit found, as a Markdown table."""
    if not controls:
        return "no controls: the pool has no text long enough"
    modes = [name for name in controls[0] if name not in ("kind", "planted", "expected")]
    rows = [
        [
            row["kind"] if row["expected"] else f"{row['kind']} (should not be found)",
            row["planted"],
            *(f"{row[mode]:.2f}" for mode in modes),
        ]
        for row in controls
    ]
    return table(["planted", "pairs", *(f"found by {mode}" for mode in modes)], rows)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _rows_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    if not rows:
        return "none"
    return table(names, [[f"{row[n]:.1%}" if n == "share" else row[n] for n in names] for row in rows])


def _sources(sources: Sequence[PoolSource]) -> str:
    rows = [
        [row.title, row.source_id, row.num_pages, row.num_documents, row.num_discarded, row.converter, _state(row)]
        for row in sources
    ]
    return table(["title", "source", "pages", "documents", "discarded", "converter", "state"], rows) if rows else "none"


def _state(row: PoolSource) -> str:
    return f"{row.stage}: {row.reason}" if row.reason else "admitted"


def _audit(summary: Mapping[str, float]) -> str:
    """The result and, beside it, how much of what was planted the search found."""
    if not summary:
        return "none was made: `infuser corpus audit --pool DIR --reference PATH` compares the pool with other data"
    return table(["", ""], [[name.replace("_", " "), f"{value:g}"] for name, value in summary.items()])


def _samples(given: ReportInput) -> list[str]:
    draw = random.Random(seed_of(given.seed, "corpus-report"))
    kept = draw.sample(list(given.documents), min(SAMPLES, len(given.documents)))
    spans = [row for row in given.discarded if row.reason != "blank"]
    dropped = draw.sample(spans, min(SAMPLES, len(spans)))
    titles = {row.source_id: row.title for row in given.sources}
    parts = [f"## {len(kept)} random documents"]
    parts += [_shown(f"{titles.get(r.source_id, r.source_id)}: {r.header_path or 'no heading'}", r.text) for r in kept]
    parts += [f"## {len(dropped)} random discarded spans"]
    parts += [
        _shown(f"{titles.get(r.source_id, r.source_id)}: {r.stage}: {r.reason}", given.text_of(r)) for r in dropped
    ]
    return parts


def _shown(label: str, text: str) -> str:
    excerpt = " ".join(text.split())
    more = " ..." if len(excerpt) > EXCERPT_CHARS else ""
    # Angle brackets and backticks of a source must not become markup of the report.
    safe = excerpt[:EXCERPT_CHARS].replace("`", "'").replace("<", "&lt;")
    return f"**{_cell(label)}** ({len(text)} characters)\n\n> {safe}{more}"
