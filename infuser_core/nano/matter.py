"""The matter around a book's chapters: title page, contents, preface, index and answer key, as lines of text.

The textbooks print these lines and the judge learns to drop them.
"""

from collections.abc import Mapping, Sequence
from random import Random

from infuser_core.nano import language
from infuser_core.nano.world import Note

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
