"""Read and build tables of co-training stages: rollouts with pseudo-labels and key accuracy, and steps of updates."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from infuser_core.config.phase_table import Phase
from infuser_core.cotrain.phases.parts.health import health_warnings, key_warning
from infuser_core.cotrain.phases.rollout_questions import PseudoLabel
from infuser_core.cotrain.phases.update_solver import Difficulty, SolverSettings, SolverUpdate
from infuser_core.errors import DataWarning
from infuser_core.schemas import KeyAccuracy, Question, Rollout, Update
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Store, Table
from tasks.run import Run
from tasks.work import add_not_finite


def rollouts_outcome(rollouts: list[Rollout]) -> Outcome:
    """Make an outcome of rollouts, with their accuracy and number of tokens."""
    accuracy = sum(row.reward for row in rollouts) / max(1, len(rollouts))
    return Outcome(
        tables={"rollouts": Table(row_type=Rollout, rows=rollouts)},
        summary={"accuracy": round(accuracy, 4), "tokens": sum(len(row.token_ids) for row in rollouts)},
    )


def questions_of(store: Store, questions: ArtifactRef) -> list[Question]:
    """Read the questions of an artifact: generated ones or a dev set."""
    table = "questions" if questions.kind == Phase.GENERATE_QUESTIONS else "reference_questions"
    return store.rows(questions, table, Question)


def answers_of(store: Store, gradient: ArtifactRef) -> list[Rollout]:
    """Read the dev answers from which a gradient was computed."""
    return store.rows(Catalogue(store.root).input_ref(gradient.key, "rollouts"), "rollouts", Rollout)


def add_labels(outcome: Outcome, labels: list[PseudoLabel]) -> Outcome:
    """Add the pseudo-labels that were compared with the answers, and their agreement with the keys."""
    agreeing = sum(label.agrees for label in labels) / max(1, len(labels))
    return replace(
        outcome,
        tables={**outcome.tables, "pseudo_labels": Table(row_type=PseudoLabel, rows=labels)},
        summary={**outcome.summary, "labels_agree_with_keys": round(agreeing, 4)},
    )


def add_key_accuracy(outcome: Outcome, run: Run, keys: Sequence[KeyAccuracy]) -> Outcome:
    """Add the estimated share of right keys; warn if it is below `cotrain.key_floor`."""
    for row in keys:
        if warning := key_warning(row, run.config.cotrain.key_floor):
            warnings.warn(warning, DataWarning, stacklevel=2)
    shares = {f"key_{name}": round(getattr(row, name), 4) for row in keys for name in ("accuracy", "low", "high")}
    tables = {**outcome.tables, "key_accuracies": Table(row_type=KeyAccuracy, rows=keys)}
    return replace(outcome, tables=tables, summary={**outcome.summary, **shares})


def steps_of(before: int, updates: list[Update]) -> dict[str, object]:
    """Summarize an update by taken and skipped steps; emits health warnings."""
    for line in health_warnings(updates[0].role, updates) if updates else []:
        warnings.warn(line, DataWarning, stacklevel=2)
    count = sum(not update.skipped for update in updates)
    status = "ok" if updates else "skipped: no group with variance"
    if count < len(updates):
        status = f"{len(updates) - count} of {len(updates)} steps skipped: no finite gradient norm"
    return {"step": before + count, "steps_taken": count, "status": status}


def solver_outcome(before: int, update: SolverUpdate, settings: SolverSettings) -> Outcome:
    """Make the outcome of a solver update, with the questions outside the band of accuracies if one is set."""
    tables = {"updates": Table(row_type=Update, rows=update.updates)}
    summary = steps_of(before, update.updates)
    if settings.band is not None:
        tables["difficulties"] = Table(row_type=Difficulty, rows=update.difficulties)
        summary["outside_band"] = sum(not row.inside for row in update.difficulties)
    return add_not_finite(Outcome(tables=tables, summary=summary), update.not_finite)


def explain_no_questions(texts: Sequence[Rollout]) -> dict[str, str]:
    """Summary entry that explains why no text is a question, by the most frequent reason; empty otherwise."""
    reasons = Counter(text.malformed_reason for text in texts)
    if not texts or "" in reasons:
        return {}
    return {"said": f"no question in {len(texts)} texts: {reasons.most_common(1)[0][0]}"}


def counts(values: list[str]) -> dict[str, int]:
    """Count the occurrences of each value."""
    return {str(value): values.count(value) for value in sorted(set(values))}
