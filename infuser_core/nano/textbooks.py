"""PDF textbooks of the micro-world: typesetting, front and back matter, and their catalogue."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from random import Random

from reportlab.lib.utils import simpleSplit
from reportlab.pdfgen.canvas import Canvas

from infuser_core.config.sources import ShelfName
from infuser_core.nano import language
from infuser_core.nano.world import WORLD, Note, WorldConfig, draw_note
from infuser_core.seeding import seed_of

WIDTH, HEIGHT = 420.0, 595.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 372.0, 520.0, 76.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Typography of a kind of line."""

    font: str
    """Name of a standard PDF font; none is embedded."""
    size: float
    """Points."""
    leading: float
    """Distance between baselines, points."""
    after: float
    """Space below the block, points."""


STYLES = {
    "chapter": Style(font="Helvetica-Bold", size=18, leading=24, after=14),
    "section": Style(font="Helvetica-Bold", size=13, leading=17, after=4),
    "body": Style(font="Times-Roman", size=11, leading=14, after=14),
    "line": Style(font="Times-Roman", size=11, leading=14, after=0),
}


PrintedLine = tuple[str, Style, float]
"""Text, typography, and baseline above the lower edge in points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """One entry of the PDF's outline."""

    level: int
    """0 for chapters, 1 for sections."""
    title: str
    page: int
    """0-based index in the book."""
    top: float
    """Upper edge of the heading, points."""


def pages_for(num_lines: int) -> int:
    """Number of pages that a titled list of `num_lines` lines takes."""
    title, line = STYLES["chapter"], STYLES["line"]
    first = math.floor((TOP - BOTTOM - title.leading - title.after) / line.leading)
    later = math.floor((TOP - BOTTOM) / line.leading)
    return 1 + max(0, math.ceil((num_lines - first) / later))


class Pages:
    """Consecutive pages, filled from the top; no block is split between two pages."""

    def __init__(self, *, first_page: int) -> None:
        self.pages: list[list[PrintedLine]] = []
        self.marks: list[Bookmark] = []
        self._first_page = first_page
        self._y = TOP

    def new_page(self) -> None:
        """Continue at the top of a fresh page."""
        self.pages.append([])
        self._y = TOP

    def add_block(self, block: Sequence[tuple[str, str]], *, mark: int | None = None) -> int:
        """Print (style name, text) paragraphs on one page and return it; `mark` is the first one's outline level."""
        lines = []
        for name, text in block:
            style = STYLES[name]
            wrapped = simpleSplit(text, style.font, style.size, RIGHT - LEFT)
            lines += [(line, style, style.after if i == len(wrapped) - 1 else 0.0) for i, line in enumerate(wrapped)]
        if self._y - sum(style.leading for _, style, _ in lines) < BOTTOM:
            self.new_page()
        page = self._first_page + len(self.pages) - 1
        if mark is not None:
            self.marks.append(Bookmark(level=mark, title=block[0][1], page=page, top=self._y))
        for text, style, after in lines:
            self._y -= style.leading
            self.pages[-1].append((text, style, self._y))
            self._y -= after
        return page


def print_pdf(parts: Sequence[Pages], *, title: str, author: str) -> bytes:
    """Print all pages in order into a PDF; every page but the first has two head lines and two foot lines."""
    buffer = io.BytesIO()
    # invariant: no clock and no random identifier reaches the file.
    canvas = Canvas(buffer, pagesize=(WIDTH, HEIGHT), invariant=1, pageCompression=1)
    canvas.setTitle(title)
    canvas.setAuthor(author)
    canvas.setSubject("Textbook of the INFUSER micro-world")
    canvas.setCreator("infuser nano")
    marks = [mark for part in parts for mark in part.marks]
    for number, lines in enumerate(page for part in parts for page in part.pages):
        for i, mark in enumerate(marks):
            if mark.page == number:
                canvas.bookmarkPage(f"m{i}", fit="XYZ", left=0, top=mark.top, zoom=0)
                canvas.addOutlineEntry(mark.title, f"m{i}", level=mark.level, closed=mark.level == 0)
        for text, style, y in lines:
            canvas.setFont(style.font, style.size)
            canvas.drawString(LEFT, y, text)
        if number:
            canvas.setFont("Helvetica", 8)
            canvas.drawString(LEFT, 560, title)
            canvas.drawString(LEFT, 548, author)
            canvas.drawString(LEFT, 46, "First edition")
            canvas.drawCentredString(WIDTH / 2, 34, str(number + 1))
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def title_lines(title: str, author: str) -> list[str]:
    """Lines of the title page."""
    return [title, author, *language.EDITION]


