"""Report sections of one run: result, validation, selection, influence, questions, responses, updates, time."""

from functools import partial

from infuser_core.report import charts
from infuser_core.report.content import (
    Card,
    Formats,
    Query,
    Row,
    Section,
    interval,
    number,
    percent,
    points,
    small,
    table,
    tenths,
    text,
)
from infuser_core.report.figures import Series, series_of, value
from infuser_core.report.queries import PHASES, literal, phase_order, selected_iteration

SHOWN_TOPICS = 10
"""Topics with a colour of their own; the rest is drawn as "other"."""


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


def curve(query: Query, run: str, *, compare_with: str | None) -> Section:
    """Validation accuracy over iterations, beside another run's."""
    title, curves = "Validation accuracy", {}
    for name in dict.fromkeys(filter(None, (run, compare_with))):
        curves[name] = query(f"""
        SELECT run, iteration, avg(accuracy) AS accuracy, avg(low) AS low, avg(high) AS high,
            [avg(low), avg(high)] AS "95% interval"
        FROM benchmark_scores WHERE run = {literal(name)} AND phase = 'validate'
        GROUP BY run, iteration ORDER BY iteration""")
    lines = [f"No validation scores of run {text(name)}." for name, rows in curves.items() if not rows]
    every = [row for rows in curves.values() for row in rows]
    if not every:
        return Section(title=title, lines=lines)
    series = [series_of(name, rows, "accuracy", low="low", high="high") for name, rows in curves.items() if rows]
    mark = selected_iteration(query, run)
    caption = "Validation accuracy per iteration, with 95% intervals"
    drawn = charts.lines(caption, series, name="validation", label="accuracy", share=True, mark=mark)
    formats: Formats = {"accuracy": percent, "95% interval": interval}
    return Section(
        title=title,
        lines=lines,
        figures=[drawn],
        tables=[table("Validation accuracy; iteration 0 is the anchor", every, formats, without=("low", "high"))],
    )


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


def influence(query: Query, run: str) -> Section:
    """Influence scores and the state of the dev gradient."""
    rows = query(f"""
        SELECT iteration, count(*) AS questions,
            avg(score) FILTER (WHERE status = 'scored' AND isfinite(score)) AS "mean influence",
            avg((status = 'scored')::INT) AS scored,
            avg((status = 'zero_variance')::INT) AS "all samples alike",
            avg((status = 'not_probed')::INT) AS "not probed",
            avg(solver_accuracy) FILTER (WHERE isfinite(solver_accuracy)) AS "solver accuracy",
            max(reference_norm) FILTER (WHERE isfinite(reference_norm)) AS "norm of dev gradient",
            avg((status = 'no_dev_signal')::INT) AS "no dev gradient"
        FROM scores WHERE run = {literal(run)} GROUP BY iteration ORDER BY iteration""")
    if not rows:
        return Section(title="Influence", lines=["No influence scores in this run."])
    silent = ", ".join(number(row["iteration"]) for row in rows if row["no dev gradient"] == 1)
    said = f"Iterations without a dev gradient: {silent}." if silent else "Every iteration had a dev gradient."
    shares = [series_of(name, rows, name) for name in ("scored", "all samples alike", "not probed")]
    caption = "Share of questions that could be scored"
    drawings = [charts.lines(caption, shares, name="scored", label="questions", share=True)]
    if measured := [row for row in rows if row["mean influence"] is not None]:
        mean = [series_of("mean influence", measured, "mean influence")]
        caption = "Mean influence of the scored questions"
        drawings.insert(0, charts.lines(caption, mean, name="influence", label="mean influence"))
    shares_shown = ("scored", "all samples alike", "not probed", "solver accuracy", "no dev gradient")
    formats: Formats = {"mean influence": small, "norm of dev gradient": small, **dict.fromkeys(shares_shown, percent)}
    return Section(title="Influence", lines=[said], figures=drawings, tables=[table("Influence scores", rows, formats)])


