"""Lineage of a dev, validation or benchmark question, with the answers of every checkpoint."""

from collections.abc import Sequence
from typing import Any

from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.question import QUESTION
from infuser_core.lineage.run_view import SCORED, Sight, checkpoint_name, selected, validations
from infuser_core.store.catalogue import Record

SAMPLED = ("rollout_id", "group_id", "sample_index", "checkpoint_id", "verdict", "reward", "finish_reason", "text")
SAVED = ("benchmark", "question_id", "sample_index", "response", "finish_reason", "response_tokens")
JUDGED = ("question_id", "sample_index", "preset", "verdict", "extracted", "reason", "decided_by")
TALLY = ("question_id", "domain", "num_samples", "num_correct", "num_no_answer", "num_unverified", "num_cut")
TESTS = ("validate", "evaluate")


def of_benchmark(sight: Sight, label: str) -> Answer | None:
    """Why a benchmark's score is what it is: both checkpoints, the selection between, and the questions that moved."""
    records = {record.key: record for record in sight.graph.of(*TESTS)}
    found = sight.rows(records.values(), "benchmark_scores", SCORED, "benchmark = ?", label)
    if not found:
        return None
    scores = sorted(
        ({"after_iterations": records[row["artifact_key"]].iteration, **row} for row in found),
        key=lambda row: row["after_iterations"],
    )
    first, last = scores[0], scores[-1]
    passages = [
        _scores(scores),
        _selection(sight),
        _moved(sight, records[first["artifact_key"]], records[last["artifact_key"]]),
        _trained(sight, last["checkpoint_id"]),
    ]
    headline = (
        f"accuracy {shown(last['accuracy'])} [{shown(last['low'])}, {shown(last['high'])}] after "
        f"{last['after_iterations']} iterations; {shown(first['accuracy'])} after {first['after_iterations']}"
    )
    return Answer(
        id=f"{sight.graph.run}/{label}", kind="benchmark", run=sight.graph.run, headline=headline, passages=passages
    )


def _scores(scores: Sequence[dict[str, Any]]) -> Passage:
    names = ("after_iterations", "accuracy", "low", "high", "num_questions", "checkpoint_id", "artifact_key")
    return Passage(name="scores", title="Scores", rows=[{name: row[name] for name in names} for row in scores])


def _selection(sight: Sight) -> Passage:
    chosen = selected(sight)
    names = ("after_iterations", "accuracy", "checkpoint_id")
    rows = [{name: row[name] for name in names} for row in validations(sight)]
    if chosen is None:
        return Passage(name="selection", title="Selection", rows=rows, note="no checkpoint is selected yet")
    facts = {name: chosen[name] for name in ("selected_iteration", "checkpoint_id", "accuracy")}
    return Passage(
        name="selection", title="How the checkpoint was chosen: validation accuracies", facts=facts, rows=rows,
        artifact=chosen["artifact_key"],
    )  # fmt: skip


def _moved(sight: Sight, first: Record, last: Record) -> Passage:
    """Questions that the two checkpoints answer differently."""
    before = {row["question_id"]: row for row in sight.rows([first], "question_scores", TALLY)}
    rows = []
    for row in sight.rows([last], "question_scores", TALLY):
        old = before.get(row["question_id"])
        if old is not None and old["num_correct"] != row["num_correct"]:
            change = row["num_correct"] / row["num_samples"] - old["num_correct"] / old["num_samples"]
            rows.append(
                {
                    "question_id": row["question_id"],
                    "domain": row["domain"],
                    "change": change,
                    "correct_before": old["num_correct"],
                    "correct_after": row["num_correct"],
                    "samples": row["num_samples"],
                }
            )
    won, lost = sum(row["change"] > 0 for row in rows), sum(row["change"] < 0 for row in rows)
    facts = {"questions_won": won, "questions_lost": lost, "questions_compared": len(before)}
    return Passage(
        name="moved", title="Questions that moved", facts=facts, rows=sorted(rows, key=lambda row: -row["change"])
    )


def _trained(sight: Sight, checkpoint_id: str) -> Passage:
    record = sight.record(checkpoint_id)
    if record is None:
        return Passage(name="checkpoint", title="The checkpoint", note=f"{checkpoint_id} is gone from the store")
    rows = [
        {
            "iteration": update.iteration if update.iteration >= 0 else None,
            "step": update.summary.get("step"),
            "update": update.key,
            "questions": sight.graph.inputs(update.key).get("questions"),
        }
        for update in sight.graph.trained(record.key)
    ]
    return Passage(
        name="checkpoint",
        title=f"The updates behind it: {checkpoint_name(sight, record)}",
        artifact=record.key,
        rows=rows,
    )


