"""SQL page of `infuser view`: read-only statements, documented examples, results as CSV or parquet files."""

import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import FileResponse, HTMLResponse
from starlette.background import BackgroundTask

from infuser_core.config import shipped
from infuser_core.errors import InfuserError
from infuser_core.results.view.site import ViewSite
from infuser_core.store import runs

_PAGE = shipped.ROOT / "docs" / "sql.md"
_EXAMPLE = re.compile(r"^([^\n`#]+(?:\n[^\n`#]+)*)[:.]\n\n```sql\n(.*?)\n```", re.M | re.S)
MOST = 200
"""Most rows of a result on the page; a file has all."""
SECONDS = 20.0
"""Seconds after which a statement is stopped."""
Statement = Annotated[str, Query(max_length=20_000)]


@cache
def saved() -> dict[str, str]:
    """Example statements of docs/sql.md by title; empty if the file is not installed."""
    text = _PAGE.read_text(encoding="utf-8") if _PAGE.is_file() else ""
    return {" ".join(title.split()): statement for title, statement in _EXAMPLE.findall(text)}


def add_statements(app: FastAPI, site: ViewSite) -> None:
    """Add the SQL page, and the download of its results, to the server."""

    @app.get("/sql")
    def ask(statement: Statement = "", run: str = "") -> HTMLResponse:
        rows, error = [], None
        if statement.strip():
            try:
                with site.lens(_only(site, run)) as lens:
                    rows = lens.query_untrusted(statement, most=MOST + 1, seconds=SECONDS)
            except InfuserError as refusal:
                error = refusal
        first, more = rows[:MOST], len(rows) > MOST
        return site.page(
            "sql.html", title="SQL", statement=statement, run=run, rows=first, more=more, error=error, saved=saved(),
            runs=runs.list_runs(site.root)[::-1],
        )  # fmt: skip

    @app.get("/sql/rows.{ending}")
    def download(ending: str, statement: Statement, run: str = "") -> FileResponse:
        folder = tempfile.TemporaryDirectory(prefix="infuser-sql-")
        file = Path(folder.name) / ("rows.csv" if ending == "csv" else "rows.parquet")
        try:
            with site.lens(_only(site, run)) as lens:
                lens.save(statement, file, seconds=SECONDS)
        except InfuserError:
            folder.cleanup()
            raise
        return FileResponse(file, filename=file.name, background=BackgroundTask(folder.cleanup))


def _only(site: ViewSite, run: str) -> list[str] | None:
    return [runs.find_run(site.root, run)] if run else None
