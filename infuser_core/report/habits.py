"""Report section on the form of answers and generator replies over training."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.report import figures
from infuser_core.report.content import Figure, Query, Section, Table, number, percent, text
from infuser_core.report.figures import Series
from infuser_core.report.queries import Row, literal, selected_iteration
from infuser_core.statistics import habits as statistic
from infuser_core.statistics.habits import MEASURES, Change, Manners, Retained
from infuser_core.store.runs import Journal, find_run
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

TITLE = "Habits of the anchor"
ANSWERS = {
    "validate": "answers to the validation set",
    "rollout_dev": "answers to the dev set, before each update",
    "rollout_questions": "answers to generated questions",
}
"""Phases whose responses can be looked at; the first that a run has is taken."""
_REPLIES = {"valid": "valid questions", "json": "a JSON object", "fields": "all fields", "ended": "end by themselves"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What was found in the responses of a run."""

    phase: str
    """Phase whose answers were looked at; empty where there are none."""
    checkpoints: list[Retained]
    """Answers, checkpoint by checkpoint."""
    at: int
    """Iteration of the checkpoint that the first one is compared with: the selected one, or the last."""
    changes: list[Change]
    """From the first checkpoint to that one; none where they share no question."""
    replies: list[Row]
    """Generator replies per iteration: number, shares of `_REPLIES`, and median tokens."""
    inside: list[Row]
    """Responses with a special token before their end, per phase and iteration; none where no token is known."""


def look(query: Query, run: str, *, phase: str = "", specials: Sequence[int] = ()) -> Habits:
    """Everything about the form of a run's responses. Raises UsageError for a phase that it has no answers of.

    `specials` are ids of the tokenizer's special tokens: decoded text never shows them.
    """
    chosen = _chosen(query, run, phase)
    found = _answers(query, run, chosen) if chosen else {}
    selected = selected_iteration(query, run)
    first, last = min(found, default=0), max(found, default=0)
    at = selected if selected in found and selected != first else last
    return Habits(
        phase=chosen,
        checkpoints=[statistic.retained(iteration, rows) for iteration, rows in found.items()],
        at=at,
        changes=statistic.changes(found[first], found[at]) if at != first else [],
        replies=_generator(query, run),
        inside=_inside(query, run, specials) if specials else [],
    )


def section(found: Habits) -> Section:
    """The habits as a section: figure, checkpoints, changes, generator replies."""
    tables = [*_checkpoints(found), *_changes(found), *_generator_table(found), *_inside_table(found)]
    if not tables:
        return Section(title=TITLE, lines=["No answers and no generator replies in this run."])
    lines = [f"Shares of {ANSWERS[found.phase]}; iteration 0 is the anchor."] if found.phase else []
    series = [
        Series(
            label=label,
            x=[one.iteration for one in found.checkpoints],
            y=[round(one.shares[name], 9) for one in found.checkpoints],
        )
        for name, label in MEASURES.items()
    ]
    drawing = figures.lines(series, name="habits", label="share of answers", share=True)
    shown = [Figure(title="Form of the answers over training", drawing=drawing)] if found.checkpoints else []
    return Section(title=TITLE, lines=lines, figures=shown, tables=tables)


def _chosen(query: Query, run: str, wanted: str) -> str:
    rows = query(f"""
        SELECT phase FROM rollouts WHERE run = {literal(run)} AND phase LIKE 'rollout%'
        UNION SELECT phase FROM benchmark_scores WHERE run = {literal(run)} AND phase = 'validate' ORDER BY phase""")
    there = [phase for phase in ANSWERS if any(row["phase"] == phase for row in rows)]
    if wanted and wanted not in there:
        raise UsageError(f"run {run} has no answers of phase {wanted}", hint=f"it has {', '.join(there) or 'none yet'}")
    return wanted or next(iter(there), "")


def _answers(query: Query, run: str, phase: str) -> dict[int, list[Manners]]:
    """Answers by iteration. The text stays in the database: what comes out begins at the first box."""
    found = (
        f"""SELECT iteration, question_id, finish_reason, response_tokens, response FROM benchmark_answers
            WHERE run = {literal(run)} AND phase = 'validate'"""
        if phase == "validate"
        else f"""SELECT iteration, group_id, finish_reason, len(token_ids), text FROM rollouts
            WHERE run = {literal(run)} AND phase = {literal(phase)}"""
    )
    rows = query(rf"""
        WITH answers(iteration, question_id, finish_reason, tokens, response) AS (
            {found})
        SELECT iteration, question_id, tokens, finish_reason = 'stop' AS ended,
            NOT regexp_matches(response, '{statistic.MARKS}') AS no_marks,
            NOT regexp_matches(response, '{statistic.ROLES}') AS no_roles,
            NOT regexp_matches(response, '{statistic.THOUGHTS}') AS no_thoughts,
            length(regexp_replace(response, '{statistic.FOREIGN}', '', 'g'))
                >= (1 - {statistic.FOREIGN_SHARE}) * length(response) AND NOT contains(response, chr(65533))
                AS own_script,
            CASE WHEN contains(response, '\boxed') THEN substr(response, strpos(response, '\boxed')) ELSE '' END AS tail
        FROM answers WHERE finish_reason <> 'prompt_too_long' ORDER BY iteration, question_id, tail, tokens""")
    answers: dict[int, list[Manners]] = {}
    for row in rows:
        answers.setdefault(_whole(row["iteration"]), []).append(_manners(row))
    return answers


