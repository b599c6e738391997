"""Lineage of a training question, from the textbook's page to the accuracy after its update."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infuser_core.algorithm.advantage import advantages, is_flat
from infuser_core.algorithm.selection import stratified_order
from infuser_core.algorithm.shaping import mid_eos_shaped
from infuser_core.lineage import documents
from infuser_core.lineage.answer import Answer, Passage, shown
from infuser_core.lineage.run_view import RunView, checkpoint_name, choices_of, pick, validation_around
from infuser_core.store.recipe import Record

QUESTION = (
    "question_id", "text", "choices", "answer", "verifier", "domain", "subdomain", "document_id", "rollout_id",
    "reasoning",
)  # fmt: skip
HEAD = ("question_id", "answer", "verifier", "domain", "subdomain")
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
STEP = ("step", "loss", "gradient_norm", "learning_rate", "clip_fraction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """The optimizer step of an update that a group of rollouts entered."""

    update: Record
    """Artifact of the update."""
    row: Mapping[str, Any] | None
    """The optimizer step; None where the group entered none."""
    place: int
    """Position of the minibatch in the update, from 1."""
    of: int
    """Optimizer steps of the update."""
    advantages: Sequence[float]
    """Advantage of every row of the group."""
    reason: str
    """Why it entered no step; empty otherwise."""

    def to_row(self) -> dict[str, Any]:
        """A line of the table of steps."""
        return {
            "role": self.update.phase.removeprefix("update_"),
            "minibatch": f"{self.place} of {self.of}" if self.row else "none",
            **(pick(self.row, STEP) if self.row else dict.fromkeys(STEP)),
            "checkpoint": self.update.key,
            "why_not": self.reason,
        }


def solver_step(view: RunView, update: Record, group_id: str) -> Entered:
    """The step of the solver's update that a question's answers entered."""
    columns = ("group_id", "reward", "verdict", "finish_reason")
    rollouts = view.rows("rollouts", columns, of=[view.source(update.key, "rollouts")])
    written = view.source(update.key, "questions")
    table = "questions" if "questions" in written.rows else "reference_questions"
    asked = view.rows(table, ("question_id", "document_id"), of=[written])
    document_of = {row["question_id"]: row["document_id"] for row in asked}
    # Only an update with a band of accuracies has the table.
    difficulties = view.rows("difficulties", ("question_id", "inside"), of=[update])
    outside = {row["question_id"] for row in difficulties if not row["inside"]}
    config = json.loads(update.config)
    step, left_out = _step_of(config), set(config.get("left_out", ()))
    penalty = config.get("mid_eos_penalty", 0.0)
    verdicts = step["options"]["mid_eos_verdicts"] if penalty else ()
    rewards = _grouped(
        (
            row["group_id"],
            mid_eos_shaped(row["reward"], row["verdict"], row["finish_reason"], penalty=penalty, verdicts=verdicts),
        )
        for row in rollouts
        if row["group_id"] not in left_out
    )
    varied = [name for name, values in rewards.items() if not is_flat(values) and name not in outside]
    order = [varied[place] for place in stratified_order([document_of[name] for name in varied])]
    reason = "its accuracy lies outside the band" if group_id in outside else "all answers had the same reward"
    reason = "the configuration leaves it out" if group_id in left_out else reason
    return _entered(view, update, step, rewards, order, group_id, reason)


def generator_step(view: RunView, update: Record, document_id: str) -> Entered:
    """The step of the generator's update that a document's texts entered."""
    rows = view.rows("generator_scores", ("document_id", "reward", "trained", "advantage"), of=[update])
    rewards = _grouped((row["document_id"], row["reward"]) for row in rows)
    trained = {row["document_id"] for row in rows if row["trained"]}
    order = [name for name in rewards if name in trained]
    reason = "all texts of the document had the same reward, or there was no dev signal"
    return _entered(view, update, _step_of(json.loads(update.config)), rewards, order, document_id, reason)


def _step_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of the optimizer steps; in recipes of older versions they are those of the solver's update itself."""
    return config.get("step", config)


