"""Stories of `infuser why` about a question, its texts and answers, and the chunk and textbook it was written from."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from infuser_core.algorithm.advantage import is_flat
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.config.phase_table import Phase
from infuser_core.results.lineage.answer import Answer, Passage, shown
from infuser_core.results.lineage.run_view import RunView, checkpoint_name, listing, passage, role_of, steps_of
from infuser_core.schemas import InfluenceScore, overview
from infuser_core.store.recipe import Record
from infuser_core.store.views import Rows

QUESTION = "The question, with its reference answer"
ADDED = "training_pool"
"""Phase whose `documents` are no chunks of textbooks: problems with their answers, and blank rows."""
GIVEN = "given"
"""Verdict of a question that a row of the pool carries."""
FOREIGN = ("model-", "openai:")
"""Prefixes of rollouts' models that are no checkpoint of the run: a digest of weights, or an address."""


def of_written(view: RunView, written: Record, name: str, question_id: str, rollout_id: str) -> Answer | None:
    """Story of what a generator wrote, or a row of the pool gave: of a question, of its text, or of an answer to it.

    `question_id` is empty for a text, `name` longer than it for an answer; None if the question has no such answer.
    """
    ids = {"question_id": question_id} if question_id else {"rollout_id": rollout_id}
    question = view.row("questions", of=[written], **ids)
    passages = _way(view, written, question, question["rollout_id"] if question else rollout_id)
    if name in (question_id, rollout_id):
        kind = "question" if name == question_id else "generator rollout"
        return view.answer(kind, name, _headline(passages, written), passages)
    assert question is not None, question_id
    answers = next(part for part in passages if part.name == "answers")
    row = next((row for row in answers.rows if row["rollout_id"] == name), None)
    if row is None:
        return None
    own = passage("answer", "This answer", row, artifact=answers.artifact)
    headline = f"judged {row['verdict']}: reward {shown(row['reward'])} (reference answer {question['answer']})"
    return view.answer("solver rollout", name, headline, [own, *passages])


def _headline(passages: Sequence[Passage], written: Record) -> str:
    facts = {part.name: part.facts for part in passages}
    if "question" not in facts:
        return f"no question: {facts['generator']['malformed_reason']}"
    score, origin = facts["influence"], facts["document"]
    parts = [f"written in iteration {written.iteration} from {origin.get('header_path', '?')}"]
    if "generator" not in facts:
        parts = [f"given in iteration {written.iteration} by row {origin.get('document_id', '?')}"]
    if score:
        parts.append(f"answered right {100 * score['solver_accuracy']:.0f}% of the time, {score['status']}")
        parts.append(f"influence {shown(score['score'])}")
    if "advantage" in facts.get("reward", ()):
        parts.append(f"generator advantage {shown(facts['reward']['advantage'])}")
    return "; ".join(parts)


def _way(view: RunView, written: Record, question: dict[str, Any] | None, author: str) -> list[Passage]:
    """From the page to the effect: of a question, which has no author if a row gave it, or of a malformed text."""
    generator = [_generator(view, written, author)] if author else []
    document_id = question["document_id"] if question else generator[0].facts["group_id"]
    middle, reasons = [], []
    if question:
        name = question["question_id"]
        answered = view.graph.users(written.key, Phase.ROLLOUT_QUESTIONS)
        label = view.row("question_labels", "topic", "key", of=[written], question_id=name) or {}
        oracle = {f"oracle_{key}": value for key, value in label.items() if key != "artifact_key"}
        asked = passage("question", QUESTION, question, facts=oracle)
        middle = [asked, _answers(view, answered, name), _influence(view, written, question)]
        trained = view.graph.users(written.key, Phase.UPDATE_SOLVER)
        reasons = [(update, _why_not_solver(view, update, name)) for update in trained]
    rewarded = view.graph.users(written.key, Phase.UPDATE_GENERATOR) if author else []
    reasons += [(update, _why_not_generator(view, update, document_id)) for update in rewarded]
    rows = [
        {"role": role_of(update), "entered": not why_not, "why_not": why_not, **steps}
        for (update, why_not), steps in zip(reasons, steps_of(view, [update for update, _ in reasons]), strict=True)
    ]
    note = "" if rows else "no update of this run used it"
    return [
        *_document(view, document_id),
        *generator,
        *middle,
        *(_reward(view, update, document_id, author) for update in rewarded),
        Passage(name="updates", title="Updates it entered", rows=rows, note=note),
        _validation(view, written.iteration),
    ]


