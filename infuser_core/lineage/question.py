"""Lineage of a training question, from the textbook's page to the accuracy after its update."""

from collections.abc import Sequence
from typing import Any

from infuser_core.algorithm.advantage import is_flat
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.lineage import documents
from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.run_view import RunView, checkpoint_name, pick, question_of, validation_around
from infuser_core.store.recipe import Record

QUESTION = (
    "question_id", "text", "choices", "answer", "verifier", "domain", "subdomain", "document_id", "rollout_id",
    "reasoning",
)  # fmt: skip
WRITTEN = (
    "rollout_id", "group_id", "sample_index", "checkpoint_id", "prompt_token_ids", "token_ids", "sampler_logprobs",
    "text", "finish_reason", "verdict", "malformed_reason",
)  # fmt: skip
ANSWERED = (
    "rollout_id", "sample_index", "checkpoint_id", "token_ids", "sampler_logprobs", "text", "finish_reason", "verdict",
    "reward",
)  # fmt: skip
SCORE = (
    "status", "score", "cosine", "dot", "raw_cosine", "direction_norm", "gradient_norm", "reference_norm",
    "solver_accuracy",
)  # fmt: skip


def of_question(view: RunView, written: Record, question: dict[str, Any]) -> Answer:
    """Explanation of a question: its score, and what it did."""
    told = _story(view, written, question)
    return view.answer("question", question["question_id"], _headline(told, written), told)


def of_generator_rollout(view: RunView, written: Record, rollout_id: str) -> Answer:
    """Explanation of a generator's text and its reward: the question it became, or why it became none."""
    question = view.row("questions", QUESTION, "rollout_id = ?", rollout_id, of=[written])
    told = _text(view, written, rollout_id) if question is None else _story(view, written, question)
    return view.answer("generator rollout", rollout_id, _headline(told, written), told)


def of_solver_rollout(view: RunView, written: Record, question: dict[str, Any], rollout_id: str) -> Answer | None:
    """Explanation of an answer and its reward, with the whole story of its question; None where there is none."""
    told = _story(view, written, question)
    answers = next(passage for passage in told if passage.name == "answers")
    mine = next((row for row in answers.rows if row["rollout_id"] == rollout_id), None)
    if mine is None:
        return None
    own = Passage(
        name="answer",
        title="This answer",
        artifact=answers.artifact,
        facts={name: value for name, value in mine.items() if name != "text"},
        texts={"text": mine["text"]},
    )
    headline = f"judged {mine['verdict']}: reward {shown(mine['reward'])} (reference answer {question['answer']})"
    return view.answer("solver rollout", rollout_id, headline, [own, *told])


def _story(view: RunView, written: Record, question: dict[str, Any]) -> list[Passage]:
    """A question that a generator wrote, or that a row of the pool carries."""
    author = _rollout(view, written, question["rollout_id"]) if question["rollout_id"] else None
    ended = _ended(view, written, question["question_id"])
    trained = view.graph.users(ended.key, "update_solver")
    rewarded = view.graph.users(ended.key, "update_generator") if author else []
    entered = [
        *(_entered(view, record, _why_not_solver(view, record, question["question_id"])) for record in trained),
        *(_entered(view, record, _why_not_generator(view, record, question["document_id"])) for record in rewarded),
    ]
    return [
        *documents.passages(view, question["document_id"]),
        *([_generator(view, author)] if author else []),
        _question(view, written, question),
        _answers(view, ended, question),
        _influence(view, ended, question),
        *(_reward(view, record, author) for record in rewarded if author),
        _updates(entered),
        validation_around(view, written.iteration),
    ]


def _ended(view: RunView, written: Record, question_id: str) -> Record:
    """The questions of the iteration in which the last answer ended: the question's own, but for partial rollouts."""
    answers = view.graph.users(written.key, "rollout_questions")
    while answers and view.row("waiting_questions", ("question_id",), "question_id = ?", question_id, of=answers):
        answers = view.graph.users(answers[0].key, "rollout_questions")
    return view.source(answers[0].key, "questions") if answers else written