def _grouped(pairs: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _entered(
    view: RunView,
    update: Record,
    config: Mapping[str, Any],
    rewards: Mapping[str, list[float]],
    order: Sequence[str],
    group: str,
    reason: str,
) -> Entered:
    steps = view.rows("updates", STEP, of=[update])
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
        update=update, row=row, place=place, of=len(steps), advantages=credit, reason="" if row else reason
    )  # fmt: skip


def of_question(view: RunView, written: Record, question: dict[str, Any]) -> Answer:
    """Why a question got its score and what it did."""
    told = _story(view, written, question)
    return view.answer("question", question["question_id"], _headline(told, written), told)


def of_generator_rollout(view: RunView, written: Record, rollout_id: str) -> Answer:
    """Why a text of the generator got its reward: the question it became, or why it became none."""
    question = view.row("questions", QUESTION, "rollout_id = ?", rollout_id, of=[written])
    told = _text(view, written, rollout_id) if question is None else _story(view, written, question)
    return view.answer("generator rollout", rollout_id, _headline(told, written), told)


def of_solver_rollout(view: RunView, written: Record, question: dict[str, Any], rollout_id: str) -> Answer:
    """Why an answer got its reward, and the whole story of the question it answers."""
    told = _story(view, written, question)
    answers = next(passage for passage in told if passage.name == "answers")
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
    return view.answer("solver rollout", rollout_id, headline, [own, *told])


def _story(view: RunView, written: Record, question: dict[str, Any]) -> list[Passage]:
    """A question that a generator wrote, or that a row of the pool carries."""
    author = _rollout(view, written, question["rollout_id"]) if question["rollout_id"] else None
    trained = [solver_step(view, r, question["question_id"]) for r in view.graph.users(written.key, "update_solver")]
    rewarded = view.graph.users(written.key, "update_generator") if author else []
    entered = [*trained, *(generator_step(view, record, question["document_id"]) for record in rewarded)]
    return [
        *documents.passages(view, question["document_id"]),
        *([_generator(view, author)] if author else []),
        _question(view, written, question),
        _answers(view, written, question, trained),
        _influence(view, written, question),
        *(_reward(view, record, author) for record in rewarded if author),
        _updates(entered),
        validation_around(view, written.iteration),
    ]


def _text(view: RunView, written: Record, rollout_id: str) -> list[Passage]:
    """A text of the generator that became no question."""
    author = _rollout(view, written, rollout_id)
    rewarded = view.graph.users(written.key, "update_generator")
    return [
        *documents.passages(view, author["group_id"]),
        _generator(view, author),
        *(_reward(view, record, author) for record in rewarded),
        _updates([generator_step(view, record, author["group_id"]) for record in rewarded]),
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
    oracle = {f"oracle_{name}": label[name] for name in columns} if label else {}
    texts = {"question": question["text"], "choices": choices_of(question), "author's reasoning": question["reasoning"]}
    return Passage(
        name="question",
        title="The question, with its reference answer",
        artifact=written.key,
        facts=pick(question, HEAD) | oracle,
        texts={label: body for label, body in texts.items() if body},
    )


def _answers(view: RunView, written: Record, question: dict[str, Any], trained: Sequence[Entered]) -> Passage:
    records = view.graph.users(written.key, "rollout_questions")
    found = view.rows("rollouts", ANSWERED, "group_id = ?", question["question_id"], of=records)
    if not found:
        return Passage(name="answers", title="Answers of the solver", note="not answered in this run yet")
    credit: list[float | None] = list(trained[0].advantages) if trained else []
    credit += [None] * (len(found) - len(credit))
    rows = [
        {
            **pick(row, ("rollout_id", "reward")),
            "advantage": advantage,
            "verdict": row["verdict"],
            **sampled(row),
            "text": row["text"],
        }
        for row, advantage in zip(found, credit, strict=True)
    ]
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


def _updates(entered: Sequence[Entered]) -> Passage:
    rows = [step.to_row() for step in entered]
    note = "" if rows else "no update of this run used it"
    return Passage(name="updates", title="Optimizer steps it entered", rows=rows, note=note)
