"""Report sections on training: one measure over iterations and seeds, influence, topics, group deviations."""

import itertools
from collections.abc import Callable, Sequence

from infuser_core.report import figures
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, small, text
from infuser_core.report.figures import Series
from infuser_core.report.queries import Chosen, Row, chosen_sql

Show = Callable[[object], str]
BAND = "Line: mean over seeds; band: smallest to largest seed."


def spread_sql(found: Sequence[Chosen], per_run: str) -> str:
    """Mean, sample deviation and ends over the runs of a variant of `value` per `variant, iteration, part`.

    `per_run` is a SELECT over `chosen` and the views with these three columns, one row per run.
    """
    return f"""{chosen_sql(found)},
per_run AS (
{per_run})
SELECT variant, part, iteration, count(*) AS runs, avg(value) AS mean, stddev_samp(value) AS sd,
    min(value) AS low, max(value) AS high
FROM per_run WHERE isfinite(value) GROUP BY variant, part, iteration ORDER BY variant, part, iteration"""


def order(rows: Sequence[Row], found: Sequence[Chosen]) -> list[Row]:
    """Rows with variants in the order in which the runs were named."""
    places = {variant: at for at, variant in enumerate(dict.fromkeys(one.variant for one in found))}
    return sorted(rows, key=lambda row: places[str(row["variant"])])


def series(rows: Sequence[Row], *, bands: bool = True) -> list[Series]:
    """One line per variant and part, with a band where some point has several seeds."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((text(row["variant"]), str(row["part"] or "")), []).append(row)
    return [
        Series(
            label=": ".join(filter(None, name)),
            x=column(mine, "iteration"),
            y=column(mine, "mean"),
            low=column(mine, "low") if bands and _several(mine) else (),
            high=column(mine, "high") if bands and _several(mine) else (),
        )
        for name, mine in lines.items()
    ]


def _several(rows: Sequence[Row]) -> bool:
    return any(isinstance(row["runs"], int) and row["runs"] > 1 for row in rows)


def column(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers of one column."""
    # Sums over threads differ in the last bits; charts must not.
    return [round(value(row[name]), 9) for row in rows]


def value(found: object) -> float:
    """A number, 0 where there is none."""
    return float(found) if isinstance(found, int | float) else 0.0


def spread_table(
    rows: Sequence[Row], *, title: str, show: Show, place: str = "iteration", part: str = "", at: Show = number
) -> Table:
    """Mean, deviation and ends per variant and place; `part` names the middle column where rows have one."""
    columns = ["variant", *([part] if part else []), place, "runs", "mean", "sd over seeds", "smallest", "largest"]
    cells = [
        [text(row["variant"]), *([text(row["part"])] if part else []), at(row["iteration"]), number(row["runs"])]
        + [show(row[name]) for name in ("mean", "sd", "low", "high")]
        for row in rows
    ]
    return Table(title=title, columns=columns, rows=cells, text_columns=2 if part else 1)


def band_section(
    query: Query,
    found: Sequence[Chosen],
    per_run: str,
    *,
    title: str,
    name: str,
    label: str,
    missing: str,
    share: bool = False,
    part: str = "",
    lines: Sequence[str] = (),
) -> Section:
    """A whole section of one measure; `missing` says what would fill it."""
    rows = order(query(spread_sql(found, per_run)), found)
    if not rows:
        return Section(title=title, lines=[missing])
    drawn = series(rows)
    caption = f"{title} per iteration. {BAND}" if any(one.low for one in drawn) else f"{title} per iteration"
    figure = Figure(title=caption, drawing=figures.lines(drawn, name=name, label=label, share=share))
    shown = percent if share else small
    return Section(
        title=title,
        lines=list(lines),
        figures=[figure],
        tables=[spread_table(rows, title=f"{title}, in numbers", show=shown, part=part)],
    )


SCORE = """    SELECT c.variant, '' AS part, s.run, s.iteration,
        avg(s.score) FILTER (WHERE s.status = 'scored' AND isfinite(s.score)) AS value
    FROM scores s JOIN chosen c ON c.run = s.run GROUP BY ALL HAVING value IS NOT NULL"""
