"""LaTeX projects: the main file with what it inputs, chapter by chapter, each with the definitions of the preamble."""

import re
from collections.abc import Iterator

from corpus.read.books.format import Format, Layout, Tree
from corpus.read.books.order import by_inclusion

SUFFIXES = (".tex", ".ltx", ".latex")
INCLUDE = re.compile(r"\\(?:input|include|subfile)\s*\{(?P<name>[^{}\n]+)\}")
BEGIN = r"\begin{document}"
COMMENT = re.compile(r"(?m)(?<!\\)((?:\\\\)*)%.*$")
# What a formula needs, where it begins a line: what is indented is inside another definition.
DEFINITION = re.compile(r"(?m)^\\(?:(?:re)?newcommand|providecommand|DeclareMathOperator|newtheorem|def)(?![A-Za-z])")
CHAPTER = re.compile(r"(?m)^[ \t]*\\(?:chapter|part)\b")
BRACES = re.compile(r"\\[{}\\]")
DELIMITED = re.compile(r"\\def\s*\\[A-Za-z]+(?:[^#{\s]|#\d[^#{])")
BARE = re.compile(r"\\((?:sub)*section|chapter|paragraph)(\*?)(\\[A-Za-z]+)")
"""A title that is a macro without braces."""
MAX_LINES = 12
"""Lines of one definition."""


def prepare(text: str) -> str:
    """The body behind the definitions of the preamble; a piece of a book without a preamble is a body."""
    text = BARE.sub(r"\\\1\2{\3}", text)
    preamble, begin, body = text.partition(BEGIN)
    if not begin:
        return text
    known = list(_definitions(COMMENT.sub(r"\1", preamble)))
    return "\n".join([*known, BEGIN, body.partition(r"\end{document}")[0]])


def _definitions(text: str) -> Iterator[str]:
    """Definitions to the end of their braces, without those of TeX's own programming.

    Names with @ and arguments without braces send other readers of LaTeX into expansions without an end.
    """
    place = 0
    while match := DEFINITION.search(text, place):
        lines, depth, opened = [], 0, False
        for line in text[match.start() :].split("\n")[:MAX_LINES]:
            lines.append(line)
            bare = BRACES.sub("", line)
            depth += bare.count("{") - bare.count("}")
            opened = opened or "{" in bare
            if opened and depth <= 0:
                break
        made = "\n".join(lines)
        place = match.start() + len(made)
        whole = made.count(r"\begin{") == made.count(r"\end{")
        if opened and depth == 0 and whole and "@" not in made and not DELIMITED.match(made):
            yield made


def _layouts(tree: Tree) -> list[Layout]:
    return by_inclusion(tree, SUFFIXES, INCLUDE, BEGIN)


FORMATS = (
    Format(suffixes=SUFFIXES, reader="latex", include=INCLUDE, prepare=prepare, split=CHAPTER, layouts=_layouts),
)
