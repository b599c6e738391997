"""Explanations by `infuser why` of generated questions, generator texts, answers, chunks and textbooks."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.algorithm.advantage import is_flat
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.config.phase_table import Phase
from infuser_core.errors import quantity
from infuser_core.results.lineage.run_view import RunView, role_of
from infuser_core.results.lineage.story import Passage, Story, format_value, row_passage, table_passage
from infuser_core.schemas import InfluenceScore, overview
from infuser_core.store.recipe import Record
from infuser_core.store.views import Rows

QUESTION = "The question, with its reference answer"
GIVEN = "given"
"""Verdict of a question that comes from a row of the pool, not from a generator's text."""
FOREIGN = ("model-", "openai:")
"""Prefixes of checkpoint ids of foreign models: a digest of weights, or an address."""


def generated_story(view: RunView, batch: Record, name: str, question_id: str, rollout_id: str) -> Story | None:
    """Explain a generated question, a generator's text, or an answer; `batch` is the artifact of its iteration.

    `question_id` is empty for a text; for an answer, `name` extends it. None if the question has no such answer.
    """
    ids = {"question_id": question_id} if question_id else {"rollout_id": rollout_id}
    question = view.row("questions", of=[batch], **ids)
    passages = _generated_passages(view, batch, question, rollout_id)
    if name in (question_id, rollout_id):
        kind = "question" if name == question_id else "generator rollout"
        return view.story(kind, name, _headline(passages, batch), passages)
    assert question is not None, question_id
    answers = next(passage for passage in passages if passage.name == "answers")
    row = next((row for row in answers.rows if row["rollout_id"] == name), None)
    if row is None:
        return None
    headline = f"judged {row['verdict']}: reward {format_value(row['reward'])} (reference answer {question['answer']})"
    answer = row_passage("answer", "This answer", row, artifact=answers.artifact)
    return view.story("solver rollout", name, headline, [answer, *passages])


def _headline(passages: Sequence[Passage], batch: Record) -> str:
    facts = {passage.name: passage.facts for passage in passages}
    if "question" not in facts:
        return f"no question: {facts['generator']['malformed_reason']}"
    score, document = facts["influence"], facts["document"]
    if "generator" in facts:
        parts = [f"written in iteration {batch.iteration} from {document.get('header_path', '?')}"]
    else:
        parts = [f"given in iteration {batch.iteration} by row {document.get('document_id', '?')}"]
    if score:
        parts.append(f"answered right {100 * score['solver_accuracy']:.0f}% of the time, {score['status']}")
        parts.append(f"influence {format_value(score['score'])}")
    if "advantage" in facts.get("reward", ()):
        parts.append(f"generator advantage {format_value(facts['reward']['advantage'])}")
    return "; ".join(parts)


def _generated_passages(
    view: RunView, batch: Record, question: dict[str, Any] | None, rollout_id: str
) -> list[Passage]:
    """Passages from the textbook page to the effect on validation, for a question or a malformed text."""
    author = question["rollout_id"] if question else rollout_id
    passages, updates = [], []
    document_id = question["document_id"] if question else ""
    if author:
        row = view.row("rollouts", of=[batch], rollout_id=author)
        assert row is not None, author
        document_id = document_id or row["group_id"]
        foreign = row["checkpoint_id"].startswith(FOREIGN)
        writer = "a model in the generator's place, which is never updated" if foreign else ""
        facts = {"checkpoint_is": writer or view.describe_checkpoint(row["checkpoint_id"])}
        title = "What the generator wrote"
        passages.append(row_passage("generator", title, row, without=("role", "reward"), facts=facts))
    if question:
        label = view.row("question_labels", "topic", "key", of=[batch], question_id=question["question_id"]) or {}
        oracle = {f"oracle_{key}": value for key, value in label.items() if key != "artifact_key"}
        passages.append(row_passage("question", QUESTION, question, facts=oracle))
        passages.append(_answers_passage(view, batch, question["question_id"]))
        passages.append(_influence_passage(view, batch, question))
        updates += view.graph.users(batch.key, Phase.UPDATE_SOLVER)
    if author:
        generators = view.graph.users(batch.key, Phase.UPDATE_GENERATOR)
        passages += [_reward_passage(view, update, document_id, author) for update in generators]
        updates += generators
    rows = []
    for update, steps in zip(updates, view.steps(updates), strict=True):
        reason = _reason_left_out(view, update, question["question_id"] if question else "", document_id)
        rows.append({"role": role_of(update), "entered": not reason, "why_not": reason, **steps})
    note = "" if rows else "no update of this run used it"
    passages.append(Passage(name="updates", title="Updates it entered", rows=rows, note=note))
    return [*_document_passages(view, document_id), *passages, _validation_passage(view, batch.iteration)]


