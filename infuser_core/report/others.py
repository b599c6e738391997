"""Lengths, settings, generator quality, time and corpus: the rest of what runs are compared by."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.report import figures
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, text
from infuser_core.report.figures import Series
from infuser_core.report.queries import PHASES, Chosen, Row, chosen_sql, literal, variants
from infuser_core.report.training import BAND, band_section, column, order, series, spread_sql, spread_table, value
from infuser_core.statistics.correlation import fit_lengths
from infuser_core.statistics.question_quality import strong_weak_gaps
from infuser_core.statistics.tally import Tally, from_counts

PHASES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Generated questions of one iteration, answered by one solver."""

    run: str
    """Run whose generator wrote the questions."""
    iteration: int
    """Iteration of the questions."""
    solver: str
    """Who answered."""
    scores: Path
    """Parquet file with one row per question."""
    asked: float = 0.0
    """When, seconds since 1970: the first solver asked about an iteration is its base."""


def response_length(query: Query, found: Sequence[Chosen]) -> Section:
    """Mean length of the solver's answers to generated questions."""
    per_run = """    SELECT c.variant, '' AS part, r.run, r.iteration, avg(len(r.token_ids)) AS value
    FROM rollouts r JOIN chosen c ON c.run = r.run WHERE r.phase = 'rollout_questions' GROUP BY ALL"""
    return band_section(
        query, found, per_run, title="Response length over training", name="length", label="tokens per answer",
        missing="No answers to generated questions: co-training samples them.",
    )  # fmt: skip


def length_accuracy(query: Query, found: Sequence[Chosen]) -> Section:
    """Accuracy against response length, one point per validated checkpoint, with the logarithmic fit."""
    title = "Length against accuracy"
    rows = order(
        query(f"""{chosen_sql(found)}
SELECT c.variant, b.run, b.iteration, avg(b.mean_response_tokens) AS tokens, avg(b.accuracy) AS accuracy
FROM benchmark_scores b JOIN chosen c ON c.run = b.run
WHERE b.phase = 'validate' AND b.mean_response_tokens > 0 GROUP BY ALL ORDER BY ALL"""),
        found,
    )
    if not rows:
        return Section(title=title, lines=["No validated checkpoints with response lengths."])
    fit = fit_lengths(column(rows, "tokens"), column(rows, "accuracy"))
    layers = []
    for variant in dict.fromkeys(text(row["variant"]) for row in rows):
        mine = [row for row in rows if text(row["variant"]) == variant]
        layers.append(Series(label=variant, x=column(mine, "tokens"), y=column(mine, "accuracy")))
    line = (fit.intercept, fit.slope) if fit.slope else None
    said = f"{fit.points} checkpoints. {fit.reason.capitalize()}." if fit.reason else ""
    if fit.pearson is not None:
        said = (
            f"accuracy = {fit.intercept:.3f} {fit.slope:+.3f} ln(tokens) over {fit.points} checkpoints; Pearson's r = "
            f"{fit.pearson:.3f} [{fit.low:.3f}, {fit.high:.3f}]{f' ({fit.reason})' if fit.reason else ''}. "
            "Checkpoints of one run are not independent of each other."
        )
    drawing = figures.points(
        layers, name="length-accuracy", label="validation accuracy", xlabel="mean tokens per answer (log)", fit=line,
        share=True,
    )  # fmt: skip
    cells = [
        [
            text(row["variant"]),
            text(row["run"]),
            number(row["iteration"]),
            number(row["tokens"], 1),
            percent(row["accuracy"]),
        ]
        for row in rows
    ]
    columns = ["variant", "run", "iteration", "tokens per answer", "accuracy"]
    table = Table(title="Validated checkpoints", columns=columns, rows=cells, text_columns=2)
    figure = Figure(title="Validation accuracy against mean response length, one point per checkpoint", drawing=drawing)
    return Section(title=title, lines=[said], figures=[figure], tables=[table])


def validity(query: Query, found: Sequence[Chosen]) -> Section:
    """Share of generator rollouts that are questions, and of keys that an oracle calls right."""
    per_run = """    SELECT c.variant, 'valid questions' AS part, r.run, r.iteration,
        avg((r.malformed_reason = '')::INT) AS value
    FROM rollouts r JOIN chosen c ON c.run = r.run WHERE r.role = 'generator' GROUP BY ALL
    UNION ALL
    SELECT c.variant, 'right keys', l.run, l.iteration, avg((l.key = 'sound')::INT)
    FROM question_labels l JOIN chosen c ON c.run = l.run WHERE l.key <> 'unknown' GROUP BY ALL"""
    return band_section(
        query, found, per_run, title="Generator quality", name="quality", label="share", share=True, part="measure",
        missing="No generator rollouts: runs that generate questions have them.",
    )  # fmt: skip


