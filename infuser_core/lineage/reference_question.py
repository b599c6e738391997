"""Lineage of a dev, validation or benchmark question, with the answers of every checkpoint, and of a benchmark."""

from collections.abc import Sequence
from typing import Any

from infuser_core.config.phase_table import GRADINGS
from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.question import QUESTION
from infuser_core.lineage.run_view import SCORED, RunView, pick, question_of
from infuser_core.store.recipe import Record
from infuser_core.store.views import Rows

SAMPLED = ("rollout_id", "group_id", "sample_index", "checkpoint_id", "verdict", "reward", "finish_reason", "text")
SAVED = ("benchmark", "question_id", "sample_index", "response", "finish_reason", "response_tokens")
JUDGED = ("verdict", "extracted", "reason", "decided_by", "preset")
TALLY = ("question_id", "domain", "num_samples", "num_correct")


def of_benchmark(view: RunView, label: str) -> Answer | None:
    """Explanation of a benchmark's score: both checkpoints, the selection between, and the questions that moved."""
    records = {record.key: record for record in view.graph.of(*GRADINGS)}
    found = view.rows("benchmark_scores", SCORED, "benchmark = ?", label, of=records.values())
    if not found:
        return None
    scores = [{"after_iterations": records[row["artifact_key"]].iteration, **row} for row in found]
    scores.sort(key=lambda row: row["after_iterations"])
    first, last = scores[0], scores[-1]
    headline = (
        f"accuracy {shown(last['accuracy'])} [{shown(last['low'])}, {shown(last['high'])}] after "
        f"{last['after_iterations']} iterations; {shown(first['accuracy'])} after {first['after_iterations']}"
    )
    columns = ("after_iterations", "accuracy", "low", "high", "num_questions", "checkpoint_id", "artifact_key")
    told = [
        Passage(name="scores", title="Scores", rows=[pick(row, columns) for row in scores]),
        _selection(view),
        _moved(view, records[first["artifact_key"]], records[last["artifact_key"]]),
    ]
    return view.answer("benchmark", f"{view.graph.run}/{label}", headline, told)


def _selection(view: RunView) -> Passage:
    chosen = view.selected()
    rows = [pick(row, ("after_iterations", "accuracy", "checkpoint_id")) for row in view.validations()]
    if chosen is None:
        return Passage(name="selection", title="Selection", rows=rows, note="no checkpoint is selected yet")
    return Passage(
        name="selection",
        title="How the checkpoint was chosen: validation accuracies",
        artifact=chosen["artifact_key"],
        facts=pick(chosen, ("selected_iteration", "checkpoint_id", "accuracy")),
        rows=rows,
    )


def _moved(view: RunView, first: Record, last: Record) -> Passage:
    """Questions that the two checkpoints answer differently."""
    before = {row["question_id"]: row for row in view.rows("question_scores", TALLY, of=[first])}
    rows = []
    for row in view.rows("question_scores", TALLY, of=[last]):
        old = before.get(row["question_id"])
        if old is not None and old["num_correct"] != row["num_correct"]:
            rows.append(
                {
                    **pick(row, ("question_id", "domain")),
                    "change": row["num_correct"] / row["num_samples"] - old["num_correct"] / old["num_samples"],
                    "correct_before": old["num_correct"],
                    "correct_after": row["num_correct"],
                    "samples": row["num_samples"],
                }
            )
    rows.sort(key=lambda row: -row["change"])
    won, lost = sum(row["change"] > 0 for row in rows), sum(row["change"] < 0 for row in rows)
    facts = {"questions_won": won, "questions_lost": lost, "questions_compared": len(before)}
    return Passage(name="moved", title="Questions that moved", facts=facts, rows=rows)


