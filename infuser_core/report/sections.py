"""The report's sections: query results turned into sentences, cards, charts and tables."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from infuser_core.report import figures, others, queries, several, training
from infuser_core.report.content import Card, Figure, Query, Report, Section, Table, number, percent, small, text
from infuser_core.report.corpus import corpus, samples
from infuser_core.report.figures import Series
from infuser_core.report.others import Answered
from infuser_core.report.queries import Chosen, Row, with_sql

SHOWN_TOPICS = 10
"""Topics with a colour of their own; the rest is drawn as "other" and listed in full nowhere but in the store."""


def report(
    query: Query,
    *,
    run: str,
    compare_with: str | None,
    notes: Sequence[str],
    chosen: Chosen,
    answered: Sequence[Answered] = (),
    added: Sequence[Section] = (),
) -> Report:
    """All sections in reading order; those that are `added` stand before time and corpus."""
    runs = [chosen]
    noted = Section(title="Notes", lines=[text(note) for note in notes] or ["Nothing unusual was noted."])

    def of_run(build: Callable[[Query, str], Section]) -> Section:
        return with_sql(query, lambda asked: build(asked, run))

    extra = {build.__name__: several.of(query, runs, build) for build in several.OF_EVERY}
    sections = [
        of_run(headline),
        noted,
        with_sql(query, lambda asked: curve(asked, run, compare_with=compare_with)),
        of_run(selection),
        extra["categories"],
        of_run(influence),
        extra["frozen"],
        extra["deviations"],
        of_run(validity),
        with_sql(query, lambda asked: others.strong_weak(asked, answered)),
        of_run(topics),
        with_sql(query, lambda asked: training.shares(asked, runs, by="source")),
        extra["shares"],
        of_run(responses),
        extra["length_accuracy"],
        extra["pass_at_k"],
        extra["leakage_split"],
        of_run(updates),
        *added,
        of_run(time),
        of_run(corpus),
        with_sql(query, lambda asked: others.coverage(asked, runs)),
        of_run(samples),
    ]
    return Report(title=f"INFUSER run {text(run)}", sections=sections)


def headline(query: Query, run: str) -> Section:
    """Anchor against selected checkpoint, per benchmark."""
    title, rows = "Result", queries.evaluations(query, run)
    chosen = queries.selected_iteration(query, run)
    if not rows:
        return Section(title=title, lines=["No final evaluation in this run."])
    scores = {(text(row["benchmark"]), row["iteration"]): row for row in rows}
    cards, cells = [], []
    for benchmark in sorted({name for name, _ in scores}):
        before, after = scores.get((benchmark, 0), {}), scores.get((benchmark, chosen), {})
        cells.append(
            [benchmark, *_interval(before), *_interval(after), _gain(before, after)]
            + [number((after or before).get(name)) for name in ("num_questions", "num_samples", "unverified")]
        )
        value = f"{percent(before.get('accuracy'))} \u2192 {percent(after.get('accuracy'))}"
        cards.append(Card(label=benchmark, value=value, detail=f"{_gain(before, after)} points"))
    columns = [
        "benchmark",
        "anchor",
        "95% interval",
        "selected",
        "95% interval",
        "gain, points",
        "questions",
        "samples",
    ]
    table = Table(title="Accuracy on the benchmarks", columns=[*columns, "unverified"], rows=cells)
    said = (
        "No checkpoint was selected." if chosen is None else f"The selected checkpoint is that of iteration {chosen}."
    )
    return Section(title=title, lines=[said], cards=cards, tables=[table])


def curve(query: Query, run: str, *, compare_with: str | None) -> Section:
    """Validation accuracy over iterations, beside another run's."""
    title = "Validation accuracy"
    runs = [run, *([compare_with] if compare_with is not None else [])]
    curves = {name: rows for name in runs if (rows := queries.validations(query, name))}
    lines = [f"No validation scores of run {text(name)}." for name in runs if name not in curves]
    if not curves:
        return Section(title=title, lines=lines)
    series = [
        _series(name, rows, "accuracy", low=_values(rows, "low"), high=_values(rows, "high"))
        for name, rows in curves.items()
    ]
    mark = queries.selected_iteration(query, run)
    drawing = figures.lines(series, name="validation", label="accuracy", share=True, mark=mark)
    cells = [
        [text(name), number(row["iteration"]), *_interval(row)] for name, rows in curves.items() for row in rows
    ]  # fmt: skip
    columns = ["run", "iteration", "accuracy", "95% interval"]
    table = Table(title="Validation accuracy; iteration 0 is the anchor", columns=columns, rows=cells)
    caption = "Validation accuracy per iteration, with 95% intervals"
    return Section(title=title, lines=lines, figures=[Figure(title=caption, drawing=drawing)], tables=[table])