def validity(query: Query, run: str) -> Section:
    """Share of generator rollouts that are questions, why the others are not, and whether the keys are right."""
    title, name = "Validity of generated questions", literal(run)
    rows = query(f"""
        SELECT iteration, count(*) AS rollouts, avg((malformed_reason = '')::INT) AS valid
        FROM rollouts WHERE run = {name} AND role = 'generator' GROUP BY iteration ORDER BY iteration""")
    if not rows:
        return Section(title=title, lines=["No generator rollouts in this run."])
    keys = query(f"""
        SELECT iteration, count(*) AS "keys checked", avg((key = 'sound')::INT) AS "key correct"
        FROM question_labels WHERE run = {name} AND key <> 'unknown' GROUP BY iteration ORDER BY iteration""")
    reasons = query(f"""
        SELECT malformed_reason AS reason, count(*) AS rollouts, min(iteration) AS "first iteration",
            max(iteration) AS "last iteration"
        FROM rollouts WHERE run = {name} AND role = 'generator' AND malformed_reason <> ''
        GROUP BY malformed_reason ORDER BY rollouts DESC, reason""")
    series = [series_of("valid", rows, "valid")]
    if keys:
        series.append(series_of("key correct", keys, "key correct"))
        unknown = {"keys checked": None, "key correct": None}
        known = {row["iteration"]: row for row in keys}
        rows = [{**row, **known.get(row["iteration"], unknown)} for row in rows]
    tables = [table("Valid questions", rows, {"valid": percent, "key correct": percent})]
    if reasons:
        tables.append(table("Why rollouts were no questions", reasons))
    drawn = charts.lines("Share of valid rollouts", series, name="validity", label="share", share=True)
    return Section(
        title=title,
        lines=[] if reasons else ["Every rollout was a valid question."],
        figures=[drawn],
        tables=tables,
    )


