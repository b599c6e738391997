"""Report sections on evaluations: benchmarks, categories, pass@k, and gains on dev questions."""

from collections.abc import Mapping, Sequence

from infuser_core.benchmarks.parts.validation import key
from infuser_core.errors import UsageError
from infuser_core.report import figures as shapes
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, text
from infuser_core.report.figures import Series, lines
from infuser_core.report.paper_numbers import row_of, sheets
from infuser_core.report.queries import ANCHOR, Chosen, Row, anchor_sql, chosen_sql, variants
from infuser_core.report.training import column, value
from infuser_core.schemas import Question
from infuser_core.statistics.bootstrap import Leakage, leakage
from infuser_core.statistics.passk import PassPoint, pass_curve, powers_of_two
from infuser_core.statistics.tally import Tally, from_counts

MEASURED = """measured AS (
    SELECT c.variant, c.run, c.seed, b.artifact_key, b.benchmark, 'anchor' AS checkpoint, b.accuracy
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run
    WHERE b.phase = 'evaluate' AND b.iteration = 0
    UNION ALL
    SELECT c.variant, c.run, c.seed, b.artifact_key, b.benchmark, 'selected', b.accuracy
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run JOIN selections s ON s.run = b.run
    WHERE b.phase = 'evaluate' AND b.iteration = s.selected_iteration)"""
"""Accuracy per run, benchmark and checkpoint; `chosen` comes before it."""
MISSING = "No final evaluation: it is the last stage of a run."
MOST_AXES = 14


def benchmarks(query: Query, found: Sequence[Chosen]) -> Section:
    """Accuracy of anchor and selected checkpoint on every benchmark."""
    title = "Benchmarks"
    rows = query(f"""{chosen_sql(found)},
{MEASURED},
shown AS (SELECT DISTINCT {anchor_sql(found)}, artifact_key, benchmark, checkpoint, accuracy FROM measured)
SELECT variant, benchmark, checkpoint, count(*) AS runs, avg(accuracy) AS mean, stddev_samp(accuracy) AS sd,
    min(accuracy) AS low, max(accuracy) AS high
FROM shown GROUP BY variant, benchmark, checkpoint ORDER BY benchmark, checkpoint, variant""")
    if not rows:
        return Section(title=title, lines=[MISSING])
    names = list(dict.fromkeys(text(row["benchmark"]) for row in rows))
    layers = _layers(rows, names, "benchmark", found)
    drawing = shapes.groups(names, layers, name="benchmarks", label="accuracy", share=True)
    figure = Figure(
        title="Accuracy of the anchor and of the selected checkpoints; whiskers: smallest to largest seed",
        drawing=drawing,
    )
    cells = [
        [text(row["variant"]), text(row["benchmark"]), text(row["checkpoint"]), number(row["runs"])]
        + [percent(row[name]) for name in ("mean", "sd", "low", "high")]
        for row in ranked(rows, found)
    ]
    columns = ["variant", "benchmark", "checkpoint", "runs", "mean", "sd over seeds", "smallest", "largest"]
    table = Table(title="Accuracy on the benchmarks", columns=columns, rows=cells, text_columns=3)
    return Section(title=title, figures=[figure], tables=[table])


def _layers(rows: Sequence[Row], names: Sequence[str], by: str, found: Sequence[Chosen]) -> list[Series]:
    """One layer of bars per anchor, then per variant's selected checkpoint."""
    made = []
    for variant in dict.fromkeys(str(row["variant"]) for row in ranked(rows, found)):
        mine = [row for row in rows if row["variant"] == variant]
        several = any(value(row["runs"]) > 1 for row in mine)
        made.append(
            Series(
                label=variant,
                x=[names.index(text(row[by])) for row in mine],
                y=column(mine, "mean"),
                low=column(mine, "low") if several else (),
                high=column(mine, "high") if several else (),
            )
        )
    return made


def ranked(rows: Sequence[Row], found: Sequence[Chosen]) -> list[Row]:
    """Anchors first, then variants in the order in which the runs were named."""
    places = {variant: at for at, variant in enumerate(variants(found))}
    return sorted(rows, key=lambda row: -1 if row["checkpoint"] == ANCHOR else places[str(row["variant"])])


