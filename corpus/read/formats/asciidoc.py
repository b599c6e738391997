"""AsciiDoc, read by pandoc 3.9 or later, with include directives resolved within the book."""

import re
from collections.abc import Iterable, Iterator
from functools import partial

from corpus.read.books.format import Format
from corpus.read.books.order import order_by_inclusion
from corpus.read.formats.markdown import substitute_outside

SUFFIXES = (".adoc", ".asciidoc", ".asc")
INCLUDE = re.compile(r"(?m)^include::(?P<name>[^\[\n]+)\[[^\]\n]*\][ \t]*$")
CHAPTER = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*== (?=\S)")
"""Including the lines of attributes above the title."""
SECTION = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*={3,4} (?=\S)")

COMMENT = re.compile(r"(?m)^//(?!//).*\n?")
SIDEBAR = re.compile(r"(?m)^\*{4,}[ \t]*$")
"""Edges of a box, which the reader takes for text if an empty line follows."""
HIDDEN = re.compile(r"\(\(\((?:[^()]|\([^()]*\))*\)\)\)")
"""Index terms that print nothing."""
OPEN = re.compile(r"(?ms)^(\[(?:source|listing|literal)\b[^\]\n]*\]\n(?:\.\S.*?\n)?)--[ \t]*\n(.*?)^--[ \t]*$")
"""A listing between the marks of an open block, which the reader takes for text."""
DANGLING = re.compile(
    r"(?m)^(?:\[\[[^\]\n]*\]\][ \t]*\n(?:\[[^\]\n]*\][ \t]*\n)*(?:\.(?P<title>\w.*)\n)?|\.(?P<alone>\w.*)\n)"
    r"(?=[ \t]*\n)"
)
"""Name and title of a missing block, such as a drawing: the reader fails on it."""
REFERENCE = re.compile(
    r"<<(?=[\w{./#])(?:[^<>,\n]*#)?(?P<id>[^<>,#\n]*[^<>,#\s])>>|xref:(?:[^\s\[#]*#)?(?P<target>[^\s\[#]+)\[(?:xrefstyle=[^\]\n]*)?\]"
)
"""A reference without a text."""
SHIFT = re.compile(r"(?m)^(?![ \t]).*?<<[ \t][^<>\n]*>>.*$")
"""A line with operators that the reader takes for a reference."""
WINDOW = re.compile(r"((?:https?://|link:)[^\s\[]*\[[^\]\n]*?)\^(?=[\],])")
"""The sign after a link's text that opens a window."""
BLOCK = re.compile(r"(?ms)^(-{4,}|\.{4,}|\+{4,}|/{4,})[ \t]*\n.*?^\1[ \t]*$")
CONDITION = re.compile(r"(?P<kind>ifn?def|ifeval|endif)::(?P<names>[^\[\s]*)\[(?P<line>.*)\][ \t]*$")
NAME = re.compile(r"[^,+]+")
ATTRIBUTE = re.compile(r":([\w-]+):")
"""A line that sets an attribute."""


def prepare(text: str) -> str:
    """Remove lines whose conditions fail, and, except in listings, comments, index terms and the edges of boxes.

    The reader fails on comments within a paragraph, and does not evaluate conditions.
    """
    text = OPEN.sub(r"\1----\n\2----", "\n".join(_lines_that_hold([*text.split("\n"), ""])))
    return substitute_outside(BLOCK, _clean_text, text)


def _lines_that_hold(lines: Iterable[str]) -> Iterator[str]:
    """Lines whose conditions hold. Attributes are those that the lines above set; expressions count as false."""
    stack: list[bool] = []
    attributes: set[str] = set()
    for line in lines:
        condition = CONDITION.match(line)
        if condition and condition["kind"] == "endif":
            del stack[-1:]
            continue
        holds = True
        if condition:
            # Names joined by commas require any of them, names joined by plus signs all.
            are_set = [name in attributes for name in NAME.findall(condition["names"])]
            is_set = all(are_set) if "+" in condition["names"] else any(are_set)
            holds = condition["kind"] != "ifeval" and is_set == (condition["kind"] == "ifdef")
        if condition and (condition["kind"] == "ifeval" or not condition["line"]):
            stack.append(holds)
            continue
        line = condition["line"] if condition else line
        if holds and all(stack):
            if attribute := ATTRIBUTE.match(line):
                attributes.add(attribute[1])
            yield line


def _clean_text(text: str) -> str:
    text = SHIFT.sub(lambda line: line[0].replace("<< ", "&lt;&lt; "), text)
    text = WINDOW.sub(r"\1", REFERENCE.sub(_reference_text, text))
    text = HIDDEN.sub("", SIDEBAR.sub("", COMMENT.sub("", text)))
    return DANGLING.sub(lambda block: f"{block['title'] or block['alone'] or ''}\n", text)


def _reference_text(reference: re.Match[str]) -> str:
    """Words of the name of a section or figure, in place of its title."""
    name = reference["id"] or reference["target"].removesuffix(".adoc").rpartition("/")[2]
    return re.sub(r"[-_ ]+", " ", name).strip()


FORMATS = (
    Format(
        suffixes=SUFFIXES,
        reader="asciidoc",
        include=INCLUDE,
        prepare=prepare,
        split=CHAPTER,
        finer=SECTION,
        above="== {empty}\n\n=== {empty}\n\n",
        layouts=partial(order_by_inclusion, suffixes=SUFFIXES, include=INCLUDE),
    ),
)
