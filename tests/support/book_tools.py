"""Books of a few lines, and what becomes of them."""

from pathlib import Path

from corpus.read.books.convert import convert_book
from infuser_core.schemas import Page
from infuser_core.system.child import Limits

LIMITS = Limits(wall_seconds=60.0, cpu_seconds=60)


def convert(path: Path) -> Page:
    """The book in a file."""
    return convert_book(path, "book", LIMITS)


def written(folder: Path, name: str, text: str) -> Path:
    """A file with this text, in a folder that is made where it is missing."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
