"""Report sections on the corpus: dropped books and chunks, document pool, overlap audit, the anchor's training data."""

from collections.abc import Sequence

from infuser_core.results.report import charts
from infuser_core.results.report.charts import Figure
from infuser_core.results.report.content import (
    Formats,
    Query,
    ReportSection,
    ReportTable,
    Row,
    number,
    percent,
    small,
    table,
)
from infuser_core.results.report.queries import (
    BAND,
    ReportRun,
    bands,
    bar_chart,
    by_variant,
    literal,
    rows_by,
    spread,
    spread_table,
)

SHOWN_REASONS = 12
"""Most reasons listed per stage and decision; one row counts the others."""
SHOWN_PAIRS = 20
"""Most matching pairs with the anchor's training data that are listed; the store has all."""
SIDES = {"dev": "dev set", "document": "document pool", "validation": "validation set"}

_SAME = tuple(f"questions: {name}" for name in ("read", "texts", "empty", "short", "tiny"))
"""Counts of questions; every group of books is compared with the same questions, so these are not added up."""


def corpus(query: Query, run: str) -> ReportSection:
    """Section on the corpus: items kept and dropped at each stage, the document pool, and the overlap audit."""
    pool = query(f"""
        SELECT domain, count(DISTINCT source_id) AS textbooks, count(*) AS chunks, sum(num_tokens)::BIGINT AS tokens
        FROM documents WHERE run = {literal(run)} AND phase <> 'training_pool' GROUP BY domain ORDER BY domain""")
    # OVERLAPS is an SQL keyword: the view's name needs its quotes.
    overlaps = query(f"""
        SELECT shard AS "compared with", count(*) AS listed, sum(matched::INT)::BIGINT AS matched,
            avg(matched::INT) AS "matched share",
            max(jaccard) AS "largest Jaccard", max(longest_run) AS "longest run, words"
        FROM "overlaps" WHERE run = {literal(run)} GROUP BY 1 ORDER BY 1""")
    tables = [
        *_table("What was kept and why the rest was not", _funnel(query, run)),
        *_table("Document pool", pool),
        *_table("Overlap audit: pairs with a passage in common", overlaps, {"matched share": percent}),
        *_audit(query, run),
    ]
    return ReportSection(title="Corpus", tables=tables)


def _table(title: str, rows: Sequence[Row], formats: Formats | None = None) -> list[ReportTable]:
    return [table(title, rows, formats)] if rows else []


def _funnel(query: Query, run: str) -> list[Row]:
    """Items kept and dropped at each corpus stage, with the reasons, the most frequent first within a stage."""
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


def _audit(query: Query, run: str) -> list[ReportTable]:
    """Numbers of the audits over all book groups: counts are added up; a share is that of the worst group."""
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


def mixture(query: Query, run: str) -> ReportSection:
    """Section on overlap of the anchor's finetuning data with this run's pool and questions, longest matches first."""
    title, name = "Anchor's training data", literal(run)
    facts = query(f"""
        SELECT name, any_value(value) AS value FROM audit_summary
        WHERE run = {name} AND name LIKE 'mixture %' GROUP BY name ORDER BY name""")
    if not facts:
        return ReportSection(title=title)
    values = {row["name"]: int(row["value"]) for row in facts}
    labels = sorted({entry.removesuffix(": read") for entry in values if entry.endswith(": read")})
    counts = [
        {
            "data": label.removeprefix("mixture "),
            "compared with": side_name,
            "records": values.get(f"{label}: read"),
            "texts compared": values.get(f"{label}: {side} compared"),
            "sharing n-grams": values.get(f"{label}: {side} sharing"),
            "matched": values.get(f"{label}: {side} matched"),
        }
        for label in labels
        for side, side_name in SIDES.items()
    ]
    pairs = query(f"""
        SELECT document_id AS "text", shard || '#' || record AS record, rule AS "matches by",
            jaccard AS "Jaccard", containment_document AS "of the text", containment_reference AS "of the record",
            longest_run AS "longest run, words"
        FROM "overlaps" WHERE run = {name} AND matched AND artifact_key IN (
            SELECT artifact_key FROM audit_summary WHERE run = {name} AND name LIKE 'mixture %')
        ORDER BY longest_run DESC, document_id, record""")
    note = "Nothing matches; the share of planted passages that the search finds is in the section on the corpus."
    if pairs:
        num_listed = min(len(pairs), SHOWN_PAIRS)
        note = f"Matching pairs: {len(pairs)}, listed: {num_listed}; `overlaps` has every pair."
    tables = [
        *_table("Texts of this run in the anchor's data", counts),
        *_table(
            "Matching pairs, the longest runs first",
            pairs[:SHOWN_PAIRS],
            {"of the text": percent, "of the record": percent},
        ),
    ]
    return ReportSection(title=title, lines=[note], tables=tables)


def coverage(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on the share of the document pool that the generator has read by each iteration, and on its domains."""
    title = "Corpus coverage"
    per_run = """    SELECT c.variant, '' AS part, f.run, f.iteration,
        sum(f.fresh) OVER (PARTITION BY f.run ORDER BY f.iteration)
            / (SELECT count(DISTINCT d.document_id) FROM documents d WHERE d.run = f.run) AS value
    FROM (SELECT run, iteration, count(*) AS fresh FROM (
            SELECT run, group_id, min(iteration) AS iteration FROM rollouts WHERE role = 'generator' GROUP BY ALL)
        GROUP BY ALL) f
    JOIN chosen c ON c.run = f.run"""
    rows = spread(query, runs, per_run)
    sql = """,
used AS (SELECT DISTINCT run, group_id FROM rollouts WHERE role = 'generator')
SELECT c.variant, d.run, d.domain, count(DISTINCT d.source_id) AS textbooks, count(*) AS documents,
    sum(d.num_tokens)::BIGINT AS tokens, count(u.group_id) AS "documents read",
    count(u.group_id) / count(*) AS "share read"
FROM documents d JOIN chosen c ON c.run = d.run LEFT JOIN used u ON u.run = d.run AND u.group_id = d.document_id
GROUP BY ALL ORDER BY d.domain, d.run"""
    pool = by_variant(query, runs, sql)
    if not rows or not pool:
        return ReportSection(title=title)
    caption = f"Share of the document pool read by the generator so far. {BAND}"
    figure = charts.lines(caption, bands(rows), name="coverage", label="share of documents", share=True)
    by_domain = table("Document pool by domain", pool, {"share read": percent}, without=("variant",))
    return ReportSection(
        title=title,
        figures=[figure, _domains(pool)],
        tables=[spread_table("Share of the pool read", rows, share=True), by_domain],
    )


def _domains(pool: Sequence[Row]) -> Figure:
    rows = [
        {
            "variant": variant,
            "domain": domain,
            "share": sum(row["documents read"] for row in members) / sum(row["documents"] for row in members),
        }
        for variant, mine in rows_by(pool, "variant").items()
        for domain, members in rows_by(mine, "domain").items()
    ]
    caption, label = "Share of each domain's documents that the generator has read", "share of documents read"
    names = sorted({row["domain"] for row in rows})
    return bar_chart(caption, rows, "domain", names, y="share", name="domains", label=label, share=True)
