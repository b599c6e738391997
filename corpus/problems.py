"""Problems with known answers as rows of the training pool (appendix, pilot extension: data mixture)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from corpus.chunk.split import count_tokens
from infuser_core.config.roles import ProblemSettings
from infuser_core.prompts.templates import LETTERS, render_question
from infuser_core.schemas import Document, Judgement, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Rows of the pool and the problems that they carry."""

    documents: list[Document]
    """One per row, in pool order."""
    problems: list[Question]
    """The problem of each row, with the row's document id."""
    left_out: list[Judgement]
    """Problems that are no row, with the reason."""


def as_rows(number: int, problems: Sequence[Question], settings: ProblemSettings, dev: Sequence[Question]) -> Problems:
    """The pool rows of list `number`: distinct problems in turn until there are `count`, then shuffled.

    Problems whose text another one or, as configured, a dev question has are left out.
    """
    reasons = {normalised(row): f"in the dev set: {row.question_id}" for row in (dev if settings.exclude_dev else ())}
    unique: list[Question] = []
    left_out: list[Judgement] = []
    for problem in problems:
        reason = reasons.setdefault(normalised(problem), f"the same as {problem.question_id}")
        if reason == f"the same as {problem.question_id}":
            unique.append(replace(problem, domain=settings.domain or problem.domain))
        else:
            name = f"p{number}-{problem.question_id}"
            left_out.append(Judgement(document_id=name, keep=False, reason=reason, decided_by="problems", response=""))
    rows = [
        (f"p{number}-{unique[place % len(unique)].question_id}-{place // len(unique)}", unique[place % len(unique)])
        for place in range(settings.count if unique else 0)
    ]
    Random(settings.seed).shuffle(rows)
    return Problems(
        documents=[_document(number, name, problem, settings.route) for name, problem in rows],
        problems=[replace(problem, document_id=name) for name, problem in rows],
        left_out=left_out,
    )


def blank(counts: Mapping[str, int]) -> list[Document]:
    """Rows without a text, so many of each route that asks the generator for questions of its own."""
    routes = [route for route, count in counts.items() for _ in range(count)]
    return [_row(f"blank-{number:04d}", "blank", "", "", route) for number, route in enumerate(routes)]


def normalised(question: Question) -> str:
    """Text and choices without differences of letter case and white space."""
    return " ".join(render_question(question.text, question.choices).casefold().split())


def _document(number: int, name: str, problem: Question, route: str) -> Document:
    answer = problem.answer
    if problem.choices:
        answer = f"{answer}) {problem.choices[LETTERS.index(answer)]}"
    text = f"{render_question(problem.text, problem.choices)}\n\nAnswer: {answer}"
    return _row(name, f"problems-{number}", text, problem.domain, route)


def _row(name: str, source_id: str, text: str, domain: str, route: str) -> Document:
    return Document(
        document_id=name,
        source_id=source_id,
        header_path="",
        start=0,
        end=len(text),
        text=text,
        num_tokens=count_tokens(text),
        domain=domain,
        prompt_type=route,
    )
