"""Documents, questions, pages and invented prose for tests of the corpus."""

import random
from collections.abc import Callable

from corpus.read.page import page_of
from infuser_core.schemas import Document, Page, Question


def document(name: str, text: str = "text", **changes: object) -> Document:
    """A document of the pool."""
    fields: dict[str, object] = {"source_id": "book", "header_path": "", "start": 0, "end": len(text)}
    fields |= {"text": text, "num_tokens": 0, "domain": "", "prompt_type": "mcq"}
    return Document(document_id=name, **(fields | changes))  # type: ignore[arg-type]


def question(name: str, text: str, choices: list[str] | None = None, **changes: str) -> Question:
    """A question that has no document and no labels."""
    return Question(
        question_id=name, text=text, choices=choices or [], **{"answer": "A", "verifier": "choice", **changes}
    )


def book_page(markdown: str) -> Page:
    """A book of one page."""
    return page_of("book", markdown, num_pages=1, converter="test")


def by_words(text: str) -> int:
    """The number of words, in place of tokens."""
    return len(text.split())


def by_characters(text: str) -> int:
    """A third of the characters, in place of tokens."""
    return (len(text) + 2) // 3


def writer(seed: int) -> Callable[[int], str]:
    """Makes so many invented words; never the same ones twice in a row."""
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices("abcdefghijklmnoprstuw", k=6)) for _ in range(3000)]
    return lambda size: " ".join(draw.choices(vocabulary, k=size))
