"""Rank any questions by their influence on a model for a set of target questions: `infuser score`, and for scripts."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infuser_core import settings
from infuser_core.config import shipped
from infuser_core.config.overlays import load, merge, validate
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.studies import selection
from infuser_core.errors import DataWarning, UsageError
from infuser_core.evaluation.benchmarks.parts.files import keep_rows
from infuser_core.evaluation.benchmarks.parts.question_sets import read_questions
from infuser_core.evaluation.benchmarks.parts.validation import content_digest
from infuser_core.evaluation.models import EvaluatedModel, find_model, is_nano
from infuser_core.evaluation.settings import lab_config
from infuser_core.evaluation.statistics import ranking
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.evaluation.statistics.ranking import FileQuestion, ScoredQuestion
from infuser_core.schemas import InfluenceScore, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.tables import ArrowTable, as_arrow, save_rows
from infuser_core.system.sealed import digest_of
from tasks import cotraining as phase
from tasks import training_pool
from tasks.run import Run, open_run
from tasks.studies import questions as studies
from tasks.studies import scores

QuestionSet = str | Path | Iterable[Any]
"""Path of a file, or rows in memory with the same columns: mappings, questions, or a table of pyarrow or pandas."""
STEPPED = 24
"""Number of ranked questions on which single steps are taken, if there are held-out questions."""
SHARD = 512
"""Questions answered and scored in one batch: at most this work is lost in a crash."""


def score_questions(
    model: str | Path,
    questions: QuestionSet,
    dev: QuestionSet,
    *,
    samples: int = 8,
    seed: int = 42,
    max_tokens: int | None = None,
    adapter: str = "",
    configs: Sequence[Path] = (),
    columns: Mapping[str, str] = MappingProxyType({}),
) -> ArrowTable:
    """Rank questions by influence on a model for the dev questions; returns a row per question, the best first.

    `model` is a folder, `nano`, RUN@iteration or owner/name, `questions` one set or a list of files. The model gives
    `samples` answers per question, of up to `max_tokens` tokens; `adapter="lora"` needs little memory; `configs` are
    YAML files with engines, prompts or limits; `columns` maps question_text and ground_truth to other names in both
    sets. Results are in the store: a repeated call continues. For the columns of the table see ScoredQuestion.

    Raises UsageError for a model at an address, DocumentError for a row without a question or an answer. Warns if no
    question could be scored.
    """
    opened = _open_ranking(model, questions, dev, samples, seed, max_tokens, adapter, configs, columns)
    with opened as (run, inputs, shards):
        refs = [shard["scores"] for shard in shards]
        rows = [row for ref in refs for row in run.store.rows(ref, "scores", InfluenceScore)]
    if problem := ranking.describe_unscored([row.status for row in rows]):
        warnings.warn(f"{model}: {problem}", DataWarning, stacklevel=2)
    return as_arrow(ranking.rank_questions(inputs, rows, samples=samples), ScoredQuestion)


def measure_effects(held_out: QuestionSet, *, reply: str, steps: int, **arguments: Any) -> dict[str, Any]:
    """Measure how real steps on the first shard change held-out questions; `arguments` are those of the ranking."""
    with open_study(held_out, reply=reply, **arguments) as study:
        score_ref = scores.named_scores(study)
        size = {"questions": STEPPED, "answers": arguments["samples"], "rollouts": scores.EFFECT_ROLLOUTS}
        effects = scores.prediction_study(study, score_ref, **size)
        arms = scores.selection_study(study, score_ref, share=0.25, steps=steps, draws=5, samples=None, ranked=True)
        correlations = study.execute_rows(effects, "score_correlations", RankCorrelation)
        rows = study.execute_rows(arms, "selection_arms", selection.SelectionArm)
    return {"correlations": [asdict(row) for row in correlations], "arms": list(selection.summary(rows))}


@contextmanager
def open_study(held_out: QuestionSet, *, reply: str, **arguments: Any) -> Iterator[scores.ScoredIteration]:
    """Open the studies of a ranking's first shard with held-out questions; `arguments` are those of the ranking."""
    with _open_ranking(**arguments) as (run, _, shards):
        targets = _store_targets(run, read_questions(held_out, "held_out", arguments["columns"]))
        yield scores.ScoredIteration(run=run, iteration=0, inputs={**next(shards), "held_out": targets}, reply=reply)


