"""Stories of `infuser why` about a checkpoint or other artifact, a benchmark, and the questions of an exam."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.config.phase_table import CHECKPOINTS, GRADINGS, TESTS, Phase
from infuser_core.results.lineage.answer import Answer, Passage, shown
from infuser_core.results.lineage.questions import QUESTION
from infuser_core.results.lineage.run_view import RunView, checkpoint_name, listing, passage, role_of, steps_of
from infuser_core.store.recipe import Record
from infuser_core.store.views import Rows
from infuser_core.system.sealed import canonical


def of_given(view: RunView, question_id: str, *, rollout_id: str = "", label: str = "") -> Answer | None:
    """Story of a dev, validation or benchmark question, with the answers of every checkpoint; None if unknown."""
    candidates = (view.row(table, question_id=question_id) for table in ("reference_questions", "asked_questions"))
    row = next((row for row in candidates if row is not None), None)
    tests = view.graph.of(*GRADINGS)
    if row is None and not view.rows("question_scores", "question_id", of=tests, question_id=question_id):
        return None
    answers = _given_answers(view, question_id, label)
    own = [answer for answer in answers if answer["rollout_id"] == rollout_id]
    if rollout_id and not own:
        return None
    note = "its text is in the benchmark's file: the store keeps the answers to it"
    about = {"question_id": question_id}
    question = passage("question", QUESTION, row) if row else passage("question", "The question", about, note=note)
    keys = dict.fromkeys(answer["artifact_key"] for answer in answers if answer["phase"] == Phase.ROLLOUT_DEV)
    entered = {user.key: user.iteration for key in keys for user in view.graph.users(key, Phase.DEV_GRADIENT)}
    gradients = [
        {"iteration": entered[row["artifact_key"]], **row}
        for row in view.rows("gradients", of=[view.graph.records[key] for key in entered])
    ]
    gradients.sort(key=lambda row: row["iteration"])
    passages = [
        question,
        *(
            passage(
                "answer" if place == len(own) - 1 else f"answer_{answer['iteration']}",
                f"The answer, {answer['phase']}, iteration {answer['iteration']}",
                answer,
            )
            for place, answer in enumerate(own)
        ),
        *([listing("dev_gradient", "Dev gradients its answers entered", gradients)] if gradients else []),
        listing("answers", "Every answer of the run", answers, note="" if answers else "no checkpoint was asked"),
    ]
    right = sum(answer["verdict"] == "correct" for answer in answers)
    headline = f"answered {len(answers)} times in this run, {right} of them right"
    kind = "answer to a given question" if rollout_id else "given question"
    return view.answer(kind, rollout_id or question_id, headline, passages)


def _given_answers(view: RunView, question_id: str, label: str) -> Rows:
    """Answers from rollout tables and from saved responses with their latest verdicts, the earliest first."""
    records = {record.key: record for record in view.graph.of(Phase.ROLLOUT_DEV, *TESTS)}
    names = ("text", "verdict", "finish_reason", "checkpoint_id", "rollout_id")
    rows = view.about("questions", question_id, "rollouts", *names, of=records.values())
    for row in view.about("questions", question_id, "responses", of=records.values()):
        record = records[row["artifact_key"]]
        judges, ids = (
            [record, *view.graph.users(record.key)],
            {name: row[name] for name in ("question_id", "sample_index")},
        )
        verdict = view.row("verdicts", of=judges, **ids) or {"verdict": None}
        answer = {**verdict, **row, "text": row["response"], "rollout_id": f"{question_id}/{row['sample_index']}"}
        rows.append({name: value for name, value in answer.items() if name not in ("response", "question_id")})
    if label:
        rows = [row for row in rows if label in (row.get("benchmark"), records[row["artifact_key"]].label)]
    columns = {name: None for row in rows for name in row}
    rows = [
        {
            "phase": records[row["artifact_key"]].phase,
            "iteration": records[row["artifact_key"]].iteration,
            **columns,
            **row,
        }
        for row in rows
    ]
    return sorted(rows, key=lambda row: (row["iteration"], row["phase"], row["rollout_id"]))


def of_benchmark(view: RunView, label: str) -> Answer | None:
    """Story of a benchmark's score: both checkpoints, the selection between, and the questions that moved."""
    scores = view.scores(*GRADINGS, benchmark=label)
    if not scores:
        return None
    first, last = scores[0], scores[-1]
    headline = (
        f"accuracy {shown(last['accuracy'])} [{shown(last['low'])}, {shown(last['high'])}] after "
        f"{last['after_iterations']} iterations; {shown(first['accuracy'])} after {first['after_iterations']}"
    )
    chosen, validations = view.selected(), view.scores(Phase.VALIDATE)
    names = ("after_iterations", "accuracy", "checkpoint_id")
    selection = passage(
        "selection",
        "How the checkpoint was chosen: validation accuracies",
        chosen or {},
        rows=[{name: row[name] for name in names} for row in validations],
        note="" if chosen else "no checkpoint is selected yet",
    )
    passages = [listing("scores", "Scores", scores, without=("benchmark",)), selection, _moved(view, first, last)]
    return view.answer("benchmark", f"{view.graph.run}/{label}", headline, passages)