def selection(query: Query, run: str) -> Section:
    """How sure the choice of the checkpoint is, and what the validation set has seen of the benchmarks."""
    title, rows, seen = "Checkpoint selection", queries.candidates(query, run), queries.leakage(query, run)
    if not rows:
        return Section(title=title, lines=["No checkpoint was selected."])
    cells = [
        [
            number(row["at_iteration"]),
            percent(row["accuracy"]),
            percent(row["behind"]),
            percent(row["behind_error"]),
            "chosen" if row["selected"] else "",
        ]
        for row in rows
    ]
    columns = ["iteration", "accuracy", "behind the best", "standard error, paired", ""]
    validated = Table(title="Validated checkpoints", columns=columns, rows=cells)
    leaked = [
        [text(row["benchmark"]), number(row["num_questions"]), number(row["num_seen"]), percent(row["share"])]
        for row in seen
    ]
    columns = ["benchmark", "questions", "seen in validation", "share"]
    table = Table(title="Benchmark questions that the validation set contains", columns=columns, rows=leaked)
    return Section(title=title, lines=[], tables=[validated, *([table] if leaked else [])])


def influence(query: Query, run: str) -> Section:
    """Influence scores and the state of the dev gradient."""
    title, rows = "Influence", queries.influence(query, run)
    if not rows:
        return Section(title=title, lines=["No influence scores in this run."])
    silent = [number(row["iteration"]) for row in rows if row["no_dev_signal"] == 1]
    said = (
        f"Iterations without a dev gradient: {', '.join(silent)}." if silent else "Every iteration had a dev gradient."
    )
    measured = [row for row in rows if row["score"] is not None]
    mean = [_series("mean influence", measured, "score")]
    shares = [_series(name.replace("_", " "), rows, name) for name in ("scored", "zero_variance", "not_probed")]
    charts = [
        Figure(
            title="Share of questions that could be scored",
            drawing=figures.lines(shares, name="scored", label="questions", share=True),
        )
    ]
    if measured:
        drawing = figures.lines(mean, name="influence", label="mean influence")
        charts.insert(0, Figure(title="Mean influence of the scored questions", drawing=drawing))
    columns = ["iteration", "questions", "mean influence", "scored", "all samples alike", "not probed"]
    cells = [
        [
            number(row["iteration"]),
            number(row["questions"]),
            small(row["score"]),
            percent(row["scored"]),
            percent(row["zero_variance"]),
            percent(row["not_probed"]),
            percent(row["solver_accuracy"]),
            "none" if row["no_dev_signal"] == 1 else small(row["reference_norm"]),
        ]
        for row in rows
    ]
    table = Table(title="Influence scores", columns=[*columns, "solver accuracy", "norm of dev gradient"], rows=cells)
    return Section(title=title, lines=[said], figures=charts, tables=[table])


def validity(query: Query, run: str) -> Section:
    """How many generator rollouts are questions, why the others are not, and whether the keys are right."""
    title, rows = "Validity of generated questions", queries.validity(query, run)
    if not rows:
        return Section(title=title, lines=["No generator rollouts in this run."])
    keys = {row["iteration"]: row for row in queries.key_correctness(query, run)}
    series = [_series("valid", rows, "valid")]
    if keys:
        series.append(_series("key correct", list(keys.values()), "correct"))
    drawing = figures.lines(series, name="validity", label="share", share=True)
    columns = ["iteration", "rollouts", "valid", *(["keys checked", "key correct"] if keys else [])]
    cells = [
        [number(row["iteration"]), number(row["rollouts"]), percent(row["valid"])]
        + ([number(key.get("checked")), percent(key.get("correct"))] if keys else [])
        for row in rows
        for key in [keys.get(row["iteration"], {})]
    ]
    found = [Table(title="Valid questions", columns=columns, rows=cells)]
    reasons = queries.malformed(query, run)
    if reasons:
        cells = [
            [text(row["reason"]), *(number(row[name]) for name in ("rollouts", "first", "last"))] for row in reasons
        ]
        columns = ["reason", "rollouts", "first iteration", "last iteration"]
        found.append(Table(title="Why rollouts were no questions", columns=columns, rows=cells))
    lines = [] if reasons else ["Every rollout was a valid question."]
    return Section(
        title=title, lines=lines, figures=[Figure(title="Share of valid rollouts", drawing=drawing)], tables=found
    )


def topics(query: Query, run: str) -> Section:
    """What the generated questions are about."""
    title, rows = "Topics of generated questions", queries.topics(query, run)
    if not rows:
        return Section(title=title, lines=["No generated questions in this run."])
    counts: dict[str, dict[float, float]] = defaultdict(dict)
    for row in rows:
        counts[text(row["topic"])][_value(row["iteration"])] = _value(row["questions"])
    iterations = sorted({x for per in counts.values() for x in per})
    totals = {x: sum(per.get(x, 0.0) for per in counts.values()) for x in iterations}
    ranked = sorted(counts, key=lambda topic: (-sum(counts[topic].values()), topic))
    shares = {topic: [counts[topic].get(x, 0.0) / totals[x] for x in iterations] for topic in ranked}
    layers = [Series(label=topic, x=iterations, y=shares[topic]) for topic in ranked[:SHOWN_TOPICS]]
    if rest := ranked[SHOWN_TOPICS:]:
        layers.append(
            Series(label="other", x=iterations, y=[sum(shares[t][i] for t in rest) for i in range(len(iterations))])
        )
    cells = [
        [topic, number(int(sum(counts[topic].values()))), percent(shares[topic][0]), percent(shares[topic][-1])]
        for topic in ranked
    ]
    columns = ["topic", "questions", "share at first", "share at last"]
    drawing = figures.bars(layers, name="topics", label="questions", share=True)
    return Section(
        title=title,
        figures=[Figure(title="Share of topics per iteration", drawing=drawing)],
        tables=[Table(title="Topics", columns=columns, rows=cells)],
    )