def strong_weak(query: Query, answered: Sequence[Answered]) -> Section:
    """Strong-against-weak gap of generated questions, over the iterations that were examined."""
    title = "Strong-against-weak gap"
    if not answered:
        said = "No generated questions were answered by other solvers: "
        said += "`infuser swg RUN --solver RUN@0 --solver RUN@selected` asks them."
        return Section(title=title, lines=[said])
    cells: list[list[str]] = []
    lines: dict[str, list[tuple[int, float, float, float]]] = {}
    places = dict.fromkeys(
        (one.run, one.iteration) for one in sorted(answered, key=lambda one: (one.run, one.iteration))
    )
    for run, iteration in places:
        mine = [one for one in answered if (one.run, one.iteration) == (run, iteration)]
        mine.sort(key=lambda one: (one.asked, one.solver))
        tallies = {one.solver: _tally(query, one.scores) for one in mine}
        base = mine[0].solver
        agreed = tallies[base]
        own = float((agreed.correct_Q / agreed.samples_Q).mean())
        cells.append([run, base, number(iteration), percent(own), "-", "-", number(len(agreed.question_ids))])
        for gap in strong_weak_gaps(tallies, base):
            found = gap.gap
            lines.setdefault(f"{run}: {gap.solver}", []).append(
                (iteration, 100 * found.value, 100 * found.low, 100 * found.high)
            )
            ends = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
            cells.append(
                [
                    run,
                    gap.solver,
                    number(iteration),
                    percent(gap.accuracy),
                    f"{100 * found.value:+.1f}",
                    ends,
                    number(found.questions),
                ]
            )
    layers = [
        Series(label=label, x=[p[0] for p in held], y=[p[1] for p in held], low=[p[2] for p in held],
               high=[p[3] for p in held])
        for label, held in lines.items()
    ]  # fmt: skip
    columns = ["run", "solver", "iteration", "agreement with the key", "gap, points", "95% interval", "questions"]
    table = Table(title="Solvers on generated questions", columns=columns, rows=cells, text_columns=2)
    if not layers:
        return Section(title=title, lines=["Only one solver answered: a gap needs two."], tables=[table])
    drawing = figures.lines(
        layers, name="swg", label="gap over the base solver, points", xlabel="iteration of the questions"
    )
    caption = "Agreement with the generator's key beyond the base solver's, 95% intervals over questions"
    said = "The base is the solver that was asked first."
    return Section(title=title, lines=[said], figures=[Figure(title=caption, drawing=drawing)], tables=[table])


def _tally(query: Query, path: Path) -> Tally:
    rows = query(f"""SELECT question_id, num_correct, num_samples
FROM read_parquet({literal(str(path))}) WHERE num_samples > 0 ORDER BY question_id""")
    return from_counts(
        {str(row["question_id"]): int(value(row["num_correct"])) for row in rows},
        {str(row["question_id"]): int(value(row["num_samples"])) for row in rows},
    )


