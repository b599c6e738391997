"""PDF textbooks of the micro-world: typesetting, front and back matter, and the catalogue that offers them."""

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
from infuser_core.nano.topics import MicroTopic
from infuser_core.nano.world import WORLD, Note, WorldConfig, note
from infuser_core.seeding import seed_of

WIDTH, HEIGHT = 420.0, 595.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 372.0, 520.0, 76.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Typography of a kind of line."""

    font: str
    """Standard PDF font, never embedded."""
    size: float
    """Points."""
    leading: float
    """Distance of two baselines, points."""
    after: float
    """Space below the block, points."""


STYLES = {
    "chapter": Style(font="Helvetica-Bold", size=18, leading=24, after=14),
    "section": Style(font="Helvetica-Bold", size=13, leading=17, after=4),
    "body": Style(font="Times-Roman", size=11, leading=14, after=14),
    "line": Style(font="Times-Roman", size=11, leading=14, after=0),
}


Placed = tuple[str, Style, float]
"""One printed line: its text, its typography and its baseline above the lower edge, points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One entry of the outline."""

    level: int
    """0 for chapters, 1 for sections."""
    title: str
    """Text of the heading."""
    page: int
    """Page index in the book, 0-based."""
    top: float
    """Upper edge of the heading, points."""


def pages_for(num_lines: int) -> int:
    """Pages that a titled list of this many lines takes."""
    title, line = STYLES["chapter"], STYLES["line"]
    first = math.floor((TOP - BOTTOM - title.leading - title.after) / line.leading)
    later = math.floor((TOP - BOTTOM) / line.leading)
    return 1 + max(0, math.ceil((num_lines - first) / later))


class Pages:
    """A run of pages, filled from the top; a block is never divided between two pages."""

    def __init__(self, *, first_page: int) -> None:
        self.pages: list[list[Placed]] = []
        self.marks: list[Mark] = []
        self._first_page = first_page
        self._y = TOP

    def new_page(self) -> None:
        """Go on at the top of a fresh page."""
        self.pages.append([])
        self._y = TOP

    def put(self, block: Sequence[tuple[str, str]], *, mark: int | None = None) -> int:
        """Set (style name, text) paragraphs together; a mark puts the first into the outline. Returns the page."""
        lines = []
        for name, text in block:
            style = STYLES[name]
            wrapped = simpleSplit(text, style.font, style.size, RIGHT - LEFT)
            lines += [(line, style, style.after if i == len(wrapped) - 1 else 0.0) for i, line in enumerate(wrapped)]
        if self._y - sum(style.leading for _, style, _ in lines) < BOTTOM:
            self.new_page()
        page = self._first_page + len(self.pages) - 1
        if mark is not None:
            self.marks.append(Mark(level=mark, title=block[0][1], page=page, top=self._y))
        for text, style, after in lines:
            self._y -= style.leading
            self.pages[-1].append((text, style, self._y))
            self._y -= after
        return page


def print_pdf(parts: Sequence[Pages], *, title: str, author: str) -> bytes:
    """All pages in order. Every page but the first has two head lines and two foot lines."""
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
            _running(canvas, title, author, number + 1)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _running(canvas: Canvas, title: str, author: str, number: int) -> None:
    canvas.setFont("Helvetica", 8)
    canvas.drawString(LEFT, 560, title)
    canvas.drawString(LEFT, 548, author)
    canvas.drawString(LEFT, 46, "First edition")
    canvas.drawCentredString(WIDTH / 2, 34, str(number))


def title_lines(title: str, author: str) -> list[str]:
    """Lines of the title page."""
    return [title, author, *language.EDITION]


def preface_text(rng: Random) -> str:
    """One paragraph, the sentences in a drawn order."""
    return " ".join(rng.sample(language.PREFACE, k=len(language.PREFACE)))


def index_lines(pages: Mapping[str, Sequence[int]]) -> list[str]:
    """`clock, 3, 7; tank, 4`: two topics a line, the pages on which they occur."""
    entries = [", ".join([name, *map(str, found)]) for name, found in sorted(pages.items())]
    return ["; ".join(entries[i : i + 2]) for i in range(0, len(entries), 2)]


def answer_lines(letters: Sequence[str]) -> list[str]:
    """`1. B 2. C 3. A`: the answer key."""
    numbered = [f"{i + 1}. {letter}" for i, letter in enumerate(letters)]
    return [" ".join(numbered[i : i + 8]) for i in range(0, len(numbered), 8)]


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
    lines = title_lines(rng.choice(language.TITLES), rng.choice(language.AUTHORS))
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
    """Domains of the book; its sections hardly touch other domains. Empty for a book about everything."""


def _book(row: Mapping[str, str]) -> Book:
    texts = {name: row[name] for name in ("book_id", "title", "author", "doi")}
    licence = LICENCES[row["licence"]] if row["licence"] else None
    return Book(**texts, rare=tuple(row["rare"].split()), licence=licence, domains=tuple(row["domains"].split()))


def _read() -> tuple[Book, ...]:
    with (files(__package__) / "books.csv").open(encoding="utf-8") as file:
        return tuple(_book(row) for row in csv.DictReader(file))


_BOOKS = _read()
BOOKS = tuple(replace(book, domains=()) for book in _BOOKS)
"""Four books under open licences and one without a licence."""
SHELVES: dict[ShelfName, tuple[Book, ...]] = {
    "mixed": BOOKS,
    "by_domain": tuple(replace(book, rare=()) for book in _BOOKS),
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
    first = 2 + pages_for(CHAPTERS * (SECTIONS + 1))
    body = Pages(first_page=first)
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
    front = Pages(first_page=0)
    front.new_page()
    title_page = title_lines(book.title, book.author)
    front.put([("chapter", title_page[0]), *(("body", line) for line in title_page[1:])])
    _append(front, "Preface", [preface_text(rng)])
    _append(front, "Contents", contents_lines(entries))
    assert len(front.pages) == first, "the contents do not fill the pages set aside for them"
    return print_pdf([front, body], title=book.title, author=book.author)


def _append(pages: Pages, title: str, lines: list[str]) -> None:
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