def _text(view: RunView, written: Record, rollout_id: str) -> list[Passage]:
    """A text of the generator that became no question."""
    author = _rollout(view, written, rollout_id)
    rewarded = view.graph.users(written.key, "update_generator")
    return [
        *documents.passages(view, author["group_id"]),
        _generator(view, author),
        *(_reward(view, record, author) for record in rewarded),
        _updates([_entered(view, record, _why_not_generator(view, record, author["group_id"])) for record in rewarded]),
        validation_around(view, written.iteration),
    ]


def _rollout(view: RunView, written: Record, rollout_id: str) -> dict[str, Any]:
    rollout = view.row("rollouts", WRITTEN, "rollout_id = ?", rollout_id, of=[written])
    assert rollout is not None, rollout_id
    return rollout


def _headline(passages: Sequence[Passage], written: Record) -> str:
    found = {passage.name: passage.facts for passage in passages}
    if "influence" not in found:
        return f"no question: {found['generator']['malformed_reason']}"
    score, origin = found["influence"], found["document"]
    parts = [f"written in iteration {written.iteration} from {origin.get('header_path', '?')}"]
    if "generator" not in found:
        parts = [f"given in iteration {written.iteration} by row {origin.get('document_id', '?')}"]
    if score:
        parts.append(f"answered right {100 * score['solver_accuracy']:.0f}% of the time, {score['status']}")
        parts.append(f"influence {shown(score['score'])}")
    if "reward" in found:
        parts.append(f"generator advantage {shown(found['reward']['advantage'])}")
    return "; ".join(parts)


def _generator(view: RunView, rollout: dict[str, Any]) -> Passage:
    facts = {
        "rollout_id": rollout["rollout_id"],
        "checkpoint": rollout["checkpoint_id"],
        "checkpoint_is": view.writer_name(rollout["checkpoint_id"]),
        **pick(rollout, ("verdict", "malformed_reason")),
        **sampled(rollout),
    }
    return Passage(
        name="generator",
        title="What the generator wrote",
        artifact=rollout["artifact_key"],
        facts=facts,
        texts={"raw output": rollout["text"]},
    )


