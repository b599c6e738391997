"""Answers rewarded by the majority of their group in place of the generator's key, where the settings ask for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from infuser_core.phases import majority
from infuser_core.phases.answering import AnswerSettings
from infuser_core.phases.majority import PseudoLabel, Relabelled
from infuser_core.schemas import Question, Rollout
from infuser_core.store.store import Outcome, Table
from tasks.run import Run, plain


def answer_recipe(run: Run, settings: AnswerSettings) -> Any:
    """The phase's settings, with the rule of the pseudo-labels where there are any."""
    return {**plain(settings), "majority": majority.VERSION} if _wanted(run) else settings


def relabelled(
    run: Run, questions: Sequence[Question], rollouts: list[Rollout], settings: AnswerSettings
) -> Relabelled | None:
    """Rollouts with verdicts by pseudo-labels; None where the keys decide."""
    return majority.relabel(questions, rollouts, preset=settings.box) if _wanted(run) else None


def with_labels(outcome: Outcome, labels: list[PseudoLabel]) -> Outcome:
    """The outcome with the labels, and how often they agree with the keys."""
    agreeing = sum(label.agrees for label in labels) / max(1, len(labels))
    return replace(
        outcome,
        tables={**outcome.tables, "pseudo_labels": Table(row_type=PseudoLabel, rows=labels)},
        summary={**outcome.summary, "labels_agree_with_keys": round(agreeing, 4)},
    )


def _wanted(run: Run) -> bool:
    return run.config.cotrain.labels == "majority"