def _generator(view: RunView, written: Record, rollout_id: str) -> Passage:
    row = view.row("rollouts", of=[written], rollout_id=rollout_id)
    assert row is not None, rollout_id
    foreign = row["checkpoint_id"].startswith(FOREIGN)
    writer = "a model in the generator's place, which is never updated" if foreign else ""
    facts = {"checkpoint_is": writer or checkpoint_name(view.record(row["checkpoint_id"]))}
    return passage("generator", "What the generator wrote", row, without=("role", "reward"), facts=facts)


def _answers(view: RunView, records: Sequence[Record], question_id: str) -> Passage:
    found = view.about("questions", question_id, "rollouts", of=records)
    if not found:
        return Passage(name="answers", title="Answers of the solver", note="not answered in this run yet")
    facts = {
        "checkpoint_id": found[0]["checkpoint_id"],
        "checkpoint_is": checkpoint_name(view.record(found[0]["checkpoint_id"])),
        "mean_reward": sum(row["reward"] for row in found) / len(found),
        "answers": len(found),
    }
    vote = view.row("pseudo_labels", "label", "votes", of=records, question_id=question_id)
    if vote is not None:
        facts |= {"rewarded_answer": vote["label"], "votes": vote["votes"]}
    without = ("group_id", "role", "sample_index", "checkpoint_id", "prompt_token_ids", "artifact_key")
    place = found[0]["artifact_key"]
    return listing("answers", "Answers of the solver", found, without=without, artifact=place, facts=facts)


def _influence(view: RunView, written: Record, question: dict[str, Any]) -> Passage:
    records = view.graph.users(written.key, Phase.SCORE_INFLUENCE)
    row = view.row("scores", of=records, question_id=question["question_id"])
    title = "Influence on the dev set"
    if row is None:
        why = "the generator is not updated in this run" if question["rollout_id"] else "no generator wrote it"
        return Passage(name="influence", title=title, note=f"not scored: {why}")
    facts = {}
    if "gradient" in view.graph.inputs(row["artifact_key"]):
        source = view.source(row["artifact_key"], "gradient")
        gradient = view.row("gradients", of=[source]) or {}
        facts = {f"dev_{name}": value for name, value in gradient.items() if name != "artifact_key"}
        facts["dev_gradient"] = source.key
    return passage("influence", title, row, without=("question_id",), facts=facts)


def _reward(view: RunView, record: Record, document_id: str, rollout_id: str) -> Passage:
    rows = view.about("documents", document_id, "generator_scores", of=[record])
    own = next((row for row in rows if row["rollout_id"] == rollout_id), None)
    title = f"Reward of the generator{', with its group' if own else ''}"
    note = "" if own else "left out of the generator's update by the configuration"
    facts = passage("", "", own or {}, without=("document_id", "rollout_id")).facts
    without = ("document_id", "artifact_key")
    return listing("reward", title, rows, without=without, artifact=record.key, facts=facts, note=note)


def _why_not_solver(view: RunView, update: Record, question_id: str) -> str:
    """Reason for which a question's answers entered no step of the solver's update; empty if they entered one."""
    config = update.config
    if question_id in config.get("left_out", ()):
        return "the configuration leaves it out"
    # Only an update with a band of accuracies has the table.
    difficulty = view.row("difficulties", "inside", of=[update], question_id=question_id)
    if difficulty is not None and not difficulty["inside"]:
        return "its accuracy is outside the band"
    if lost := _not_finite(view, update, question_id):
        return lost
    names, penalty = ("reward", "verdict", "finish_reason"), config.get("mid_eos_penalty", 0.0)
    # Recipes of older versions have the options elsewhere.
    step = config.get("step", config)
    verdicts = step.get("objective", step)["options"]["mid_eos_verdicts"] if penalty else ()
    rows = view.about("questions", question_id, "rollouts", *names, of=[view.source(update.key, "rollouts")])
    rewards = [mid_eos_shaped(*(row[name] for name in names), penalty=penalty, verdicts=verdicts) for row in rows]
    return "all answers had the same reward" if is_flat(rewards) else ""


