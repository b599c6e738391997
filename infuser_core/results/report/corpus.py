"""Report sections on the corpus: funnel, pool, overlap audit, the anchor's training data, coverage."""

from collections.abc import Sequence

from infuser_core.results.report import charts
from infuser_core.results.report.charts import Figure
from infuser_core.results.report.content import Formats, Query, Row, Section, Table, number, percent, small, table
from infuser_core.results.report.queries import (
    BAND,
    Chosen,
    bands,
    bar_chart,
    by_variant,
    grouped,
    literal,
    spread,
    spread_table,
)

SHOWN_REASONS = 12
"""Reasons listed per stage and decision; the rest is counted in one row."""
SHOWN_PAIRS = 20
"""Matching pairs with the anchor's data that are listed; all of them are in the store."""
SIDES = {"dev": "dev set", "document": "document pool", "validation": "validation set"}

_SAME = tuple(f"questions: {name}" for name in ("read", "texts", "empty", "short", "tiny"))
"""Counts of the questions, with which every group is compared."""


def corpus(query: Query, run: str) -> Section:
    """From textbooks offered to the document pool, and the overlap audit."""
    found = [
        *_table("What was kept and why the rest was not", _funnel(query, run)),
        *_table("Document pool", _pool(query, run)),
        *_table("Overlap audit: pairs with a passage in common", _overlaps(query, run), {"matched share": percent}),
        *_audit(query, run),
    ]
    return Section(title="Corpus", tables=found)


def _table(title: str, rows: Sequence[Row], formats: Formats | None = None) -> list[Table]:
    return [table(title, rows, formats)] if rows else []


def _funnel(query: Query, run: str) -> list[Row]:
    """Each corpus stage with what it kept and dropped, and why; the most frequent reasons first within a stage."""
    name = literal(run)
    return query(f"""
        SELECT stage, CASE WHEN kept THEN 'kept' ELSE 'dropped' END AS decision,
            CASE WHEN place > {SHOWN_REASONS} THEN 'other reasons' ELSE why END AS reason, sum(count)::BIGINT AS items
        FROM (SELECT *, row_number() OVER (PARTITION BY stage, kept ORDER BY count DESC, why) AS place FROM (
            SELECT 1 AS n, 'textbooks offered' AS stage, status = 'admitted' AS kept, reason AS why, count(*) AS count
            FROM sources WHERE run = {name} GROUP BY status, reason
            UNION ALL
            SELECT 2, 'textbooks converted', status = 'converted', reason, count(*)
            FROM pages WHERE run = {name} GROUP BY status, reason
            UNION ALL
            SELECT 3, 'chunks judged by ' || decided_by, keep, CASE WHEN keep THEN '' ELSE reason END, count(*)
            FROM judgements WHERE run = {name} GROUP BY ALL
        )) GROUP BY n, stage, kept, reason ORDER BY n, stage, kept DESC, min(place)""")


def _pool(query: Query, run: str) -> list[Row]:
    return query(f"""
        SELECT domain, count(DISTINCT source_id) AS textbooks, count(*) AS chunks, sum(num_tokens)::BIGINT AS tokens
        FROM documents WHERE run = {literal(run)} AND phase <> 'training_pool' GROUP BY domain ORDER BY domain""")


def _overlaps(query: Query, run: str) -> list[Row]:
    """Pairs by the data that the pool was compared with."""
    # OVERLAPS is an SQL keyword: the view's name needs its quotes.
    return query(f"""
        SELECT shard AS "compared with", count(*) AS listed, sum(matched::INT)::BIGINT AS matched,
            avg(matched::INT) AS "matched share",
            max(jaccard) AS "largest Jaccard", max(longest_run) AS "longest run, words"
        FROM "overlaps" WHERE run = {literal(run)} GROUP BY 1 ORDER BY 1""")


def _audit(query: Query, run: str) -> list[Table]:
    """The audits' numbers over all groups of books: counts added up, of shares the worst group's."""
    same = ", ".join(map(literal, _SAME))
    facts = query(f"""
        SELECT name, regexp_matches(name, 'recall|false[_ ]matches') AS is_share,
            CASE WHEN name LIKE '%recall%' THEN min(value) WHEN is_share OR name IN ({same}) THEN max(value)
                ELSE sum(value) END AS value
        FROM audit_summary WHERE run = {literal(run)} GROUP BY name ORDER BY name""")
    recalls = [{"planted": row["name"], "share": row["value"]} for row in facts if row["is_share"]]
    counts = [{"quantity": row["name"], "value": row["value"]} for row in facts if not row["is_share"]]
    return [
        *_table(
            "Planted overlaps found, and unrelated texts matched; the worst group of books", recalls, {"share": small}
        ),
        *_table("Audit summary", counts, {"value": _fact}),
    ]


