"""Description of a book's source format: its file names, its pandoc reader, and the order of a book's parts."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Protocol


class BookTree(Hashable, Protocol):
    """Files of a folder or an archive, looked up by their relative paths."""

    def names(self) -> Sequence[str]:
        """Paths of all files, sorted."""
        ...

    def text(self, name: str) -> str:
        """A file's text; empty if there is no such file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BookPart:
    """A part of a book, in reading order: a file, or the title of a group of files."""

    name: str = ""
    """Path in the tree; empty for a title alone."""
    title: str = ""
    """Title of the group that begins here."""
    depth: int = 0
    """Levels by which its headings are pushed down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookLayout:
    """A book found in a tree of files, with its parts in reading order."""

    root: str
    """File or folder that determines the parts."""
    parts: Sequence[BookPart]
    """Parts in reading order."""
    base: str
    """Folder of the book, which contains everything below it; empty for the whole tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format of books, and how its files are prepared for pandoc."""

    suffixes: tuple[str, ...]
    """Endings of file names in this format, in lower case."""
    reader: str
    """Input format of pandoc, with extensions."""
    claim: Pattern[str] | None = None
    """Text that shows that a file with any suffix is in this format."""
    is_binary: bool = False
    """Whether files in this format are archives instead of text."""
    include: Pattern[str] | None = None
    """A line that includes another file of the book; its group `name` is the path, `folder` its folder, `part` the
    excerpt."""
    view: Callable[[BookTree], BookTree] = lambda tree: tree
    """Replaces a book's own commands for inclusions by those of the format."""
    prepare: Callable[[str], str] = lambda text: text
    """Turns the text of a whole part into text that the pandoc reader understands."""
    carry: Callable[[str], str] = lambda text: ""
    """Returns the definitions of a part that hold in later parts as well, as LaTeX's do."""
    split: Pattern[str] | None = None
    """Beginning of a chapter: parts are converted chapter by chapter, so a failure costs one chapter only."""
    finer: Pattern[str] | None = None
    """Beginning of a section: a chapter that cannot be read is cut there."""
    above: str = ""
    """Empty headings written before a section that is converted alone, so that it keeps its level."""
    layouts: Callable[[BookTree], list[BookLayout]] = lambda tree: []
    """Finds the books of a tree, each with its parts in reading order; no books for a format of single files."""