def _why_not_generator(view: RunView, update: Record, document_id: str) -> str:
    """Reason for which a document's texts entered no step of the generator's update; empty if they entered one."""
    if lost := _not_finite(view, update, document_id):
        return lost
    rows = view.about("documents", document_id, "generator_scores", "trained", of=[update])
    reason = "all texts of the document had the same reward, or there was no dev signal"
    return "" if any(row["trained"] for row in rows) else reason


def _not_finite(view: RunView, update: Record, group_id: str) -> str:
    """The number for which an update left a question or document out; empty if it did not."""
    row = view.row("not_finite", of=[update], group_id=group_id)
    return f"its {row['quantity']} is {row['value']}" if row else ""


def _validation(view: RunView, iteration: int) -> Passage:
    """The last validation before an iteration's updates and the first after them."""
    scores = view.scores(Phase.VALIDATE)
    before = [row for row in scores if row["after_iterations"] <= iteration][-1:]
    after = [row for row in scores if row["after_iterations"] > iteration][:1]
    facts: dict[str, Any] = {}
    if before and after:
        between = after[0]["after_iterations"] - before[0]["after_iterations"]
        facts = {"change": after[0]["accuracy"] - before[0]["accuracy"], "iterations_between": between}
    chosen = view.selected()
    if chosen is not None:
        facts["selected_iteration"] = chosen["selected_iteration"]
        facts["in_the_selected_checkpoint"] = chosen["selected_iteration"] > iteration
    note = "the change is that of all updates between the two validations, not of this one alone"
    note = note if after else "no validation after the update yet"
    title = "Validation accuracy around the update"
    return listing("validation", title, before + after, facts=facts, note=note)


def _document(view: RunView, document_id: str) -> list[Passage]:
    """Textbook, chunk with its pages, and the judgement on it."""
    row = find_document(view, document_id)
    if row is None:
        return [Passage(name="document", title="Document", note=f"document {document_id} is gone from the store")]
    if view.graph.records[row["artifact_key"]].phase == ADDED:
        title = "Row of the pool: a problem that is given" if row["text"] else "Blank row of the pool"
        return [passage("document", title, row)]
    source = _source(view, row["source_id"])
    chunk = passage("document", "Chunk of the textbook", row, facts=_pages(view, row))
    judgements = view.about("documents", document_id, "judgements")
    if not judgements:
        return [source, chunk]
    overlaps = view.about("documents", document_id, "overlaps")
    # The last decision counts: the judge's comes after chunking, the overlap rule of the pool after the judge's.
    order = list(view.graph.records)
    last = max(judgements, key=lambda row: order.index(row["artifact_key"]))
    decided = passage(
        "judgement",
        "Why the chunk was kept" if last["keep"] else "Why the chunk was dropped",
        last,
        without=("document_id",),
        facts={"overlaps_found": len(overlaps)},
        rows=listing("", "", overlaps, without=("document_id", "artifact_key")).rows,
    )
    return [source, chunk, decided]


def find_document(view: RunView, document_id: str) -> dict[str, Any] | None:
    """A chunk's row, from the pool or from the chunks that did not reach it; None if the run has none."""
    for table in ("documents", "chunks"):
        row = view.row(table, document_id=document_id)
        if row is not None:
            return row | {"in_pool": table == "documents"}
    return None


def _source(view: RunView, source_id: str) -> Passage:
    entries = view.rows("sources", source_id=source_id)
    if entries:
        # Another copy of the book may have been rejected under the same identifier.
        return passage("source", "Textbook", min(entries, key=lambda row: row["status"] != "admitted"))
    if not source_id:
        note = "the document names no source"
    elif not view.graph.holding("sources"):
        note = "the run read no registry of sources: its pool is documents alone, without a build's sources.parquet"
    else:
        note = "the registry of the run's pool has no such source"
    return Passage(name="source", title="Textbook", facts={"source_id": source_id} if source_id else {}, note=note)


