"""The solver's band of accuracies: what lies outside stays on record, and the band is part of the recipe."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from infuser_core.phases.update_solver import Difficulty, difficulties
from infuser_core.schemas import Rollout
from infuser_core.store.store import Outcome, Table
from tasks.run import plain

Band = tuple[float, float]


def update_recipe(values: Any, band: Band | None, mid_eos_penalty: float) -> Any:
    """The phase's settings with the band and the penalty, where there are any."""
    added = {"accuracy_band": list(band)} if band else {}
    shaped = {"mid_eos_penalty": mid_eos_penalty} if mid_eos_penalty else {}
    return {**plain(values), **added, **shaped} if band or mid_eos_penalty else values


def with_difficulties(outcome: Outcome, rollouts: Sequence[Rollout], band: Band | None) -> Outcome:
    """The outcome with every question's accuracy, and how many lie outside the band."""
    if band is None:
        return outcome
    rows = difficulties(rollouts, band)
    return replace(
        outcome,
        tables={**outcome.tables, "difficulties": Table(row_type=Difficulty, rows=rows)},
        summary={**outcome.summary, "outside_band": sum(not row.inside for row in rows)},
    )
