"""Report section on the form of responses over training: boxes, marks, length, script."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from infuser_core.config.phase_table import FACTS, Phase, phases
from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics import response_format
from infuser_core.evaluation.statistics.response_format import MEASURES, ResponseForm
from infuser_core.results.report import charts
from infuser_core.results.report.charts import series_of
from infuser_core.results.report.content import (
    Formats,
    Query,
    ReportSection,
    ReportTable,
    Row,
    percent,
    points,
    points_interval,
    table,
    tenths,
)
from infuser_core.results.report.queries import literal, selected_iteration
from infuser_core.store.runs import find_run
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

TITLE = "Habits of the anchor"
ANSWERS = phases(lambda facts: facts.responses)
"""Phases whose responses can be described; the default is the first that the run has."""


def form_of(query: Query, run: str, *, phase: str = "") -> dict[str, Any]:
    """Describe the form of a run's responses. Raises UsageError for a phase without responses in this run.

    `phase` is the phase of the responses, empty if there are none; `at` is the iteration of the checkpoint that is
    compared with the first one: the selected one, or the last.
    """
    phase_name = _phase_of(query, run, phase)
    answers = _answers(query, run, phase_name) if phase_name else {}
    selected = selected_iteration(query, run)
    first, last = min(answers, default=0), max(answers, default=0)
    at = selected if selected in answers and selected != first else last
    return {
        "phase": phase_name,
        "checkpoints": [response_format.checkpoint_form(iteration, rows) for iteration, rows in answers.items()],
        "at": at,
        "changes": response_format.paired_changes(answers[first], answers[at]) if at != first else [],
    }


def format_section(form: Mapping[str, Any]) -> ReportSection:
    """Section on the form of responses: figure, table of checkpoints, table of changes."""
    tables = format_tables(form)
    if not tables:
        return ReportSection(title=TITLE)
    rows = [{"iteration": one["iteration"], **one["shares"]} for one in form["checkpoints"]]
    lines = [series_of(label, rows, name) for name, label in MEASURES.items()]
    caption = "Form of the answers over training"
    figures = [charts.lines(caption, lines, name="habits", label="share of answers", share=True)] if rows else []
    notes = [f"Shares of {FACTS[form['phase']].responses}; iteration 0 is the anchor."] if form["phase"] else []
    return ReportSection(title=TITLE, lines=notes, figures=figures, tables=tables)


def format_tables(form: Mapping[str, Any]) -> list[ReportTable]:
    """Tables of checkpoints and of changes; empty ones are left out."""
    checkpoints = [
        {
            "iteration": one["iteration"],
            "answers": one["responses"],
            "median tokens": one["median_tokens"],
            **{label: one["shares"][name] for name, label in MEASURES.items()},
        }
        for one in form["checkpoints"]
    ]
    at = f"iteration {form['at']}"
    changes = [
        {
            "measure": MEASURES[one["measure"]],
            "anchor": one["before"],
            at: one["after"],
            "change, points": one["difference"]["value"],
            "95% interval": (one["difference"]["low"], one["difference"]["high"]),
            "questions": one["difference"]["questions"],
        }
        for one in form["changes"]
    ]
    shares: Formats = {"median tokens": tenths, **dict.fromkeys(MEASURES.values(), percent)}
    change_formats: Formats = {
        "anchor": percent,
        at: percent,
        "change, points": points,
        "95% interval": points_interval,
    }
    contents: list[tuple[str, Sequence[Row], Formats]] = [
        ("Form of the answers by checkpoint", checkpoints, shares),
        ("What was kept and what was lost", changes, change_formats),
    ]
    return [table(title, rows, formats) for title, rows, formats in contents if rows]


def _phase_of(query: Query, run: str, phase: str) -> str:
    rows = query(f"""
        SELECT phase FROM rollouts WHERE run = {literal(run)}
        UNION SELECT phase FROM benchmark_scores WHERE run = {literal(run)} AND phase = '{Phase.VALIDATE}'""")
    phases_of_run = [phase for phase in ANSWERS if any(row["phase"] == phase for row in rows)]
    if phase and phase not in phases_of_run:
        raise UsageError(
            f"run {run} has no answers of phase {phase}", hint=f"it has {', '.join(phases_of_run) or 'none yet'}"
        )
    return phase or next(iter(phases_of_run), "")


def _answers(query: Query, run: str, phase: str) -> dict[int, list[ResponseForm]]:
    """Form of every answer, by iteration. Only the text from the first box on is read from the database."""
    source = (
        f"""SELECT iteration, question_id, finish_reason, response_tokens, response FROM benchmark_answers
            WHERE run = {literal(run)} AND phase = '{Phase.VALIDATE}'"""
        if phase == Phase.VALIDATE
        else f"""SELECT iteration, group_id, finish_reason, len(token_ids), text FROM rollouts
            WHERE run = {literal(run)} AND phase = {literal(phase)}"""
    )
    rows = query(rf"""
        WITH answers(iteration, question_id, finish_reason, tokens, response) AS (
            {source})
        SELECT iteration, question_id, tokens, finish_reason = 'stop' AS ended,
            NOT regexp_matches(response, '{response_format.MARKS}') AS no_marks,
            NOT regexp_matches(response, '{response_format.ROLES}') AS no_roles,
            NOT regexp_matches(response, '{response_format.THOUGHTS}') AS no_thoughts,
            length(regexp_replace(response, '{response_format.FOREIGN}', '', 'g'))
                >= (1 - {response_format.FOREIGN_SHARE}) * length(response) AND NOT contains(response, chr(65533))
                AS own_script,
            CASE WHEN contains(response, '\boxed') THEN substr(response, strpos(response, '\boxed')) ELSE '' END AS tail
        FROM answers WHERE finish_reason <> 'prompt_too_long' ORDER BY iteration, question_id, tail, tokens""")
    answers: dict[int, list[ResponseForm]] = {}
    for row in rows:
        box = dict(zip(("one_box", "box_last"), response_format.box_form(row["tail"]), strict=True))
        answers.setdefault(row["iteration"], []).append({**row, **box})
    return answers


def run_response_format(root: Path, name: str | None, *, phase: str) -> tuple[str, dict[str, Any]]:
    """Find a run, and describe the form of its responses; returns its full name and the description."""
    run = find_run(root, name)
    with closing(Lens(Store(root), runs=[run])) as lens:
        return run, form_of(lens.query, run, phase=phase)