def _pages(view: RunView, row: dict[str, Any]) -> dict[str, Any]:
    """Pages of the book that a chunk is on, counted from 1, if the converter knows them."""
    names = ("num_pages", "converter", "page_starts", "sha256")
    page = view.row("pages", *names, source_id=row["source_id"], reason="")
    if page is None:
        return {}
    facts = {"converter": page["converter"], "markdown_sha256": page["sha256"], "num_pages": page["num_pages"]}
    starts = page["page_starts"] or []
    if not starts:
        return facts
    first, last = bisect_right(starts, row["start"]), bisect_right(starts, row["end"] - 1)
    return {"page": first if first == last else f"{first}-{last}"} | facts


def of_document(view: RunView, document_id: str) -> Answer | None:
    """Story of a chunk: its textbook, what was written from it, and the rewards; None if the run has no such chunk."""
    if find_document(view, document_id) is None:
        return None
    written = drawn(view, [document_id])
    keys = dict.fromkeys(row["artifact_key"] for row in written)
    updates = {user.key: user for key in keys for user in view.graph.users(key, Phase.UPDATE_GENERATOR)}
    rewards = [
        {"iteration": updates[row["artifact_key"]].iteration, **row}
        for row in view.about("documents", document_id, "generator_scores", of=updates.values())
    ]
    note, other = ("" if rewards else "no update of the generator read it"), ("" if written else "never drawn")
    title = "Rewards and advantages of the generator"
    passages = [
        *_document(view, document_id),
        listing("texts", "What the generator wrote from it", written, without=("document_id",), note=other),
        listing("rewards", title, rewards, without=("document_id",), note=note),
    ]
    iterations, questions = {row["iteration"] for row in written}, [row for row in written if row["question_id"]]
    headline = f"drawn in {len(iterations)} iterations; {len(written)} texts, {len(questions)} of them questions"
    return view.answer("document", document_id, headline, passages)


def drawn(view: RunView, document_ids: list[str]) -> Rows:
    """Every text the generator wrote from these documents, with the question it became and what that scored."""
    records = {record.key: record for record in view.graph.of(Phase.GENERATE_QUESTIONS)}
    text = ("rollout_id", "group_id", "verdict", "malformed_reason")
    texts = view.about("documents", document_ids, "rollouts", *text, of=records.values())
    ids = ("question_id", "rollout_id", "document_id")
    became = view.about("documents", document_ids, "questions", *ids, of=records.values())
    # A row that carries its question gives it without a text of the generator.
    texts += [
        row | {"group_id": row["document_id"], "verdict": GIVEN, "malformed_reason": ""}
        for row in became
        if not row["rollout_id"]
    ]
    questions = {(row["artifact_key"], row["rollout_id"] or row["document_id"]): row["question_id"] for row in became}
    scored = [user for key in records for user in view.graph.users(key, Phase.SCORE_INFLUENCE)]
    measured = overview(InfluenceScore)
    rows = view.about(
        "questions", sorted(set(questions.values())), "scores", "question_id", *measured, of=scored
    )  # fmt: skip
    scores = {row["question_id"]: row for row in rows}
    found = []
    for row in texts:
        question = questions.get((row["artifact_key"], row["rollout_id"] or row["group_id"]))
        score = scores.get(question or "", {})
        found.append(
            {
                "iteration": records[row["artifact_key"]].iteration,
                "verdict": row["malformed_reason"] or row["verdict"],
                **{name: score.get(name) for name in measured},
                "document_id": row["group_id"],
                "rollout_id": row["rollout_id"],
                "question_id": question,
                "artifact_key": row["artifact_key"],
            }
        )
    return sorted(found, key=lambda row: (row["iteration"], row["rollout_id"]))


def of_source(view: RunView, source_id: str) -> Answer | None:
    """Story of a textbook: its chunks and the questions written from them; None if the run has no such textbook."""
    chunks = view.about("sources", source_id, "chunks", "document_id", "header_path")
    pool = {row["document_id"] for row in view.about("sources", source_id, "documents", "document_id")}
    source = _source(view, source_id)
    if not pool and not source.artifact:
        return None
    questions = Counter(row["document_id"] for row in drawn(view, sorted(pool)) if row["question_id"] is not None)
    rows = [row | {"in_pool": row["document_id"] in pool, "questions": questions[row["document_id"]]} for row in chunks]
    headline = f"{len(pool)} of {len(chunks)} chunks in the pool; {questions.total()} questions were written from them"
    passages = [source, listing("documents", "Its chunks", rows, without=("artifact_key",))]
    return view.answer("source", source_id, headline, passages)
