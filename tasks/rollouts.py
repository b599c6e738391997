"""Records of co-training's stages: answers with pseudo-labels, how many keys are right, steps of an update."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from infuser_core.config.phase_table import Phase
from infuser_core.cotrain.phases.parts.health import complaints
from infuser_core.cotrain.phases.rollout_questions import PseudoLabel
from infuser_core.cotrain.phases.update_solver import Difficulty, SolverSettings, SolverUpdate
from infuser_core.evaluation.statistics.key_accuracy import key_warning
from infuser_core.schemas import KeyAccuracy, Question, Rollout, Update
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


def questions_of(store: Store, questions: ArtifactRef) -> list[Question]:
    """The questions that were answered: generated ones, or those of a dev set."""
    table = "questions" if questions.kind == Phase.GENERATE_QUESTIONS else "reference_questions"
    return store.rows(questions, table, Question)


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
        if said := key_warning(row, run.config.cotrain.key_floor):
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