def preface_text(rng: Random) -> str:
    """Text of a preface: one paragraph with its sentences in random order."""
    return " ".join(rng.sample(language.PREFACE, k=len(language.PREFACE)))


def index_lines(pages: Mapping[str, Sequence[int]]) -> list[str]:
    """Lines like `clock, 3, 7; tank, 4`: two topics and the pages on which they occur."""
    entries = [", ".join([name, *map(str, numbers)]) for name, numbers in sorted(pages.items())]
    return ["; ".join(entries[i : i + 2]) for i in range(0, len(entries), 2)]


def answer_lines(letters: Sequence[str]) -> list[str]:
    """Lines of the answer key, like `1. B 2. C 3. A`."""
    numbered = [f"{i + 1}. {letter}" for i, letter in enumerate(letters)]
    return [" ".join(numbered[i : i + 8]) for i in range(0, len(numbered), 8)]


def contents_lines(entries: Sequence[tuple[str, int]]) -> list[str]:
    """Lines of a table of contents, title and page, like `1.3 Notes from the mill 12`."""
    return [f"{title} {page}" for title, page in entries]


def draw_contents(rng: Random) -> list[str]:
    """Random lines of a table of contents."""
    page, chapter, lines = rng.randint(3, 20), rng.randint(1, 6), []
    for _ in range(rng.randint(1, 3)):
        lines.append((language.chapter_title(chapter, rng.choice(language.TIMES)), page))
        for section in range(1, rng.randint(3, 10)):
            page += rng.random() < 0.3
            lines.append((language.section_title(chapter, section, rng.choice(language.PLACES)), page))
        chapter += 1
    return contents_lines(lines)


def draw_index(rng: Random, topics: Sequence[str]) -> list[str]:
    """Random lines of an index."""
    names = rng.sample(list(topics), k=rng.randint(2, len(topics)))
    return index_lines({name: sorted(rng.sample(range(3, 30), k=rng.randint(1, 6))) for name in names})


def draw_answers(rng: Random) -> list[str]:
    """Random lines of an answer key."""
    return answer_lines([rng.choice(language.LETTERS) for _ in range(rng.randint(4, 30))])


def draw_title(rng: Random) -> list[str]:
    """Random lines of a title page."""
    lines = title_lines(rng.choice(language.TITLES), rng.choice(language.AUTHORS))
    return lines[: rng.randint(1, len(lines))]


def draw_fragment(rng: Random, note: Note) -> str:
    """Random fragment of a section: a heading alone, or too few words to state a fact."""
    heading = language.section_title(rng.randint(1, 9), rng.randint(1, 9), rng.choice(language.PLACES))
    if rng.random() < 0.3:
        return f"## {heading}"
    words = language.paragraph(note.facts).split()
    start = rng.randrange(len(words) - 7)
    stretch = " ".join(words[start : start + rng.randint(2, 6)])
    return f"## {heading}\n\n{stretch}" if rng.random() < 0.3 else stretch