def durations(query: Query, found: Sequence[Chosen]) -> Section:
    """Seconds per phase, mean over the runs of a variant; a reused stage counts with the time it first took."""
    title = "Wall-clock by phase"
    rows = order(
        query(f"""{chosen_sql(found)},
per_run AS (
    SELECT c.variant, a.run, a.phase, sum(m.seconds) AS seconds, count(*) AS stages,
        coalesce(sum(m.seconds) FILTER (WHERE a.state = 'cached'), 0) AS reused
    FROM run_artifacts a JOIN chosen c ON c.run = a.run JOIN artifacts m ON m.artifact_key = a.artifact_key
    GROUP BY ALL)
SELECT variant, phase, count(*) AS runs, avg(seconds) AS seconds, avg(reused) AS reused, avg(stages) AS stages
FROM per_run GROUP BY variant, phase ORDER BY phase, variant"""),
        found,
    )
    if not rows:
        return Section(title=title, lines=["No stages yet."])
    names = [variant for variant in variants(found) if any(row["variant"] == variant for row in rows)]
    totals: dict[str, float] = {}
    for row in rows:
        totals[text(row["phase"])] = totals.get(text(row["phase"]), 0.0) + value(row["seconds"])
    ranked = sorted(totals, key=lambda phase: (-totals[phase], phase))
    spent = {(row["variant"], text(row["phase"])): value(row["seconds"]) for row in rows}
    shown = sorted(ranked[:PHASES_SHOWN], key=lambda phase: PHASES.index(phase) if phase in PHASES else 99)
    layers = [Series(label=phase, x=[], y=[spent.get((variant, phase), 0.0) for variant in names]) for phase in shown]
    if rest := ranked[PHASES_SHOWN:]:
        layers.append(
            Series(label="other phases", x=[], y=[sum(spent.get((name, p), 0.0) for p in rest) for name in names])
        )
    cells = [
        [
            text(row["variant"]),
            text(row["phase"]),
            number(row["runs"]),
            number(row["stages"], 1),
            number(row["seconds"], 1),
            number(row["reused"], 1),
        ]
        for row in sorted(rows, key=lambda row: (names.index(str(row["variant"])), -value(row["seconds"])))
    ]
    columns = ["variant", "phase", "runs", "stages per run", "seconds per run", "of which reused"]
    drawing = figures.stacks(names, layers, name="durations", label="seconds per run")
    caption = "Seconds per run by phase, mean over seeds; a reused stage counts with the time that it first took"
    table = Table(title="Seconds per phase", columns=columns, rows=cells, text_columns=2)
    return Section(title=title, figures=[Figure(title=caption, drawing=drawing)], tables=[table])


def coverage(query: Query, found: Sequence[Chosen]) -> Section:
    """How much of the document pool the generator has read by each iteration, and the pool by domain."""
    title = "Corpus coverage"
    per_run = """    SELECT c.variant, '' AS part, f.run, f.iteration,
        sum(f.fresh) OVER (PARTITION BY f.run ORDER BY f.iteration)
            / (SELECT count(DISTINCT d.document_id) FROM documents d WHERE d.run = f.run) AS value
    FROM (SELECT run, iteration, count(*) AS fresh FROM (
            SELECT run, group_id, min(iteration) AS iteration FROM rollouts WHERE role = 'generator' GROUP BY ALL)
        GROUP BY ALL) f
    JOIN chosen c ON c.run = f.run"""
    rows = order(query(spread_sql(found, per_run)), found)
    pool = order(
        query(f"""{chosen_sql(found)},
used AS (SELECT DISTINCT run, group_id FROM rollouts WHERE role = 'generator')
SELECT c.variant, d.run, d.domain, count(*) AS documents, count(DISTINCT d.source_id) AS textbooks,
    sum(d.num_tokens)::BIGINT AS tokens, count(u.group_id) AS used
FROM documents d JOIN chosen c ON c.run = d.run LEFT JOIN used u ON u.run = d.run AND u.group_id = d.document_id
GROUP BY ALL ORDER BY d.domain, d.run"""),
        found,
    )
    if not rows or not pool:
        return Section(title=title, lines=["No documents were read: runs that generate questions from a pool do."])
    caption = f"Share of the document pool read by the generator so far. {BAND}"
    drawing = figures.lines(series(rows), name="coverage", label="share of documents", share=True)
    cells = [
        [text(row["run"]), text(row["domain"])]
        + [number(row[name]) for name in ("textbooks", "documents", "tokens", "used")]
        + [percent(value(row["used"]) / max(1.0, value(row["documents"])))]
        for row in pool
    ]
    columns = ["run", "domain", "textbooks", "documents", "tokens", "documents read", "share read"]
    return Section(
        title=title,
        figures=[Figure(title=caption, drawing=drawing), _domains(pool)],
        tables=[
            spread_table(rows, title="Share of the pool read", show=percent),
            Table(title="Document pool by domain", columns=columns, rows=cells, text_columns=2),
        ],
    )


def _domains(pool: Sequence[Row]) -> Figure:
    names = sorted({text(row["domain"]) for row in pool})
    layers = []
    for variant in dict.fromkeys(text(row["variant"]) for row in pool):
        mine = [row for row in pool if text(row["variant"]) == variant]
        held = {name: [row for row in mine if text(row["domain"]) == name] for name in names}
        sums = [
            (sum(value(row["used"]) for row in rows), sum(value(row["documents"]) for row in rows))
            for rows in held.values()
        ]
        y = [round(used / all_, 9) if all_ else 0.0 for used, all_ in sums]
        layers.append(Series(label=variant, x=list(range(len(names))), y=y))
    drawing = figures.groups(names, layers, name="domains", label="share of documents read", share=True)
    return Figure(title="Share of each domain's documents that the generator has read", drawing=drawing)
