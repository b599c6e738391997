"""Who gives the documents of an iteration: the stage of the adaptive budget, and any budget as the draw wants it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infuser_core.engines.protocols import Progress
from infuser_core.phases import allocate as phase
from infuser_core.phases.batch import Budget, fixed_budget
from infuser_core.schemas import Allocation, Document, InfluenceScore, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.pool_rows import documents_of
from tasks.run import Run
from tasks.stage import Work, stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an iteration leaves for the budget of later ones."""

    allocation: ArtifactRef
    """How its documents were shared."""
    questions: ArtifactRef
    """Its questions."""
    scores: ArtifactRef
    """Their influence."""


@stage("allocate")
def allocate(run: Run, iteration: int, pool: ArtifactRef, recent: Sequence[Measured]) -> Work:
    """Documents per arm, by the influence of the iterations of the window, the last one last."""
    settings = phase.settings_of(run.config)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = phase.allocate(
            documents_of(run.store, pool),
            [_read(run, one) for one in recent],
            settings,
            seed=run.config.seed,
            iteration=iteration,
        )
        most = max(rows, key=lambda row: row.share)
        return Outcome(
            tables={"allocations": Table(row_type=Allocation, rows=rows)},
            summary={"arms": len(rows), "most": most.arm, "share": round(most.share, 4)},
        )

    inputs = {"pool": pool}
    for ago, one in enumerate(reversed(recent), start=1):
        inputs |= {f"allocation{ago}": one.allocation, f"questions{ago}": one.questions, f"scores{ago}": one.scores}
    recipe = run.recipe("allocate", phase.VERSION, settings, inputs, iteration=iteration, seeded=True)
    return Work(recipe=recipe, produce=produce)


def _read(run: Run, one: Measured) -> phase.Recent:
    return phase.Recent(
        allocations=run.store.rows(one.allocation, "allocations", Allocation),
        questions=run.store.rows(one.questions, "questions", Question),
        scores=run.store.rows(one.scores, "scores", InfluenceScore),
    )


def budget_of(run: Run, iteration: int, pool: Sequence[Document], allocation: ArtifactRef | None) -> Budget | None:
    """The iteration's budget; None where documents come from the whole pool alike."""
    cotrain = run.config.cotrain
    rule = cotrain.budget
    if allocation is not None:
        return phase.budget_of(run.store.rows(allocation, "allocations", Allocation), rule.by)
    if rule.mode != "shares":
        return None
    return fixed_budget(pool, cotrain.documents, rule.shares, by=rule.by, seed=run.config.seed, iteration=iteration)
