"""Pages of `infuser view` about textbooks: their list, a chunk's neighbours, and the picture of its page."""

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from infuser_core.errors import DocumentError
from infuser_core.results.view.site import ViewSite
from infuser_core.store import runs, verify
from infuser_core.store.views import Lens, Rows
from infuser_core.system import child

PICTURES = "infuser_core.results.view.pictures:pictures"
LIMITS = child.Limits(wall_seconds=120.0, cpu_seconds=120)
"""Limits of the child process that reads a book: PDFs can be hostile."""
_CHUNKS = '(select distinct document_id, source_id, header_path, start, "end", text from {table})'


def listed(lens: Lens) -> Rows:
    """List textbooks with their chunks, questions and mean influence, those with most questions first."""
    return lens.query("""
        with made as (
            select d.source_id, count(distinct d.document_id) as documents, count(distinct q.question_id) as questions,
                avg(s.score) filter (where s.status = 'scored') as influence, avg(s.solver_accuracy) as accuracy
            from (select distinct document_id, source_id from documents) d
            left join questions q on q.document_id = d.document_id
            left join scores s on s.question_id = q.question_id group by 1),
        cut as (select source_id, count(distinct document_id) as chunks from chunks group by 1),
        books as (select source_id, arg_min(title, status) as title, arg_min(licence, status) as licence,
            arg_min(reason, status) as rejected_for from sources group by 1)
        select source_id, title, licence, rejected_for, chunks, documents as in_pool, questions, influence, accuracy
        from books full join made using (source_id) full join cut using (source_id)
        order by questions desc nulls last, source_id limit 60""")


def around(lens: Lens, document_id: str) -> dict[str, Any]:
    """Ids `before` and `after` of a chunk's neighbours in its book, None at an end."""
    return _chunk(
        lens,
        """select * from (select document_id, lag(document_id) over ordered as before, lead(document_id)
            over ordered as after from {chunks} window ordered as (partition by source_id order by start))""",
        document_id,
    )


def _chunk(lens: Lens, statement: str, document_id: str) -> dict[str, Any]:
    """Row of a chunk, from the pool or from the chunks dropped before it; empty if unknown."""
    for table in ("documents", "chunks"):
        rows = lens.query(
            f"{statement.format(chunks=_CHUNKS.format(table=table))} where document_id = ?", [document_id]
        )
        if rows:
            return rows[0]
    return {}


def find_chunk(lens: Lens, document_id: str) -> dict[str, Any]:
    """Row of a chunk; empty if the run has none."""
    return _chunk(lens, "select * from {chunks}", document_id)


def sheet(lens: Lens, document_id: str) -> tuple[dict[str, Any] | None, str]:
    """Picture of a chunk's PDF page with its words marked (see pictures.py), or None, and the reason for None."""
    row = find_chunk(lens, document_id)
    if not row:
        return None, "this run has no such chunk"
    books = lens.query("select sha256 from sources where source_id = ? and status = 'admitted'", [row["source_id"]])
    if not books:
        return None, "The run's registry does not have this book, so no page is shown."
    file = _file(lens, books[0]["sha256"])
    if file is None:
        return None, "The store has no file of this book, so no page is shown: `infuser corpus build` adds it."
    if file.suffix != ".pdf":
        return None, f"This book is not a PDF but {file.suffix}: it has no pages to show."
    starts = lens.query("select page_starts from pages where source_id = ? and reason = ''", [row["source_id"]])
    try:
        picture = _picture(
            file, row["text"], _near(starts[0]["page_starts"] if starts else [], row["start"], row["end"])
        )
    except DocumentError as error:
        return None, error.message
    return picture, "" if picture else "No page of the book was recognised as that of this chunk."


def _file(lens: Lens, sha256: str) -> Path | None:
    """Find a book's file by its digest, in any artifact of the store; None if no artifact has it."""
    root = lens.catalogue.root
    for path in sorted((root / "artifacts").glob(f"*/*/{sha256}.*")) if sha256 else ():
        record = lens.catalogue.find(path.parent.name)
        if record is not None and path.name in record.files:
            return verify.verified_paths(root, [(record, path.name)])[0]
    return None


def _near(starts: list[int], start: int, end: int) -> tuple[int, ...]:
    """Pages of a span of the converted book and their neighbours, counted from 0; empty if unknown."""
    if len(starts) < 2:
        return ()
    first, last = bisect_right(starts, start) - 1, bisect_right(starts, end - 1) - 1
    return tuple(range(max(0, first - 1), last + 2))


@lru_cache(maxsize=32)
def _picture(file: Path, text: str, near: tuple[int, ...]) -> dict[str, Any] | None:
    arguments = {"path": str(file), "texts": [text], "near": list(near) or None}
    (picture,) = child.call(PICTURES, arguments, LIMITS)
    return picture


def add_books(app: FastAPI, site: ViewSite) -> None:
    """Add the pages about textbooks to the server."""

    @app.get("/runs/{name}/corpus")
    def corpus(name: str) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        with site.lens([name]) as lens:
            return site.page("corpus.html", title=f"Corpus of {name}", name=name, rows=listed(lens))

    @app.get("/runs/{name}/sheet/{document_id}")
    def page_of(name: str, document_id: str) -> HTMLResponse:
        with site.lens([runs.find_run(site.root, name)]) as lens:
            picture, note = sheet(lens, document_id)
            text = "" if picture else find_chunk(lens, document_id).get("text", "")
        return site.page("sheet.html", picture=picture, note=note, text=text)
