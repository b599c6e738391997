"""The section on generated questions over training, as `infuser quality` found them."""

from collections.abc import Mapping, Sequence
from typing import Any

from infuser_core.report import figures
from infuser_core.report.content import Figure, Sample, Section, Table, number, percent, printable, text
from infuser_core.report.figures import Series
from infuser_core.statistics.question_quality import KEYS

TITLE = "Generated questions over training"
Row = Mapping[str, Any]


def quality(found: Row | None) -> Section:
    """Agreement and gap per solver, checks per iteration, and questions of the same document side by side."""
    if found is None:
        said = "Nobody has looked at the questions: `infuser quality RUN --solver RUN@0 --solver RUN@selected` does."
        return Section(title=TITLE, lines=[said])
    return Section(
        title=TITLE,
        lines=_said(found),
        figures=_figures(found),
        tables=[*_solvers(found), _checks(found)],
        samples=[_pair(pair) for pair in found["examples"]],
    )


def _said(found: Row) -> list[str]:
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


def _figures(found: Row) -> list[Figure]:
    charts = []
    agreement = _series(found["solvers"], "agreement", "agreement_low", "agreement_high")
    if agreement:
        drawing = figures.lines(agreement, name="agreement", label="agreement with the key", share=True,
                                xlabel="iteration of the questions")  # fmt: skip
        charts.append(Figure(title="Agreement with the generator's key, 95% intervals over questions", drawing=drawing))
    gaps = _series(found["solvers"], "gap", "low", "high", scale=100.0)
    if gaps:
        label, xlabel = "gap over the base solver, points", "iteration of the questions"
        drawing = figures.lines(gaps, name="quality-swg", label=label, xlabel=xlabel)
        title = f"Agreement beyond that of {text(found['base'])}, paired 95% intervals"
        charts.append(Figure(title=title, drawing=drawing))
    checks = [
        Series(label="stands alone", x=_column(found, "iteration"), y=_column(found, "self_contained"),
               low=_column(found, "low"), high=_column(found, "high")),
        Series(label="distinct", x=_column(found, "iteration"), y=_column(found, "distinct")),
    ]  # fmt: skip
    if any(row["oracle_checked"] for row in found["iterations"]):
        known = [row for row in found["iterations"] if row["oracle_checked"]]
        sound = [round(row["oracle_sound"], 9) for row in known]
        checks.append(Series(label="key right, by the labeller", x=[row["iteration"] for row in known], y=sound))
    drawing = figures.lines(checks, name="quality-checks", label="share of questions", share=True)
    return [*charts, Figure(title="Questions that stand alone, and that are no copies", drawing=drawing)]


def _series(rows: Sequence[Row], name: str, low: str, high: str, *, scale: float = 1.0) -> list[Series]:
    held: dict[str, list[Row]] = {}
    for row in rows:
        if row[name] is not None:
            held.setdefault(text(row["solver"]), []).append(row)
    return [
        Series(
            label=solver,
            x=[row["iteration"] for row in mine],
            y=[round(scale * row[name], 9) for row in mine],
            low=[round(scale * row[low], 9) for row in mine],
            high=[round(scale * row[high], 9) for row in mine],
        )
        for solver, mine in held.items()
    ]


def _column(found: Row, name: str) -> list[float]:
    return [round(float(row[name]), 9) for row in found["iterations"]]


def _solvers(found: Row) -> list[Table]:
    cells = [
        [
            text(row["solver"]),
            number(row["iteration"]),
            number(row["questions"]),
            percent(row["agreement"]),
            f"{percent(row['agreement_low'])} to {percent(row['agreement_high'])}",
            "-" if row["gap"] is None else f"{100 * row['gap']:+.1f}",
            "-" if row["gap"] is None else f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}",
        ]
        for row in found["solvers"]
    ]
    columns = ["solver", "iteration", "questions", "agreement", "95% interval", "gap, points", "95% interval, paired"]
    return [Table(title="Solvers against the generator's keys", columns=columns, rows=cells)] if cells else []


def _checks(found: Row) -> Table:
    cells = [
        [number(row["iteration"]), number(row["questions"]), percent(row["distinct"]), percent(row["self_contained"])]
        + [f"{percent(row['low'])} to {percent(row['high'])}"]
        + [number(row[name]) for name in ("pointing", "judged", "overruled")]
        + [number(row["keys"].get(name)) for name in KEYS]
        + [number(row["oracle_checked"]), percent(row["oracle_sound"]), percent(row["oracle_disputed"])]
        for row in found["iterations"]
    ]
    columns = ["iteration", "questions", "distinct", "stand alone", "95% interval", "pointing, by rules", "judged"]
    columns += ["judge overrules", *(f"key: solver {name}" for name in KEYS), "keys the labeller knows", "key right"]
    return Table(title="Checks of the questions", columns=[*columns, "disputed keys that are wrong"], rows=cells)


def _pair(pair: Row) -> Sample:
    before, after = pair["before"], pair["after"]
    facts = [(f"iteration {row['iteration']}", _facts(row)) for row in (before, after)]
    texts = [(f"iteration {row['iteration']}", _question(row)) for row in (before, after)]
    return Sample(title=f"Document {text(pair['document_id'])}", facts=facts, texts=texts)


def _facts(row: Row) -> str:
    alone = "stands alone" if row["self_contained"] else f"does not stand alone ({row['missing'] or row['points_at']})"
    said = [f"key {row['answer']}", f"{alone}, by {row['decided_by']}"]
    if row["key"]:
        said.append(f"solver {row['key']}" + (f", says {row['majority']}" if row["key"] == "disputes" else ""))
    if row["oracle"]:
        said.append(f"labeller: {row['oracle']}")
    return text("; ".join(said))


def _question(row: Row) -> str:
    lettered = [f"{chr(65 + place)}) {choice}" for place, choice in enumerate(row["choices"])]
    return printable("\n".join([row["text"], *lettered]))
