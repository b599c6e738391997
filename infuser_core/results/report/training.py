"""Report sections on training, by variant: validation, influence, generator quality, updates, topics, budget, time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from infuser_core.evaluation.statistics.correlation import fit_lengths
from infuser_core.results.report import charts
from infuser_core.results.report.charts import column, series_of
from infuser_core.results.report.content import (
    Formats,
    Query,
    ReportSection,
    number,
    percent,
    small,
    table,
    tenths,
    text,
)
from infuser_core.results.report.queries import (
    BAND,
    ReportRun,
    band_section,
    bands,
    bar_chart,
    by_variant,
    rows_by,
    spread,
)

SCORE = """    SELECT c.variant, '' AS part, s.run, s.iteration,
        avg(s.score) FILTER (WHERE s.status = 'scored' AND isfinite(s.score)) AS value,
        avg((s.status = 'scored')::INT) AS scored, avg((s.status = 'zero_variance')::INT) AS "all samples alike",
        avg((s.status = 'not_probed')::INT) AS "not probed",
        avg((s.status = 'no_dev_signal')::INT) AS "no dev gradient",
        avg(s.solver_accuracy) FILTER (WHERE isfinite(s.solver_accuracy)) AS "solver accuracy",
        max(s.reference_norm) FILTER (WHERE isfinite(s.reference_norm)) AS "norm of dev gradient"
    FROM scores s JOIN chosen c ON c.run = s.run GROUP BY ALL"""
ENDS = 5
"""Number of updates averaged at the start and the end of a frozen-solver run (paper: influence diagnostics)."""
SHOWN = 8
"""Most topics, textbooks or phases with bars."""


def validation(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on validation accuracy, with its spread over seeds and intervals over questions."""
    per_run = """    SELECT c.variant, '' AS part, b.run, b.iteration, avg(b.accuracy) AS value,
        avg(b.low) AS "95% from", avg(b.high) AS "95% to"
    FROM benchmark_scores b JOIN chosen c ON c.run = b.run WHERE b.phase = 'validate' GROUP BY ALL"""
    return band_section(
        query, runs, per_run, title="Validation accuracy", name="validation", label="accuracy", share=True,
        extra=dict.fromkeys(("95% from", "95% to"), percent),
        lines=["Iteration 0 is the anchor, before any update. The 95% intervals are over questions."],
    )  # fmt: skip


