"""A page of a run's generated questions: filtered, searched, sorted and cut in SQL."""

from dataclasses import dataclass
from typing import Any

from infuser_core.store.views import Lens
from infuser_core.view.site import Listing, listing

SORTS = {
    "iteration": "iteration, question_id",
    "influence, highest first": "score desc nulls last, question_id",
    "influence, lowest first": "score asc nulls last, question_id",
    "accuracy, highest first": "solver_accuracy desc nulls last, question_id",
    "accuracy, lowest first": "solver_accuracy asc nulls last, question_id",
}
"""Order in words to its ORDER BY. Words that are none of these mean the first."""
_FROM = """
    from questions q
    left join scores s on s.run = q.run and s.iteration = q.iteration and s.question_id = q.question_id
    left join (select distinct run, document_id, source_id from documents) d
        on d.run = q.run and d.document_id = q.document_id
"""
_ITERATIONS = "distinct iteration as one from run_artifacts where phase = 'generate_questions' order by 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions and order of the questions that a person wants to see."""

    search: str = ""
    """Text that the question or its answer contains, whatever the case."""
    iteration: str = ""
    """Iteration in digits; empty for all."""
    status: str = ""
    """Status of the influence score; empty for all."""
    source: str = ""
    """Textbook; empty for all."""
    sort: str = "iteration"
    """Order, a key of SORTS."""
    page: int = 1
    """Page, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One page of questions, and the values that its filter can take."""

    listing: Listing
    """Questions that the filter lets through."""
    iterations: list[Any]
    """Iterations that wrote questions."""
    statuses: list[Any]
    """Statuses of influence scores."""
    sources: list[Any]
    """Textbooks of the pool."""


def find(lens: Lens, wanted: Filter) -> Found:
    """The questions that the filter lets through, one page of them."""
    where, parameters = _where(wanted)
    statement = f"""select q.run, q.iteration, q.question_id, q.text, q.answer, d.source_id, s.status, s.score,
        s.solver_accuracy {_FROM} where {where}"""
    order = SORTS.get(wanted.sort, SORTS["iteration"])
    return Found(
        listing=listing(lens, statement, parameters, order=order, page=wanted.page),
        iterations=_distinct(lens, _ITERATIONS),
        statuses=_distinct(lens, "distinct status as one from scores order by 1"),
        sources=_distinct(lens, "distinct source_id as one from documents where source_id <> '' order by 1"),
    )


def _where(wanted: Filter) -> tuple[str, list[Any]]:
    """Conditions and their parameters: nothing of the request becomes part of the statement."""
    conditions: dict[str, list[Any]] = {}
    if wanted.search:
        conditions["(contains(lower(q.text), lower(?)) or contains(lower(q.answer), lower(?)))"] = [wanted.search] * 2
    for column, value in (("q.iteration::varchar", wanted.iteration), ("s.status", wanted.status)):
        if value:
            conditions[f"{column} = ?"] = [value]
    if wanted.source:
        conditions["d.source_id = ?"] = [wanted.source]
    return " and ".join(conditions) or "true", [each for values in conditions.values() for each in values]


def _distinct(lens: Lens, sql: str) -> list[Any]:
    return [row["one"] for row in lens.query(f"select {sql}")]