def _answers_passage(view: RunView, batch: Record, question_id: str) -> Passage:
    title, records = "Answers of the solver", view.graph.users(batch.key, Phase.ROLLOUT_QUESTIONS)
    answers = view.rows("rollouts", of=records, group_id=question_id)
    if not answers:
        return Passage(name="answers", title=title, note="not answered in this run yet")
    checkpoint_id, artifact = answers[0]["checkpoint_id"], answers[0]["artifact_key"]
    facts = {
        "checkpoint_id": checkpoint_id,
        "checkpoint_is": view.describe_checkpoint(checkpoint_id),
        "mean_reward": sum(row["reward"] for row in answers) / len(answers),
        "answers": len(answers),
    }
    vote = view.row("pseudo_labels", "label", "votes", of=records, question_id=question_id)
    if vote is not None:
        facts |= {"rewarded_answer": vote["label"], "votes": vote["votes"]}
    without = ("group_id", "role", "sample_index", "checkpoint_id", "prompt_token_ids", "artifact_key")
    return table_passage("answers", title, answers, without=without, artifact=artifact, facts=facts)


def _influence_passage(view: RunView, batch: Record, question: dict[str, Any]) -> Passage:
    title, records = "Influence on the dev set", view.graph.users(batch.key, Phase.SCORE_INFLUENCE)
    row = view.row("scores", of=records, question_id=question["question_id"])
    if row is None:
        reason = "the generator is not updated in this run" if question["rollout_id"] else "no generator wrote it"
        return Passage(name="influence", title=title, note=f"not scored: {reason}")
    facts = {}
    if "gradient" in view.graph.inputs(row["artifact_key"]):
        source = view.source(row["artifact_key"], "gradient")
        gradient = view.row("gradients", of=[source]) or {}
        facts = {f"dev_{name}": value for name, value in gradient.items() if name != "artifact_key"}
        facts[Phase.DEV_GRADIENT.value] = source.key
    return row_passage("influence", title, row, without=("question_id",), facts=facts)


def _reward_passage(view: RunView, update: Record, document_id: str, rollout_id: str) -> Passage:
    rows = view.rows("generator_scores", of=[update], document_id=document_id)
    reward = next((row for row in rows if row["rollout_id"] == rollout_id), {})
    return table_passage(
        "reward",
        f"Reward of the generator{', with its group' if reward else ''}",
        rows,
        without=("document_id", "artifact_key"),
        artifact=update.key,
        facts=row_passage("", "", reward, without=("document_id", "rollout_id")).facts,
        note="" if reward else "left out of the generator's update by the configuration",
    )


def _reason_left_out(view: RunView, update: Record, question_id: str, document_id: str) -> str:
    """Reason why a question's answers, or a document's texts, entered no step of an update; empty if they did."""
    is_solver, config = update.phase == Phase.UPDATE_SOLVER, update.config
    row = view.row("not_finite", of=[update], group_id=question_id if is_solver else document_id)
    if row is not None:
        return f"its {row['quantity']} is {row['value']}"
    if not is_solver:
        rows = view.rows("generator_scores", "trained", of=[update], document_id=document_id)
        reason = "all texts of the document had the same reward, or there was no dev signal"
        return "" if any(row["trained"] for row in rows) else reason
    if question_id in config.get("left_out", ()):
        return "the configuration leaves it out"
    # The table exists only for updates with a band of accuracies.
    difficulty = view.row("difficulties", "inside", of=[update], question_id=question_id)
    if difficulty is not None and not difficulty["inside"]:
        return "its accuracy is outside the band"
    names, penalty = ("reward", "verdict", "finish_reason"), config.get("mid_eos_penalty", 0.0)
    # Recipes of older versions hold the options in another place.
    step = config.get("step", config)
    verdicts = step.get("objective", step)["options"]["mid_eos_verdicts"] if penalty else ()
    rows = view.rows("rollouts", *names, of=[view.source(update.key, "rollouts")], group_id=question_id)
    rewards = [mid_eos_shaped(*(row[name] for name in names), penalty=penalty, verdicts=verdicts) for row in rows]
    return "all answers had the same reward" if is_flat(rewards) else ""


