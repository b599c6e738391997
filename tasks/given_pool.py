"""A document pool that exists takes the place of the stages that would build one."""

import hashlib
from pathlib import Path

from corpus.formats import documents_in
from corpus.pool import pool_file
from infuser_core.engines.protocols import Progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document, Judgement
from infuser_core.store.store import Outcome, Table
from tasks.run import Run
from tasks.stage import stage
from tasks.work import Work

VERSION = 1
REASON = "in the pool that was given"


@stage("given_pool")
def read_pool(run: Run, place: str) -> Work:
    """The documents of a pool as chunks that were kept: the audit then looks at them like at any others."""
    path = Path(place)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = documents_in(path)
        if not documents:
            raise DocumentError(f"corpus.pool = {path}: no documents in it", hint="name another pool")
        rows = [
            Judgement(document_id=row.document_id, keep=True, reason=REASON, decided_by="given", response="")
            for row in documents
        ]
        return Outcome(
            tables={
                "chunks": Table(row_type=Document, rows=documents),
                "judgements": Table(row_type=Judgement, rows=rows),
            },
            summary={"kept": len(documents), "dropped": 0},
        )

    # The pool enters by content: where it lies changes nothing.
    return Work(recipe=run.recipe("given_pool", VERSION, {"content": _content(path)}, {}), produce=produce)


def _content(path: Path) -> str:
    """Digest of the pool's file. Raises DocumentError when there is none."""
    file = pool_file(path)
    try:
        with file.open("rb") as handle:
            return f"{file.suffix}:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
    except OSError as error:
        raise DocumentError(f"corpus.pool = {path}: {error.strerror}", hint="name a pool that can be read") from error