def influence(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on mean influence per iteration, the share of questions that could be scored, and the dev gradient."""
    shares = ("scored", "all samples alike", "not probed", "no dev gradient", "solver accuracy")
    return band_section(
        query, runs, SCORE, title="Influence", name="influence", label="mean influence score",
        extra={**dict.fromkeys(shares, percent), "norm of dev gradient": small},
        lines=["Influence is the cosine between a question's update and the dev gradient."],
    )  # fmt: skip


def responses(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on the length of responses by phase, and how they ended."""
    per_run = """    SELECT c.variant, r.phase AS part, r.run, r.iteration, avg(len(r.token_ids)) AS value,
        avg((r.finish_reason = 'length')::INT) AS "cut off", avg((r.verdict = 'no_answer')::INT) AS "no answer",
        avg((r.verdict = 'unverified')::INT) AS unverified, avg(r.reward) FILTER (WHERE r.role = 'solver') AS reward
    FROM rollouts r JOIN chosen c ON c.run = r.run GROUP BY ALL"""
    return band_section(
        query, runs, per_run, title="Response length", name="lengths", label="tokens", part="phase",
        extra={**dict.fromkeys(("cut off", "no answer", "unverified"), percent), "reward": small},
    )  # fmt: skip


def validity(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on generator quality: shares of valid questions, right keys and copies; why rollouts are no questions."""
    per_run = """    SELECT c.variant, 'valid questions' AS part, r.run, r.iteration,
        avg((r.malformed_reason = '')::INT) AS value, NULL AS "95% from", NULL AS "95% to"
    FROM rollouts r JOIN chosen c ON c.run = r.run WHERE r.role = 'generator' GROUP BY ALL
    UNION ALL
    SELECT c.variant, 'right keys, by ' || k.told_by, k.run, k.iteration, k.accuracy, k.low, k.high
    FROM key_accuracies k JOIN chosen c ON c.run = k.run
    UNION ALL
    SELECT c.variant, 'copies of earlier questions', g.run, g.iteration, g.copies, NULL, NULL
    FROM question_gauges g JOIN chosen c ON c.run = g.run"""
    section = band_section(
        query, runs, per_run, title="Generator quality", name="quality", label="share", share=True, part="measure",
        extra=dict.fromkeys(("95% from", "95% to"), percent),
    )  # fmt: skip
    sql = """
SELECT c.variant, r.malformed_reason AS reason, count(*) AS rollouts, min(r.iteration) AS "first iteration",
    max(r.iteration) AS "last iteration"
FROM rollouts r JOIN chosen c ON c.run = r.run WHERE r.role = 'generator' AND r.malformed_reason <> ''
GROUP BY ALL ORDER BY rollouts DESC, reason"""
    reasons = by_variant(query, runs, sql)
    return replace(section, tables=[*section.tables, *([table(REASONS, reasons)] if reasons else [])])


def drift(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on the variety of the generated questions, and on their drift from the first three iterations."""
    per_run = """    SELECT c.variant, '' AS part, g.run, g.iteration, g.topics AS value, g.characters,
        g.topics_change AS "topics x", g.characters_change AS "length x", g.valid_change AS "valid x"
    FROM question_gauges g JOIN chosen c ON c.run = g.run"""
    return band_section(
        query, runs, per_run, title="Drift of the questions", name="drift", label="effective number of topics",
        extra={"characters": tenths, **dict.fromkeys(("topics x", "length x", "valid x"), small)},
        lines=["The effective number is exp(entropy) of the questions over topics (the labeller's, else domains, else "
               "documents). Columns with x are relative to the first three iterations."],
    )  # fmt: skip


REASONS = "Why rollouts were no questions"


def updates(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on the health of optimizer steps: gradient norm, entropy, KL, clipping, skipped groups."""
    fine = partial(number, digits=4)
    sections = [
        band_section(
            query, runs, STEPS.replace("{value}", value), title="Updates" if label == "gradient norm" else label,
            name=f"updates-{place}" if place else "updates", label=label, part="role", share=share,
            extra={"steps": small, "clipped": percent, "mean ratio": fine, "mean TIS weight": fine,
                    "KL to sampler": fine, "entropy": fine, "cut at the limit": percent,
                    "groups without variance": percent, "below epsilon": percent, "skipped": small},
        )
        for place, (label, value, share) in enumerate(WATCHED)
    ]  # fmt: skip
    sql = """
SELECT c.variant, n.phase, n.quantity, count(*) AS groups, min(n.iteration) AS "first iteration",
    max(n.iteration) AS "last iteration"
FROM not_finite n JOIN chosen c ON c.run = n.run GROUP BY ALL ORDER BY groups DESC, n.phase"""
    reasons = by_variant(query, runs, sql)
    figures = [figure for section in sections for figure in section.figures]
    return replace(
        sections[0], figures=figures, tables=[*sections[0].tables, *([table(NOT_FINITE, reasons)] if reasons else [])]
    )


STEPS = """    SELECT c.variant, u.role AS part, u.run, u.iteration, {value} AS value,
        count(*) AS steps, avg(u.clip_fraction) AS clipped, avg(u.mean_ratio) AS "mean ratio",
        avg(u.mean_tis) AS "mean TIS weight", avg(u.sampler_kl) AS "KL to sampler", avg(u.entropy) AS entropy,
        sum(u.cut) / sum(u.num_responses) AS "cut at the limit", avg(u.flat_share) AS "groups without variance",
        avg(u.below_epsilon) AS "below epsilon", sum(u.skipped::INT) AS skipped
    FROM updates u JOIN chosen c ON c.run = u.run GROUP BY ALL"""
WATCHED = (
    ("gradient norm", "avg(u.gradient_norm)", False),
    ("entropy per token, nats", "avg(u.entropy)", False),
    ("KL between sampler and trainer per token, nats", "avg(u.sampler_kl)", False),
    ("clipped tokens", "avg(u.clip_fraction)", True),
    ("groups without variance", "avg(u.flat_share)", True),
)
"""Curves on updates: label, SQL of the value, whether it is a share."""
NOT_FINITE = "Groups left out because one of their numbers is not finite"


def frozen(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on runs with a frozen solver: their score can only rise because the generator improves its reward."""
    title = "Frozen-solver control"
    still = [one for one in runs if one.leaves.get("cotrain.solver.update") is False]
    lines = bands(spread(query, still, SCORE)) if still else []
    if not lines:
        return ReportSection(title=title)
    ends = [
        {
            "variant": one.label,
            "updates": len(one.y),
            f"first {ENDS}": fmean(one.y[:ENDS]),
            f"last {ENDS}": fmean(one.y[-ENDS:]),
            "rise": f"{fmean(one.y[-ENDS:]) - fmean(one.y[:ENDS]):+.3g}",
        }
        for one in lines
    ]
    figure = charts.lines(
        "Mean influence with a solver that is not updated", lines, name="frozen", label="mean influence score",
        xlabel="generator updates",
    )  # fmt: skip
    ends_table = table(
        "Mean influence at the start and at the end", ends, {f"first {ENDS}": small, f"last {ENDS}": small}
    )
    return ReportSection(title=title, figures=[figure], tables=[ends_table])


def topics(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on generated questions by topic: share and mean influence."""
    return _shares(
        query, runs, title="Topics and their influence", by="topic", name="shares-topic",
        label="coalesce(l.topic, nullif(trim(q.subdomain), ''), 'unknown')",
        joins="LEFT JOIN question_labels l ON l.run = q.run AND l.iteration = q.iteration "
        "AND l.question_id = q.question_id",
    )  # fmt: skip


def textbooks(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on generated questions by the textbook of their document: share and mean influence."""
    return _shares(
        query, runs, title="Textbooks and their influence", by="textbook", name="shares-source",
        label="coalesce(t.title, nullif(trim(d.source_id), ''), 'unknown')",
        joins="LEFT JOIN documents d ON d.run = q.run AND d.document_id = q.document_id\n"
        "    LEFT JOIN (SELECT run, source_id, any_value(title) AS title FROM sources\n"
        "        WHERE status = 'admitted' GROUP BY ALL) t ON t.run = q.run AND t.source_id = d.source_id",
    )  # fmt: skip


def _shares(
    query: Query, runs: Sequence[ReportRun], *, title: str, by: str, name: str, label: str, joins: str
) -> ReportSection:
    sql = f""",
asked AS (
    SELECT c.variant, {label} AS {by}, s.score, s.status,
        q.iteration = min(q.iteration) OVER (PARTITION BY c.variant) AS at_first,
        q.iteration = max(q.iteration) OVER (PARTITION BY c.variant) AS at_last
    FROM questions q JOIN chosen c ON c.run = q.run
    {joins}
    LEFT JOIN scores s ON s.run = q.run AND s.iteration = q.iteration AND s.question_id = q.question_id)
SELECT variant, {by}, count(*) AS questions, count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share,
    sum(at_first::INT) / sum(sum(at_first::INT)) OVER (PARTITION BY variant) AS "share at first",
    sum(at_last::INT) / sum(sum(at_last::INT)) OVER (PARTITION BY variant) AS "share at last",
    avg(score) FILTER (WHERE status = 'scored' AND isfinite(score)) AS "mean influence"
FROM asked GROUP BY variant, {by} ORDER BY questions DESC, {by}, variant"""
    rows = by_variant(query, runs, sql)
    if not rows:
        return ReportSection(title=title)
    names = list(dict.fromkeys(text(row[by]) for row in sorted(rows, key=lambda row: -row["questions"])))
    caption = f"Share of the generated questions by {by}, all iterations"
    figure = bar_chart(caption, rows, by, names[:SHOWN], y="share", name=name, label="share of questions", share=True)
    lines = [f"The figure shows the {SHOWN} most frequent; the table has all {len(names)}."]
    formats = {**dict.fromkeys(("share", "share at first", "share at last"), percent), "mean influence": small}
    return ReportSection(
        title=title,
        lines=lines if len(names) > SHOWN else [],
        figures=[figure],
        tables=[table(f"Questions by {by}", rows, formats)],
    )


def budget(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on an adaptive budget: shares of documents by arm, and the mean influence that they follow."""
    title = "Budget of documents"
    per_run = """    SELECT c.variant, a.arm AS part, a.run, a.iteration, avg(a.share) AS value
    FROM allocations a JOIN chosen c ON c.run = a.run GROUP BY ALL"""
    rows = spread(query, runs, per_run)
    if not rows:
        return ReportSection(title=title)
    caption = "Share of the iteration's documents by arm"
    figure = charts.lines(caption, bands(rows), name="budget", label="share of documents", share=True)
    sql = """,
titles AS (
    SELECT run, source_id, any_value(title) AS title FROM sources WHERE status = 'admitted' GROUP BY ALL)
SELECT c.variant, a.arm, any_value(t.title) AS title, sum(a.count)::BIGINT AS "documents drawn",
    sum(a.count) / sum(sum(a.count)) OVER (PARTITION BY c.variant) AS share,
    arg_min(a.share, a.iteration) AS "share at first", arg_max(a.share, a.iteration) AS "share at last",
    arg_max(a.mean, a.iteration) AS "mean influence"
FROM allocations a JOIN chosen c ON c.run = a.run
    LEFT JOIN titles t ON t.run = a.run AND t.source_id = a.arm
GROUP BY c.variant, a.arm ORDER BY c.variant, "documents drawn" DESC, a.arm"""
    arms = by_variant(query, runs, sql)
    formats: Formats = {**dict.fromkeys(("share", "share at first", "share at last"), percent), "title": text}
    formats = {**formats, "mean influence": small}
    tables = [table("Arms over all iterations", arms, formats)]
    return ReportSection(title=title, lines=[BAND], figures=[figure], tables=tables)


def length_accuracy(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on accuracy against response length, one point per validated checkpoint, with a logarithmic fit."""
    title = "Length against accuracy"
    sql = """
SELECT c.variant, b.run, b.iteration, avg(b.mean_response_tokens) AS "tokens per answer", avg(b.accuracy) AS accuracy
FROM benchmark_scores b JOIN chosen c ON c.run = b.run
WHERE b.phase = 'validate' AND b.mean_response_tokens > 0 GROUP BY ALL ORDER BY ALL"""
    rows = by_variant(query, runs, sql)
    if not rows:
        return ReportSection(title=title)
    fit = fit_lengths(column(rows, "tokens per answer"), column(rows, "accuracy"))
    by_variants = rows_by(rows, "variant").items()
    dots = [series_of(variant, mine, "accuracy", x="tokens per answer") for variant, mine in by_variants]
    line = f"{fit['points']} checkpoints. {fit['reason'].capitalize()}." if fit["reason"] else ""
    if fit["pearson"] is not None:
        line = (
            f"accuracy = {fit['intercept']:.3f} {fit['slope']:+.3f} ln(tokens) over {fit['points']} checkpoints; "
            f"Pearson's r = {fit['pearson']:.3f} [{fit['low']:.3f}, {fit['high']:.3f}]"
            f"{' (' + fit['reason'] + ')' if fit['reason'] else ''}. "
            "Checkpoints of one run are not independent of each other."
        )
    figure = charts.points(
        "Validation accuracy against mean response length, one point per checkpoint", dots, name="length-accuracy",
        label="validation accuracy", xlabel="mean tokens per answer", share=True,
        fit=(fit["intercept"], fit["slope"]) if fit["slope"] else None,
    )  # fmt: skip
    checkpoints = table("Validated checkpoints", rows, {"tokens per answer": tenths, "accuracy": percent})
    return ReportSection(title=title, lines=[line], figures=[figure], tables=[checkpoints])


def durations(query: Query, runs: Sequence[ReportRun]) -> ReportSection:
    """Section on seconds per phase, averaged over the runs of a variant; a reused stage counts its original time."""
    title = "Wall-clock by phase"
    sql = """,
per_run AS (
    SELECT c.variant, a.run, a.phase, sum(coalesce(m.seconds, a.seconds)) AS seconds, count(*) AS stages,
        coalesce(sum(coalesce(m.seconds, a.seconds)) FILTER (WHERE a.state = 'cached'), 0) AS reused
    FROM run_artifacts a JOIN chosen c ON c.run = a.run LEFT JOIN artifacts m ON m.artifact_key = a.artifact_key
    GROUP BY ALL)
SELECT variant, phase, count(*) AS runs, avg(stages) AS "stages per run", avg(seconds) AS "seconds per run",
    avg(reused) AS "of which reused"
FROM per_run GROUP BY variant, phase ORDER BY variant, "seconds per run" DESC, phase"""
    rows = by_variant(query, runs, sql)
    if not rows:
        return ReportSection(title=title)
    names = list(dict.fromkeys(text(row["phase"]) for row in sorted(rows, key=lambda row: -row["seconds per run"])))
    caption = "Seconds per run by phase, mean over seeds; a reused stage counts with the time that it first took"
    label = "seconds per run"
    figure = bar_chart(caption, rows, "phase", names[:SHOWN], y=label, name="durations", label=label)
    formats = dict.fromkeys(("stages per run", label, "of which reused"), tenths)
    tables = [table("Seconds per phase", rows, formats)]
    if passes := by_variant(query, runs, PASSES):
        shares = dict.fromkeys(("MFU", "idle"), percent)
        tables.append(table("Passes of the trainer", passes, {**shares, "tokens/s": tenths, "FLOP/s": small}))
    return ReportSection(title=title, figures=[figure], tables=tables)


PASSES = """
SELECT c.variant, s.role, s.work, s.device, count(*) AS passes, sum(s.computed_tokens) / sum(s.seconds) AS "tokens/s",
    sum(s.flops) / sum(s.seconds) AS "FLOP/s", sum(s.mfu * s.seconds) / sum(s.seconds) AS MFU,
    sum(s.idle_share * s.seconds) / sum(s.seconds) AS idle, max(s.peak_memory) AS "peak memory, GB"
FROM step_costs s JOIN chosen c ON c.run = s.run GROUP BY ALL ORDER BY ALL"""