def save_ranking(table: ArrowTable, out: Path, *, share: float) -> dict[str, Any]:
    """Write a ranking and, with a share or a number, the best of each file next to it; returns a summary."""
    rows = [ScoredQuestion(**row) for row in table.to_pylist()]
    save_rows(out, rows, ScoredQuestion)
    best, best_files = ranking.take_best(rows, share), []
    for file in sorted({row.file for row in rows}) if share else ():
        target = out.parent / f"{Path(file).stem}.kept{Path(file).suffix}"
        keep_rows(Path(file), target, {row.row for row in best if row.file == file})
        best_files.append(str(target))
    return {**ranking.summary(rows), "out": str(out), "kept": best_files}


@contextmanager
def _open_ranking(
    model: str | Path,
    questions: QuestionSet,
    dev: QuestionSet,
    samples: int,
    seed: int,
    max_tokens: int | None,
    adapter: str,
    configs: Sequence[Path],
    columns: Mapping[str, str],
) -> Iterator[tuple[Run, list[FileQuestion], Iterator[dict[str, ArtifactRef]]]]:
    """Open the run of a ranking; yields it, its questions, and an iterator that scores them shard by shard."""
    scored_model = find_model(settings.store_root(), str(model))
    if scored_model.folder is None:
        raise UsageError(f"--model {model}: an address has no gradients", hint="name a model that has files")
    options = {"adapter": {"type": adapter} if adapter else None, "solver_tokens": max_tokens}
    changes = {
        "seed": seed,
        "anchor": {"type": "folder", "path": str(scored_model.folder)},
        "cotrain": {"group_size": samples, **{name: each for name, each in options.items() if each is not None}},
    }
    config = validate(merge(_base_config(scored_model, configs).model_dump(mode="json"), changes))
    dev_questions = read_questions(dev, "dev", columns)
    sets: list[QuestionSet] = [questions]
    if isinstance(questions, list | tuple) and questions and isinstance(questions[0], str | Path):
        sets = list(questions)
    inputs = [
        # Two files may have a question of the same name.
        FileQuestion(question=replace(question, question_id=f"{number}/{question.question_id}"), file=file, row=row)
        for number, each in enumerate(sets)
        for file in [str(each) if isinstance(each, str | Path) else ""]
        for row, question in enumerate(read_questions(each, "questions", columns), 1)
    ]
    # Derive the name from settings, model and questions, so that the same ranking continues.
    contents = [content_digest(each) for each in (dev_questions, [row.question for row in inputs])]
    name = f"score-{digest_of([config.digest(), scored_model.digest, *contents])[:12]}"
    with open_run(name, config, journal="score.jsonl", listed=False) as run:
        yield run, inputs, _score_shards(run, scored_model, dev_questions, [row.question for row in inputs])
        run.journal.finish()


def _base_config(model: EvaluatedModel, configs: Sequence[Path]) -> RunConfig:
    """Base settings of a ranking: `configs`, else those of the model's run or lab, else defaults."""
    if configs:
        return load(configs)
    if model.config is not None:
        return model.config
    if is_nano(model):
        return load([lab_config(model)])
    plain = ["prompts=paper", "cotrain.prompt_tokens=2048", "cotrain.solver_tokens=1024"]
    files = [shipped.path_of("start"), shipped.path_of("engine/laptop")]
    return load(files, [*plain, "cotrain.sampling.temperature=0.7"])


def _score_shards(
    run: Run, model: EvaluatedModel, dev_questions: Sequence[Question], questions: Sequence[Question]
) -> Iterator[dict[str, ArtifactRef]]:
    """Score all questions; yields the artifacts of each shard and those that they come from."""
    solver, dev = model.ref or training_pool.make_anchor(run.name), _store_targets(run, dev_questions)
    gradient = phase.dev_gradient(run.name, 0, phase.rollout_dev(run.name, 0, dev, solver), solver)
    for shard in ranking.shards(questions, SHARD):
        shard_questions = studies.given_questions(run.name, shard)
        rollouts = phase.rollout_questions(run.name, 0, shard_questions, solver)
        refs = {"questions": shard_questions, "rollouts": rollouts, "gradient": gradient, "solver": solver}
        yield {**refs, "dev": dev, "scores": studies.score_given(run.name, **refs)}


def _store_targets(run: Run, questions: Sequence[Question]) -> ArtifactRef:
    return studies.given_questions(run.name, questions, table="reference_questions")
