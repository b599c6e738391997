"""`infuser score`: rank any questions by their influence on a model for a set of target questions."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.config import shipped
from infuser_core.config.overlays import load, merge, validate
from infuser_core.config.run import RunConfig
from infuser_core.config.sources import FileQuestions
from infuser_core.cotrain.studies import selection
from infuser_core.errors import UsageError
from infuser_core.evaluation.benchmarks.parts.files import keep_rows
from infuser_core.evaluation.benchmarks.parts.question_sets import load_questions
from infuser_core.evaluation.models import EvaluatedModel, find_model, is_nano
from infuser_core.evaluation.settings import lab_config
from infuser_core.evaluation.statistics import ranking
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.evaluation.statistics.ranking import FileQuestion
from infuser_core.schemas import InfluenceScore, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.tables import save_rows
from infuser_core.system.sealed import digest_of
from tasks import cotraining as phase
from tasks import documents, training_pool
from tasks.run import Run, open_run
from tasks.studies import questions as studies
from tasks.studies import scores

ROLLOUTS = 64
"""Answers sampled per held-out question if no form of a right reply is configured."""
STEPPED = 24
"""Number of ranked questions on which single steps are taken, if there are held-out questions."""
SHARD = 512
"""Questions answered and scored in one batch: at most this work is lost in a crash."""


def score(
    *,
    model: str,
    dev: Path,
    questions: Sequence[Path],
    out: Path,
    samples: int,
    adapter: str,
    keep: str,
    max_tokens: int | None,
    configs: Sequence[Path],
    seed: int,
    held_out: Path | None,
    reply: str,
    steps: int,
) -> dict[str, Any]:
    """Rank questions by influence; write the table and, with `keep`, the best of each file. A repeated call continues.

    Raises UsageError for a model at an address, and for a `keep` of another form than `top:N`.
    """
    share = ranking.parse_keep(keep)
    scored_model = find_model(settings.store_root(), model)
    if scored_model.folder is None:
        raise UsageError(f"--model {model}: an address has no gradients", hint="name a model that has files")
    sets = [{"type": "file", "path": str(file.absolute())} for file in (dev, held_out or dev)]
    changes: dict[str, Any] = {
        "seed": seed,
        "anchor": {"type": "folder", "path": str(scored_model.folder)},
        "data": {"dev": sets[0], "validation": sets[1], "problems": []},
        "cotrain": {
            "group_size": samples,
            **({"adapter": {"type": adapter}} if adapter else {}),
            **({"solver_tokens": max_tokens} if max_tokens else {}),
        },
    }
    config = validate(merge(_base_config(scored_model, configs).model_dump(mode="json"), changes))
    # Derive the name from settings, model and files, so that the same ranking continues.
    digest = digest_of([config.digest(), model, [str(path.absolute()) for path in questions]])
    name = f"score-{digest[:12]}"
    inputs = [
        # Two files may have a question of the same name.
        FileQuestion(question=replace(question, question_id=f"{number}/{question.question_id}"), file=file, row=row)
        for number, file in enumerate(questions)
        for row, question in enumerate(load_questions(FileQuestions(type="file", path=str(file)), seed=0), 1)
    ]
    with open_run(name, config, journal="score.jsonl", listed=False) as run:
        scored, artifacts = _score(run, scored_model, [row.question for row in inputs])
        effects = _measure_effects(run, artifacts, samples=samples, steps=steps, reply=reply) if held_out else {}
        run.journal.finish()
    rows = ranking.rank_questions(inputs, scored, samples=samples)
    save_rows(out, rows, ranking.ScoredQuestion)
    best_files = []
    for file in questions if share else []:
        target = out.parent / f"{file.stem}.kept{file.suffix}"
        keep_rows(file, target, {row.row for row in ranking.take_best(rows, share) if row.file == str(file)})
        best_files.append(str(target))
    return {"model": model, **ranking.summary(rows), **effects, "out": str(out), "kept": best_files}


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


def _score(
    run: Run, model: EvaluatedModel, questions: Sequence[Question]
) -> tuple[list[InfluenceScore], dict[str, ArtifactRef]]:
    """Score all questions; returns the scores, and the artifacts of the first shard for studies."""
    solver = model.ref or training_pool.make_anchor(run.name)
    dev = documents.reference_questions(run.name, "dev")
    answers = phase.rollout_dev(run.name, 0, dev, solver)
    gradient = phase.dev_gradient(run.name, 0, answers, solver)
    rows: list[InfluenceScore] = []
    first: dict[str, ArtifactRef] = {}
    for shard in ranking.shards(questions, SHARD):
        shard_questions = studies.given_questions(run.name, shard)
        rollouts = phase.rollout_questions(run.name, 0, shard_questions, solver)
        scores = studies.score_given(run.name, shard_questions, rollouts, gradient, solver)
        rows.extend(run.store.rows(scores, "scores", InfluenceScore))
        first = first or {"scores": scores, "questions": shard_questions, "rollouts": rollouts}
    return rows, {**first, "solver": solver, "gradient": gradient, "dev": dev}


def _measure_effects(
    run: Run, inputs: dict[str, ArtifactRef], *, samples: int, steps: int, reply: str
) -> dict[str, Any]:
    """Measure how real steps on the first shard affect held-out questions: single questions and selections."""
    held_out = documents.reference_questions(run.name, "validation")
    study = scores.ScoredIteration(run=run, iteration=0, inputs={**inputs, "held_out": held_out}, reply=reply)
    score_ref = scores.named_scores(study)
    effects = scores.prediction_study(study, score_ref, questions=STEPPED, answers=samples, rollouts=ROLLOUTS)
    arms = scores.selection_study(study, score_ref, share=0.25, steps=steps, draws=5, samples=None, ranked=True)
    correlations = study.execute_rows(effects, "score_correlations", RankCorrelation)
    rows = study.execute_rows(arms, "selection_arms", selection.SelectionArm)
    return {"correlations": [asdict(row) for row in correlations], "arms": list(selection.summary(rows))}
