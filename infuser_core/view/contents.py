"""Pages of `infuser view` on what is in a run: questions, evaluations, textbooks, and the story of each thing."""

from dataclasses import asdict
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse

from infuser_core.lineage.why import why
from infuser_core.store import runs
from infuser_core.view import books, evaluations
from infuser_core.view.questions import SORTS, Filter, find
from infuser_core.view.site import Site

_MANY = 200
"""Rows of a passage's table on one page."""
Number = Annotated[int, Query(alias="page", ge=1, le=1_000_000)]


def add_contents(app: FastAPI, site: Site) -> None:
    """Add these pages."""

    @app.get("/runs/{name}/questions")
    def questions(
        name: str,
        search: str = "",
        iteration: str = "",
        status: str = "",
        source: str = "",
        sort: str = "iteration",
        number: Number = 1,
    ) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        wanted = Filter(search=search, iteration=iteration, status=status, source=source, sort=sort, page=number)
        with site.lens([name]) as lens:
            found = find(lens, wanted)
        return site.page(
            "questions.html",
            title=f"Questions of {name}",
            name=name,
            wanted=asdict(wanted),
            found=found,
            sorts=list(SORTS),
        )

    @app.get("/runs/{name}/evaluations")
    def evaluated(
        name: str, benchmark: str = "", search: str = "", change: str = "all", number: Number = 1
    ) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        with site.lens([name]) as lens:
            sheet = evaluations.sheet(lens, benchmark=benchmark, search=search, change=change, page=number)
        wanted = {"benchmark": sheet.benchmark, "search": search, "change": change}
        return site.page(
            "evaluations.html", title=f"Evaluations of {name}", name=name, sheet=sheet, wanted=wanted,
            changes=list(evaluations.CHANGES),
        )  # fmt: skip

    @app.get("/runs/{name}/why/{subject:path}")
    def story(name: str, subject: str) -> HTMLResponse:
        answer = why(site.root, subject, run=runs.find_run(site.root, name))
        document = next((p.facts["document_id"] for p in answer.passages if "document_id" in p.facts), "")
        around = {}
        if answer.kind == "document":
            with site.lens([answer.run]) as lens:
                around = books.around(lens, answer.id)
        return site.page(
            "question.html", title=f"{answer.kind.capitalize()} {answer.id}", name=answer.run, answer=answer,
            many=_MANY, document=document, around=around,
        )  # fmt: skip

    _add_books(app, site)


def _add_books(app: FastAPI, site: Site) -> None:
    """The textbooks of a run, and the page of a book that a chunk stands on."""

    @app.get("/runs/{name}/corpus")
    def corpus(name: str) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        with site.lens([name]) as lens:
            rows = books.listed(lens)
        return site.page("corpus.html", title=f"Corpus of {name}", name=name, rows=rows)

    @app.get("/runs/{name}/sheet/{document_id}")
    def sheet(name: str, document_id: str) -> HTMLResponse:
        with site.lens([runs.find_run(site.root, name)]) as lens:
            found = books.sheet(lens, document_id)
        return site.page("sheet.html", found=found)
