"""Pages of `infuser view` about a run's questions: a list with filters and sorting, and explanations."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from infuser_core.config.phase_table import Phase
from infuser_core.results.lineage.story import Story
from infuser_core.results.lineage.why import why
from infuser_core.results.view.books import around
from infuser_core.results.view.site import Number, ViewSite, listing
from infuser_core.schemas import InfluenceScore, overview
from infuser_core.store import runs
from infuser_core.store.views import Lens, Rows

_MANY = 200
"""Most rows of an explanation's table on one page."""
SORTS = {
    "influence, furthest from 0": "abs(score) desc nulls last, question_id",
    "influence, highest first": "score desc nulls last, question_id",
    "influence, lowest first": "score asc nulls last, question_id",
    "iteration": "iteration, question_id",
    "accuracy, highest first": "solver_accuracy desc nulls last, question_id",
    "accuracy, lowest first": "solver_accuracy asc nulls last, question_id",
}
"""Sort orders with their ORDER BY clauses; an unknown one means the first."""
FIRST_SORT = next(iter(SORTS))
SCORED = """questions q
    left join scores s on s.run = q.run and s.iteration = q.iteration and s.question_id = q.question_id
    left join (select distinct run, document_id, source_id from documents) d
        on d.run = q.run and d.document_id = q.document_id"""
"""SQL join of questions `q`, their scores `s` and their documents' textbooks `d`."""
SHOWN = overview(InfluenceScore)
"""Columns of a score in the list of questions."""
MEASURED = ", ".join(f"s.{name}" for name in SHOWN)
_BOOK = "(select run, source_id, any_value(title) as title from sources where status = 'admitted' group by all)"
# The same text in one iteration is one row, with the number of its copies.
_QUESTIONS = f"""select q.run, q.iteration, q.question_id, q.text, q.answer, d.source_id, b.title as book,
        l.topic, l.key, {MEASURED}, count(*) over copies as copies
    from {SCORED}
    left join {_BOOK} b on b.run = d.run and b.source_id = d.source_id
    left join question_labels l on l.run = q.run and l.iteration = q.iteration and l.question_id = q.question_id
    where ($search = '' or contains(lower(q.text), lower($search)) or contains(lower(q.answer), lower($search)))
        and $iteration in ('', q.iteration::varchar) and ($status = '' or s.status = $status)
        and ($source = '' or coalesce(b.title, d.source_id) = $source)
    window copies as (partition by q.iteration, q.text)
    qualify row_number() over (partition by q.iteration, q.text
        order by abs(s.score) desc nulls last, q.question_id) = 1
    """
_CHOICES = {
    "iterations": "distinct iteration as one from run_artifacts where phase = 'generate_questions' order by 1",
    "statuses": "distinct status as one from scores order by 1",
    "sources": f"distinct coalesce(b.title, d.source_id) as one from documents d left join {_BOOK} b "
    "on b.run = d.run and b.source_id = d.source_id where d.source_id <> '' order by 1",
}
"""SQL of the possible values of each filter."""
_QUESTION = """select q.text, q.choices, q.answer, q.iteration, q.document_id, q.reasoning, l.topic, l.key, s.status,
        s.score, s.solver_accuracy
    from questions q left join question_labels l on l.question_id = q.question_id
    left join scores s on s.question_id = q.question_id where q.question_id = $name"""
_PEERS = "select question_id, score from scores where status = 'scored' order by score desc, question_id"


def find(lens: Lens, *, sort: str = FIRST_SORT, page: int = 1, **filters: str) -> dict[str, Any]:
    """One page of the questions that match the filters, and the possible values of each filter.

    `filters` are `search`, a text in the question or its answer regardless of case, and `iteration`, `status`
    and `source`; empty ones mean all. Nothing of the request becomes part of the statement.
    """
    parameters = {"search": "", "iteration": "", "status": "", "source": "", **filters}
    questions = listing(lens, _QUESTIONS, parameters, order=SORTS.get(sort, SORTS[FIRST_SORT]), page=page)
    choices = {name: [row["one"] for row in lens.query(f"select {sql}")] for name, sql in _CHOICES.items()}
    return {"listing": questions, "rewards": _rewards(lens, questions.rows), **choices}


def _rewards(lens: Lens, questions: Rows) -> dict[str, list[float]]:
    """Rewards of the solver's answers to these questions, in the order of the samples."""
    iterations = sorted({row["iteration"] for row in questions})
    answers = lens.query(
        "select artifact_key from run_artifacts where phase = ? and list_contains(?, iteration)",
        [Phase.ROLLOUT_QUESTIONS, iterations],
    )
    rewards: dict[str, list[float]] = {}
    ids = [row["question_id"] for row in questions]
    keys = [row["artifact_key"] for row in answers]
    for row in lens.rows(
        "rollouts", keys, ("group_id", "reward"), where="list_contains(?, group_id)", parameters=[ids]
    ):
        rewards.setdefault(row["group_id"], []).append(row["reward"])
    return rewards


def question_summary(lens: Lens, name: str) -> dict[str, Any]:
    """A generated question with its key, the rewards of its answers, and its place among the scores of its iteration;
    empty for anything else. The lens contains the question's iteration only, and its run's documents.
    """
    rows = lens.query(_QUESTION, {"name": name})
    if not rows:
        return {}
    peers = lens.query(_PEERS)
    rank = next((place for place, peer in enumerate(peers, 1) if peer["question_id"] == name), None)
    most = max((abs(peer["score"]) for peer in peers), default=0.0) or 1.0
    rewards = _rewards(lens, [{**rows[0], "question_id": name}]).get(name, [])
    return {**rows[0], "question_id": name, "rewards": rewards, "rank": rank, "peers": peers, "most": most}


def _title(story: Story, question: dict[str, Any]) -> str:
    passage = story.passage("question")
    text = question.get("text") or (passage.texts.get("text") if passage else "")
    return text or f"{story.kind.capitalize()} {story.id}"


def _iteration_of(name: str) -> Sequence[int]:
    head = name.partition("/")[0]
    return (-1, int(head)) if head.isdecimal() else ()


def add_questions(app: FastAPI, site: ViewSite) -> None:
    """Add the pages on a run's questions to the server."""

    @app.get("/runs/{name}/questions")
    def questions(
        name: str,
        search: str = "",
        iteration: str = "",
        status: str = "",
        source: str = "",
        sort: str = FIRST_SORT,
        number: Number = 1,
    ) -> HTMLResponse:
        name = runs.find_run(site.root, name)
        filters = {"search": search, "iteration": iteration, "status": status, "source": source, "sort": sort}
        with site.lens([name]) as lens:
            results = find(lens, **filters, page=number)
        return site.page(
            "questions.html", title=f"Questions of {name}", name=name, filters={**filters, "page": number},
            results=results, sorts=list(SORTS),
        )  # fmt: skip

    @app.get("/runs/{name}/why/{subject:path}")
    def explain(name: str, subject: str) -> HTMLResponse:
        story = why(site.root, subject, run=runs.find_run(site.root, name))
        question, chunks = {}, {}
        facts = story.passage("question")
        name = facts.facts.get("question_id", "") if facts else ""
        if name:
            with site.lens([story.run], iterations=_iteration_of(name)) as lens:
                question = question_summary(lens, name)
        if story.kind == "document":
            with site.lens([story.run]) as lens:
                chunks = around(lens, story.id)
        return site.page(
            "question.html", title=_title(story, question), name=story.run, story=story, many=_MANY, around=chunks,
            question=question,
        )  # fmt: skip