def _validation_passage(view: RunView, iteration: int) -> Passage:
    """Passage on the last validation before an iteration's updates and the first after them."""
    scores = view.scores(Phase.VALIDATE)
    before = [row for row in scores if row["after_iterations"] <= iteration][-1:]
    after = [row for row in scores if row["after_iterations"] > iteration][:1]
    facts: dict[str, Any] = {}
    if before and after:
        between = after[0]["after_iterations"] - before[0]["after_iterations"]
        facts = {"change": after[0]["accuracy"] - before[0]["accuracy"], "iterations_between": between}
    selection = view.selected()
    if selection is not None:
        facts["selected_iteration"] = selection["selected_iteration"]
        facts["in_the_selected_checkpoint"] = selection["selected_iteration"] > iteration
    note = "the change is that of all updates between the two validations, not of this one alone"
    note = note if after else "no validation after the update yet"
    return table_passage("validation", "Validation accuracy around the update", before + after, facts=facts, note=note)


def _document_passages(view: RunView, document_id: str) -> list[Passage]:
    """Passages on the textbook, the chunk with its pages, and the judgement on it."""
    row = _find_document(view, document_id)
    if row is None:
        return [Passage(name="document", title="Document", note=f"document {document_id} is gone from the store")]
    # Documents of this phase are not chunks of textbooks but given problems and blank rows.
    if view.graph.records[row["artifact_key"]].phase == Phase.TRAINING_POOL:
        title = "Row of the pool: a problem that is given" if row["text"] else "Blank row of the pool"
        return [row_passage("document", title, row)]
    passages = [
        _source_passage(view, row["source_id"]),
        row_passage("document", "Chunk of the textbook", row, facts=_pages(view, row)),
    ]
    judgements = view.rows("judgements", document_id=document_id)
    if judgements:
        overlaps = view.rows("overlaps", document_id=document_id)
        # The last decision counts: chunking, then the judge, then the overlap rule of the pool.
        order = list(view.graph.records)
        last = max(judgements, key=lambda row: order.index(row["artifact_key"]))
        title = "Why the chunk was kept" if last["keep"] else "Why the chunk was dropped"
        rows = table_passage("", "", overlaps, without=("document_id", "artifact_key")).rows
        facts = {"overlaps_found": len(overlaps)}
        passages.append(row_passage("judgement", title, last, without=("document_id",), facts=facts, rows=rows))
    return passages


def _find_document(view: RunView, document_id: str) -> dict[str, Any] | None:
    """Row of a chunk, from the pool or from the chunks dropped before it; None if the run has none."""
    for table in ("documents", "chunks"):
        row = view.row(table, document_id=document_id)
        if row is not None:
            return row | {"in_pool": table == "documents"}
    return None


def _source_passage(view: RunView, source_id: str) -> Passage:
    entries = view.rows("sources", source_id=source_id)
    if entries:
        # Prefer the admitted copy: another may have been rejected under the same identifier.
        return row_passage("source", "Textbook", min(entries, key=lambda row: row["status"] != "admitted"))
    if not source_id:
        note = "the document names no source"
    elif not view.graph.holding("sources"):
        note = "the run read no registry of sources: its pool is documents alone, without a build's sources.parquet"
    else:
        note = "the registry of the run's pool has no such source"
    return Passage(name="source", title="Textbook", facts={"source_id": source_id} if source_id else {}, note=note)


def _pages(view: RunView, chunk: dict[str, Any]) -> dict[str, Any]:
    """Pages of the book that a chunk is on, counted from 1; without a page if the converter recorded none."""
    names = ("num_pages", "converter", "page_starts", "sha256")
    book = view.row("pages", *names, source_id=chunk["source_id"], reason="")
    if book is None:
        return {}
    facts = {"converter": book["converter"], "markdown_sha256": book["sha256"], "num_pages": book["num_pages"]}
    starts = book["page_starts"] or []
    if not starts:
        return facts
    first, last = bisect_right(starts, chunk["start"]), bisect_right(starts, chunk["end"] - 1)
    return {"page": first if first == last else f"{first}-{last}"} | facts


