"""Explanation by `infuser why` of a whole run: what was run, what came out, and where to look next."""

from collections.abc import Mapping
from typing import Any

from infuser_core.config.phase_table import Phase
from infuser_core.errors import quantity
from infuser_core.results.lineage.attempts import state_of
from infuser_core.results.lineage.outcome import result
from infuser_core.results.lineage.run_view import RunView
from infuser_core.results.lineage.run_warnings import RunWarning
from infuser_core.results.lineage.story import Passage, Story, table_passage
from infuser_core.schemas import ScoreStatus
from infuser_core.store import runs
from infuser_core.store.views import Rows

_ENDS = 3
"""Number of best and of worst questions that are listed."""


def run_story(view: RunView) -> Story:
    """Explain a run by its settings, its result, its warnings, and its questions of high and low influence."""
    root, run = view.graph.catalogue.root, view.graph.run
    record, outcome = runs.read_run_or_empty(root, run), result(root, run)
    config = record.get("config", {})
    cotrain = config.get("cotrain", {})
    facts = {
        "state": state_of(root, run),
        "variant": config.get("variant"),
        "iterations": cotrain.get("iterations"),
        "documents per iteration": cotrain.get("documents"),
        "reward": cotrain.get("reward", {}).get("name"),
        "seed": config.get("seed"),
        "created": record.get("created"),
        "origin": runs.describe_origin(root, run) or None,
    }
    scores = [{"benchmark": label, **row} for label, row in outcome["benchmarks"].items()]
    warnings = [str(RunWarning(**warning)) for warning in outcome["warnings"]]
    rows = _scored_questions(view)
    best, worst = rows[:_ENDS], rows[::-1][:_ENDS]
    passages = [
        Passage(name="run", title="What was run", facts={name: value for name, value in facts.items() if value}),
        Passage(name="result", title="What came out", rows=scores, note="" if scores else "no benchmark result yet"),
        Passage(name="warnings", title="Warnings", note="\n  ".join(warnings)),
        table_passage("best", "Questions of the highest influence", best),
        table_passage("worst", "Questions of the lowest influence", worst),
        Passage(name="next", title="Look further", rows=_commands(run, outcome["selected_iteration"], best)),
    ]
    passages = [passage for passage in passages if passage.rows or passage.facts or passage.note]
    return view.story("run", run, _headline(outcome), passages)


def _headline(outcome: Mapping[str, Any]) -> str:
    selected = outcome["selected_iteration"]
    if selected is None:
        return "no checkpoint is selected yet"
    changes = [f"{label} {row['anchor']:.3f} -> {row['selected']:.3f}" for label, row in outcome["benchmarks"].items()]
    checkpoint = f"the checkpoint after {quantity(selected, 'iteration')}"
    return f"{', '.join(changes) or 'no benchmark'}, from the anchor to {checkpoint}"


def _scored_questions(view: RunView) -> Rows:
    """Questions with an influence score, the highest first; the texts of the first and the last ones."""
    records = {record.key: record.iteration for record in view.graph.of(Phase.SCORE_INFLUENCE)}
    scores = view.rows(
        "scores",
        "question_id",
        "score",
        "solver_accuracy",
        of=[view.graph.records[key] for key in records],
        status=ScoreStatus.SCORED.value,
    )
    rows = [{"iteration": records[row.pop("artifact_key")], **row} for row in scores]
    rows.sort(key=lambda row: -row["score"])
    names = [row["question_id"] for row in [*rows[:_ENDS], *rows[-_ENDS:]]]
    questions = view.rows("questions", "question_id", "text", question_id=names)
    texts = {row["question_id"]: row["text"] for row in questions}
    return [{"text": texts.get(row["question_id"]), **row} for row in rows]


def _commands(run: str, selected: int | None, best: Rows) -> Rows:
    commands = [f"infuser why {row['question_id']}" for row in best[:1]]
    commands += [] if selected is None else [f"infuser why {run}@{selected}"]
    return [{"command": command} for command in [*commands, f"infuser status {run}", f"infuser report {run}"]]
