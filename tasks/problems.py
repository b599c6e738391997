"""The training pool where it is more than textbooks: problems with known answers, and blank rows."""

from pathlib import Path
from typing import Any

from corpus.problems import Problems, as_rows, blank
from infuser_core import plugins
from infuser_core.benchmarks.parts.question_sets import content_of, is_seeded, load_questions, values_of
from infuser_core.engines.protocols import Progress
from infuser_core.errors import DocumentError
from infuser_core.phases.generate_questions import route_digest
from infuser_core.schemas import Document, Judgement, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.pool_rows import TABLE, TRAINING, documents_of
from tasks.run import Run, current, plain
from tasks.stage import Work, stage

VERSION = 1


def needs_corpus(run: str) -> bool:
    """Whether any part of the run writes questions from documents."""
    return any(plugins.needs_documents(config) for config in current(run).history.all)


def training_pool(run: str, documents: ArtifactRef | None, dev: ArtifactRef) -> ArtifactRef:
    """The documents as they are, or with what the configuration adds to them."""
    if documents is not None and not current(run).config.data.problems:
        return documents
    return mix_pool(run, documents, dev)


@stage("training_pool")
def mix_pool(run: Run, documents: ArtifactRef | None, dev: ArtifactRef) -> Work:
    """Documents, or blank rows where the route needs none, and behind them the rows of `data.problems`."""
    lists, cotrain = run.config.data.problems, run.config.cotrain
    evaluated = run.config.evaluate.benchmarks
    blanks = cotrain.documents if documents is None and plugins.route(cotrain.route).template else 0
    values = {
        "problems": [
            {**plain(each), "source": values_of(each.source), "content": content_of(each.source, evaluated=evaluated)}
            for each in lists
        ],
        "blank": {"rows": blanks, "route": cotrain.route} if blanks else {},
    }
    inputs = {"documents": documents, "dev": dev if any(each.exclude_dev for each in lists) else None}
    seeded = any(is_seeded(each.source) for each in lists)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        asked = run.store.rows(dev, "reference_questions", Question)
        made = [_rows(run, number, asked) for number in range(len(lists))]
        below = documents_of(run.store, documents) if documents else []
        rows = [*blank(blanks, cotrain.route), *(row for each in made for row in each.documents)]
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

    return Work(recipe=run.recipe(TRAINING, VERSION, values, inputs, seeded=seeded), produce=produce)


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


def routed(run: Run, pool: ArtifactRef, settings: Any) -> Any:
    """The phase's settings, and what other routes than the textbooks' own add to them."""
    config = run.config
    own = config.cotrain.route or plugins.MAIN_ROUTE
    names: set[str] = {each.route for each in config.data.problems}
    if config.corpus.pool and not config.cotrain.route:
        names |= {row.prompt_type for row in documents_of(run.store, pool)}
    digests = {name: route_digest(name, config.prompts) for name in sorted(names - {own})}
    added = {
        **({"route": config.cotrain.route} if config.cotrain.route else {}),
        **({"other_prompts": found} if (found := {name: each for name, each in digests.items() if each}) else {}),
    }
    return {**plain(settings), **added} if added else settings
