"""The story of a training question: from the page of a textbook to the validation accuracy after its update."""

from collections.abc import Sequence
from typing import Any

from infuser_core.lineage import origin
from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.effect import effect
from infuser_core.lineage.index import Record
from infuser_core.lineage.minibatch import Entered, generator_step, solver_step
from infuser_core.lineage.sight import Sight, checkpoint_name, writer_name

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


def of_question(sight: Sight, written: Record, question: dict[str, Any]) -> Answer:
    """Why a question got its score and what it did."""
    passages = _story(sight, written, question)
    return Answer(
        id=question["question_id"],
        kind="question",
        run=sight.graph.run,
        headline=_headline(passages, written),
        passages=passages,
    )


def of_generator_rollout(sight: Sight, written: Record, rollout_id: str) -> Answer:
    """Why a text of the generator got its reward: the question it became, or why it became none."""
    question = sight.row([written], "questions", QUESTION, "rollout_id = ?", rollout_id)
    passages = _text(sight, written, rollout_id) if question is None else _story(sight, written, question)
    return Answer(
        id=rollout_id,
        kind="generator rollout",
        run=sight.graph.run,
        headline=_headline(passages, written),
        passages=passages,
    )


def of_solver_rollout(sight: Sight, written: Record, question: dict[str, Any], rollout_id: str) -> Answer:
    """Why an answer got its reward, and the whole story of the question it answers."""
    passages = _story(sight, written, question)
    answers = next(passage for passage in passages if passage.name == "answers")
    mine = next(row for row in answers.rows if row["rollout_id"] == rollout_id)
    own = Passage(
        name="answer",
        title="This answer",
        artifact=answers.artifact,
        facts={name: value for name, value in mine.items() if name != "text"},
        texts={"text": mine["text"]},
    )
    headline = (
        f"judged {mine['verdict']}: reward {shown(mine['reward'])}, advantage {shown(mine['advantage'])} "
        f"(reference answer {question['answer']})"
    )
    return Answer(
        id=rollout_id, kind="solver rollout", run=sight.graph.run, headline=headline, passages=[own, *passages]
    )


def _story(sight: Sight, written: Record, question: dict[str, Any]) -> list[Passage]:
    """A question that a generator wrote, or that a row of the pool carries."""
    author = _rollout(sight, written, question["rollout_id"]) if question["rollout_id"] else None
    trained = [solver_step(sight, r, question["question_id"]) for r in sight.graph.users(written.key, "update_solver")]
    rewarded = sight.graph.users(written.key, "update_generator") if author else []
    entered = [*trained, *(generator_step(sight, record, question["document_id"]) for record in rewarded)]
    return [
        *origin.passages(sight, question["document_id"]),
        *([_generator(sight, author)] if author else []),
        _question(sight, written, question),
        _answers(sight, written, question, trained),
        _influence(sight, written, question),
        *(_reward(sight, record, author) for record in rewarded if author),
        _updates(entered),
        *effect(sight, written.iteration),
    ]


def _text(sight: Sight, written: Record, rollout_id: str) -> list[Passage]:
    """A text of the generator that became no question."""
    author = _rollout(sight, written, rollout_id)
    rewarded = sight.graph.users(written.key, "update_generator")
    return [
        *origin.passages(sight, author["group_id"]),
        _generator(sight, author),
        *(_reward(sight, record, author) for record in rewarded),
        _updates([generator_step(sight, record, author["group_id"]) for record in rewarded]),
        *effect(sight, written.iteration),
    ]


def _rollout(sight: Sight, written: Record, rollout_id: str) -> dict[str, Any]:
    rollout = sight.row([written], "rollouts", WRITTEN, "rollout_id = ?", rollout_id)
    assert rollout is not None, rollout_id
    return rollout


def _headline(passages: Sequence[Passage], written: Record) -> str:
    found = {passage.name: passage for passage in passages}
    if "influence" not in found:
        return f"no question: {found['generator'].facts['malformed_reason']}"
    score = found["influence"].facts
    origin_facts = found["document"].facts
    parts = [f"written in iteration {written.iteration} from {origin_facts.get('header_path', '?')}"]
    if "generator" not in found:
        parts = [f"given in iteration {written.iteration} by row {origin_facts.get('document_id', '?')}"]
    if score:
        parts.append(f"answered right {100 * score['solver_accuracy']:.0f}% of the time, {score['status']}")
        parts.append(f"influence {shown(score['score'])}")
    if "reward" in found:
        parts.append(f"generator advantage {shown(found['reward'].facts['advantage'])}")
    return "; ".join(parts)


