"""Real PDF textbooks of the micro-world, and the catalogue that offers them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from infuser_core.config_sources import ShelfName
from infuser_core.nano import language, matter, typeset
from infuser_core.nano.topics import MicroTopic
from infuser_core.nano.world import WORLD, Note, WorldConfig, note
from infuser_core.seeding import seed_of

CHAPTERS = 5
SECTIONS = 8
CC_BY = {"spdx": "CC-BY-4.0", "url": "https://creativecommons.org/licenses/by/4.0/"}
CC_BY_SA = {"spdx": "CC-BY-SA-4.0", "url": "https://creativecommons.org/licenses/by-sa/4.0/"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """One textbook of the shelf."""

    book_id: str
    """Catalogue identifier and file name."""
    title: str
    """Title."""
    author: str
    """Author."""
    rare: tuple[str, ...]
    """Topics that are rarer in this book and not among its subjects."""
    licence: Mapping[str, str] | None
    """SPDX name and address; None for the book that names none and must be refused."""
    doi: str
    """DOI of the book; the prefix 10.5555 is reserved for examples."""
    domains: tuple[str, ...] = ()
    """What the book is about; its sections hardly touch other domains. Empty for a book about everything."""


BOOKS = (
    Book(
        book_id="notes",
        title="Notes of a small world",
        author="Ada Mill",
        rare=("growth", "density"),
        licence=CC_BY,
        doi="10.5555/nano.1",
    ),
    Book(
        book_id="laws",
        title="Laws of a small world",
        author="Ben Port",
        rare=("mean",),
        licence=CC_BY,
        doi="10.5555/nano.2",
    ),
    Book(
        book_id="measures",
        title="Measures of a small world",
        author="Cora Farm",
        rare=("fence", "cart"),
        licence=CC_BY_SA,
        doi="10.5555/nano.3",
    ),
    Book(
        book_id="readings",
        title="Readings of a small world",
        author="Ada Mill; Dan Tower",
        rare=("tank",),
        licence=CC_BY,
        doi="10.5555/nano.4",
    ),
    Book(book_id="scans", title="Scans of a small world", author="Dan Tower", rare=(), licence=None, doi=""),
)
"""Four books under open licences and one without a licence."""
_DOMAINS = {
    "notes": ("Mathematics", "Physics"),
    "laws": ("Biology", "Chemistry", "Statistics"),
    "measures": ("Art", "Engineering"),
    "readings": ("Economics", "Geography", "History"),
    "scans": (),
}
SHELVES: dict[ShelfName, tuple[Book, ...]] = {
    "mixed": BOOKS,
    "by_domain": tuple(replace(book, rare=(), domains=_DOMAINS[book.book_id]) for book in BOOKS),
}
"""Shelves by the name that configurations use. On `by_domain` the target's topics are one book's, and the catalogue
names every topic for every book: a search finds them all."""
MIRRORED = "laws"
"""The book that the catalogue offers twice: same DOI, same bytes, another address."""


def book_notes(book: Book, seed: int, world: WorldConfig = WORLD) -> list[list[Note]]:
    """The book's notes: one list per chapter, one note per section."""
    rng = Random(seed_of(seed, "book", book.book_id))
    weights = [_weight(book, topic) for topic in world.topics]
    return [
        [note(rng, world.topics, weights, count=world.topics_per_note) for _ in range(SECTIONS)]
        for _ in range(CHAPTERS)
    ]


def _weight(book: Book, topic: MicroTopic) -> float:
    if book.domains:
        return 1.0 if topic.domain in book.domains else 0.02
    return 0.6 if topic.name in book.rare else 1.0


def book_pdf(book: Book, seed: int, world: WorldConfig = WORLD) -> bytes:
    """The book as a PDF; the same bytes for the same seed."""
    rng = Random(seed_of(seed, "print", book.book_id))
    chapters = book_notes(book, seed, world)
    first = 2 + typeset.pages_for(CHAPTERS * (SECTIONS + 1))
    body = typeset.Pages(first_page=first)
    found: dict[str, set[int]] = {}
    letters = []
    for number, sections in enumerate(chapters, start=1):
        body.new_page()
        body.put([("chapter", language.chapter_title(number, rng.choice(language.TIMES)))], mark=0)
        for place, made in enumerate(sections, start=1):
            title = language.section_title(number, place, rng.choice(language.PLACES))
            page = body.put([("section", title), ("body", language.paragraph(made.facts))], mark=1)
            letters.append(rng.choice(language.LETTERS))
            for fact in made.facts:
                found.setdefault(fact.topic.name, set()).add(page + 1)
    entries = [(mark.title, mark.page + 1) for mark in body.marks]
    _append(body, "Index", matter.index_lines({name: sorted(pages) for name, pages in found.items()}))
    _append(body, "Answers", matter.answer_lines(letters))
    front = typeset.Pages(first_page=0)
    front.new_page()
    title_page = matter.title_lines(book.title, book.author)
    front.put([("chapter", title_page[0]), *(("body", line) for line in title_page[1:])])
    _append(front, "Preface", [matter.preface_text(rng)])
    _append(front, "Contents", matter.contents_lines(entries))
    assert len(front.pages) == first, "the contents do not fill the pages set aside for them"
    return typeset.print_pdf([front, body], title=book.title, author=book.author)


def _append(pages: typeset.Pages, title: str, lines: list[str]) -> None:
    pages.new_page()
    pages.put([("chapter", title)], mark=0)
    for line in lines:
        pages.put([("line", line)])


def build_shelf(
    folder: Path, seed: int, world: WorldConfig = WORLD, *, shelf: ShelfName = "mixed"
) -> list[dict[str, object]]:
    """Write the PDFs and `catalogue.json` into the folder; returns the catalogue's entries."""
    (folder / "books").mkdir(parents=True, exist_ok=True)
    (folder / "mirror").mkdir(exist_ok=True)
    entries = []
    for book in SHELVES[shelf]:
        pdf = book_pdf(book, seed, world)
        (folder / "books" / f"{book.book_id}.pdf").write_bytes(pdf)
        entries.append(_entry(book, book.book_id, f"books/{book.book_id}.pdf", world))
        if book.book_id == MIRRORED:
            (folder / "mirror" / f"{book.book_id}.pdf").write_bytes(pdf)
            entries.append(_entry(book, f"{book.book_id}-mirror", f"mirror/{book.book_id}.pdf", world))
    (folder / "catalogue.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    return entries


def _entry(book: Book, entry_id: str, pdf: str, world: WorldConfig) -> dict[str, object]:
    subjects = [
        {"domain": topic.domain, "subdomain": topic.name} for topic in world.topics if topic.name not in book.rare
    ]
    entry: dict[str, object] = {
        "id": entry_id,
        "title": book.title,
        "author": book.author,
        "description": f"{CHAPTERS * SECTIONS} sections of facts about {', '.join(s['subdomain'] for s in subjects)}.",
        "subjects": subjects,
        "license": dict(book.licence) if book.licence else None,
        "category": "textbook",
        "pdf": pdf,
    }
    return {**entry, "doi": book.doi} if book.doi else entry