def _fact(value: float) -> str:
    return number(int(value)) if value.is_integer() else small(value)


def mixture(query: Query, run: str) -> Section:
    """Overlap of an instruction-finetuned anchor's training data with pool and questions, the longest matches first."""
    title, name = "Anchor's training data", literal(run)
    facts = query(f"""
        SELECT name, any_value(value) AS value FROM audit_summary
        WHERE run = {name} AND name LIKE 'mixture %' GROUP BY name ORDER BY name""")
    if not facts:
        return Section(title=title)
    values = {row["name"]: int(row["value"]) for row in facts}
    labels = sorted({said.removesuffix(": read") for said in values if said.endswith(": read")})
    counts = [
        {
            "data": label.removeprefix("mixture "),
            "compared with": shown,
            "records": values.get(f"{label}: read"),
            "texts compared": values.get(f"{label}: {side} compared"),
            "sharing n-grams": values.get(f"{label}: {side} sharing"),
            "matched": values.get(f"{label}: {side} matched"),
        }
        for label in labels
        for side, shown in SIDES.items()
    ]
    pairs = query(f"""
        SELECT document_id AS "text", shard || '#' || record AS record, rule AS "matches by",
            jaccard AS "Jaccard", containment_document AS "of the text", containment_reference AS "of the record",
            longest_run AS "longest run, words"
        FROM "overlaps" WHERE run = {name} AND matched AND artifact_key IN (
            SELECT artifact_key FROM audit_summary WHERE run = {name} AND name LIKE 'mixture %')
        ORDER BY longest_run DESC, document_id, record""")
    said = "Nothing matches; what the search would have found of planted passages stands with the corpus."
    if pairs:
        shown = min(len(pairs), SHOWN_PAIRS)
        said = f"Matching pairs: {len(pairs)}, listed: {shown}; `overlaps` holds every pair."
    tables = [
        *_table("Texts of this run in the anchor's data", counts),
        *_table(
            "Matching pairs, the longest runs first",
            pairs[:SHOWN_PAIRS],
            {"of the text": percent, "of the record": percent},
        ),
    ]
    return Section(title=title, lines=[said], tables=tables)


def coverage(query: Query, found: Sequence[Chosen]) -> Section:
    """Share of the document pool that the generator has read by each iteration, and the pool by domain."""
    title = "Corpus coverage"
    per_run = """    SELECT c.variant, '' AS part, f.run, f.iteration,
        sum(f.fresh) OVER (PARTITION BY f.run ORDER BY f.iteration)
            / (SELECT count(DISTINCT d.document_id) FROM documents d WHERE d.run = f.run) AS value
    FROM (SELECT run, iteration, count(*) AS fresh FROM (
            SELECT run, group_id, min(iteration) AS iteration FROM rollouts WHERE role = 'generator' GROUP BY ALL)
        GROUP BY ALL) f
    JOIN chosen c ON c.run = f.run"""
    rows = spread(query, found, per_run)
    sql = """,
used AS (SELECT DISTINCT run, group_id FROM rollouts WHERE role = 'generator')
SELECT c.variant, d.run, d.domain, count(DISTINCT d.source_id) AS textbooks, count(*) AS documents,
    sum(d.num_tokens)::BIGINT AS tokens, count(u.group_id) AS "documents read",
    count(u.group_id) / count(*) AS "share read"
FROM documents d JOIN chosen c ON c.run = d.run LEFT JOIN used u ON u.run = d.run AND u.group_id = d.document_id
GROUP BY ALL ORDER BY d.domain, d.run"""
    pool = by_variant(query, found, sql)
    if not rows or not pool:
        return Section(title=title)
    caption = f"Share of the document pool read by the generator so far. {BAND}"
    drawn = charts.lines(caption, bands(rows), name="coverage", label="share of documents", share=True)
    by_domain = table("Document pool by domain", pool, {"share read": percent}, without=("variant",))
    return Section(
        title=title,
        figures=[drawn, _domains(pool)],
        tables=[spread_table("Share of the pool read", rows, share=True), by_domain],
    )


def _domains(pool: Sequence[Row]) -> Figure:
    rows = [
        {
            "variant": variant,
            "domain": domain,
            "share": sum(row["documents read"] for row in held) / sum(row["documents"] for row in held),
        }
        for variant, mine in grouped(pool, "variant").items()
        for domain, held in grouped(mine, "domain").items()
    ]
    caption, label = "Share of each domain's documents that the generator has read", "share of documents read"
    names = sorted({row["domain"] for row in rows})
    return bar_chart(caption, rows, "domain", names, y="share", name="domains", label=label, share=True)
