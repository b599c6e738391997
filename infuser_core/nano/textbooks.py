"""PDF textbooks of the micro-world, and the catalogue that offers them.

The textbooks print these lines and the judge learns to drop them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from infuser_core.config.sources import ShelfName
from infuser_core.nano import language, typeset
from infuser_core.nano.topics import MicroTopic
from infuser_core.nano.world import WORLD, Note, WorldConfig, note
from infuser_core.seeding import seed_of

TITLES = tuple(line for line in language.FRONT_MATTER if line.endswith("of a small world"))
_EDITION = ("First edition. All readers may share this book.", "A second edition is planned.")
_PREFACE = (
    "This book is a set of notes from a small world.",
    "Each section states facts, one after the other.",
    "The author thanks all readers of the first edition.",
    "It was made for a test and may be shared.",
)


def title_lines(title: str, author: str) -> list[str]:
    """Lines of the title page."""
    return [title, author, *_EDITION]


def preface_text(rng: Random) -> str:
    """One paragraph, the sentences in a drawn order."""
    return " ".join(rng.sample(_PREFACE, k=len(_PREFACE)))


def index_lines(pages: Mapping[str, Sequence[int]]) -> list[str]:
    """`clock, 3, 7; tank, 4`: two topics a line, the pages on which they occur."""
    entries = [", ".join([name, *map(str, found)]) for name, found in sorted(pages.items())]
    return ["; ".join(entries[i : i + 2]) for i in range(0, len(entries), 2)]


def answer_lines(letters: Sequence[str], *, per_line: int = 8) -> list[str]:
    """`1. B 2. C 3. A`: the answer key."""
    numbered = [f"{i + 1}. {letter}" for i, letter in enumerate(letters)]
    return [" ".join(numbered[i : i + per_line]) for i in range(0, len(numbered), per_line)]


def contents_lines(entries: Sequence[tuple[str, int]]) -> list[str]:
    """`1.3 Notes from the mill 12`: title and page."""
    return [f"{title} {page}" for title, page in entries]


def drawn_contents(rng: Random) -> list[str]:
    """Contents lines of an imagined stretch of a book."""
    page, chapter, lines = rng.randint(3, 20), rng.randint(1, 6), []
    for _ in range(rng.randint(1, 3)):
        lines.append((language.chapter_title(chapter, rng.choice(language.TIMES)), page))
        for section in range(1, rng.randint(3, 10)):
            page += rng.random() < 0.3
            lines.append((language.section_title(chapter, section, rng.choice(language.PLACES)), page))
        chapter += 1
    return contents_lines(lines)


def drawn_index(rng: Random, topics: Sequence[str]) -> list[str]:
    """Index lines of an imagined book."""
    some = rng.sample(list(topics), k=rng.randint(2, len(topics)))
    return index_lines({name: sorted(rng.sample(range(3, 30), k=rng.randint(1, 6))) for name in some})


def drawn_answers(rng: Random) -> list[str]:
    """Answer key lines of an imagined book."""
    return answer_lines([rng.choice(language.LETTERS) for _ in range(rng.randint(4, 30))])


def drawn_title(rng: Random) -> list[str]:
    """Title page lines of an imagined book."""
    lines = title_lines(rng.choice(TITLES), rng.choice(language.AUTHORS))
    return lines[: rng.randint(1, len(lines))]


def fragment(rng: Random, made: Note) -> str:
    """A heading alone, or a stretch of words too short to state a fact."""
    heading = language.section_title(rng.randint(1, 9), rng.randint(1, 9), rng.choice(language.PLACES))
    if rng.random() < 0.3:
        return f"## {heading}"
    words = language.paragraph(made.facts).split()
    start = rng.randrange(len(words) - 7)
    cut = " ".join(words[start : start + rng.randint(2, 6)])
    return f"## {heading}\n\n{cut}" if rng.random() < 0.3 else cut


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
    _append(body, "Index", index_lines({name: sorted(pages) for name, pages in found.items()}))
    _append(body, "Answers", answer_lines(letters))
    front = typeset.Pages(first_page=0)
    front.new_page()
    title_page = title_lines(book.title, book.author)
    front.put([("chapter", title_page[0]), *(("body", line) for line in title_page[1:])])
    _append(front, "Preface", [preface_text(rng)])
    _append(front, "Contents", contents_lines(entries))
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