def _manners(row: Row) -> Manners:
    box = statistic.boxing(str(row["tail"]))
    told = {name: bool(row[name]) for name in MEASURES if name in row}
    return Manners(
        question_id=str(row["question_id"]),
        tokens=_whole(row["tokens"]),
        holds={**told, "one_box": box.single, "box_last": box.final},
    )


def _generator(query: Query, run: str) -> list[Row]:
    no_json = ", ".join(literal(reason) for reason in statistic.NO_JSON)
    return query(f"""
        SELECT iteration, count(*) AS replies, avg((malformed_reason = '')::INT) AS valid,
            avg((malformed_reason NOT IN ({no_json}))::INT) AS json,
            avg((malformed_reason NOT IN ({no_json}, {literal(statistic.NO_FIELDS)}))::INT) AS fields,
            avg((finish_reason = 'stop')::INT) AS ended, median(len(token_ids)) AS tokens
        FROM rollouts WHERE run = {literal(run)} AND role = 'generator' GROUP BY iteration ORDER BY iteration""")


def _inside(query: Query, run: str, specials: Sequence[int]) -> list[Row]:
    listed = ", ".join(str(token) for token in sorted(specials))
    return query(f"""
        SELECT phase, iteration, count(*) AS responses,
            avg(list_has_any(token_ids[1:greatest(len(token_ids) - 1, 0)], [{listed}])::INT) AS special
        FROM rollouts WHERE run = {literal(run)} GROUP BY phase, iteration HAVING special > 0
        ORDER BY phase, iteration""")


def _checkpoints(found: Habits) -> list[Table]:
    cells = [
        [number(one.iteration), number(one.responses), number(one.median_tokens, 1)]
        + [percent(one.shares[name]) for name in MEASURES]
        for one in found.checkpoints
    ]
    columns = ["iteration", "answers", "median tokens", *MEASURES.values()]
    return [Table(title="Form of the answers by checkpoint", columns=columns, rows=cells)] if cells else []


def _changes(found: Habits) -> list[Table]:
    cells = [
        [
            MEASURES[one.measure],
            percent(one.before),
            percent(one.after),
            f"{100 * one.difference.value:+.1f}",
            f"{100 * one.difference.low:+.1f} to {100 * one.difference.high:+.1f}",
            number(one.difference.questions),
        ]
        for one in found.changes
    ]
    columns = ["measure", "anchor", f"iteration {found.at}", "change, points", "95% interval", "questions"]
    return [Table(title="What was kept and what was lost", columns=columns, rows=cells)] if cells else []


def _generator_table(found: Habits) -> list[Table]:
    cells = [
        [number(row["iteration"]), number(row["replies"]), number(row["tokens"], 1)]
        + [percent(row[name]) for name in _REPLIES]
        for row in found.replies
    ]
    columns = ["iteration", "replies", "median tokens", *_REPLIES.values()]
    return [Table(title="Form of the generator's replies", columns=columns, rows=cells)] if cells else []


def _inside_table(found: Habits) -> list[Table]:
    cells = [
        [text(row["phase"]), number(row["iteration"]), number(row["responses"]), percent(row["special"])]
        for row in found.inside
    ]
    columns = ["phase", "iteration", "responses", "with a special token inside"]
    return [Table(title="Special tokens before the end of a response", columns=columns, rows=cells)] if cells else []


def _whole(value: object) -> int:
    assert isinstance(value, int), value
    return value


def special_tokens(root: Path, run: str) -> list[int]:
    """Ids of the special tokens of the run's anchor; none where it has no tokenizer file that names them."""
    keys = [entry.key for entry in Journal(root, run).latest() if entry.phase == "anchor"]
    path = Store(root).folder("anchor", keys[-1]) / "tokenizer.json" if keys else Path()
    if not keys or not path.is_file():
        return []
    added = json.loads(path.read_text(encoding="utf-8")).get("added_tokens", [])
    return sorted(int(token["id"]) for token in added if token.get("special"))


def habits(root: Path, name: str | None, *, phase: str) -> dict[str, Any]:
    """The habits of one run as JSON values."""
    run = find_run(root, name)
    lens = Lens(Store(root), runs=[run])
    try:
        found = look(lens.query, run, phase=phase, specials=special_tokens(root, run))
    finally:
        lens.close()
    return {"run": run, **asdict(found)}


def tables(found: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The same as rows for a terminal: checkpoints, changes, generator replies, special tokens."""
    checkpoints = [
        {name: row[name] for name in ("iteration", "responses", "median_tokens")} | row["shares"]
        for row in found["checkpoints"]
    ]
    changes = [
        {"measure": row["measure"], "before": row["before"], "after": row["after"]}
        | {"change": row["difference"]["value"], "low": row["difference"]["low"], "high": row["difference"]["high"]}
        for row in found["changes"]
    ]
    return [rows for rows in (checkpoints, changes, found["replies"], found["inside"]) if rows]