def categories(query: Query, found: Sequence[Chosen]) -> Section:
    """A radar over the paper's categories, or over the questions' domains where there are fewer than three."""
    title = "Categories"
    scores = query(f"""{chosen_sql(found)},
{MEASURED}
SELECT {anchor_sql(found)}, run, benchmark, checkpoint, accuracy FROM measured ORDER BY ALL""")
    rows = _by_category(scores)
    what = "category"
    if len({row["category"] for row in rows}) < 3:
        what = "domain"
        rows = query(f"""{chosen_sql(found)},
counted AS (
    SELECT c.variant, q.artifact_key, q.domain AS category,
        CASE WHEN q.iteration = 0 THEN 'anchor' ELSE 'selected' END AS checkpoint,
        sum(q.num_correct / q.num_samples) AS points, count(*) AS questions, c.run, c.seed
    FROM question_scores q JOIN chosen c ON c.run = q.run JOIN selections s ON s.run = q.run
    WHERE q.phase = 'evaluate' AND q.num_samples > 0 AND q.domain <> '' AND q.iteration IN (0, s.selected_iteration)
    GROUP BY ALL),
shown AS (
    SELECT {anchor_sql(found)}, seed, category, checkpoint, avg(accuracy) AS accuracy
    FROM (SELECT variant, run, seed, category, checkpoint, sum(points) / sum(questions) AS accuracy
        FROM counted GROUP BY ALL)
    GROUP BY ALL)
SELECT variant, checkpoint, category, count(*) AS runs, avg(accuracy) AS mean, min(accuracy) AS low,
    max(accuracy) AS high, stddev_samp(accuracy) AS sd
FROM shown GROUP BY variant, checkpoint, category ORDER BY category, checkpoint, variant""")
    names = list(dict.fromkeys(text(row["category"]) for row in rows))
    if len(names) < 3:
        said = "Fewer than three categories or domains: a radar needs benchmarks of three categories."
        return Section(title=title, lines=[MISSING if not scores else said])
    shown = names[:MOST_AXES]
    layers = _layers([row for row in rows if text(row["category"]) in shown], shown, "category", found)
    whole = [one for one in layers if len(one.y) == len(shown)]
    cells = [
        [text(row["variant"]), text(row["category"]), text(row["checkpoint"]), number(row["runs"])]
        + [percent(row[name]) for name in ("mean", "sd")]
        for row in ranked(rows, found)
    ]
    columns = ["variant", what, "checkpoint", "runs", "mean", "sd over seeds"]
    drawings = [shapes.groups(shown, layers, name="categories", label="accuracy", share=True)]
    captions = [f"Accuracy by {what}; whiskers: smallest to largest seed"]
    if whole:
        drawings.insert(0, shapes.radar(shown, whole, name="radar"))
        captions.insert(0, f"Accuracy by {what}, mean over seeds")
    figures = [Figure(title=caption, drawing=one) for caption, one in zip(captions, drawings, strict=True)]
    table = Table(title=f"Accuracy by {what}", columns=columns, rows=cells, text_columns=3)
    return Section(title=title, figures=figures, tables=[table])


def _by_category(scores: Sequence[Row]) -> list[Row]:
    """Per variant and checkpoint, the mean over seeds of the unweighted mean over a category's benchmarks."""
    of_row = {row: name for name, rows in sheets("main")[0].categories().items() for row in rows}
    runs: dict[tuple[str, str, str, str], list[float]] = {}
    for row in scores:
        category = of_row.get(row_of(text(row["benchmark"]), list(of_row)))
        if category is not None:
            place = (str(row["variant"]), text(row["checkpoint"]), category, str(row["run"]))
            runs.setdefault(place, []).append(value(row["accuracy"]))
    groups: dict[tuple[str, str, str], list[float]] = {}
    for (variant, checkpoint, category, _), values in runs.items():
        groups.setdefault((variant, checkpoint, category), []).append(sum(values) / len(values))
    return [
        {"variant": variant, "checkpoint": checkpoint, "category": category, "runs": len(values)}
        | {"mean": sum(values) / len(values), "low": min(values), "high": max(values), "sd": _sd(values)}
        for (variant, checkpoint, category), values in groups.items()
    ]