def _moved(view: RunView, first: dict[str, Any], last: dict[str, Any]) -> Passage:
    """Questions that the two checkpoints of a benchmark's scores answer differently."""
    names = ("question_id", "domain", "num_samples", "num_correct")
    before, after = (
        view.rows("question_scores", *names, of=[view.graph.records[score["artifact_key"]]]) for score in (first, last)
    )
    known = {row["question_id"]: row for row in before}
    rows = []
    for row in after:
        old = known.get(row["question_id"])
        if old is not None and old["num_correct"] != row["num_correct"]:
            change = row["num_correct"] / row["num_samples"] - old["num_correct"] / old["num_samples"]
            counts = {"correct_before": old["num_correct"], "correct_after": row["num_correct"]}
            rows.append({"change": change, **counts, **row})
    rows.sort(key=lambda row: -row["change"])
    won, lost = sum(row["change"] > 0 for row in rows), sum(row["change"] < 0 for row in rows)
    facts = {"questions_won": won, "questions_lost": lost, "questions_compared": len(known)}
    return listing("moved", "Questions that moved", rows, without=("num_correct", "artifact_key"), facts=facts)


def of_artifact(view: RunView, record: Record) -> Answer:
    """Story of an artifact: its recipe, what it was made from and its users; of a checkpoint, its updates."""
    if record.phase in CHECKPOINTS:
        return of_checkpoint(view, record)
    above, below = view.graph.above(record.key), view.graph.users(record.key)
    facts = {"iteration": record.iteration, "seed": record.seed, "rows": dict(record.rows)}
    facts |= {"summary": dict(record.summary), "settings": canonical(record.config)}
    passages = [
        _record("artifact", "Artifact", record, facts),
        _listed("made_from", "Made from, the nearest first", above),
        _listed("used_by", "Used by", below),
    ]
    headline = f"{record.phase}, made from {len(record.inputs)} artifacts, used by {len(below)}"
    return view.answer("artifact", record.id, headline, passages)


def _record(name: str, title: str, record: Record, facts: dict[str, Any]) -> Passage:
    """Facts of a commit record."""
    made: dict[str, Any] = {"code_version": record.version, "seconds": record.seconds, "bytes": record.num_bytes}
    made |= {"created": record.created, **({"machine": record.machine} if record.machine else {}), "id": record.id}
    return Passage(name=name, title=title, artifact=record.key, facts=facts | made)


def _listed(name: str, title: str, records: Sequence[Record]) -> Passage:
    rows = [{"phase": record.phase, "iteration": record.iteration, "artifact": record.key} for record in records]
    return Passage(name=name, title=title, rows=rows, note="" if rows else "nothing")


def of_checkpoint(view: RunView, record: Record) -> Answer:
    """Story of a checkpoint: the updates that made it, what they were made from, and what it scored."""
    chain = view.graph.trained(record.key)
    tested = {user.key: user for user in view.graph.below([record.key], phases=TESTS)}
    scores = [
        {"phase": tested[row["artifact_key"]].phase, **row}
        for row in view.rows("benchmark_scores", of=tested.values())
    ]  # fmt: skip
    headline = f"{checkpoint_name(record)}: {len(chain) - 1} updates, optimizer step {record.summary.get('step')}"
    validation = next((row for row in scores if row["phase"] == Phase.VALIDATE), None)
    if validation:
        headline += f", validation accuracy {shown(validation['accuracy'])}"
    chosen = view.selected()
    facts = {
        "role": role_of(record),
        "after_iterations": record.iteration + 1,
        "selected": chosen is not None and chosen["checkpoint_id"] == record.id,
        "made_from": view.graph.inputs(record.key),
    }
    path = [
        {"iteration": each.iteration if each.iteration >= 0 else None, "step": each.summary.get("step"), **steps}
        for each, steps in zip(chain, steps_of(view, chain), strict=True)
    ]
    note = "" if scores else "not validated or evaluated in this run"
    passages = [
        _record("checkpoint", "Checkpoint", record, facts),
        Passage(name="updates", title="Updates from the anchor", rows=path),
        _material(view, chain),
        listing("scores", "What it scored", scores, without=("checkpoint_id",), note=note),
        _listed("used_by", "What was made with it", view.graph.users(record.key)),
    ]
    return view.answer("checkpoint", record.id, headline, passages)


def _material(view: RunView, chain: Sequence[Record]) -> Passage:
    """Textbooks of the questions that the updates read."""
    written = [view.source(record.key, "questions") for record in chain if "questions" in view.graph.inputs(record.key)]
    questions = view.rows("questions", "document_id", of={record.key: record for record in written}.values())
    book = {row["document_id"]: row["source_id"] for row in view.rows("documents", "document_id", "source_id")}
    per_source = Counter(book.get(row["document_id"], "unknown") for row in questions)
    entries = view.rows("sources", "source_id", "title", status="admitted")
    titles = {row["source_id"]: row["title"] for row in entries}
    rows = [
        {"title": titles.get(name), "questions": count, "source_id": name} for name, count in per_source.most_common()
    ]
    documents = {row["document_id"] for row in questions}
    facts = {"questions": len(questions), "documents": len(documents), "textbooks": len(per_source)}
    return Passage(name="material", title="Generated questions it was trained on, by textbook", facts=facts, rows=rows)
