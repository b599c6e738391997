"""The section on an instruction-finetuned anchor's training data: what of pool and questions stands in it."""

from infuser_core.report.content import Query, Section, Table, number, percent, text
from infuser_core.report.queries import literal

TITLE = "Anchor's training data"
SIDES = {"dev": "dev set", "document": "document pool", "validation": "validation set"}
SHOWN = 20
"""Matching pairs listed; all of them are in the store."""


def mixture(query: Query, run: str) -> Section:
    """Counts per data set and side, and the matching pairs with the longest common runs."""
    name = literal(run)
    facts = query(f"""
        SELECT name, any_value(value) AS value FROM audit_summary
        WHERE run = {name} AND name LIKE 'mixture %' GROUP BY name ORDER BY name""")
    if not facts:
        said = "No audit of instruction data: corpus.overlap.mixture names what the anchor was finetuned on."
        return Section(title=TITLE, lines=[said])
    values = {str(row["name"]): row["value"] for row in facts}
    labels = sorted({said.removesuffix(": read") for said in values if said.endswith(": read")})
    counts = [
        [label.removeprefix("mixture "), shown, _count(values.get(f"{label}: read"))]
        + [_count(values.get(f"{label}: {side} {what}")) for what in ("compared", "sharing", "matched")]
        for label in labels
        for side, shown in SIDES.items()
    ]
    rows = query(f"""
        SELECT side, item_id, shard || '#' || record AS record, rule, jaccard, containment_item, containment_record,
            longest_run
        FROM mixture_overlaps WHERE run = {name} AND matched
        ORDER BY longest_run DESC, side, item_id, record""")
    columns = ["data", "compared with", "records", "texts compared", "sharing n-grams", "matched"]
    tables = [Table(title="Texts of this run in the anchor's data", columns=columns, rows=counts, text_columns=2)]
    if rows:
        tables.append(_pairs(rows[:SHOWN]))
    return Section(title=TITLE, lines=[_said(len(rows))], tables=tables)


def _pairs(rows: list[dict[str, object]]) -> Table:
    cells = [
        [SIDES[str(row["side"])], text(row["item_id"]), text(row["record"]), text(row["rule"]), number(row["jaccard"])]
        + [percent(row[name]) for name in ("containment_item", "containment_record")]
        + [number(row["longest_run"])]
        for row in rows
    ]
    columns = ["in", "text", "record", "matches by", "Jaccard", "of the text", "of the record", "longest run, words"]
    return Table(title="Matching pairs, the longest runs first", columns=columns, rows=cells, text_columns=4)


def _said(matched: int) -> str:
    if not matched:
        return "Nothing matches; what the search would have found of planted passages stands with the corpus."
    return f"Matching pairs: {matched}, listed: {min(matched, SHOWN)}; `mixture_overlaps` holds every pair."


def _count(value: object) -> str:
    return number(int(value)) if isinstance(value, int | float) else "-"