def topics(query: Query, run: str) -> Section:
    """Topics of the generated questions over iterations."""
    title = "Topics of generated questions"
    rows = query(f"""
        WITH counted AS (
            SELECT q.iteration, coalesce(l.topic, nullif(trim(q.subdomain), ''), 'unknown') AS topic,
                count(*) AS questions
            FROM questions q LEFT JOIN question_labels l USING (run, iteration, question_id)
            WHERE q.run = {literal(run)} AND q.rollout_id <> '' GROUP BY ALL)
        SELECT *, questions / sum(questions) OVER (PARTITION BY iteration) AS share
        FROM counted ORDER BY iteration, topic""")
    if not rows:
        return Section(title=title, lines=["No generated questions in this run."])
    iterations = sorted({row["iteration"] for row in rows})
    shares: dict[str, dict[int, float]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        topic = text(row["topic"])
        shares.setdefault(topic, {})[row["iteration"]] = row["share"]
        counts[topic] = counts.get(topic, 0) + row["questions"]
    ranked = sorted(counts, key=lambda topic: (-counts[topic], topic))
    layers = [
        Series(label=topic, x=iterations, y=[shares[topic].get(x, 0.0) for x in iterations])
        for topic in ranked[:SHOWN_TOPICS]
    ]
    if rest := ranked[SHOWN_TOPICS:]:
        others = [sum(shares[topic].get(x, 0.0) for topic in rest) for x in iterations]
        layers.append(Series(label="other", x=iterations, y=others))
    listed = [
        {
            "topic": topic,
            "questions": counts[topic],
            "share at first": shares[topic].get(iterations[0], 0.0),
            "share at last": shares[topic].get(iterations[-1], 0.0),
        }
        for topic in ranked
    ]
    drawn = charts.bars("Share of topics per iteration", layers, name="topics", label="questions", share=True)
    return Section(
        title=title,
        figures=[drawn],
        tables=[table("Topics", listed, {"share at first": percent, "share at last": percent})],
    )


def responses(query: Query, run: str) -> Section:
    """Length of responses, and their ends."""
    rows = query(f"""
        SELECT phase, iteration, count(*) AS rollouts, avg(len(token_ids)) AS "mean tokens",
            avg((finish_reason = 'length')::INT) AS "cut off", avg((verdict = 'no_answer')::INT) AS "no answer",
            avg((verdict = 'unverified')::INT) AS unverified,
            avg(reward) FILTER (WHERE role = 'solver') AS "mean reward"
        FROM rollouts WHERE run = {literal(run)} GROUP BY ALL ORDER BY iteration, phase""")
    if not rows:
        return Section(title="Responses", lines=["No rollouts in this run."])
    rows.sort(key=lambda row: (phase_order(row["phase"]), row["iteration"]))
    phases = dict.fromkeys(row["phase"] for row in rows)
    series = [series_of(phase, [row for row in rows if row["phase"] == phase], "mean tokens") for phase in phases]
    formats: Formats = {"mean tokens": tenths, **dict.fromkeys(("cut off", "no answer", "unverified"), percent)}
    return Section(
        title="Responses",
        figures=[charts.lines("Mean response length", series, name="lengths", label="tokens")],
        tables=[table("Length and outcome of responses", rows, formats)],
    )


def updates(query: Query, run: str) -> Section:
    """Health of the AdamW steps."""
    rows = query(f"""
        SELECT role, iteration, count(*) AS steps, avg(gradient_norm) AS "gradient norm",
            avg(clip_fraction) AS clipped, avg(mean_ratio) AS "mean ratio", avg(mean_tis) AS "mean TIS weight",
            sum(skipped::INT)::BIGINT AS skipped
        FROM updates WHERE run = {literal(run)} GROUP BY ALL ORDER BY role, iteration""")
    if not rows:
        return Section(title="Updates", lines=["No optimizer steps in this run."])
    fine = partial(number, digits=4)
    formats: Formats = {"gradient norm": small, "clipped": percent, "mean ratio": fine, "mean TIS weight": fine}
    return Section(title="Updates", tables=[table("AdamW steps", rows, formats)])


def time(query: Query, run: str) -> Section:
    """Seconds per phase and iteration."""
    order = ", ".join(literal(phase) for phase in PHASES)
    spent = f"""
        WITH spent AS (
            SELECT r.iteration, r.phase, r.state, coalesce(m.seconds, r.seconds) AS seconds
            FROM run_artifacts r LEFT JOIN artifacts m ON m.artifact_key = r.artifact_key
            WHERE r.run = {literal(run)})"""
    rows = query(f"""{spent}
        SELECT phase, count(*) AS stages, count(*) FILTER (WHERE state = 'cached') AS "reused stages",
            sum(seconds) AS seconds, coalesce(sum(seconds) FILTER (WHERE state = 'cached'), 0) AS "of which reused",
            sum(seconds) / coalesce(nullif(sum(sum(seconds)) OVER (), 0), 1) AS share
        FROM spent GROUP BY phase ORDER BY coalesce(list_position([{order}], phase), 999), phase""")
    if not rows:
        return Section(title="Time", lines=["No stages in this run."])
    split = query(f"""{spent}
        SELECT iteration, phase, sum(seconds) AS seconds FROM spent WHERE iteration >= 0
        GROUP BY iteration, phase ORDER BY iteration, phase""")
    iterations = list(dict.fromkeys(row["iteration"] for row in split))
    seconds = {(row["phase"], row["iteration"]): value(row["seconds"]) for row in split}
    layers = [
        Series(label=phase, x=iterations, y=[seconds.get((phase, x), 0.0) for x in iterations])
        for phase in sorted({phase for phase, _ in seconds}, key=phase_order)
    ]
    total = sum(value(row["seconds"]) for row in rows) or 1.0
    formats: Formats = {"seconds": tenths, "of which reused": tenths, "share": percent}
    return Section(
        title="Time",
        lines=[f"{tenths(total)} seconds in all; reused stages count with the time they first took."],
        figures=[charts.bars("Seconds per iteration", layers, name="time", label="seconds")] if layers else [],
        tables=[table("Seconds per phase", rows, formats)],
    )