def _sd(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return float((sum((one - mean) ** 2 for one in values) / (len(values) - 1)) ** 0.5)


def pass_at_k(query: Query, found: Sequence[Chosen]) -> Section:
    """pass@k of anchor and selected checkpoint where several answers per question were saved."""
    title = "pass@k"
    rows = _counts(query, found)
    curves: dict[tuple[str, str], list[list[PassPoint]]] = {}
    for (variant, _, benchmark, checkpoint), tally in rows.items():
        most = min(tally.samples_Q, default=1)
        if most > 1:
            curve = pass_curve(tally, powers_of_two(int(most)))
            curves.setdefault((benchmark, f"{variant}, {checkpoint}"), []).append(curve)
    if not curves:
        said = "One answer per question: benchmarks with samples of 2 or more (evaluate.benchmarks) have curves."
        return Section(title=title, lines=[said if rows else MISSING])
    cells, charts = [], []
    for at, benchmark in enumerate(dict.fromkeys(benchmark for benchmark, _ in curves)):
        layers: list[Series] = []
        widest: list[int] = [1]
        for (_, label), seeds in ((place, made) for place, made in curves.items() if place[0] == benchmark):
            ks = [point.k for point in min(seeds, key=len)]
            widest = max(widest, ks, key=len)
            mean = [sum(seed[i].value for seed in seeds) / len(seeds) for i in range(len(ks))]
            layers.append(Series(label=label, x=ks, y=[round(one, 9) for one in mean]))
            cells += [
                [benchmark, label, number(k), percent(one), number(len(seeds))] for k, one in zip(ks, mean, strict=True)
            ]
        drawing = lines(layers, name=f"pass-{at}", label="pass@k", share=True, xlabel="k, answers tried", ticks=widest)
        charts.append(Figure(title=f"pass@k on {benchmark}, unbiased, mean over seeds", drawing=drawing))
    columns = ["benchmark", "checkpoint", "k", "pass@k", "runs"]
    table = Table(title="pass@k", columns=columns, rows=cells, text_columns=2)
    return Section(title=title, figures=charts, tables=[table])


Exam = tuple[str, str, str, str]
"""Variant, run, benchmark, checkpoint."""


def _counts(query: Query, found: Sequence[Chosen]) -> dict[Exam, Tally]:
    rows = query(f"""{chosen_sql(found)}
SELECT c.variant, c.run, q.benchmark, CASE WHEN q.iteration = 0 THEN 'anchor' ELSE 'selected' END AS checkpoint,
    q.question_id, any_value(q.num_samples) AS samples, any_value(q.num_correct) AS correct
FROM question_scores q JOIN chosen c ON c.run = q.run JOIN selections s ON s.run = q.run
WHERE q.phase = 'evaluate' AND q.num_samples > 0 AND q.iteration IN (0, s.selected_iteration)
GROUP BY ALL ORDER BY ALL""")
    exams: dict[Exam, dict[str, tuple[int, int]]] = {}
    for row in rows:
        place = (text(row["variant"]), str(row["run"]), text(row["benchmark"]), text(row["checkpoint"]))
        exams.setdefault(place, {})[str(row["question_id"])] = (int(value(row["correct"])), int(value(row["samples"])))
    return {
        place: from_counts({q: right for q, (right, _) in held.items()}, {q: n for q, (_, n) in held.items()})
        for place, held in exams.items()
    }


def leakage_split(query: Query, found: Sequence[Chosen]) -> Section:
    """Gain on benchmark questions that the dev set contains, against the gain on all others (paper: dev leakage)."""
    title = "Leakage split"
    members = _dev_members(query, found)
    tallies = _counts(query, found) if any(members.values()) else {}
    splits: list[tuple[str, str, str, Leakage]] = []
    whole: list[str] = []
    for (variant, run, benchmark, checkpoint), tally in tallies.items():
        base = tallies.get((variant, run, benchmark, "anchor"))
        inside = members.get((run, benchmark), set())
        if checkpoint != "selected" or base is None or not inside:
            continue
        try:
            splits.append((variant, run, benchmark, leakage(base, tally, inside)))
        except UsageError:
            whole.append(benchmark)
    if not splits:
        said = "No benchmark is split by the dev set: none of its questions, or all of them, were trained towards. "
        said += "A dev set drawn from a benchmark (data.dev) fills this."
        return Section(
            title=title, lines=[said if not whole else f"{said} Wholly seen: {', '.join(sorted({*whole}))}."]
        )
    names = [f"{benchmark}, {run}" for _, run, benchmark, _ in splits]
    sides = {"dev members": [one.dev for *_, one in splits], "all others": [one.rest for *_, one in splits]}
    layers = [
        Series(
            label=label,
            x=list(range(len(splits))),
            y=[100 * one.delta for one in held],
            low=[100 * one.low for one in held],
            high=[100 * one.high for one in held],
        )
        for label, held in sides.items()
    ]
    drawing = shapes.groups(names, layers, name="leakage", label="gain in accuracy, points")
    cells = [
        [
            run,
            benchmark,
            label,
            number(side.questions),
            percent(side.base),
            percent(side.trained),
            f"{100 * side.delta:+.1f}",
            f"{100 * side.low:+.1f} to {100 * side.high:+.1f}",
        ]
        for _, run, benchmark, one in splits
        for label, side in (("dev members", one.dev), ("all others", one.rest), ("whole", one.full))
    ]
    columns = ["run", "benchmark", "questions of", "questions", "anchor", "selected", "gain, points", "95% interval"]
    gaps = [
        f"{run}, {benchmark}: gain on dev members minus gain on all others: {100 * one.gap:+.1f} points "
        f"[{100 * one.gap_low:+.1f}, {100 * one.gap_high:+.1f}]"
        for _, run, benchmark, one in splits
    ]
    figure = Figure(title="Gain on dev members and on all other questions, 95% intervals", drawing=drawing)
    table = Table(title="Gain by dev membership", columns=columns, rows=cells, text_columns=3)
    return Section(title=title, lines=gaps, figures=[figure], tables=[table])


def _dev_members(query: Query, found: Sequence[Chosen]) -> Mapping[tuple[str, str], set[str]]:
    """Benchmark questions that are also in the dev set, by run and benchmark; copies are told by their words."""
    dev = query(f"""{chosen_sql(found)}
SELECT DISTINCT r.run, r.question_id, r.text, r.choices FROM reference_questions r JOIN chosen c ON c.run = r.run
WHERE r.artifact_key IN (SELECT input_key FROM artifact_inputs WHERE input = 'dev') ORDER BY ALL""")
    asked = query(f"""{chosen_sql(found)}
SELECT DISTINCT a.run, v.benchmark, a.question_id, a.text, a.choices
FROM asked_questions a JOIN chosen c ON c.run = a.run
JOIN artifact_inputs i ON i.input_key = a.artifact_key AND i.input = 'responses'
JOIN benchmark_scores v ON v.artifact_key = i.artifact_key AND v.run = a.run AND v.phase = 'evaluate'
ORDER BY ALL""")
    known: dict[str, set[str]] = {}
    for row in dev:
        known.setdefault(str(row["run"]), set()).add(_key(row))
    members: dict[tuple[str, str], set[str]] = {}
    for row in asked:
        if _key(row) in known.get(str(row["run"]), set()):
            members.setdefault((str(row["run"]), text(row["benchmark"])), set()).add(str(row["question_id"]))
    return members


def _key(row: Row) -> str:
    choices = row["choices"]
    return key(
        Question(
            question_id="", text=str(row["text"]), choices=list(choices) if isinstance(choices, list) else [],
            answer="", verifier="", domain="", subdomain="", document_id="", rollout_id="", reasoning="",
        )
    )  # fmt: skip