def _generator(sight: Sight, rollout: dict[str, Any]) -> Passage:
    facts = {
        "rollout_id": rollout["rollout_id"],
        "checkpoint": rollout["checkpoint_id"],
        "checkpoint_is": writer_name(sight, rollout["checkpoint_id"]),
        "verdict": rollout["verdict"],
        "malformed_reason": rollout["malformed_reason"],
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


def _question(sight: Sight, written: Record, question: dict[str, Any]) -> Passage:
    facts = {name: question[name] for name in ("question_id", "answer", "verifier", "domain", "subdomain")}
    label = sight.row([written], "question_labels", ("topic", "key"), "question_id = ?", question["question_id"])
    if label is not None:
        facts |= {"oracle_topic": label["topic"], "oracle_key": label["key"]}
    choices = "\n".join(
        f"{letter}) {text}" for letter, text in zip("ABCDEFGHIJ", question["choices"] or [], strict=False)
    )
    texts = {"question": question["text"], "choices": choices, "author's reasoning": question["reasoning"]}
    return Passage(
        name="question",
        title="The question, with its reference answer",
        artifact=written.key,
        facts=facts,
        texts={label: body for label, body in texts.items() if body},
    )


def _answers(sight: Sight, written: Record, question: dict[str, Any], trained: Sequence[Entered]) -> Passage:
    records = sight.graph.users(written.key, "rollout_questions")
    found = sight.rows(records, "rollouts", ANSWERED, "group_id = ?", question["question_id"])
    if not found:
        return Passage(name="answers", title="Answers of the solver", note="not answered in this run yet")
    credit: list[float | None] = list(trained[0].advantages) if trained else []
    credit += [None] * (len(found) - len(credit))
    rows = [
        {
            "rollout_id": row["rollout_id"],
            "reward": row["reward"],
            "advantage": advantage,
            "verdict": row["verdict"],
            **sampled(row),
            "text": row["text"],
        }
        for row, advantage in zip(found, credit, strict=True)
    ]
    facts = {
        "checkpoint": found[0]["checkpoint_id"],
        "checkpoint_is": checkpoint_name(sight, sight.record(found[0]["checkpoint_id"])),
        "mean_reward": sum(row["reward"] for row in found) / len(found),
        "answers": len(found),
    }
    voting = [record for record in records if "pseudo_labels" in record.rows]
    voted = sight.row(voting, "pseudo_labels", ("label", "votes"), "question_id = ?", question["question_id"])
    if voted is not None:
        facts |= {"rewarded_answer": voted["label"], "votes": voted["votes"]}
    return Passage(
        name="answers", title="Answers of the solver", artifact=found[0]["artifact_key"], facts=facts, rows=rows
    )


def _influence(sight: Sight, written: Record, question: dict[str, Any]) -> Passage:
    records = sight.graph.users(written.key, "score_influence")
    row = sight.row(records, "scores", SCORE, "question_id = ?", question["question_id"])
    title = "Influence on the dev set"
    if row is None:
        why = "the generator is not updated in this run" if question["rollout_id"] else "no generator wrote it"
        return Passage(name="influence", title=title, note=f"not scored: {why}")
    facts = {name: row[name] for name in SCORE}
    sources = sight.graph.inputs(row["artifact_key"])
    if "gradient" in sources:
        facts["dev_gradient"] = sources["gradient"]
        columns = ("num_groups", "num_varied", "accuracy")
        gradient = sight.row([sight.graph.catalogue.records[sources["gradient"]]], "gradients", columns)
        if gradient is not None:
            facts |= {f"dev_{name}": gradient[name] for name in columns}
    return Passage(name="influence", title=title, artifact=row["artifact_key"], facts=facts)


def _reward(sight: Sight, record: Record, rollout: dict[str, Any]) -> Passage:
    columns = ("rollout_id", "reward", "advantage", "trained")
    rows = sight.rows([record], "generator_scores", columns, "document_id = ?", rollout["group_id"])
    mine = next((row for row in rows if row["rollout_id"] == rollout["rollout_id"]), None)
    group = [{name: row[name] for name in columns} for row in rows]
    if mine is None:
        note = "left out of the generator's update by the configuration"
        return Passage(name="reward", title="Reward of the generator", artifact=record.key, rows=group, note=note)
    facts = {name: mine[name] for name in ("reward", "advantage", "trained")}
    return Passage(
        name="reward", title="Reward of the generator, beside its group", artifact=record.key, facts=facts, rows=group
    )


def _updates(entered: Sequence[Entered]) -> Passage:
    rows = [
        {
            "role": step.update.phase.removeprefix("update_"),
            "minibatch": f"{step.place} of {step.of}" if step.row else "none",
            "step": step.row["step"] if step.row else None,
            "loss": step.row["loss"] if step.row else None,
            "gradient_norm": step.row["gradient_norm"] if step.row else None,
            "learning_rate": step.row["learning_rate"] if step.row else None,
            "clip_fraction": step.row["clip_fraction"] if step.row else None,
            "checkpoint": step.update.key,
            "why_not": step.reason,
        }
        for step in entered
    ]
    note = "" if rows else "no update of this run used it"
    return Passage(name="updates", title="Optimizer steps it entered", rows=rows, note=note)
