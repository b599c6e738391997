"""Lineage of a training question, from the textbook's page to the accuracy after its update."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.algorithm.advantage import advantages, is_flat
from infuser_core.algorithm.selection import stratified_order
from infuser_core.algorithm.shaping import mid_eos_shaped
from infuser_core.lineage import documents
from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.run_view import Sight, checkpoint_name, effect, writer_name
from infuser_core.store.catalogue import Record

UPDATE = (
    "role", "step", "num_groups", "num_tokens", "loss", "gradient_norm", "learning_rate", "clip_fraction",
    "mean_ratio", "mean_tis", "skipped",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """Where a group went in an update."""

    update: Record
    """Artifact of the update."""
    row: Mapping[str, Any] | None
    """The optimizer step it entered; None where it entered none."""
    place: int
    """Position of the minibatch in the update, from 1; 0 where it entered none."""
    of: int
    """Optimizer steps of the update."""
    advantages: Sequence[float]
    """Advantage of every row of the group."""
    reason: str
    """Why it entered no step; empty otherwise."""


def solver_step(sight: Sight, update: Record, group_id: str) -> Entered:
    """The step of the solver's update that a question's answers entered."""
    inputs = sight.graph.inputs(update.key)
    records = sight.graph.catalogue.records
    columns = ("group_id", "reward", "verdict", "finish_reason")
    rollouts = sight.rows([records[inputs["rollouts"]]], "rollouts", columns)
    outside = _outside(sight, update)
    written = [records[inputs["questions"]]]
    table = "questions" if "questions" in written[0].rows else "reference_questions"
    questions = sight.rows(written, table, ("question_id", "document_id"))
    documents = {row["question_id"]: row["document_id"] for row in questions}
    config = json.loads(update.config)
    left_out = set(config.get("left_out", ()))
    rewards = _grouped((row["group_id"], _shaped(row, config)) for row in rollouts if row["group_id"] not in left_out)
    varied = [name for name, values in rewards.items() if not is_flat(values) and name not in outside]
    order = [varied[place] for place in stratified_order([documents[name] for name in varied])]
    reason = "its accuracy lies outside the band" if group_id in outside else "all answers had the same reward"
    reason = "the configuration leaves it out" if group_id in left_out else reason
    return _entered(sight, update, config, rewards, order, group_id, reason)


def generator_step(sight: Sight, update: Record, document_id: str) -> Entered:
    """The step of the generator's update that a document's texts entered."""
    columns = ("document_id", "reward", "trained", "advantage")
    rows = sight.rows([update], "generator_scores", columns)
    rewards = _grouped((row["document_id"], row["reward"]) for row in rows)
    trained = {row["document_id"] for row in rows if row["trained"]}
    order = [name for name in rewards if name in trained]
    config = json.loads(update.config)["step"]
    reason = "all texts of the document had the same reward, or there was no dev signal"
    return _entered(sight, update, config, rewards, order, document_id, reason)


def _outside(sight: Sight, update: Record) -> set[str]:
    """Questions that the band of accuracies leaves out; none where the update has no band."""
    if "difficulties" not in update.rows:
        return set()
    rows = sight.rows([update], "difficulties", ("question_id", "inside"))
    return {row["question_id"] for row in rows if not row["inside"]}


def _shaped(row: Mapping[str, Any], config: Mapping[str, Any]) -> float:
    penalty = config.get("mid_eos_penalty", 0.0)
    verdicts = config["options"]["mid_eos_verdicts"] if penalty else ()
    return mid_eos_shaped(row["reward"], row["verdict"], row["finish_reason"], penalty=penalty, verdicts=verdicts)


def _grouped(pairs: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _entered(
    sight: Sight,
    update: Record,
    config: Mapping[str, Any],
    rewards: Mapping[str, list[float]],
    order: Sequence[str],
    group: str,
    reason: str,
) -> Entered:
    steps = sight.rows([update], "updates", UPDATE)
    credit: Sequence[float] = ()
    if group in rewards:
        options, name = config["options"], config["advantage"]
        values = advantages(
            list(rewards.values()),
            # What the preset resolves the name to; the recipe has the preset's options written out.
            normaliser=options["batch_std"] if name == "batch_std" else name,
            sigma_b=options["sigma_b"],
            single_row=options["single_row"],
        )
        credit = dict(zip(rewards, values, strict=True))[group]
    place = order.index(group) // config["minibatch"] + 1 if group in order else 0
    row = steps[place - 1] if 0 < place <= len(steps) else None
    return Entered(
        update=update,
        row=row,
        place=place if row else 0,
        of=len(steps),
        advantages=credit,
        reason="" if row else reason,
    )


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
        *documents.passages(sight, question["document_id"]),
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
        *documents.passages(sight, author["group_id"]),
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
