"""Report sections of one run alone: its result, and the selection of its checkpoint."""

from infuser_core.report.content import Card, Formats, Query, Row, Section, interval, percent, points, table, text
from infuser_core.report.queries import literal, selected_iteration


def headline(query: Query, run: str) -> Section:
    """Anchor against selected checkpoint, per benchmark."""
    scores = query(f"""
        SELECT benchmark, iteration, num_questions, num_samples, accuracy, low, high, answered, unverified
        FROM benchmark_scores WHERE run = {literal(run)} AND phase = 'evaluate' ORDER BY ALL""")
    if not scores:
        return Section(title="Result", lines=["No final evaluation in this run."])
    chosen = selected_iteration(query, run)
    found = {(text(row["benchmark"]), row["iteration"]): row for row in scores}
    names = sorted({name for name, _ in found})
    rows = [_gain(name, found.get((name, 0), {}), found.get((name, chosen), {})) for name in names]
    cards = [
        Card(
            label=row["benchmark"],
            value=f"{percent(row['anchor'])} \u2192 {percent(row['selected'])}",
            detail=f"{points(row['gain, points'])} points",
        )
        for row in rows
    ]
    formats: Formats = {"anchor": percent, "selected": percent, "gain, points": points}
    formats = {**formats, "anchor, 95%": interval, "selected, 95%": interval}
    said = f"The selected checkpoint is that of iteration {chosen}."
    return Section(
        title="Result",
        lines=["No checkpoint was selected." if chosen is None else said],
        cards=cards,
        tables=[table("Accuracy on the benchmarks", rows, formats)],
    )


def _gain(benchmark: str, before: Row, after: Row) -> Row:
    first, second = before.get("accuracy"), after.get("accuracy")
    counted = after or before
    return {
        "benchmark": benchmark,
        "anchor": first,
        "anchor, 95%": (before.get("low"), before.get("high")),
        "selected": second,
        "selected, 95%": (after.get("low"), after.get("high")),
        "gain, points": None if first is None or second is None else second - first,
        "questions": counted.get("num_questions"),
        "samples": counted.get("num_samples"),
        "unverified": counted.get("unverified"),
    }


def selection(query: Query, run: str) -> Section:
    """Certainty of the choice of the checkpoint, and what the validation set has seen of the benchmarks."""
    validated = query(f"""
        SELECT at_iteration AS iteration, accuracy, behind AS "behind the best",
            behind_error AS "standard error, paired", CASE WHEN selected THEN 'chosen' ELSE '' END AS choice
        FROM candidates WHERE run = {literal(run)} ORDER BY at_iteration""")
    if not validated:
        return Section(title="Checkpoint selection", lines=["No checkpoint was selected."])
    formats: Formats = dict.fromkeys(("accuracy", "behind the best", "standard error, paired"), percent)
    tables = [table("Validated checkpoints", validated, {**formats, "choice": str})]
    seen = query(f"""
        SELECT benchmark, num_questions AS questions, num_seen AS "seen in validation", share
        FROM leaks WHERE run = {literal(run)} ORDER BY ALL""")
    if seen:
        tables.append(table("Benchmark questions that the validation set contains", seen, {"share": percent}))
    return Section(title="Checkpoint selection", tables=tables)
