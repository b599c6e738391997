"""Any questions ranked by their influence on any model, for any target: the score as a tool of its own."""

from collections.abc import Iterator, Sequence
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
from infuser_core.evaluation.models import NamedModel, find_model, is_nano
from infuser_core.evaluation.settings import lab_of
from infuser_core.evaluation.statistics import ranking
from infuser_core.evaluation.statistics.correlation import RankCorrelation
from infuser_core.evaluation.statistics.ranking import FileQuestion, ScoredQuestion
from infuser_core.schemas import InfluenceScore, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.tables import save_rows
from infuser_core.system.sealed import digest_of
from tasks import cotraining as phase
from tasks import documents, training_pool
from tasks.run import Run, opened
from tasks.studies import questions as studies
from tasks.studies import scores

ROLLOUTS = 64
"""Answers per held-out question where the form of a right reply is not given."""
STEPPED = 24
"""Ranked questions that a step is taken on, one by one, where held-out questions are given."""
SHARD = 512
"""Questions that are answered and scored before the next ones: what a kill can lose."""


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
    """Rank the questions, write the table and, where asked for, the best of each file. A repeated call goes on.

    Raises UsageError for a model behind an address, and for a `keep` that is no `top:N`.
    """
    share = ranking.parse_keep(keep)
    found = find_model(settings.store_root(), model)
    if found.folder is None:
        raise UsageError(f"--model {model}: an address has no gradients", hint="name a model that has files")
    sets = [{"type": "file", "path": str(file.absolute())} for file in (dev, held_out or dev)]
    changes: dict[str, Any] = {
        "seed": seed,
        "anchor": {"type": "folder", "path": str(found.folder)},
        "data": {"dev": sets[0], "validation": sets[1], "problems": []},
        "cotrain": {
            "group_size": samples,
            **({"adapter": {"type": adapter}} if adapter else {}),
            **({"solver_tokens": max_tokens} if max_tokens else {}),
        },
    }
    config = validate(merge(_base(found, configs).model_dump(mode="json"), changes))
    # One name for one question: what is ranked, by what.
    asked = digest_of([config.digest(), model, [str(path.absolute()) for path in questions]])
    name = f"score-{asked[:12]}"
    given = list(_given(questions))
    with opened(name, config, journal="score.jsonl", listed=False) as run:
        scored, made = _scored(run, found, [each.question for each in given])
        checked = _checked(run, made, samples=samples, steps=steps, reply=reply) if held_out else {}
        run.journal.finish()
    rows = ranking.rank_questions(given, scored, samples=samples)
    save_rows(out, rows, ranking.ScoredQuestion)
    kept = _keep(ranking.take_best(rows, share), questions, out.parent) if share else []
    return {"model": model, **ranking.summary(rows), **checked, "out": str(out), "kept": kept}


def _base(model: NamedModel, configs: Sequence[Path]) -> RunConfig:
    """The settings by which a run would score: the given ones, the model's own run's or lab's, or plain ones."""
    if configs:
        return load(configs)
    if model.config is not None:
        return model.config
    if is_nano(model):
        return load([lab_of(model)])
    plain = ["prompts=paper", "cotrain.prompt_tokens=2048", "cotrain.solver_tokens=1024"]
    files = [shipped.path_of("start"), shipped.path_of("engine/laptop")]
    return load(files, [*plain, "cotrain.sampling.temperature=0.7"])


def _given(files: Sequence[Path]) -> Iterator[FileQuestion]:
    for place, file in enumerate(files):
        found = load_questions(FileQuestions(type="file", path=str(file)), seed=0)
        for row, question in enumerate(found, 1):
            # Two files may have a question of the same name.
            yield FileQuestion(
                question=replace(question, question_id=f"{place}/{question.question_id}"), file=file, row=row
            )


def _scored(
    run: Run, model: NamedModel, questions: Sequence[Question]
) -> tuple[list[InfluenceScore], dict[str, ArtifactRef]]:
    """The scores, and what those of the first shard were made from."""
    solver = model.ref or training_pool.anchored(run.name)
    dev = documents.reference_questions(run.name, "dev")
    answers = phase.rollout_dev(run.name, 0, dev, solver)
    gradient = phase.dev_gradient(run.name, 0, answers, solver)
    found: list[InfluenceScore] = []
    first: dict[str, ArtifactRef] = {}
    for shard in ranking.shards(questions, SHARD):
        given = studies.given_questions(run.name, shard)
        rollouts = phase.rollout_questions(run.name, 0, given, solver)
        scores = studies.score_given(run.name, given, rollouts, gradient, solver)
        found.extend(run.store.rows(scores, "scores", InfluenceScore))
        first = first or {"scores": scores, "questions": given, "rollouts": rollouts}
    return found, {**first, "solver": solver, "gradient": gradient, "dev": dev}


def _checked(run: Run, made: dict[str, ArtifactRef], *, samples: int, steps: int, reply: str) -> dict[str, Any]:
    """Change of held-out questions by real steps on those of the first shard: on each alone, and on selections."""
    held_out = documents.reference_questions(run.name, "validation")
    asked = scores.Studied(run=run, iteration=0, inputs={**made, "held_out": held_out}, reply=reply)
    named = scores.named_scores(asked)
    effects = scores.prediction_study(asked, named, questions=STEPPED, answers=samples, rollouts=ROLLOUTS)
    arms = scores.selection_study(asked, named, share=0.25, steps=steps, draws=5, samples=None, ranked=True)
    correlations = asked.made(effects, "score_correlations", RankCorrelation)
    rows = asked.made(arms, "selection_arms", selection.SelectionArm)
    return {"correlations": [asdict(row) for row in correlations], "arms": list(selection.summary(rows))}


def _keep(chosen: Sequence[ScoredQuestion], files: Sequence[Path], folder: Path) -> list[str]:
    """The best questions of all files, each in a file of its own file's format in this folder, in their order."""
    kept = []
    for file in files:
        target = folder / f"{file.stem}.kept{file.suffix}"
        keep_rows(file, target, {row.row for row in chosen if row.file == str(file)})
        kept.append(str(target))
    return kept
