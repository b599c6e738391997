"""reStructuredText and Sphinx: chapters in the order of the toctrees, from the index on."""

import posixpath
import re

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.order import found, of_contents

SUFFIXES = (".rst", ".rest")
INCLUDE = re.compile(r"(?m)^[ \t]*\.\. include:: *(?P<name>\S+)[ \t]*$")
TOCTREE = re.compile(r"(?m)^([ \t]*)\.\. toctree::.*\n((?:[ \t]*\n|\1[ \t]+\S.*(?:\n|$))*)")
ENTRY = re.compile(r"(?:.*<(?P<target>[^<>]+)>|(?P<plain>[^:\s]\S*))\s*")
DIRECTIVE = re.compile(
    r"(?m)^([ \t]*)\.\. (?:currentmodule|index|highlight|contents|only|toctree)::.*\n(?:\1[ \t]+:?\S.*\n)*"
)
RUNNABLE = re.compile(r"(?m)^([ \t]*)\.\. (?:activecode|codelens)::.*\n(?:\1[ \t]+:.*\n)*")
"""A listing that Runestone's pages run or step through; Python, where they do not say another language."""
LANGUAGE = re.compile(r":language: *(\w+)")
NUMBERED = re.compile(r":numref:`(?:(?P<text>[^`<]*?)(?:%s|\{number\})?\s*<(?P<label>[^`>]+)>|(?P<bare>[^`<>]+))`")
"""A reference by a number that only Sphinx knows; its label stands for it."""
BLANKS = re.compile(r"(?m)[ \t]+$")
"""Blanks that end a line: behind a directive the reader takes a line of them for the end of its text."""
STATEMENT = re.compile(r"(?m)^([ \t]*)\.\. (?:proof|prf):([\w-]+)::[ \t]*(.*)$")
"""A theorem or its like, by extensions of Sphinx."""


def _entries(tree: Tree, name: str) -> list[str]:
    lines = [line.strip() for match in TOCTREE.finditer(tree.text(name)) for line in match[2].splitlines()]
    matches = [ENTRY.fullmatch(line) for line in lines if line and not line.startswith(":")]
    named = [match["target"] or match["plain"] for match in matches if match]
    return [path for one in named if (path := found(tree, name, one, SUFFIXES))]


def _walk(tree: Tree, name: str, seen: dict[str, int], depth: int) -> None:
    if name not in seen:
        seen[name] = depth
        for each in _entries(tree, name):
            _walk(tree, each, seen, min(depth + 1, 5))


def _layouts(tree: Tree) -> list[Layout]:
    """One book for every index that no toctree names."""
    mine = [name for name in tree.names() if name.endswith(SUFFIXES) and "toctree::" in tree.text(name)]
    inner = {entry for name in mine for entry in _entries(tree, name)}
    made = []
    for root in (name for name in mine if name not in inner):
        seen: dict[str, int] = {}
        _walk(tree, root, seen, 0)
        top = posixpath.dirname(root) or "."
        parts = [Part(name=posixpath.relpath(name, top), depth=max(depth - 1, 0)) for name, depth in seen.items()]
        made += of_contents(tree, root, parts, ())
    return made


def prepare(text: str) -> str:
    """Without directives that print nothing of a book's own; references by number with the label for the number."""
    text = RUNNABLE.sub(_listing, DIRECTIVE.sub("", BLANKS.sub("", text)))
    return NUMBERED.sub(_label, STATEMENT.sub(_statement, text))


def _label(reference: re.Match[str]) -> str:
    return f"{reference['text'] or ''}{(reference['label'] or reference['bare']).replace('_', ' ')}"


def _statement(directive: re.Match[str]) -> str:
    title = f" ({directive[3].strip()})" if directive[3].strip() else ""
    return f"{directive[1]}.. admonition:: {directive[2].capitalize()}{title}"


def _listing(directive: re.Match[str]) -> str:
    language = LANGUAGE.search(directive[0])
    return f"{directive[1]}.. code-block:: {language[1] if language else 'python'}\n"


FORMATS = (Format(suffixes=SUFFIXES, reader="rst", include=INCLUDE, prepare=prepare, layouts=_layouts),)