CHAPTERS = 5
SECTIONS = 8
_CREATIVE_COMMONS = "https://creativecommons.org/licenses"
LICENCES: Mapping[str, Mapping[str, str]] = {
    "CC-BY-4.0": {"spdx": "CC-BY-4.0", "url": f"{_CREATIVE_COMMONS}/by/4.0/"},
    "CC-BY-SA-4.0": {"spdx": "CC-BY-SA-4.0", "url": f"{_CREATIVE_COMMONS}/by-sa/4.0/"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """One textbook of the shelf."""

    book_id: str
    """Catalogue identifier and file name."""
    title: str
    author: str
    rare: tuple[str, ...]
    """Topics that are rarer in this book and not among its subjects."""
    licence: Mapping[str, str] | None
    """SPDX name and address; None for a book without a licence, which must be refused."""
    doi: str
    """The prefix 10.5555 is reserved for examples."""
    domains: tuple[str, ...] = ()
    """Domains that nearly all of its sections are about; empty for a book about all domains."""


def _load_books() -> tuple[Book, ...]:
    with (files(__package__) / "books.csv").open(encoding="utf-8") as file:
        return tuple(
            Book(
                **{name: row[name] for name in ("book_id", "title", "author", "doi")},
                rare=tuple(row["rare"].split()),
                licence=LICENCES[row["licence"]] if row["licence"] else None,
                domains=tuple(row["domains"].split()),
            )
            for row in csv.DictReader(file)
        )


_BOOKS = _load_books()
BOOKS = tuple(replace(book, domains=()) for book in _BOOKS)
"""Four books under open licences and one without a licence."""
SHELVES: dict[ShelfName, tuple[Book, ...]] = {
    "mixed": BOOKS,
    "by_domain": tuple(replace(book, rare=()) for book in _BOOKS),
}
"""Shelves by their name in configurations. On `by_domain` one book has the target's topics, and the catalogue lists
every topic for every book, so that a search returns them all."""
MIRRORED = "laws"
"""The book that the catalogue lists twice: same DOI, same bytes, another address."""


def book_notes(book: Book, seed: int, world: WorldConfig = WORLD) -> list[list[Note]]:
    """Draw the book's notes: one list per chapter, one note per section."""
    rng = Random(seed_of(seed, "book", book.book_id))
    if book.domains:
        weights = [1.0 if topic.domain in book.domains else 0.02 for topic in world.topics]
    else:
        weights = [0.6 if topic.name in book.rare else 1.0 for topic in world.topics]
    return [
        [draw_note(rng, world.topics, weights, count=world.topics_per_note) for _ in range(SECTIONS)]
        for _ in range(CHAPTERS)
    ]


def book_pdf(book: Book, seed: int, world: WorldConfig = WORLD) -> bytes:
    """Print the book as a PDF: the same bytes for the same seed."""
    rng = Random(seed_of(seed, "print", book.book_id))
    chapters = book_notes(book, seed, world)
    front_pages = 2 + pages_for(CHAPTERS * (SECTIONS + 1))
    body = Pages(first_page=front_pages)
    pages_of: dict[str, set[int]] = {}
    letters = []
    for number, sections in enumerate(chapters, start=1):
        body.new_page()
        body.add_block([("chapter", language.chapter_title(number, rng.choice(language.TIMES)))], mark=0)
        for place, note in enumerate(sections, start=1):
            title = language.section_title(number, place, rng.choice(language.PLACES))
            page = body.add_block([("section", title), ("body", language.paragraph(note.facts))], mark=1)
            letters.append(rng.choice(language.LETTERS))
            for fact in note.facts:
                pages_of.setdefault(fact.topic.name, set()).add(page + 1)
    entries = [(mark.title, mark.page + 1) for mark in body.marks]
    _append_list(body, "Index", index_lines({name: sorted(pages) for name, pages in pages_of.items()}))
    _append_list(body, "Answers", answer_lines(letters))
    front = Pages(first_page=0)
    front.new_page()
    title_page = title_lines(book.title, book.author)
    front.add_block([("chapter", title_page[0]), *(("body", line) for line in title_page[1:])])
    _append_list(front, "Preface", [preface_text(rng)])
    _append_list(front, "Contents", contents_lines(entries))
    assert len(front.pages) == front_pages, "the contents do not fill the pages reserved for them"
    return print_pdf([front, body], title=book.title, author=book.author)


def _append_list(pages: Pages, title: str, lines: list[str]) -> None:
    pages.new_page()
    pages.add_block([("chapter", title)], mark=0)
    for line in lines:
        pages.add_block([("line", line)])


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
