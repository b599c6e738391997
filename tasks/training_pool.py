"""Anchor and training pool, which the iterations start from and draw from."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from corpus.problems import Problems, as_rows, blank
from infuser_core import plugins
from infuser_core.config.recorded import recorded
from infuser_core.cotrain.phases import allocate as allocate_phase
from infuser_core.cotrain.phases.allocate import Budget, fixed_budget
from infuser_core.cotrain.phases.generate_questions import excluded
from infuser_core.engines.protocols import Progress
from infuser_core.errors import DataWarning, DocumentError
from infuser_core.evaluation.anchors import anchor_bytes, anchor_digest, anchor_folder, origin_of, template_status
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, is_seeded, load_questions, values_of
from infuser_core.schemas import Allocation, Document, InfluenceScore, Judgement, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Store, Table
from tasks.run import Run, current
from tasks.stage import stage
from tasks.work import Work

VERSION = 1
TRAINING = "training_pool"
"""Phase of a pool that has more than documents of a corpus."""
TABLE = "pool_rows"
"""All rows of such a pool; its `documents` are those that no other artifact has."""


@lru_cache(maxsize=1)
def documents_of(store: Store, pool: ArtifactRef) -> list[Document]:
    """The rows of a pool, which every iteration asks for."""
    return store.rows(pool, TABLE if pool.kind == TRAINING else "documents", Document)


def warn_of_small_pool(run: Run, pool: Sequence[Document]) -> None:
    """A DataWarning where an iteration asks for more documents than the pool has, without those that are excluded."""
    asked, available = run.config.cotrain.documents, len(pool) - len(excluded(run.config, pool))
    if available < asked:
        text = f"cotrain.documents = {asked:,} and the pool has {available:,}: every iteration draws all {available:,}"
        warnings.warn(text, DataWarning, stacklevel=2)


def carried(store: Store, pool: ArtifactRef) -> list[Question]:
    """The problems that rows of the pool carry, with the rows' ids."""
    return store.rows(pool, "problems", Question) if pool.kind == TRAINING else []


def training_pool(run: str, documents: ArtifactRef | None, dev: ArtifactRef) -> ArtifactRef:
    """The documents as they are, or with what the configuration adds to them."""
    config = current(run).config
    if documents is not None and not (config.data.problems or plugins.blank_routes(config)):
        return documents
    return mix_pool(run, documents, dev)


@stage("base")
def copy_base(run: Run) -> Work:
    """The model that adapters are trained beside: it stays as it is."""
    folder = anchor_folder(run.config.anchor)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from infuser_core.engines.hf.causal_lm import copy_model

        copy_model(folder, workspace)
        return Outcome(tables={}, summary=template_status(folder))

    recipe = run.recipe("base", VERSION, {"model": anchor_digest(folder)}, {})
    return Work(recipe=recipe, produce=produce, needs=lambda: anchor_bytes(folder, each=4))


@stage("anchor")
def prepare_anchor(run: Run, base: ArtifactRef | None = None) -> Work:
    """Both roles start here: the model's weights, or adapters of the base, with the optimizer's moments at zero."""
    folder, cotrain = anchor_folder(run.config.anchor), run.config.cotrain
    adapter = cotrain.adapter
    seed = run.config.seed if adapter else 0
    model = anchor_digest(folder)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from infuser_core.engines.local import hub
        from infuser_core.engines.training.self_test import verdict

        optimizer = cotrain.optimizer.options()
        if base is None or adapter is None:
            tested = origin_of(folder).get("tested") == verdict(model)
            hub.prepare_anchor(folder, workspace, optimizer=optimizer, tested=tested)
        else:
            place = run.store.verified_folder(base)
            hub.prepare_adapter(place, workspace, adapter=adapter, seed=seed, optimizer=optimizer)
        return Outcome(tables={}, summary={"step": 0, **template_status(folder)})

    # The part of the engines that changes numbers.
    numerics = recorded(run.config.engine, only=("sampler", "trainer", "dtype"))
    settings = {"model": model, **recorded(cotrain, only=("optimizer", "adapter")), **numerics}
    recipe = run.recipe("anchor", VERSION, settings, {"base": base}, seed=seed)
    return Work(recipe=recipe, produce=produce, needs=lambda: 0 if adapter else anchor_bytes(folder))


