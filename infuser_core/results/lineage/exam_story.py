"""Explanations by `infuser why` of a benchmark's accuracy, and of dev, validation and benchmark questions."""

from typing import Any

from infuser_core.config.phase_table import GRADINGS, TESTS, Phase
from infuser_core.results.lineage.question_story import QUESTION
from infuser_core.results.lineage.run_view import RunView
from infuser_core.results.lineage.story import Passage, Story, format_value, row_passage, table_passage
from infuser_core.store.views import Rows


def exam_question_story(view: RunView, question_id: str, *, rollout_id: str = "", label: str = "") -> Story | None:
    """Explain a dev, validation or benchmark question by the answers of every checkpoint; None if unknown."""
    candidates = (view.row(table, question_id=question_id) for table in ("reference_questions", "asked_questions"))
    row = next((row for row in candidates if row is not None), None)
    if row is None and not view.rows(
        "question_scores", "question_id", of=view.graph.of(*GRADINGS), question_id=question_id
    ):
        return None
    answers = _answers_to(view, question_id, label)
    selected = [answer for answer in answers if answer["rollout_id"] == rollout_id]
    if rollout_id and not selected:
        return None
    note = "its text is in the benchmark's file: the store keeps the answers to it"
    about = {"question_id": question_id}
    passages = [
        row_passage("question", QUESTION, row) if row else row_passage("question", "The question", about, note=note)
    ]
    for place, answer in enumerate(selected, 1):
        name = "answer" if place == len(selected) else f"answer_{answer['iteration']}"
        title = f"The answer, {answer['phase']}, iteration {answer['iteration']}"
        passages.append(row_passage(name, title, answer))
    keys = dict.fromkeys(answer["artifact_key"] for answer in answers if answer["phase"] == Phase.ROLLOUT_DEV)
    entered = {user.key: user for key in keys for user in view.graph.users(key, Phase.DEV_GRADIENT)}
    gradients = [
        {"iteration": entered[row["artifact_key"]].iteration, **row}
        for row in view.rows("gradients", of=entered.values())
    ]
    if gradients:
        gradients.sort(key=lambda row: row["iteration"])
        passages.append(table_passage(Phase.DEV_GRADIENT.value, "Dev gradients its answers entered", gradients))
    note = "" if answers else "no checkpoint was asked"
    passages.append(table_passage("answers", "Every answer of the run", answers, note=note))
    num_right = sum(answer["verdict"] == "correct" for answer in answers)
    headline = f"answered {len(answers)} times in this run, {num_right} of them right"
    kind = "answer to a given question" if rollout_id else "given question"
    return view.story(kind, rollout_id or question_id, headline, passages)


def _answers_to(view: RunView, question_id: str, label: str) -> Rows:
    """All answers to the question, from rollouts and saved responses with their latest verdicts, the earliest first."""
    records = {record.key: record for record in view.graph.of(Phase.ROLLOUT_DEV, *TESTS)}
    names = ("text", "verdict", "finish_reason", "checkpoint_id", "rollout_id")
    rows = view.rows("rollouts", *names, of=records.values(), group_id=question_id)
    for row in view.rows("responses", of=records.values(), question_id=question_id):
        judges = [records[row["artifact_key"]], *view.graph.users(row["artifact_key"])]
        ids = {name: row[name] for name in ("question_id", "sample_index")}
        verdict = view.row("verdicts", of=judges, **ids) or {"verdict": None}
        answer = {**verdict, **row, "text": row["response"], "rollout_id": f"{question_id}/{row['sample_index']}"}
        rows.append({name: value for name, value in answer.items() if name not in ("response", "question_id")})
    if label:
        rows = [row for row in rows if label in (row.get("benchmark"), records[row["artifact_key"]].label)]
    columns = {name: None for row in rows for name in row}
    answers = []
    for row in rows:
        record = records[row["artifact_key"]]
        answers.append({"phase": record.phase, "iteration": record.iteration, **columns, **row})
    return sorted(answers, key=lambda row: (row["iteration"], row["phase"], row["rollout_id"]))


def benchmark_story(view: RunView, label: str) -> Story | None:
    """Explain a benchmark's accuracy: scores of all checkpoints, the selection, and the questions that changed."""
    scores = view.scores(*GRADINGS, benchmark=label)
    if not scores:
        return None
    first, last = scores[0], scores[-1]
    headline = (
        f"accuracy {format_value(last['accuracy'])} [{format_value(last['low'])}, {format_value(last['high'])}] after "
        f"{last['after_iterations']} iterations; {format_value(first['accuracy'])} after {first['after_iterations']}"
    )
    selection = view.selected()
    names = ("after_iterations", "accuracy", "checkpoint_id")
    passages = [
        table_passage("scores", "Accuracy", scores, without=("benchmark",)),
        row_passage(
            "selection",
            "How the checkpoint was chosen: validation accuracies",
            selection or {},
            rows=[{name: row[name] for name in names} for row in view.scores(Phase.VALIDATE)],
            note="" if selection else "no checkpoint is selected yet",
        ),
        _changes_passage(view, first, last),
    ]
    return view.story("benchmark", f"{view.graph.run}/{label}", headline, passages)


def _changes_passage(view: RunView, first: dict[str, Any], last: dict[str, Any]) -> Passage:
    """Passage on questions that the first and the last scored checkpoint answer differently."""
    names = ("question_id", "domain", "num_samples", "num_correct")
    before, after = (
        {row["question_id"]: row for row in view.rows("question_scores", *names, of=[view.graph.records[key]])}
        for key in (first["artifact_key"], last["artifact_key"])
    )
    rows = []
    for question_id, new in after.items():
        old = before.get(question_id)
        if old is not None and old["num_correct"] != new["num_correct"]:
            change = new["num_correct"] / new["num_samples"] - old["num_correct"] / old["num_samples"]
            counts = {"correct_before": old["num_correct"], "correct_after": new["num_correct"]}
            rows.append({"change": change, **counts, **new})
    rows.sort(key=lambda row: -row["change"])
    facts = {
        "questions_won": sum(row["change"] > 0 for row in rows),
        "questions_lost": sum(row["change"] < 0 for row in rows),
        "questions_compared": len(before),
    }
    without = ("num_correct", "artifact_key")
    return table_passage("moved", "Questions that moved", rows, without=without, facts=facts)
