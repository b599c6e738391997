"""First page of a run's report: what was tried and what came out, the control, curves, samples, limits, provenance."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.config.run import RunConfig
from infuser_core.errors import quantity
from infuser_core.evaluation.anchors import anchor_notes
from infuser_core.evaluation.contamination import stored_sentences
from infuser_core.prompts.templates import render_question
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.numbers import signed
from infuser_core.results.lineage.run_warnings import run_warnings
from infuser_core.results.report import charts, comparison
from infuser_core.results.report.comparison import Contrast
from infuser_core.results.report.content import (
    Formats,
    Query,
    Report,
    ReportSection,
    percent,
    points,
    points_interval,
    table,
    text,
)
from infuser_core.results.report.queries import Builder, ReportRun, differing, filled, literal, rows_by, short
from infuser_core.results.view.run import examples, provenance
from infuser_core.results.view.verdict import Gain, gains
from infuser_core.store import runs as runs_of_store
from infuser_core.store.views import Lens

SAMPLES = {"best": 3, "worst": 2, "malformed": 2}
"""Number of best questions, of worst questions and of malformed texts of an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run and its control, with their measured accuracies and differences."""

    config: RunConfig
    runs: Sequence[ReportRun]
    """The run, and its control if there is one."""
    gains: Sequence[Gain]
    """Of the run, validation first; empty before the first validation."""
    control_gains: Sequence[Gain]
    contrasts: Sequence[Contrast]
    """The run minus its control, on every benchmark that both have."""
    warnings: Sequence[str]
    probes: Sequence[str] = ()
    """Results of contamination probes of the anchor on the run's benchmarks, a sentence each."""

    @property
    def run(self) -> ReportRun:
        return self.runs[0]

    @property
    def control(self) -> ReportRun | None:
        return self.runs[1] if len(self.runs) > 1 else None


def report(
    lens: Lens, run_lens: Lens, runs: Sequence[ReportRun], *, config: RunConfig, details: list[ReportSection]
) -> Report:
    """The report of the first of `runs`, whose control is the second, if any; `run_lens` contains the first alone."""
    root, name = lens.catalogue.root, runs[0].run
    contrasts = []
    if len(runs) > 1:
        against = runs[1].variant if runs[1].variant != runs[0].variant else ""
        contrasts = comparison.contrasts(comparison.read_comparison(lens.query, runs[::-1]), against)
    graph = graph_of(lens.catalogue, name)
    trial = Trial(
        config=config,
        runs=runs,
        gains=gains(run_lens, name),
        control_gains=gains(lens, runs[1].run) if len(runs) > 1 else [],
        contrasts=[row for row in contrasts if row.benchmark != comparison.AUC],
        warnings=[str(warning) for warning in run_warnings(run_lens, name)],
        probes=[
            line
            for anchor in graph.of(Phase.ANCHOR)
            for label in sorted({record.label for record in graph.of(Phase.EVALUATE)})
            for line in stored_sentences(lens.catalogue, anchor.id, label)
        ],
    )
    latest = examples(run_lens, name)
    first = [examples(run_lens, name, 0)] if latest.get("iteration") else []
    record = dict(runs_of_store.read_run_or_empty(root, name))
    facts = provenance(root, graph, record, state_of(root, name))
    builders: tuple[Builder, ...] = (
        lambda _, __: result(trial),
        lambda query, _: curves(query, trial),
        lambda _, __: samples([*first, latest]),
        lambda query, _: limits(query, trial),
        lambda _, __: reproduction(name, facts),
    )
    return Report(
        title=title_of(config, name),
        summary=summary(lens.query, trial),
        front=filled(lens.query, runs, builders),
        sections=details,
    )