def anchored(run: str) -> ArtifactRef:
    """The model with moments at zero, or new adapters of a copy of it."""
    return prepare_anchor(run, copy_base(run) if current(run).history.latest.cotrain.adapter else None)


@stage("training_pool")
def mix_pool(run: Run, documents: ArtifactRef | None, dev: ArtifactRef) -> Work:
    """Documents, or blank rows where the route needs none, and behind them the rows of `data.problems`."""
    lists, cotrain = run.config.data.problems, run.config.cotrain
    evaluated = run.config.evaluate.benchmarks
    blanks = {name: cotrain.documents for name in plugins.blank_routes(run.config)}
    values = {
        "problems": [
            {
                **recorded(each),
                "source": values_of(each.source),
                "content": content_of(each.source, evaluated=evaluated),
            }
            for each in lists
        ],
        "blank": blanks,
    }
    inputs = {"documents": documents, "dev": dev if any(each.exclude_dev for each in lists) else None}
    seed = run.config.seed if any(is_seeded(each.source) for each in lists) else 0

    def produce(workspace: Path, progress: Progress) -> Outcome:
        asked = run.store.rows(dev, "reference_questions", Question)
        made = [_rows(run, number, asked) for number in range(len(lists))]
        below = documents_of(run.store, documents) if documents else []
        rows = [*blank(blanks), *(row for each in made for row in each.documents)]
        out = [row for each in made for row in each.left_out]
        return Outcome(
            tables={
                TABLE: Table(row_type=Document, rows=[*below, *rows]),
                "documents": Table(row_type=Document, rows=rows),
                "problems": Table(row_type=Question, rows=[problem for each in made for problem in each.problems]),
                "judgements": Table(row_type=Judgement, rows=out),
            },
            summary={"documents": len(below), "added": len(rows), "left_out": len(out)},
        )

    return Work(recipe=run.recipe(TRAINING, VERSION, values, inputs, seed=seed), produce=produce)


def _rows(run: Run, number: int, dev: list[Question]) -> Problems:
    settings = run.config.data.problems[number]
    problems = load_questions(settings.source, seed=run.config.seed, evaluated=run.config.evaluate.benchmarks)
    made = as_rows(number, problems, settings, dev)
    if not made.documents:
        raise DocumentError(
            f"data.problems.{number}: none of {len(problems)} problems is left",
            hint="they are all in the dev set: name other problems, or set its exclude_dev to false",
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Artifacts of an iteration that the budget of later ones learns from."""

    allocation: ArtifactRef
    """How its documents were shared."""
    questions: ArtifactRef
    """Its questions."""
    scores: ArtifactRef
    """Their influence."""


@stage("allocate")
def allocate(run: Run, iteration: int, pool: ArtifactRef, recent: Sequence[Measured]) -> Work:
    """Documents per arm, by the influence of the iterations of the window, the last one last."""
    settings = allocate_phase.settings_of(run.config)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = allocate_phase.allocate(
            documents_of(run.store, pool),
            [
                allocate_phase.Recent(
                    allocations=run.store.rows(one.allocation, "allocations", Allocation),
                    questions=run.store.rows(one.questions, "questions", Question),
                    scores=run.store.rows(one.scores, "scores", InfluenceScore),
                )
                for one in recent
            ],
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
    recipe = run.recipe("allocate", allocate_phase.VERSION, settings, inputs, iteration=iteration, seed=run.config.seed)
    return Work(recipe=recipe, produce=produce)


def budget_of(run: Run, iteration: int, pool: Sequence[Document], allocation: ArtifactRef | None) -> Budget | None:
    """The iteration's budget; None where documents come from the whole pool alike."""
    cotrain = run.config.cotrain
    rule = cotrain.budget
    if allocation is not None:
        return allocate_phase.budget_of(run.store.rows(allocation, "allocations", Allocation), rule.by)
    if rule.mode != "shares":
        return None
    return fixed_budget(pool, cotrain.documents, rule.shares, by=rule.by, seed=run.config.seed, iteration=iteration)
