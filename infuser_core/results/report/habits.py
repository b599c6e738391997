"""Report section on the form of answers over training."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from infuser_core.config.phase_table import FACTS, Phase, phases
from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics import response_form
from infuser_core.evaluation.statistics.response_form import MEASURES, ResponseForm
from infuser_core.results.report import charts
from infuser_core.results.report.charts import series_of
from infuser_core.results.report.content import (
    Formats,
    Query,
    Row,
    Section,
    Table,
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
"""Phases whose responses can be looked at; the first that a run has is taken."""


def form_of(query: Query, run: str, *, phase: str = "") -> dict[str, Any]:
    """Everything about the form of a run's responses. Raises UsageError for a phase that it has no answers of.

    `phase` is the one whose answers were looked at, empty where there are none; `at` the iteration of the checkpoint
    that the first one is compared with, the selected one or the last.
    """
    chosen = _chosen(query, run, phase)
    found = _answers(query, run, chosen) if chosen else {}
    selected = selected_iteration(query, run)
    first, last = min(found, default=0), max(found, default=0)
    at = selected if selected in found and selected != first else last
    return {
        "phase": chosen,
        "checkpoints": [response_form.checkpoint_form(iteration, rows) for iteration, rows in found.items()],
        "at": at,
        "changes": response_form.paired_changes(found[first], found[at]) if at != first else [],
    }


def section(found: Mapping[str, Any]) -> Section:
    """The habits as a section: figure, checkpoints, changes."""
    tables = tables_of(found)
    if not tables:
        return Section(title=TITLE)
    rows = [{"iteration": one["iteration"], **one["shares"]} for one in found["checkpoints"]]
    lines = [series_of(label, rows, name) for name, label in MEASURES.items()]
    caption = "Form of the answers over training"
    drawn = [charts.lines(caption, lines, name="habits", label="share of answers", share=True)] if rows else []
    said = [f"Shares of {FACTS[found['phase']].responses}; iteration 0 is the anchor."] if found["phase"] else []
    return Section(title=TITLE, lines=said, figures=drawn, tables=tables)


def tables_of(found: Mapping[str, Any]) -> list[Table]:
    """Checkpoints and changes: those of which there are any."""
    checkpoints = [
        {
            "iteration": one["iteration"],
            "answers": one["responses"],
            "median tokens": one["median_tokens"],
            **{label: one["shares"][name] for name, label in MEASURES.items()},
        }
        for one in found["checkpoints"]
    ]
    at = f"iteration {found['at']}"
    changes = [
        {
            "measure": MEASURES[one["measure"]],
            "anchor": one["before"],
            at: one["after"],
            "change, points": one["difference"]["value"],
            "95% interval": (one["difference"]["low"], one["difference"]["high"]),
            "questions": one["difference"]["questions"],
        }
        for one in found["changes"]
    ]
    shares: Formats = {"median tokens": tenths, **dict.fromkeys(MEASURES.values(), percent)}
    moved: Formats = {"anchor": percent, at: percent, "change, points": points, "95% interval": points_interval}
    made: list[tuple[str, Sequence[Row], Formats]] = [
        ("Form of the answers by checkpoint", checkpoints, shares),
        ("What was kept and what was lost", changes, moved),
    ]
    return [table(title, rows, formats) for title, rows, formats in made if rows]


def _chosen(query: Query, run: str, wanted: str) -> str:
    rows = query(f"""
        SELECT phase FROM rollouts WHERE run = {literal(run)}
        UNION SELECT phase FROM benchmark_scores WHERE run = {literal(run)} AND phase = '{Phase.VALIDATE}'""")
    there = [phase for phase in ANSWERS if any(row["phase"] == phase for row in rows)]
    if wanted and wanted not in there:
        raise UsageError(f"run {run} has no answers of phase {wanted}", hint=f"it has {', '.join(there) or 'none yet'}")
    return wanted or next(iter(there), "")


def _answers(query: Query, run: str, phase: str) -> dict[int, list[ResponseForm]]:
    """Answers by iteration. The text stays in the database: what comes out begins at the first box."""
    found = (
        f"""SELECT iteration, question_id, finish_reason, response_tokens, response FROM benchmark_answers
            WHERE run = {literal(run)} AND phase = '{Phase.VALIDATE}'"""
        if phase == Phase.VALIDATE
        else f"""SELECT iteration, group_id, finish_reason, len(token_ids), text FROM rollouts
            WHERE run = {literal(run)} AND phase = {literal(phase)}"""
    )
    rows = query(rf"""
        WITH answers(iteration, question_id, finish_reason, tokens, response) AS (
            {found})
        SELECT iteration, question_id, tokens, finish_reason = 'stop' AS ended,
            NOT regexp_matches(response, '{response_form.MARKS}') AS no_marks,
            NOT regexp_matches(response, '{response_form.ROLES}') AS no_roles,
            NOT regexp_matches(response, '{response_form.THOUGHTS}') AS no_thoughts,
            length(regexp_replace(response, '{response_form.FOREIGN}', '', 'g'))
                >= (1 - {response_form.FOREIGN_SHARE}) * length(response) AND NOT contains(response, chr(65533))
                AS own_script,
            CASE WHEN contains(response, '\boxed') THEN substr(response, strpos(response, '\boxed')) ELSE '' END AS tail
        FROM answers WHERE finish_reason <> 'prompt_too_long' ORDER BY iteration, question_id, tail, tokens""")
    answers: dict[int, list[ResponseForm]] = {}
    for row in rows:
        box = dict(zip(("one_box", "box_last"), response_form.box_form(row["tail"]), strict=True))
        answers.setdefault(row["iteration"], []).append({**row, **box})
    return answers


def habits(root: Path, name: str | None, *, phase: str) -> tuple[str, dict[str, Any]]:
    """A run's name, and its habits."""
    run = find_run(root, name)
    with closing(Lens(Store(root), runs=[run])) as lens:
        return run, form_of(lens.query, run, phase=phase)