def title_of(config: RunConfig, name: str) -> str:
    """The question that the run asks, and its name."""
    cotrain = config.cotrain
    if not cotrain.generator.update or cotrain.dev_only:
        question = "What does a solver learn without a generator that learns?"
    elif cotrain.reward.name == "influence":
        question = "Does it help to reward questions by their influence?"
    else:
        question = f"Does it help to reward questions by {cotrain.reward.name.replace('_', ' ')}?"
    return f"{question} Run {text(name)}"


def summary(query: Query, trial: Trial) -> list[str]:
    """Three sentences: what was tried, what came out, and how the control compares."""
    config, cotrain = trial.config, trial.config.cotrain
    pool = query(f"SELECT count(DISTINCT document_id) AS n FROM documents WHERE run = {literal(trial.run.run)}")[0]["n"]
    reward = f"rewarded by {cotrain.reward.name.replace('_', ' ')}" if cotrain.generator.update else "never updated"
    sentences = [
        f"The solver learned for {quantity(cotrain.iterations, 'iteration')} from questions of a generator that was "
        f"{reward}. "
        f"In each, {cotrain.documents} of {pool:,} documents gave {cotrain.group_size} texts each; both models start "
        f"from {text(trial.run.anchor)}, with seed {config.seed}."
    ]
    if not trial.gains:
        return [*sentences, "No checkpoint is selected yet."]
    accuracies = "; ".join(
        f"{_label(gain)} {percent(gain.before)} to {percent(gain.after)} ({gain.interval})" for gain in trial.gains
    )
    sentences.append(
        f"Accuracy from the anchor to the checkpoint of iteration {trial.gains[0].iteration}: {accuracies}."
    )
    contrasts = [row for row in trial.contrasts if row.phase == Phase.EVALUATE] or trial.contrasts
    if trial.control and contrasts:
        gaps = "; ".join(
            f"{_label(row)} {points(row.difference)} points [{points(row.low)}, {points(row.high)}]"
            for row in contrasts
        )
        changes = ", ".join(f"{leaf}={short(trial.control.leaves.get(leaf))}" for leaf in differing(trial.runs))
        sentences.append(
            f"Compared with its control {text(trial.control.run)} ({changes or 'the same settings'}), on the same "
            f"questions: {gaps}."
        )
    else:
        sentences.append("The store has no control: a run that differs only by a generator that is never updated.")
    return sentences


def _label(row: Gain | Contrast) -> str:
    return text(row.benchmark).replace("_", " ")


def result(trial: Trial) -> ReportSection:
    """Section on the result: accuracies of anchor, selected checkpoint and control, with paired differences."""
    if not trial.gains:
        return ReportSection(title="Result")
    contrasts = {row.benchmark: row for row in trial.contrasts}
    of_control = {gain.benchmark: gain.after for gain in trial.control_gains}
    rows = []
    for gain in trial.gains:
        row: dict[str, Any] = {
            "questions": _label(gain),
            "number": gain.change.questions,
            "anchor": gain.before,
            "selected": gain.after,
            "change, points": gain.change.value,
            "95% of the change": (gain.change.low, gain.change.high),
        }
        if trial.control:
            gap = contrasts.get(gain.benchmark)
            row["control"] = of_control.get(gain.benchmark)
            row["above control, points"] = gap.difference if gap else None
            row["95% over questions"] = (gap.low, gap.high) if gap else (None, None)
        rows.append(row)
    shares = dict.fromkeys(("anchor", "selected", "control"), percent)
    differences = dict.fromkeys(("change, points", "above control, points"), points)
    intervals = dict.fromkeys(("95% of the change", "95% over questions"), points_interval)
    formats: Formats = {**shares, **differences, **intervals}
    tables = [table("Accuracy; differences are paired by question", rows, formats)]
    return ReportSection(title="Result", lines=[*map(text, trial.probes)], tables=tables)