def responses(query: Query, run: str) -> Section:
    """How long responses are, and how they end."""
    title, rows = "Responses", queries.lengths(query, run)
    if not rows:
        return Section(title=title, lines=["No rollouts in this run."])
    phases = sorted({text(row["phase"]) for row in rows}, key=_phase_order)
    series = [_series(phase, [row for row in rows if text(row["phase"]) == phase], "tokens") for phase in phases]
    drawing = figures.lines(series, name="lengths", label="tokens")
    columns = ["phase", "iteration", "rollouts", "mean tokens", "cut off", "no answer", "unverified", "mean reward"]
    cells = [
        [text(row["phase"]), number(row["iteration"]), number(row["rollouts"]), number(row["tokens"], 1)]
        + [percent(row[name]) for name in ("cut", "no_answer", "unverified")]
        + [number(row["reward"])]
        for row in sorted(rows, key=lambda row: (_phase_order(text(row["phase"])), _value(row["iteration"])))
    ]
    table = Table(title="Length and outcome of responses", columns=columns, rows=cells)
    return Section(title=title, figures=[Figure(title="Mean response length", drawing=drawing)], tables=[table])


def updates(query: Query, run: str) -> Section:
    """Health of the AdamW steps."""
    title, rows = "Updates", queries.updates(query, run)
    if not rows:
        return Section(title=title, lines=["No optimizer steps in this run."])
    columns = ["role", "iteration", "steps", "gradient norm", "clipped", "mean ratio", "mean TIS weight", "skipped"]
    cells = [
        [
            text(row["role"]),
            number(row["iteration"]),
            number(row["steps"]),
            small(row["gradient_norm"]),
            percent(row["clipped"]),
            number(row["ratio"], 4),
            number(row["tis"], 4),
            number(row["skipped"]),
        ]
        for row in rows
    ]
    return Section(title=title, tables=[Table(title="AdamW steps", columns=columns, rows=cells)])


def time(query: Query, run: str) -> Section:
    """Where the time went."""
    title, rows = "Time", queries.seconds(query, run, per_iteration=False)
    if not rows:
        return Section(title=title, lines=["No stages in this run."])
    total = sum(_value(row["seconds"]) for row in rows) or 1.0
    cells = [
        [
            text(row["phase"]),
            number(row["stages"]),
            number(row["cached"]),
            number(row["seconds"], 1),
            number(row["reused"], 1),
            percent(_value(row["seconds"]) / total),
        ]
        for row in rows
    ]
    columns = ["phase", "stages", "reused stages", "seconds", "of which reused", "share"]
    split = [row for row in queries.seconds(query, run, per_iteration=True) if _value(row["iteration"]) >= 0]
    iterations = sorted({_value(row["iteration"]) for row in split})
    spent = {(text(row["phase"]), _value(row["iteration"])): _value(row["seconds"]) for row in split}
    layers = [
        Series(label=phase, x=iterations, y=[spent.get((phase, x), 0.0) for x in iterations])
        for phase in sorted({phase for phase, _ in spent}, key=_phase_order)
    ]
    charts = [Figure(title="Seconds per iteration", drawing=figures.bars(layers, name="time", label="seconds"))]
    return Section(
        title=title,
        lines=[f"{number(total, 1)} seconds in all; reused stages count with the time they first took."],
        figures=charts if layers else [],
        tables=[Table(title="Seconds per phase", columns=columns, rows=cells)],
    )


def _interval(row: Row) -> list[str]:
    low, high = percent(row.get("low")), percent(row.get("high"))
    return [percent(row.get("accuracy")), f"{low} to {high}" if "-" not in (low, high) else "-"]


def _gain(before: Row, after: Row) -> str:
    first, second = before.get("accuracy"), after.get("accuracy")
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return "-"
    return f"{100 * (second - first):+.1f}"


def _value(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _values(rows: Sequence[Row], name: str) -> list[float]:
    # Sums over threads differ in the last bits; charts must not.
    return [round(_value(row[name]), 9) for row in rows]


def _series(
    label: str, rows: Sequence[Row], name: str, *, low: Sequence[float] = (), high: Sequence[float] = ()
) -> Series:
    return Series(label=label, x=_values(rows, "iteration"), y=_values(rows, name), low=low, high=high)


def _phase_order(phase: str) -> tuple[int, str]:
    return (queries.PHASES.index(phase) if phase in queries.PHASES else len(queries.PHASES), phase)
