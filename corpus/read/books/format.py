"""Format of a book's source: its file names, its reader in pandoc, and the order of its parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Protocol


class BookTree(Protocol):
    """Files of a folder or an archive, by their relative paths."""

    def names(self) -> Sequence[str]:
        """Paths of all files, sorted."""
        ...

    def text(self, name: str) -> str:
        """A file's text; empty if there is no such file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BookPart:
    """One piece of a book in reading order: a file, or the title of a group of files."""

    name: str = ""
    """Path in the tree; empty for a title alone."""
    title: str = ""
    """Title of the group that begins here."""
    depth: int = 0
    """Levels by which its headings are pushed down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookLayout:
    """A book in a tree."""

    root: str
    """File or folder that determines the parts."""
    parts: Sequence[BookPart]
    """Parts in reading order."""
    base: str
    """Folder of the book, which owns everything below it; empty for the whole tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format of books."""

    suffixes: tuple[str, ...]
    """Ends of its files' names, in lower case."""
    reader: str
    """Input format of pandoc, with extensions."""
    claim: Pattern[str] | None = None
    """Text that makes a file with any suffix one of this format."""
    is_binary: bool = False
    """Whether its files are archives instead of text."""
    include: Pattern[str] | None = None
    """A line that includes another file of the book; its group `name` is the path, `folder` its folder, `part` the
    excerpt."""
    view: Callable[[BookTree], BookTree] = lambda tree: tree
    """Replaces the books' own commands for inclusions by those of the format."""
    prepare: Callable[[str], str] = lambda text: text
    """Turns a whole part into what the reader understands."""
    carry: Callable[[str], str] = lambda text: ""
    """Returns the definitions of a part that hold in later parts as well, as LaTeX's do."""
    split: Pattern[str] | None = None
    """Begin of a chapter: parts are converted chapter by chapter, so a failure costs one chapter only."""
    finer: Pattern[str] | None = None
    """Begin of a section: a chapter that cannot be read is cut there."""
    above: str = ""
    """Empty headings written before a single section, so that it keeps its level."""
    layouts: Callable[[BookTree], list[BookLayout]] = lambda tree: []
    """Finds the books of a tree, each with its parts in reading order; none for a format of single files."""