def curves(query: Query, trial: Trial) -> ReportSection:
    """Section with two figures: validation accuracy, and the share of questions with a right key."""
    labels = dict(zip((one.run for one in trial.runs), ("this run", "control"), strict=False))
    names = ", ".join(map(literal, labels))
    statements = (
        (
            "Validation accuracy, with 95% intervals over questions", "front-validation", "accuracy",
            "SELECT run, '' AS part, iteration, avg(accuracy) AS accuracy, avg(low) AS low, avg(high) AS high "
            f"FROM benchmark_scores WHERE phase = 'validate' AND run IN ({names})",
        ),
        (
            "Generated questions whose key is right, with 95% intervals", "front-keys", "share of right keys",
            "SELECT run, 'by ' || told_by AS part, iteration, avg(accuracy) AS accuracy, avg(low) AS low, "
            f"avg(high) AS high FROM key_accuracies WHERE run IN ({names})",
        ),
    )  # fmt: skip
    figures = []
    for title, name, label, statement in statements:
        rows = query(f"{statement} GROUP BY ALL ORDER BY run, part, iteration")
        parts = {row["part"] for row in rows}
        rows = [
            {**row, "line": " ".join([labels[row["run"]], *([row["part"]] if len(parts) > 1 else [])])} for row in rows
        ]
        series = [
            charts.series_of(line, mine, "accuracy", x="iteration", low="low", high="high")
            for line, mine in sorted(rows_by(rows, "line").items(), reverse=True)
        ]
        if series:
            figures.append(charts.lines(title, series, name=name, label=label, share=True))
    return ReportSection(title="Curves", figures=figures)


def samples(iterations: Sequence[Mapping[str, Any]]) -> ReportSection:
    """Section on what the generator wrote, from `view.run.examples` of the first and the latest iteration."""
    rows = [row for sample in iterations for row in _sample_rows(sample)]
    tables = [table("", rows, {"iteration": str, "influence": signed, "right answers": percent})] if rows else []
    return ReportSection(title="What the generator wrote", tables=tables)


def _sample_rows(sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for kind in ("best", "worst"):
        for row in sample.get(kind, ())[: SAMPLES[kind]]:
            yield {
                "text": text(f"{render_question(row['text'], row['choices'] or [])} Key: {row['answer']}"),
                "kind": {"best": "highest influence", "worst": "lowest influence"}[kind],
                "iteration": sample["iteration"],
                "influence": row["score"],
                "right answers": row["solver_accuracy"],
            }
    for row in sample.get("malformed", ())[: SAMPLES["malformed"]]:
        kind = f"no question: {row['malformed_reason'].replace('_', ' ')}"
        yield {
            "text": text(row["text"])[:300],
            "kind": kind,
            "iteration": sample["iteration"],
            "influence": None,
            "right answers": None,
        }


def limits(query: Query, trial: Trial) -> ReportSection:
    """Section on what the numbers do not show: warnings, notes on the model, dev gradients of 0, selection."""
    lines = [*map(text, trial.warnings), *map(text, anchor_notes(trial.config.anchor))]
    zeros = query(
        f"SELECT iteration FROM gradients WHERE run = {literal(trial.run.run)} AND norm = 0 ORDER BY iteration"
    )
    if zeros:
        lines.append(
            f"Dev signal exhausted in {len(zeros)} iterations, first in iteration {zeros[0]['iteration']}: every dev "
            "group had zero variance, so scores are 0 and the generator's update was skipped there."
        )
    if trial.gains:
        lines += [
            "The checkpoint was chosen because it scored best on validation, so that accuracy is optimistic. Judge by "
            "the benchmarks.",
            "Intervals are over questions, of one seed; other seeds may differ by more.",
        ]
    return ReportSection(title="Limits", lines=lines)


def reproduction(name: str, facts: Mapping[str, str]) -> ReportSection:
    """Section on how to check the numbers, and on model, settings, software and hardware of the run."""
    check = f"`infuser status {name} --digest` prints the digest of all results; equal settings give the same digest."
    lines = [f"{label}: {text(value)}" for label, value in facts.items() if label not in ("state", "seed", "begun")]
    return ReportSection(title="Reproduce", lines=[check, *lines])
