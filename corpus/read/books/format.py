"""Format of a book's source: its file names, its reader in pandoc, and the order of its parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Protocol


class Tree(Protocol):
    """Files of a folder or an archive, by their paths from its top."""

    def names(self) -> Sequence[str]:
        """Paths of all files, sorted."""
        ...

    def text(self, name: str) -> str:
        """A file's text; empty where there is no such file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a book in reading order: a file, or the title of a group of files."""

    name: str = ""
    """Path in the tree; empty for a title alone."""
    title: str = ""
    """Title of the group that begins here."""
    depth: int = 0
    """Levels by which its headings are pushed down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A book in a tree."""

    root: str
    """File that names the parts."""
    parts: Sequence[Part]
    """In reading order."""
    base: str
    """Folder that belongs to the book, with everything below it; empty for the whole tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One way of writing a book down."""

    suffixes: tuple[str, ...]
    """Ends of its files' names, in lower case."""
    reader: str
    """Input format of pandoc, with extensions."""
    claim: Pattern[str] | None = None
    """Text by which a file is of this format whatever its name says."""
    is_binary: bool = False
    """Whether its files are archives and no text."""
    include: Pattern[str] | None = None
    """A line that stands for another file of the book; its group `name` is the path, `folder` where it begins, `part`
    the excerpt."""
    view: Callable[[Tree], Tree] = lambda tree: tree
    """The tree with its books' own commands for inclusions written as those of the format."""
    prepare: Callable[[str], str] = lambda text: text
    """Turns a whole part into what the reader understands."""
    carry: Callable[[str], str] = lambda text: ""
    """Makes of a part the definitions that hold behind it too, as LaTeX's do."""
    split: Pattern[str] | None = None
    """Begin of a chapter: parts are converted chapter by chapter, so that one that fails costs no other."""
    finer: Pattern[str] | None = None
    """Begin of a section: a chapter that cannot be read is cut there."""
    above: str = ""
    """Titles without words, under which a section alone keeps its level."""
    layouts: Callable[[Tree], list[Layout]] = lambda tree: []
    """The books of a tree, each with its parts in reading order; none for a format of single files."""
