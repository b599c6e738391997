"""Add problems with known answers to the training pool, as documents (appendix, pilot extension: data mixture)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from corpus.chunk.split import count_tokens
from infuser_core.config.roles import ProblemSettings
from infuser_core.prompts.templates import LETTERS, render_question
from infuser_core.schemas import Document, Judgement, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Problems as documents of the training pool."""

    documents: list[Document]
    """Documents, in the order of the pool."""
    problems: list[Question]
    """The problem of each document, with its document_id."""
    skipped: list[Judgement]
    """Problems that were left out, with the reason."""


def problem_rows(
    number: int, problems: Sequence[Question], settings: ProblemSettings, dev: Sequence[Question]
) -> Problems:
    """Make `count` documents of problem list `number`: the distinct problems in turn, repeated if few; shuffled.

    Problems with the text of an earlier one or, if configured, of a dev question are skipped.
    """
    reasons = {_normalise(row): f"in the dev set: {row.question_id}" for row in (dev if settings.exclude_dev else ())}
    unique: list[Question] = []
    skipped: list[Judgement] = []
    for problem in problems:
        reason = reasons.setdefault(_normalise(problem), f"the same as {problem.question_id}")
        if reason == f"the same as {problem.question_id}":
            unique.append(replace(problem, domain=settings.domain or problem.domain))
        else:
            name = f"p{number}-{problem.question_id}"
            skipped.append(Judgement(document_id=name, keep=False, reason=reason, decided_by="problems", response=""))
    rows = [
        (f"p{number}-{unique[place % len(unique)].question_id}-{place // len(unique)}", unique[place % len(unique)])
        for place in range(settings.count if unique else 0)
    ]
    Random(settings.seed).shuffle(rows)
    documents = []
    for name, problem in rows:
        answer = problem.answer
        if problem.choices:
            answer = f"{answer}) {problem.choices[LETTERS.index(answer)]}"
        text = f"{render_question(problem.text, problem.choices)}\n\nAnswer: {answer}"
        documents.append(_row(name, f"problems-{number}", text, problem.domain, settings.route))
    return Problems(
        documents=documents,
        problems=[replace(problem, document_id=name) for name, problem in rows],
        skipped=skipped,
    )


def blank_rows(counts: Mapping[str, int]) -> list[Document]:
    """Make documents without text, for questions that the generator invents; `counts` has their number by route."""
    routes = [route for route, count in counts.items() for _ in range(count)]
    return [_row(f"blank-{number:04d}", "blank", "", "", route) for number, route in enumerate(routes)]


def _normalise(question: Question) -> str:
    """Text and choices of a question, case-folded and with single blanks, to recognise equal questions."""
    return " ".join(render_question(question.text, question.choices).casefold().split())


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
