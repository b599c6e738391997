"""Report sections on generated questions: gaps between solvers, and the checks that `infuser report quality` made."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infuser_core.prompts.load import render_question
from infuser_core.report import charts
from infuser_core.report.charts import Figure, Series, series_of
from infuser_core.report.content import (
    Formats,
    Query,
    Row,
    Section,
    Table,
    interval,
    percent,
    points,
    points_interval,
    table,
    text,
)
from infuser_core.report.queries import grouped, literal, tally_of
from infuser_core.statistics.question_quality import KEYS, strong_weak_gaps
from infuser_core.statistics.tally import accuracy

Answered = Mapping[tuple[str, int, str], Path]
"""Run, iteration of its questions and solver to a parquet file with a row per question; the base solver comes first."""


def strong_weak(query: Query, answered: Answered) -> Section:
    """Strong-against-weak gap of generated questions, over the iterations that other solvers answered."""
    title = "Strong-against-weak gap"
    if not answered:
        return Section(title=title)
    rows: list[Row] = []
    for run, iteration in sorted({(run, iteration) for run, iteration, _ in answered}):
        mine = {solver: file for (*place, solver), file in answered.items() if place == [run, iteration]}
        tallies = {name: tally_of(query(_ANSWERS.format(file=literal(str(file))))) for name, file in mine.items()}
        base = next(iter(mine))
        place = {"run": run, "solver": base, "iteration": iteration, "agreement with the key": accuracy(tallies[base])}
        nothing = {"gap, points": None, "95% interval": (None, None)}
        rows.append({**place, **nothing, "questions": len(tallies[base].question_ids)})
        for solver, gap in strong_weak_gaps(tallies, base).items():
            rows.append(
                {
                    **place,
                    "solver": solver,
                    "agreement with the key": accuracy(tallies[solver]),
                    "gap, points": gap.value,
                    "95% interval": (gap.low, gap.high),
                    "questions": gap.questions,
                }
            )
    formats: Formats = {"agreement with the key": percent, "gap, points": points, "95% interval": points_interval}
    shown = table("Solvers on generated questions", rows, formats)
    layers = _gap_lines([row for row in rows if row["gap, points"] is not None])
    if not layers:
        return Section(title=title, lines=["Only one solver answered: a gap needs two."], tables=[shown])
    drawn = charts.lines(
        "Agreement with the generator's key beyond the base solver's, 95% intervals over questions", layers,
        name="swg", label="gap over the base solver, points", xlabel="iteration of the questions",
    )  # fmt: skip
    return Section(title=title, lines=["The base is the solver that was asked first."], figures=[drawn], tables=[shown])


def _gap_lines(rows: Sequence[Row]) -> list[Series]:
    lines: dict[str, list[Row]] = {}
    for row in rows:
        ends = [100 * end for end in row["95% interval"]]
        drawn = {"iteration": row["iteration"], "gap": 100 * row["gap, points"], "low": ends[0], "high": ends[1]}
        lines.setdefault(f"{row['run']}: {row['solver']}", []).append(drawn)
    return [series_of(label, held, "gap", low="low", high="high") for label, held in lines.items()]


_ANSWERS = """SELECT question_id, num_correct, num_samples
FROM read_parquet({file}) WHERE num_samples > 0 ORDER BY question_id"""


def quality(found: Mapping[str, Any] | None) -> Section:
    """Agreement and gap per solver, checks per iteration, and questions of the same document side by side."""
    title = "Generated questions over training"
    if found is None:
        return Section(title=title)
    return Section(
        title=title,
        lines=_said(found),
        figures=_figures(found),
        tables=[*_solvers(found), _checks(found), *_pairs(found)],
    )


def _said(found: Mapping[str, Any]) -> list[str]:
    judge = f"the judge {text(found['judge'])}, rules where it gave no usable reply" if found["judge"] else "rules"
    lines = [f"Whether a question stands alone is decided by {judge}."]
    if found["strongest"]:
        lines.append(
            f"Keys are checked by {text(found['strongest'])}: a majority of its {found['samples']} answers to a "
            "question agrees with the key, disputes it, or says nothing clear."
        )
    if found["limit"]:
        lines.append(f"At most {found['limit']} questions per iteration were asked, drawn by a hash of their id.")
    if not found["examples"]:
        lines.append("No document was read at two of these iterations.")
    elif found["rewritten"]:
        lines.append(
            "No document was read at two of these iterations: for the questions side by side, both generators wrote "
            "again from the same documents, with the settings of the run."
        )
    return lines


def _figures(found: Mapping[str, Any]) -> list[Figure]:
    drawings = []
    xlabel = "iteration of the questions"
    if agreement := _lines(found["solvers"], "agreement", "agreement_low", "agreement_high"):
        caption, label = "Agreement with the generator's key, 95% intervals over questions", "agreement with the key"
        drawings.append(charts.lines(caption, agreement, name="agreement", label=label, share=True, xlabel=xlabel))
    if gaps := _lines(found["solvers"], "gap", "low", "high", scale=100.0):
        caption, label = f"Agreement beyond that of {text(found['base'])}, paired 95% intervals", "gap over the base"
        drawings.append(charts.lines(caption, gaps, name="quality-swg", label=f"{label} solver, points", xlabel=xlabel))
    rows = found["iterations"]
    checks = [
        series_of("stands alone", rows, "self_contained", low="low", high="high"),
        series_of("distinct", rows, "distinct"),
    ]
    if known := [row for row in rows if row["oracle_checked"]]:
        checks.append(series_of("key right, by the labeller", known, "oracle_sound"))
    caption = "Questions that stand alone, and that are no copies"
    drawings.append(charts.lines(caption, checks, name="quality-checks", label="share of questions", share=True))
    return drawings


def _lines(rows: Sequence[Row], name: str, low: str, high: str, *, scale: float = 1.0) -> list[Series]:
    """One line per solver that has the number."""
    scaled = [
        {**row, **{field: scale * row[field] for field in (name, low, high)}} for row in rows if row[name] is not None
    ]
    return [series_of(solver, mine, name, low=low, high=high) for solver, mine in grouped(scaled, "solver").items()]


def _solvers(found: Mapping[str, Any]) -> list[Table]:
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
        for row in found["solvers"]
    ]
    formats: Formats = {"agreement": percent, "95% interval": interval}
    formats = {**formats, "gap, points": points, "95% interval, paired": points_interval}
    return [table("Solvers against the generator's keys", rows, formats)] if rows else []


def _checks(found: Mapping[str, Any]) -> Table:
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
        for row in found["iterations"]
    ]
    shares = ("distinct", "stand alone", "key right", "disputed keys that are wrong")
    return table("Checks of the questions", rows, {**dict.fromkeys(shares, percent), "95% interval": interval})


def _pairs(found: Mapping[str, Any]) -> list[Table]:
    rows = [
        {
            "document": pair["document_id"],
            "iteration": str(row["iteration"]),
            "question": render_question(row["text"], list(row["choices"] or [])),
            "checks": _facts(row),
        }
        for pair in found["examples"]
        for row in (pair["before"], pair["after"])
    ]
    return [table("Questions of the same document at two iterations", rows)] if rows else []


def _facts(row: Row) -> str:
    alone = "stands alone" if row["self_contained"] else f"does not stand alone ({row['missing'] or row['points_at']})"
    said = [f"key {row['answer']}", f"{alone}, by {row['decided_by']}"]
    if row["key"]:
        said.append(f"solver {row['key']}" + (f", says {row['majority']}" if row["key"] == "disputes" else ""))
    if row["oracle"]:
        said.append(f"labeller: {row['oracle']}")
    return text("; ".join(said))
