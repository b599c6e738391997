"""Pages of `infuser view` about a run's questions: a list with filters and sorting, and explanations."""

from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from infuser_core.results.lineage.why import why
from infuser_core.results.view.books import around
from infuser_core.results.view.site import Number, ViewSite, listing
from infuser_core.schemas import InfluenceScore, overview
from infuser_core.store import runs
from infuser_core.store.views import Lens

_MANY = 200
"""Most rows of an explanation's table on one page."""
SORTS = {
    "iteration": "iteration, question_id",
    "influence, highest first": "score desc nulls last, question_id",
    "influence, lowest first": "score asc nulls last, question_id",
    "accuracy, highest first": "solver_accuracy desc nulls last, question_id",
    "accuracy, lowest first": "solver_accuracy asc nulls last, question_id",
}
"""Sort orders with their ORDER BY clauses; an unknown one means the first."""
SCORED = """questions q
    left join scores s on s.run = q.run and s.iteration = q.iteration and s.question_id = q.question_id
    left join (select distinct run, document_id, source_id from documents) d
        on d.run = q.run and d.document_id = q.document_id"""
"""SQL join of questions `q`, their scores `s` and their documents' textbooks `d`."""
SHOWN = overview(InfluenceScore)
"""Columns of a score in the list of questions."""
MEASURED = ", ".join(f"s.{name}" for name in SHOWN)
_QUESTIONS = f"""select q.run, q.iteration, q.question_id, q.text, q.answer, d.source_id, {MEASURED}
    from {SCORED}
    where ($search = '' or contains(lower(q.text), lower($search)) or contains(lower(q.answer), lower($search)))
        and $iteration in ('', q.iteration::varchar) and ($status = '' or s.status = $status)
        and ($source = '' or d.source_id = $source)"""
_CHOICES = {
    "iterations": "distinct iteration as one from run_artifacts where phase = 'generate_questions' order by 1",
    "statuses": "distinct status as one from scores order by 1",
    "sources": "distinct source_id as one from documents where source_id <> '' order by 1",
}
"""SQL of the possible values of each filter."""


def find(lens: Lens, *, sort: str = "iteration", page: int = 1, **filters: str) -> dict[str, Any]:
    """One page of the questions that match the filters, and the possible values of each filter.

    `filters` are `search`, a text in the question or its answer regardless of case, and `iteration`, `status`
    and `source`; empty ones mean all. Nothing of the request becomes part of the statement.
    """
    parameters = {"search": "", "iteration": "", "status": "", "source": "", **filters}
    questions = listing(lens, _QUESTIONS, parameters, order=SORTS.get(sort, SORTS["iteration"]), page=page)
    choices = {name: [row["one"] for row in lens.query(f"select {sql}")] for name, sql in _CHOICES.items()}
    return {"listing": questions, **choices}


def add_questions(app: FastAPI, site: ViewSite) -> None:
    """Add the pages on a run's questions to the server."""

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
        filters = {"search": search, "iteration": iteration, "status": status, "source": source, "sort": sort}
        with site.lens([name]) as lens:
            results = find(lens, **filters, page=number)
        return site.page(
            "questions.html", title=f"Questions of {name}", name=name, filters={**filters, "page": number},
            results=results, sorts=list(SORTS), columns=SHOWN,
        )  # fmt: skip

    @app.get("/runs/{name}/why/{subject:path}")
    def explain(name: str, subject: str) -> HTMLResponse:
        story = why(site.root, subject, run=runs.find_run(site.root, name))
        chunks = {}
        if story.kind == "document":
            with site.lens([story.run]) as lens:
                chunks = around(lens, story.id)
        return site.page(
            "question.html", title=f"{story.kind.capitalize()} {story.id}", name=story.run, story=story,
            many=_MANY, around=chunks,
        )  # fmt: skip
