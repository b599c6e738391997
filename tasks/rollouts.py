"""Records of co-training's stages: answers with pseudo-labels, how many keys are right, steps of an update."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from infuser_core.config.phase_table import Phase
from infuser_core.phases.parts.health import complaints
from infuser_core.phases.parts.owed import Written
from infuser_core.phases.parts.partial_rollouts import Segment, Waiting
from infuser_core.phases.rollout_questions import Answered, PseudoLabel
from infuser_core.phases.update_solver import Difficulty, SolverSettings, SolverUpdate
from infuser_core.schemas import InfluenceScore, KeyAccuracy, Question, Rollout, Update
from infuser_core.statistics.keys import complaint
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Store, Table
from tasks.run import Run
from tasks.work import with_lost


def answered_with(rollouts: list[Rollout]) -> Outcome:
    """The rollouts, with their accuracy."""
    accuracy = sum(row.reward for row in rollouts) / max(1, len(rollouts))
    return Outcome(
        tables={"rollouts": Table(row_type=Rollout, rows=rollouts)},
        summary={"accuracy": round(accuracy, 4), "tokens": sum(len(row.token_ids) for row in rollouts)},
    )


def with_waiting(made: Outcome, answered: Answered) -> Outcome:
    """The answers with the questions that they belong to, and what the next iteration goes on with."""
    waiting = answered.waiting
    if waiting is None:
        return made
    drawn = sum(segment.tokens for segment in waiting.segments)
    tables = {
        "answered_questions": Table(row_type=Question, rows=answered.questions),
        "waiting_questions": Table(row_type=Question, rows=waiting.questions),
        "waiting_rollouts": Table(row_type=Rollout, rows=waiting.rollouts),
        "segments": Table(row_type=Segment, rows=waiting.segments),
    }
    summary = {**made.summary, "tokens": drawn, "waiting": len(waiting.questions)}
    return replace(made, tables={**made.tables, **tables}, summary=summary)


def waiting_of(store: Store, answers: ArtifactRef | None) -> Waiting:
    """Answers that the last iteration left to go on with."""
    if answers is None:
        return Waiting()
    return Waiting(
        questions=store.rows(answers, "waiting_questions", Question),
        rollouts=store.rows(answers, "waiting_rollouts", Rollout),
        segments=store.rows(answers, "segments", Segment),
    )


def answered_questions(store: Store, questions: ArtifactRef, answers: ArtifactRef) -> list[Question]:
    """The questions that the answers belong to: those of the iteration, where it waited for all of them."""
    if "answered_questions" in store.manifest(answers).rows:
        return store.rows(answers, "answered_questions", Question)
    table = "questions" if questions.kind == Phase.GENERATE_QUESTIONS else "reference_questions"
    return store.rows(questions, table, Question)


def owed_of(store: Store, generator: ArtifactRef) -> Written:
    """Texts that the generator's last update could not reward yet."""
    if "owed_rollouts" not in store.manifest(generator).rows:
        return Written()
    return Written(
        rollouts=store.rows(generator, "owed_rollouts", Rollout),
        questions=store.rows(generator, "owed_questions", Question),
        scores=store.rows(generator, "owed_scores", InfluenceScore),
    )


def with_owed(made: Outcome, later: Written) -> Outcome:
    """The update with what it could not reward yet, which the next one reads; nothing where that is nothing."""
    if not later.rollouts:
        return made
    tables = {
        "owed_rollouts": Table(row_type=Rollout, rows=later.rollouts),
        "owed_questions": Table(row_type=Question, rows=later.questions),
        "owed_scores": Table(row_type=InfluenceScore, rows=later.scores),
    }
    return replace(made, tables={**made.tables, **tables}, summary={**made.summary, "owed": len(later.rollouts)})


def with_labels(made: Outcome, labels: list[PseudoLabel]) -> Outcome:
    """The answers with the labels that they were compared with, and how often these agree with the keys."""
    agreeing = sum(label.agrees for label in labels) / max(1, len(labels))
    return replace(
        made,
        tables={**made.tables, "pseudo_labels": Table(row_type=PseudoLabel, rows=labels)},
        summary={**made.summary, "labels_agree_with_keys": round(agreeing, 4)},
    )


def with_keys(made: Outcome, run: Run, keys: Sequence[KeyAccuracy]) -> Outcome:
    """The answers with the estimate of right keys, said aloud where it is below the floor."""
    for row in keys:
        if said := complaint(row, run.config.cotrain.key_floor):
            warnings.warn(said, stacklevel=2)
    told = {f"key_{name}": round(getattr(row, name), 4) for row in keys for name in ("accuracy", "low", "high")}
    tables = {**made.tables, "key_accuracies": Table(row_type=KeyAccuracy, rows=keys)}
    return replace(made, tables=tables, summary={**made.summary, **told})


def steps_of(before: int, updates: list[Update]) -> dict[str, object]:
    """Steps taken and skipped, with what a practitioner would watch said aloud."""
    for line in complaints(updates[0].role, updates) if updates else []:
        warnings.warn(line, stacklevel=2)
    taken = sum(not update.skipped for update in updates)
    status = "ok" if updates else "skipped: no group with variance"
    if taken < len(updates):
        status = f"{len(updates) - taken} of {len(updates)} steps skipped: no finite gradient norm"
    return {"step": before + taken, "steps_taken": taken, "status": status}


def updated(before: int, done: SolverUpdate, settings: SolverSettings) -> Outcome:
    """The solver's update, with the questions outside the band of accuracies where there is one."""
    tables = {"updates": Table(row_type=Update, rows=done.updates)}
    summary = steps_of(before, done.updates)
    if settings.band is not None:
        tables["difficulties"] = Table(row_type=Difficulty, rows=done.difficulties)
        summary["outside_band"] = sum(not row.inside for row in done.difficulties)
    return with_lost(Outcome(tables=tables, summary=summary), done.lost)


def why_none(texts: Sequence[Rollout]) -> dict[str, str]:
    """The most frequent reason, where none of the texts is a question: an iteration without one teaches nothing."""
    reasons = Counter(text.malformed_reason for text in texts)
    if not texts or "" in reasons:
        return {}
    return {"said": f"no question in {len(texts)} texts: {reasons.most_common(1)[0][0]}"}


def counts(values: list[str]) -> dict[str, int]:
    """Number of times that each value occurs."""
    return {str(value): values.count(value) for value in sorted(set(values))}