def of_reference_question(view: RunView, question_id: str, *, rollout_id: str = "", label: str = "") -> Answer | None:
    """Answers to a dev, validation or benchmark question, by every checkpoint that was asked."""
    tables = ("reference_questions", "asked_questions")
    found = (view.row(table, QUESTION, "question_id = ?", question_id) for table in tables)
    row = next((row for row in found if row is not None), None)
    tests = view.graph.of(*GRADINGS)
    if row is None and not view.rows("question_scores", TALLY, "question_id = ?", question_id, of=tests):
        return None
    rows = _answers(view, question_id, label)
    mine = [answer for answer in rows if answer["rollout_id"] == rollout_id]
    if rollout_id and not mine:
        return None
    right = sum(answer["verdict"] == "correct" for answer in rows)
    headline = f"answered {len(rows)} times in this run, {right} of them right"
    kind = "answer to a given question" if rollout_id else "given question"
    told = [_text(row, question_id), *_own(mine), _dev(view, rows), _by_checkpoint(rows)]
    return view.answer(kind, rollout_id or question_id, headline, told)


def _text(row: dict[str, Any] | None, question_id: str) -> Passage:
    if row is not None:
        return question_of(row, {})
    note = "its text lies in the benchmark's file: the store keeps the answers to it"
    facts = {"question_id": question_id}
    return Passage(name="question", title="The question, with its reference answer", facts=facts, note=note)


def _own(mine: Sequence[dict[str, Any]]) -> list[Passage]:
    return [
        Passage(
            name="answer" if place == len(mine) - 1 else f"answer_{answer['iteration']}",
            title=f"The answer, {answer['phase']}, iteration {answer['iteration']}",
            artifact=answer["artifact_key"],
            facts={name: value for name, value in answer.items() if name not in ("text", "artifact_key")},
            texts={"text": answer["text"]},
        )
        for place, answer in enumerate(mine)
    ]


def _dev(view: RunView, rows: Rows) -> Passage | None:
    """The dev gradients that the answers entered."""
    keys = dict.fromkeys(row["artifact_key"] for row in rows if row["phase"] == "rollout_dev")
    entered = [user for key in keys for user in view.graph.users(key, "dev_gradient")]
    if not entered:
        return None
    columns = ("norm", "num_groups", "num_varied", "accuracy")
    found = {row["artifact_key"]: pick(row, columns) for row in view.rows("gradients", columns, of=entered)}
    lines = [{"iteration": each.iteration, **found[each.key], "artifact": each.key} for each in entered]
    return Passage(name="dev_gradient", title="Dev gradients its answers entered", rows=lines)


def _by_checkpoint(rows: Rows) -> Passage:
    names = ("phase", "iteration", "rollout_id", "verdict", "extracted", "finish_reason", "text", "artifact_key")
    note = "" if rows else "no checkpoint of this run was asked"
    return Passage(name="answers", title="Every answer of the run", rows=[pick(row, names) for row in rows], note=note)


def _answers(view: RunView, question_id: str, label: str) -> Rows:
    """Answers from rollout tables and from saved responses with their verdicts, the earliest first."""
    records = {record.key: record for record in view.graph.of("rollout_dev", *GRADINGS, "respond")}
    found = []
    for row in view.rows("rollouts", SAMPLED, "group_id = ?", question_id, of=records.values()):
        record = records[row["artifact_key"]]
        found.append({"phase": record.phase, "iteration": record.iteration, **row, "extracted": None})
    for row in view.rows("responses", SAVED, "question_id = ?", question_id, of=records.values()):
        found.append(_saved(view, row, records[row["artifact_key"]]))
    if label:
        found = [row for row in found if label in (row.get("benchmark"), records[row["artifact_key"]].label)]
    return sorted(found, key=lambda row: (row["iteration"], row["phase"], row["rollout_id"]))


def _saved(view: RunView, row: dict[str, Any], record: Record) -> dict[str, Any]:
    """A saved response, with the verdict of the latest judgement on it."""
    judges, wanted = [record, *view.graph.users(record.key)], "question_id = ? and sample_index = ?"
    verdict = view.row("verdicts", JUDGED, wanted, row["question_id"], row["sample_index"], of=judges)
    return {
        "phase": record.phase,
        "iteration": record.iteration,
        "rollout_id": f"{row['question_id']}/{row['sample_index']}",
        **pick(row, ("benchmark", "sample_index", "finish_reason")),
        "text": row["response"],
        "artifact_key": row["artifact_key"],
        **(pick(verdict, JUDGED) if verdict else dict.fromkeys(JUDGED)),
    }