ENDS = 5
"""Updates whose mean stands for the start and the end of a frozen-solver run (paper: influence diagnostics)."""
SHOWN = 8
"""Topics or textbooks with bars of their own."""


def validation(query: Query, found: Sequence[Chosen]) -> Section:
    """Validation accuracy with its spread over seeds."""
    per_run = """    SELECT c.variant, '' AS part, b.run, b.iteration, avg(b.accuracy) AS value
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run WHERE b.phase = 'validate' GROUP BY ALL"""
    missing = "No validation scores: runs with cotrain.validate_every above 0 have them."
    return band_section(
        query, found, per_run, title="Validation accuracy over seeds", name="seeds", label="accuracy", share=True,
        missing=missing, lines=["Iteration 0 is the anchor, before any update."],
    )  # fmt: skip


def influence(query: Query, found: Sequence[Chosen]) -> Section:
    """Mean influence per iteration and variant."""
    missing = "No influence scores: runs whose generator is trained (cotrain.generator.update) have them."
    return band_section(
        query, found, SCORE, title="Influence dynamics", name="dynamics", label="mean influence score", missing=missing,
        lines=["Influence is a cosine: what a question's update and the dev gradient have in common."],
    )  # fmt: skip


def frozen(query: Query, found: Sequence[Chosen]) -> Section:
    """The control: with a solver that never moves, the score can only rise because the generator climbs it."""
    title = "Frozen-solver control"
    still = [one for one in found if one.leaves.get("cotrain.solver.update") is False]
    missing = "No run here has a frozen solver: `infuser frozen-solver CONFIG` makes one."
    rows = order(query(spread_sql(still, SCORE)), still) if still else []
    if not rows:
        return Section(
            title=title, lines=["The runs with a frozen solver have no influence scores." if still else missing]
        )
    lines = series(rows)
    cells = [
        [
            one.label,
            number(len(one.y)),
            small(_mean(one.y[:ENDS])),
            small(_mean(one.y[-ENDS:])),
            f"{_mean(one.y[-ENDS:]) - _mean(one.y[:ENDS]):+.3g}",
        ]
        for one in lines
    ]
    columns = ["variant", "updates", f"first {ENDS}", f"last {ENDS}", "rise"]
    drawing = figures.lines(lines, name="frozen", label="mean influence score", xlabel="generator updates")
    figure = Figure(title="Mean influence against a solver that does not move", drawing=drawing)
    table = Table(title="Mean influence at the start and at the end", columns=columns, rows=cells)
    return Section(title=title, figures=[figure], tables=[table])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def shares(query: Query, found: Sequence[Chosen], *, by: str) -> Section:
    """What the questions are about (`topic`) or drawn from (`source`): share, and mean influence where scored."""
    title = "Topics and their influence" if by == "topic" else "Textbooks and their influence"
    label = {
        "topic": "coalesce(l.topic, nullif(trim(q.subdomain), ''), 'unknown')",
        "source": "coalesce(t.title, 'unknown')",
    }[by]
    joins = {
        "topic": "LEFT JOIN question_labels l ON l.run = q.run AND l.iteration = q.iteration "
        "AND l.question_id = q.question_id",
        "source": "LEFT JOIN documents d ON d.run = q.run AND d.document_id = q.document_id\n"
        "    LEFT JOIN (SELECT run, source_id, any_value(title) AS title FROM sources\n"
        "        WHERE status = 'admitted' GROUP BY ALL) t ON t.run = q.run AND t.source_id = d.source_id",
    }[by]
    rows = order(
        query(f"""{chosen_sql(found)},
asked AS (
    SELECT c.variant, {label} AS part, s.score, s.status
    FROM questions q JOIN chosen c ON c.run = q.run
    {joins}
    LEFT JOIN scores s ON s.run = q.run AND s.iteration = q.iteration AND s.question_id = q.question_id)
SELECT variant, part, count(*) AS questions, count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share,
    avg(score) FILTER (WHERE status = 'scored' AND isfinite(score)) AS score
FROM asked GROUP BY variant, part ORDER BY questions DESC, part, variant"""),
        found,
    )
    if not rows:
        return Section(title=title, lines=["No generated questions: co-training writes them."])
    names = list(dict.fromkeys(text(row["part"]) for row in sorted(rows, key=lambda row: -value(row["questions"]))))
    places = {name: at for at, name in enumerate(names[:SHOWN])}
    layers = []
    for variant in dict.fromkeys(text(row["variant"]) for row in rows):
        mine = [row for row in rows if text(row["variant"]) == variant and text(row["part"]) in places]
        layers.append(Series(label=variant, x=[places[text(row["part"])] for row in mine], y=column(mine, "share")))
    drawing = figures.groups(list(places), layers, name=f"shares-{by}", label="share of questions", share=True)
    cells = [
        [text(row["variant"]), text(row["part"]), number(row["questions"]), percent(row["share"]), small(row["score"])]
        for row in rows
    ]
    columns = ["variant", by if by == "topic" else "textbook", "questions", "share", "mean influence"]
    caption = f"Share of the generated questions by {columns[1]}, all iterations"
    said = [f"The figure shows the {SHOWN} most frequent; the table has all {len(names)}."]
    return Section(
        title=title,
        lines=said if len(names) > SHOWN else [],
        figures=[Figure(title=caption, drawing=drawing)],
        tables=[Table(title=f"Questions by {columns[1]}", columns=columns, rows=cells, text_columns=2)],
    )