def document_story(view: RunView, document_id: str) -> Story | None:
    """Explain a chunk by its textbook, the texts written from it, and their rewards; None if the run lacks it."""
    if _find_document(view, document_id) is None:
        return None
    texts = generated_texts(view, [document_id])
    keys = dict.fromkeys(row["artifact_key"] for row in texts)
    updates = {user.key: user for key in keys for user in view.graph.users(key, Phase.UPDATE_GENERATOR)}
    rewards = [
        {"iteration": updates[row["artifact_key"]].iteration, **row}
        for row in view.rows("generator_scores", of=updates.values(), document_id=document_id)
    ]
    iterations, questions = {row["iteration"] for row in texts}, [row for row in texts if row["question_id"]]
    counts = f"{quantity(len(iterations), 'iteration')}; {quantity(len(texts), 'text')}"
    headline = f"drawn in {counts}, {len(questions)} of them questions"
    texts_note, rewards_note = "" if texts else "never drawn", "" if rewards else "no update of the generator read it"
    rewards_title, without = "Rewards and advantages of the generator", ("document_id",)
    passages = [
        *_document_passages(view, document_id),
        table_passage("texts", "What the generator wrote from it", texts, without=without, note=texts_note),
        table_passage("rewards", rewards_title, rewards, without=without, note=rewards_note),
    ]
    return view.story("document", document_id, headline, passages)


def generated_texts(view: RunView, document_ids: list[str]) -> Rows:
    """Texts that the generator wrote from these documents, with their questions and scores."""
    batches = {record.key: record for record in view.graph.of(Phase.GENERATE_QUESTIONS)}
    names = ("rollout_id", "group_id", "verdict", "malformed_reason")
    texts = view.rows("rollouts", *names, of=batches.values(), group_id=document_ids)
    ids = ("question_id", "rollout_id", "document_id")
    questions = view.rows("questions", *ids, of=batches.values(), document_id=document_ids)
    # Add given questions: rows of the pool with a question, which no generator wrote.
    texts += [
        row | {"group_id": row["document_id"], "verdict": GIVEN, "malformed_reason": ""}
        for row in questions
        if not row["rollout_id"]
    ]
    question_ids = {
        (row["artifact_key"], row["rollout_id"] or row["document_id"]): row["question_id"] for row in questions
    }
    measures = overview(InfluenceScore)
    updates = [user for key in batches for user in view.graph.users(key, Phase.SCORE_INFLUENCE)]
    scores = {
        row["question_id"]: row
        for row in view.rows("scores", "question_id", *measures, of=updates, question_id=[*question_ids.values()])
    }
    rows = []
    for text in texts:
        question_id = question_ids.get((text["artifact_key"], text["rollout_id"] or text["group_id"]))
        score = scores.get(question_id or "", {})
        rows.append(
            {
                "iteration": batches[text["artifact_key"]].iteration,
                "verdict": text["malformed_reason"] or text["verdict"],
                **{name: score.get(name) for name in measures},
                "document_id": text["group_id"],
                "rollout_id": text["rollout_id"],
                "question_id": question_id,
                "artifact_key": text["artifact_key"],
            }
        )
    return sorted(rows, key=lambda row: (row["iteration"], row["rollout_id"]))


def source_story(view: RunView, source_id: str) -> Story | None:
    """Explain a textbook by its chunks and the questions written from them; None if the run has no such textbook."""
    chunks = view.rows("chunks", "document_id", "header_path", source_id=source_id)
    pool = {row["document_id"] for row in view.rows("documents", "document_id", source_id=source_id)}
    source = _source_passage(view, source_id)
    if not pool and not source.artifact:
        return None
    texts = generated_texts(view, sorted(pool))
    questions = Counter(row["document_id"] for row in texts if row["question_id"] is not None)
    rows = [row | {"in_pool": row["document_id"] in pool, "questions": questions[row["document_id"]]} for row in chunks]
    headline = f"{len(pool)} of {len(chunks)} chunks in the pool; {questions.total()} questions were written from them"
    passages = [source, table_passage("documents", "Its chunks", rows, without=("artifact_key",))]
    return view.story("source", source_id, headline, passages)
