"""Stages of the anchor (the base model that both roles start from) and of the training pool."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from corpus.problems import Problems, blank_rows, problem_rows
from infuser_core.config.recorded import recorded
from infuser_core.cotrain.phases import allocate as allocate_phase
from infuser_core.cotrain.phases.allocate import Budget, fixed_budget
from infuser_core.cotrain.phases.generate_questions import excluded_documents
from infuser_core.cotrain.phases.parts.health import small_pool_warning
from infuser_core.cotrain.route import blank_routes
from infuser_core.errors import DataWarning, DocumentError
from infuser_core.evaluation.anchors import anchor_bytes, anchor_digest, anchor_folder, origin_of, template_status
from infuser_core.evaluation.benchmarks.parts.question_sets import content_of, is_seeded, load_questions, values_of
from infuser_core.protocols import Progress
from infuser_core.schemas import Allocation, Document, InfluenceScore, Judgement, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Store, Table
from tasks.run import Run, current_run
from tasks.stage import stage
from tasks.work import Work

VERSION = 1
TRAINING = "training_pool"
"""Phase of a pool that has other rows than documents of a corpus."""
TABLE = "pool_rows"
"""Table of all rows of such a pool; its table `documents` has only those that no other artifact has."""


@lru_cache(maxsize=1)
def documents_of(store: Store, pool: ArtifactRef) -> list[Document]:
    """Read the rows of a pool; cached, because every iteration needs them."""
    return store.rows(pool, TABLE if pool.kind == TRAINING else "documents", Document)


def warn_of_small_pool(run: Run, pool: Sequence[Document]) -> None:
    """Emit a DataWarning if an iteration draws more documents than the pool has, not counting excluded ones."""
    available = len(pool) - len(excluded_documents(run.config, pool))
    if warning := small_pool_warning(run.config.cotrain.documents, available):
        warnings.warn(warning, DataWarning, stacklevel=2)


def problems_of(store: Store, pool: ArtifactRef) -> list[Question]:
    """The given questions (`data.problems`) of a pool, with the ids of their rows."""
    return store.rows(pool, "problems", Question) if pool.kind == TRAINING else []


def training_pool(run: str, documents: ArtifactRef | None, dev: ArtifactRef) -> ArtifactRef:
    """The pool that iterations draw from: the documents, mixed with the configured problems and blank rows, if any."""
    config = current_run(run).config
    if documents is not None and not (config.data.problems or blank_routes(config)):
        return documents
    return mix_pool(run, documents, dev)


@stage("base")
def copy_base(run: Run) -> Work:
    """Copy the base model whose adapters are trained."""
    folder = anchor_folder(run.config.anchor)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from infuser_core.engines.hf.causal_lm import copy_model

        copy_model(folder, workspace)
        return Outcome(tables={}, summary=template_status(folder))

    recipe = run.recipe("base", VERSION, {"model": anchor_digest(folder)}, {})
    return Work(recipe=recipe, produce=produce, needs=lambda: anchor_bytes(folder, each=4))


@stage("anchor")
def prepare_anchor(run: Run, base: ArtifactRef | None = None) -> Work:
    """Make the checkpoint that both roles start from: the model or adapters of `base`, with zero optimizer moments."""
    folder, cotrain = anchor_folder(run.config.anchor), run.config.cotrain
    adapter = cotrain.adapter
    seed = run.config.seed if adapter else 0
    model = anchor_digest(folder)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        from infuser_core.engines.local import hub
        from infuser_core.engines.training.self_test import seal_of_test

        optimizer = cotrain.optimizer.options()
        if base is None or adapter is None:
            tested = origin_of(folder).get("tested") == seal_of_test(model)
            hub.prepare_anchor(folder, workspace, optimizer=optimizer, tested=tested)
        else:
            source = run.store.verified_folder(base)
            hub.prepare_adapter(source, workspace, adapter=adapter, seed=seed, optimizer=optimizer)
        return Outcome(tables={}, summary={"step": 0, **template_status(folder)})

    # Engine settings that change results.
    engine = run.config.engine
    numerics = {"sampler": engine.sampler_key, **recorded(engine, only=("trainer", "dtype"))}
    settings = {"model": model, **recorded(cotrain, only=("optimizer", "adapter")), **numerics}
    recipe = run.recipe("anchor", VERSION, settings, {"base": base}, seed=seed)
    return Work(recipe=recipe, produce=produce, needs=lambda: 0 if adapter else anchor_bytes(folder))


def make_anchor(run: str) -> ArtifactRef:
    """Make the anchor: the base model, or new adapters on a copy of it."""
    return prepare_anchor(run, copy_base(run) if current_run(run).history.latest.cotrain.adapter else None)


@stage("training_pool")
def mix_pool(run: Run, documents: ArtifactRef | None, dev: ArtifactRef) -> Work:
    """Mix the training pool: documents or, if the route needs none, blank rows; then the rows of `data.problems`."""
    lists, cotrain = run.config.data.problems, run.config.cotrain
    evaluated = run.config.evaluate.benchmarks
    blanks = {name: cotrain.documents for name in blank_routes(run.config)}
    values = {
        "problems": [
            {
                **recorded(one),
                "source": values_of(one.source),
                "content": content_of(one.source, evaluated=evaluated),
            }
            for one in lists
        ],
        "blank": blanks,
    }
    inputs = {"documents": documents, "dev": dev if any(one.exclude_dev for one in lists) else None}
    seed = run.config.seed if any(is_seeded(one.source) for one in lists) else 0

    def produce(workspace: Path, progress: Progress) -> Outcome:
        dev_rows = run.store.rows(dev, "reference_questions", Question)
        problems = [_problem_rows(run, number, dev_rows) for number in range(len(lists))]
        base = documents_of(run.store, documents) if documents else []
        rows = [*blank_rows(blanks), *(row for one in problems for row in one.documents)]
        left_out = [row for one in problems for row in one.skipped]
        return Outcome(
            tables={
                TABLE: Table(row_type=Document, rows=[*base, *rows]),
                "documents": Table(row_type=Document, rows=rows),
                "problems": Table(row_type=Question, rows=[row for one in problems for row in one.problems]),
                "judgements": Table(row_type=Judgement, rows=left_out),
            },
            summary={"documents": len(base), "added": len(rows), "left_out": len(left_out)},
        )

    return Work(recipe=run.recipe(TRAINING, VERSION, values, inputs, seed=seed), produce=produce)


def _problem_rows(run: Run, number: int, dev: list[Question]) -> Problems:
    """Make the pool rows of one entry of `data.problems`."""
    settings = run.config.data.problems[number]
    questions = load_questions(settings.source, seed=run.config.seed, evaluated=run.config.evaluate.benchmarks)
    rows = problem_rows(number, questions, settings, dev)
    if not rows.documents:
        raise DocumentError(
            f"data.problems.{number}: none of {len(questions)} problems is left",
            hint="they are all in the dev set: name other problems, or set its exclude_dev to false",
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRecord:
    """Artifacts of a past iteration from which an adaptive budget learns."""

    allocation: ArtifactRef
    """Numbers of documents per arm."""
    questions: ArtifactRef
    scores: ArtifactRef


@stage("allocate")
def allocate(run: Run, iteration: int, pool: ArtifactRef, recent: Sequence[BudgetRecord]) -> Work:
    """Allocate documents to arms by the influence in `recent` iterations, which are given oldest first."""
    settings = allocate_phase.settings_of(run.config)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        rows = allocate_phase.allocate(
            documents_of(run.store, pool),
            [
                allocate_phase.PastIteration(
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
    """Numbers of documents per arm for an iteration; None if all documents of the pool are equally likely."""
    cotrain = run.config.cotrain
    rule = cotrain.budget
    if allocation is not None:
        return allocate_phase.allocated_budget(run.store.rows(allocation, "allocations", Allocation), rule.by)
    if rule.mode != "shares":
        return None
    return fixed_budget(pool, cotrain.documents, rule.shares, by=rule.by, seed=run.config.seed, iteration=iteration)