def deviations(query: Query, found: Sequence[Chosen]) -> Section:
    """How strongly groups are trained on: deviation of the advantages in a group against that of its rewards."""
    title = "Deviation within groups"
    rows = order(
        query(f"""{chosen_sql(found)},
groups AS (
    SELECT c.variant, g.run, g.iteration, g.document_id, stddev_pop(g.reward) AS sigma,
        stddev_pop(g.advantage) AS advantage
    FROM generator_scores g JOIN chosen c ON c.run = g.run GROUP BY ALL)
SELECT variant, iteration, sigma, advantage FROM groups
WHERE isfinite(sigma) AND isfinite(advantage) ORDER BY variant, sigma, advantage, iteration"""),
        found,
    )
    if not any(value(row["sigma"]) > 0 for row in rows):
        return Section(title=title, lines=["No generator rewards that vary: runs that train the generator have them."])
    layers, cells = [], []
    for variant in dict.fromkeys(text(row["variant"]) for row in rows):
        mine = [row for row in rows if text(row["variant"]) == variant]
        sigmas, advantages = column(mine, "sigma"), column(mine, "advantage")
        layers.append(Series(label=variant, x=sigmas, y=advantages))
        cells += [
            [
                variant,
                f"{part + 1} of 4",
                number(len(chunk)),
                small(_mean([sigmas[at] for at in chunk])),
                small(_mean([advantages[at] for at in chunk])),
            ]
            for part, chunk in enumerate(_quarters(len(mine)))
            if chunk
        ]
    drawing = figures.points(
        layers, name="deviations", label="std of advantages", xlabel="std of rewards in the group", log=False
    )
    columns = ["variant", "quarter by std of rewards", "groups", "mean std of rewards", "mean std of advantages"]
    said = (
        "One point per document group. DuGRPO divides by the group's deviation plus the batch's mean one: flat groups "
        "stay quiet, and no group dominates. Division by the group's own deviation alone puts every group at 1."
    )
    figure = Figure(title="Within-group deviation of advantages against that of rewards", drawing=drawing)
    return Section(
        title=title, lines=[said], figures=[figure],
        tables=[Table(title="Groups by deviation of their rewards", columns=columns, rows=cells, text_columns=2)],
    )  # fmt: skip


def _quarters(count: int) -> list[range]:
    ends = [count * part // 4 for part in range(5)]
    return [range(low, high) for low, high in itertools.pairwise(ends)]
