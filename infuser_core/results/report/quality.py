"""Report sections on generated questions: checks of `infuser report quality`, gaps between strong and weak solvers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infuser_core.evaluation.statistics.question_quality import KEYS
from infuser_core.prompts.templates import render_question
from infuser_core.results.report import charts
from infuser_core.results.report.charts import ChartSeries, Figure, series_of
from infuser_core.results.report.content import (
    Formats,
    Query,
    ReportSection,
    ReportTable,
    Row,
    interval,
    percent,
    points,
    points_interval,
    table,
    text,
)
from infuser_core.results.report.queries import literal, rows_by

_SOLVERS = """SELECT {run} || ': ' || solver AS solver, * EXCLUDE (solver)
FROM (SELECT unnest(solvers, recursive := true) FROM read_json({file}, columns = {{solvers:
    'STRUCT(iteration BIGINT, solver VARCHAR, questions BIGINT, agreement DOUBLE, agreement_low DOUBLE,
    agreement_high DOUBLE, gap DOUBLE, low DOUBLE, high DOUBLE)[]'}}))"""
_ITERATION = "iteration of the questions"


def strong_weak(query: Query, checks: Mapping[str, Path]) -> ReportSection:
    """Section on the strong-against-weak gap of several runs' questions; `checks`: newest files of checks, by run."""
    statements = [_SOLVERS.format(run=literal(run), file=literal(str(file))) for run, file in checks.items()]
    rows = [row for statement in statements for row in query(statement)]
    return ReportSection(title="Strong-against-weak gap", figures=_gaps(rows, "the base solver"), tables=_solvers(rows))


def quality_section(checks: Mapping[str, Any] | None) -> ReportSection:
    """Section on question quality: agreement per solver, checks per iteration, and pairs of questions on a document."""
    title = "Generated questions over training"
    if checks is None:
        return ReportSection(title=title)
    return ReportSection(
        title=title,
        lines=_method_lines(checks),
        figures=_figures(checks),
        tables=[*_solvers(checks["solvers"]), _checks(checks), *_pairs(checks)],
    )


def _method_lines(checks: Mapping[str, Any]) -> list[str]:
    judge = f"the judge {text(checks['judge'])}, or rules if its reply was not usable" if checks["judge"] else "rules"
    lines = [f"Whether a question stands alone is decided by {judge}."]
    if checks["strongest"]:
        lines.append(
            f"Keys are checked by {text(checks['strongest'])}: a majority of its answers to a question "
            f"({checks['samples']} of each) agrees with the key, disputes it, or is unclear."
        )
    if checks["limit"]:
        lines.append(f"At most {checks['limit']} questions per iteration were used, drawn by a hash of their id.")
    if not checks["examples"]:
        lines.append("No document was read at two of these iterations: `--iterations all` looks at every one.")
    return lines


def _figures(checks: Mapping[str, Any]) -> list[Figure]:
    drawings = []
    if agreement := _lines(checks["solvers"], "agreement", "agreement_low", "agreement_high"):
        caption, label = "Agreement with the generator's key, 95% intervals over questions", "agreement with the key"
        drawings.append(charts.lines(caption, agreement, name="agreement", label=label, share=True, xlabel=_ITERATION))
    drawings += _gaps(checks["solvers"], text(checks["base"]))
    rows = checks["iterations"]
    series = [
        series_of("stands alone", rows, "self_contained", low="low", high="high"),
        series_of("distinct", rows, "distinct"),
    ]
    if checked := [row for row in rows if row["oracle_checked"]]:
        series.append(series_of("key right, by the labeller", checked, "oracle_sound"))
    caption = "Questions that stand alone, and that are no copies"
    drawings.append(charts.lines(caption, series, name="quality-checks", label="share of questions", share=True))
    return drawings


def _gaps(rows: Sequence[Row], base: str) -> list[Figure]:
    lines = _lines(rows, "gap", "low", "high", scale=100.0)
    caption, label = f"Agreement beyond that of {base}, paired 95% intervals", "gap over the base solver, points"
    return [charts.lines(caption, lines, name="quality-swg", label=label, xlabel=_ITERATION)] if lines else []


def _lines(rows: Sequence[Row], name: str, low: str, high: str, *, scale: float = 1.0) -> list[ChartSeries]:
    """One chart series per solver for which the number is known."""
    scaled = [
        {**row, **{field: scale * row[field] for field in (name, low, high)}} for row in rows if row[name] is not None
    ]
    return [series_of(solver, mine, name, low=low, high=high) for solver, mine in rows_by(scaled, "solver").items()]


def _solvers(solvers: Sequence[Row]) -> list[ReportTable]:
    rows = [
        {
            "solver": row["solver"],
            "iteration": row["iteration"],
            "questions": row["questions"],
            "agreement": row["agreement"],
            "95% interval": (row["agreement_low"], row["agreement_high"]),
            "gap, points": row["gap"],
            "95% interval, paired": (row["low"], row["high"]),
        }
        for row in solvers
    ]
    formats: Formats = {"agreement": percent, "95% interval": interval}
    formats = {**formats, "gap, points": points, "95% interval, paired": points_interval}
    return [table("Solvers against the generator's keys", rows, formats)] if rows else []


def _checks(checks: Mapping[str, Any]) -> ReportTable:
    rows = [
        {
            "iteration": row["iteration"],
            "questions": row["questions"],
            "distinct": row["distinct"],
            "stand alone": row["self_contained"],
            "95% interval": (row["low"], row["high"]),
            "pointing, by rules": row["pointing"],
            "judged": row["judged"],
            "judge overrules": row["overruled"],
            **{f"key: solver {name}": row["keys"].get(name) for name in KEYS},
            "keys the labeller knows": row["oracle_checked"],
            "key right": row["oracle_sound"],
            "disputed keys that are wrong": row["oracle_disputed"],
        }
        for row in checks["iterations"]
    ]
    shares = ("distinct", "stand alone", "key right", "disputed keys that are wrong")
    return table("Checks of the questions", rows, {**dict.fromkeys(shares, percent), "95% interval": interval})


def _pairs(checks: Mapping[str, Any]) -> list[ReportTable]:
    rows = [
        {
            "document": pair["document_id"],
            "iteration": str(row["iteration"]),
            "question": render_question(row["text"], list(row["choices"] or [])),
            "checks": _facts(row),
        }
        for pair in checks["examples"]
        for row in (pair["before"], pair["after"])
    ]
    return [table("Questions of the same document at two iterations", rows)] if rows else []


def _facts(row: Row) -> str:
    alone = "stands alone" if row["self_contained"] else f"does not stand alone ({row['missing'] or row['points_at']})"
    parts = [f"key {row['answer']}", f"{alone}, by {row['decided_by']}"]
    if row["key"]:
        parts.append(f"solver {row['key']}" + (f", says {row['majority']}" if row["key"] == "disputes" else ""))
    if row["oracle"]:
        parts.append(f"labeller: {row['oracle']}")
    return text("; ".join(parts))
