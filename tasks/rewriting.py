"""What two generators of a run write from the same documents: a pool is rarely read twice within one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infuser_core.config.overlays import validate
from infuser_core.config.run import RunConfig
from infuser_core.evaluation.folder import write_rows
from infuser_core.evaluation.plan import of_run
from infuser_core.phases import generate_questions as phase
from infuser_core.schemas import Checkpoint, Document, Question, QuestionLabel, Role
from infuser_core.store.recipe import ArtifactRef, digest_of
from infuser_core.store.runs import Journal, read_config
from infuser_core.store.store import Store
from infuser_core.store.tables import read_rows
from infuser_core.store.views import Lens
from tasks.examine import pool_of
from tasks.run import plain

SPARE = 4
"""Documents tried for every one that is shown: not every reply is a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """The generator that wrote an iteration's questions."""

    iteration: int
    """Iteration."""
    ref: ArtifactRef
    """Its checkpoint."""


def rewritten(
    root: Path, run: str, questions: Sequence[Mapping[str, Any]], folder: Path, *, count: int
) -> list[dict[str, Any]]:
    """Questions of the first and the last of these iterations from the same documents, in the shape of `questions`.

    None where the generator never moved or a checkpoint is gone. What lies below `folder` is not written again.
    """
    iterations = sorted({int(row["iteration"]) for row in questions})
    writers = [_writer(Store(root), run, number) for number in (iterations[0], iterations[-1])]
    first, last = writers
    if first is None or last is None or first.ref == last.ref or not count:
        return []
    config = validate(read_config(root, run))
    documents = _documents(root, run, questions, count=SPARE * count)
    return [row for writer in (first, last) for row in _written(root, config, writer, documents, folder)]


def _writer(store: Store, run: str, iteration: int) -> _Writer | None:
    """The checkpoint before the iteration; None where it is gone."""
    latest = Journal(store.root, run).latest()
    before = [entry for entry in latest if entry.phase == "update_generator" and entry.iteration < iteration]
    entries = sorted(before, key=lambda entry: entry.iteration) or [e for e in latest if e.phase == "anchor"]
    found = [ref for ref in store.refs() if entries and ref.key == entries[-1].key]
    return _Writer(iteration=iteration, ref=found[0]) if found else None


def _documents(root: Path, run: str, questions: Sequence[Mapping[str, Any]], *, count: int) -> list[Document]:
    """Documents that these questions were written from, drawn by a hash of their id."""
    names = sorted({str(row["document_id"]) for row in questions if row["document_id"]}, key=digest_of)[:count]
    lens = Lens(Store(root), runs=[run])
    try:
        keys = {str(row["artifact_key"]) for row in lens.query("select distinct artifact_key from documents")}
    finally:
        lens.close()
    store = Store(root)
    rows = [row for ref in store.refs() if ref.key in keys for row in store.rows(ref, "documents", Document)]
    return [row for row in rows if row.document_id in names]


def _written(
    root: Path, config: RunConfig, writer: _Writer, documents: Sequence[Document], folder: Path
) -> list[dict[str, Any]]:
    settings = replace(phase.settings_of(config), documents=len(documents))
    identity = digest_of([writer.ref.id, writer.iteration, [row.document_id for row in documents], plain(settings)])
    paths = {kind: folder / f"rewritten-{identity[:16]}.{kind}.parquet" for kind in ("labels", "questions")}
    if not paths["questions"].is_file():
        folder_of = Store(root).verified_folder(writer.ref)
        checkpoint = Checkpoint(checkpoint_id=writer.ref.id, role=Role.GENERATOR, path=str(folder_of), step=0)
        found = phase.generate_questions(
            documents,
            pool_of(of_run(config)).sampler(checkpoint),
            settings,
            checkpoint_id=writer.ref.id,
            seed=config.seed,
            iteration=writer.iteration,
        )
        write_rows(paths["labels"], found.labels, QuestionLabel)
        write_rows(paths["questions"], found.questions, Question)
    keys = {row.question_id: row.key for row in read_rows(paths["labels"], QuestionLabel)}
    return [_as_row(row, writer.iteration, keys) for row in read_rows(paths["questions"], Question)]


def _as_row(question: Question, iteration: int, keys: Mapping[str, str]) -> dict[str, Any]:
    names = ("question_id", "document_id", "text", "choices", "answer")
    own = {name: getattr(question, name) for name in names}
    return {"iteration": iteration, **own, "oracle": keys.get(question.question_id, "")}