def of_given(sight: Sight, question_id: str, *, rollout_id: str = "", label: str = "") -> Answer | None:
    """What a dev, validation or benchmark question was answered, by every checkpoint that was asked."""
    row = _question(sight, question_id)
    if row is None and not sight.rows(sight.graph.of(*TESTS), "question_scores", TALLY, "question_id = ?", question_id):
        return None
    rows = _answers(sight, question_id, label)
    mine = [answer for answer in rows if answer["rollout_id"] == rollout_id]
    if rollout_id and not mine:
        return None
    passages = [_text(row, question_id), *_own(mine), _dev(sight, rows), _by_checkpoint(sight, rows)]
    right = sum(answer["verdict"] == "correct" for answer in rows)
    headline = f"answered {len(rows)} times in this run, {right} of them right"
    return Answer(
        id=rollout_id or question_id,
        kind="answer to a given question" if rollout_id else "given question",
        run=sight.graph.run,
        headline=headline,
        passages=[passage for passage in passages if passage is not None],
    )


def _question(sight: Sight, question_id: str) -> dict[str, Any] | None:
    """The question's row: of the dev or validation set, or as it was saved beside the responses to it."""
    for table in ("reference_questions", "asked_questions"):
        row = sight.row(sight.graph.holding(table), table, QUESTION, "question_id = ?", question_id)
        if row is not None:
            return row
    return None


def _text(row: dict[str, Any] | None, question_id: str) -> Passage:
    title = "The question, with its reference answer"
    if row is None:
        note = "its text lies in the benchmark's file: the store keeps the answers to it"
        return Passage(name="question", title=title, facts={"question_id": question_id}, note=note)
    choices = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCDEFGHIJ", row["choices"] or [], strict=False))
    return Passage(
        name="question",
        title=title,
        artifact=row["artifact_key"],
        facts={name: row[name] for name in ("question_id", "answer", "verifier", "domain", "subdomain")},
        texts={"question": row["text"]} | ({"choices": choices} if choices else {}),
    )


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


def _dev(sight: Sight, rows: Sequence[dict[str, Any]]) -> Passage | None:
    """The dev gradients that the answers entered."""
    keys = dict.fromkeys(row["artifact_key"] for row in rows if row["phase"] == "rollout_dev")
    entered = [user for key in keys for user in sight.graph.users(key, "dev_gradient")]
    if not entered:
        return None
    columns = ("norm", "num_groups", "num_varied", "accuracy")
    found = {row["artifact_key"]: row for row in sight.rows(entered, "gradients", columns)}
    lines = [
        {"iteration": record.iteration, **{name: found[record.key][name] for name in columns}, "artifact": record.key}
        for record in entered
    ]
    return Passage(name="dev_gradient", title="Dev gradients its answers entered", rows=lines)


def _by_checkpoint(sight: Sight, rows: Sequence[dict[str, Any]]) -> Passage:
    names = ("phase", "iteration", "rollout_id", "verdict", "extracted", "finish_reason", "text", "artifact_key")
    return Passage(
        name="answers",
        title="Every answer of the run",
        rows=[{name: row.get(name) for name in names} for row in rows],
        note="" if rows else "no checkpoint of this run was asked",
    )


def _answers(sight: Sight, question_id: str, label: str) -> list[dict[str, Any]]:
    """Answers from rollout tables and from saved responses with their verdicts, the earliest first."""
    records = {record.key: record for record in sight.graph.of("rollout_dev", *TESTS, "respond")}
    found = []
    for row in sight.rows(records.values(), "rollouts", SAMPLED, "group_id = ?", question_id):
        found.append(_placed(row, records[row["artifact_key"]]) | {"extracted": None})
    for row in sight.rows(records.values(), "responses", SAVED, "question_id = ?", question_id):
        found.append(_saved(sight, row, records[row["artifact_key"]]))
    if label:
        found = [row for row in found if label in (row.get("benchmark"), _label(sight, row["artifact_key"]))]
    return sorted(found, key=lambda row: (row["iteration"], row["phase"], row["rollout_id"]))


def _label(sight: Sight, key: str) -> str:
    return str(sight.graph.catalogue.records[key].summary.get("benchmark", ""))


def _placed(row: dict[str, Any], record: Record) -> dict[str, Any]:
    return {"phase": record.phase, "iteration": record.iteration, **row}


def _saved(sight: Sight, row: dict[str, Any], record: Record) -> dict[str, Any]:
    """A saved response, with the verdict of the latest judgement on it."""
    judges = [record, *sight.graph.users(record.key)]
    verdict = sight.row(
        judges, "verdicts", JUDGED, "question_id = ? and sample_index = ?", row["question_id"], row["sample_index"]
    )
    facts = {name: (verdict or {}).get(name) for name in ("verdict", "extracted", "reason", "decided_by", "preset")}
    return {
        "phase": record.phase,
        "iteration": record.iteration,
        "rollout_id": f"{row['question_id']}/{row['sample_index']}",
        "benchmark": row["benchmark"],
        "sample_index": row["sample_index"],
        "finish_reason": row["finish_reason"],
        "text": row["response"],
        "artifact_key": row["artifact_key"],
        **facts,
    }