def sampled(rollout: dict[str, Any]) -> dict[str, Any]:
    """Facts of a sampled sequence, the log-probabilities summed up (nats)."""
    logprobs = rollout["sampler_logprobs"] or []
    facts = {"tokens": len(rollout["token_ids"] or []), "finish_reason": rollout["finish_reason"]}
    return facts | {"mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None}


def _question(view: RunView, written: Record, question: dict[str, Any]) -> Passage:
    columns = ("topic", "key")
    label = view.row("question_labels", columns, "question_id = ?", question["question_id"], of=[written])
    return question_of(question, {f"oracle_{name}": label[name] for name in columns} if label else {})


def _answers(view: RunView, written: Record, question: dict[str, Any]) -> Passage:
    records = view.graph.users(written.key, "rollout_questions")
    found = view.rows("rollouts", ANSWERED, "group_id = ?", question["question_id"], of=records)
    if not found:
        return Passage(name="answers", title="Answers of the solver", note="not answered in this run yet")
    rows = [{**pick(row, ("rollout_id", "reward", "verdict")), **sampled(row), "text": row["text"]} for row in found]
    facts = {
        "checkpoint": found[0]["checkpoint_id"],
        "checkpoint_is": checkpoint_name(view.record(found[0]["checkpoint_id"])),
        "mean_reward": sum(row["reward"] for row in found) / len(found),
        "answers": len(found),
    }
    voted = view.row("pseudo_labels", ("label", "votes"), "question_id = ?", question["question_id"], of=records)
    if voted is not None:
        facts |= {"rewarded_answer": voted["label"], "votes": voted["votes"]}
    return Passage(
        name="answers", title="Answers of the solver", artifact=found[0]["artifact_key"], facts=facts, rows=rows
    )


def _influence(view: RunView, written: Record, question: dict[str, Any]) -> Passage:
    records = view.graph.users(written.key, "score_influence")
    row = view.row("scores", SCORE, "question_id = ?", question["question_id"], of=records)
    title = "Influence on the dev set"
    if row is None:
        why = "the generator is not updated in this run" if question["rollout_id"] else "no generator wrote it"
        return Passage(name="influence", title=title, note=f"not scored: {why}")
    facts = pick(row, SCORE)
    if "gradient" in view.graph.inputs(row["artifact_key"]):
        source = view.source(row["artifact_key"], "gradient")
        facts["dev_gradient"] = source.key
        gradient = view.row("gradients", ("num_groups", "num_varied", "accuracy"), of=[source]) or {}
        facts |= {f"dev_{name}": value for name, value in gradient.items() if name != "artifact_key"}
    return Passage(name="influence", title=title, artifact=row["artifact_key"], facts=facts)


def _reward(view: RunView, record: Record, rollout: dict[str, Any]) -> Passage:
    columns = ("rollout_id", "reward", "advantage", "trained")
    rows = view.rows("generator_scores", columns, "document_id = ?", rollout["group_id"], of=[record])
    mine = next((row for row in rows if row["rollout_id"] == rollout["rollout_id"]), None)
    return Passage(
        name="reward",
        title="Reward of the generator, beside its group" if mine else "Reward of the generator",
        artifact=record.key,
        facts=pick(mine, columns[1:]) if mine else {},
        rows=[pick(row, columns) for row in rows],
        note="" if mine else "left out of the generator's update by the configuration",
    )


def _why_not_solver(view: RunView, update: Record, question_id: str) -> str:
    """Reason for which a question's answers entered no step of the solver's update; empty where they entered one."""
    config = update.config
    if question_id in config.get("left_out", ()):
        return "the configuration leaves it out"
    # Only an update with a band of accuracies has the table.
    difficulty = view.row("difficulties", ("inside",), "question_id = ?", question_id, of=[update])
    if difficulty is not None and not difficulty["inside"]:
        return "its accuracy lies outside the band"
    if lost := _not_finite(view, update, question_id):
        return lost
    columns, penalty = ("reward", "verdict", "finish_reason"), config.get("mid_eos_penalty", 0.0)
    # Recipes of older versions have the options elsewhere.
    step = config.get("step", config)
    verdicts = step.get("objective", step)["options"]["mid_eos_verdicts"] if penalty else ()
    rows = view.rows("rollouts", columns, "group_id = ?", question_id, of=[view.source(update.key, "rollouts")])
    rewards = [mid_eos_shaped(*(row[name] for name in columns), penalty=penalty, verdicts=verdicts) for row in rows]
    return "all answers had the same reward" if is_flat(rewards) else ""


def _not_finite(view: RunView, update: Record, group_id: str) -> str:
    """The number for which an update left a question or document out; empty where it did not."""
    found = view.row("not_finite", ("quantity", "value"), "group_id = ?", group_id, of=[update])
    return f"its {found['quantity']} is {found['value']}" if found else ""


def _why_not_generator(view: RunView, update: Record, document_id: str) -> str:
    """Reason for which a document's texts entered no step of the generator's update; empty where they entered one."""
    if lost := _not_finite(view, update, document_id):
        return lost
    rows = view.rows("generator_scores", ("trained",), "document_id = ?", document_id, of=[update])
    reason = "all texts of the document had the same reward, or there was no dev signal"
    return "" if any(row["trained"] for row in rows) else reason


def _entered(view: RunView, update: Record, why_not: str) -> dict[str, Any]:
    """An update that read the question, with its optimizer steps in sum."""
    steps = view.rows("updates", ("num_groups", "gradient_norm", "loss"), of=[update])
    return {
        "role": update.phase.removeprefix("update_"),
        "entered": not why_not,
        "why_not": why_not,
        "steps": len(steps),
        "groups": sum(row["num_groups"] for row in steps),
        "gradient_norm": steps[0]["gradient_norm"] if steps else None,
        "loss": steps[-1]["loss"] if steps else None,
        "checkpoint": update.key,
    }


def _updates(rows: Sequence[dict[str, Any]]) -> Passage:
    note = "" if rows else "no update of this run used it"
    return Passage(name="updates", title="Updates it entered", rows=rows, note=note)
