"""AsciiDoc, by pandoc's reader (from pandoc 3.9 on), with include directives resolved within the book."""

import re
from collections.abc import Iterable, Iterator, Set
from functools import partial

from corpus.read.books.format import Format
from corpus.read.books.order import by_inclusion
from corpus.read.formats.markdown import outside

SUFFIXES = (".adoc", ".asciidoc", ".asc")
INCLUDE = re.compile(r"(?m)^include::(?P<name>[^\[\n]+)\[[^\]\n]*\][ \t]*$")
CHAPTER = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*== (?=\S)")
"""With the lines of attributes above the title."""
SECTION = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*={3,4} (?=\S)")

COMMENT = re.compile(r"(?m)^//(?!//).*\n?")
SIDEBAR = re.compile(r"(?m)^\*{4,}[ \t]*$")
"""Edges of a box, which the reader takes for text where an empty line follows."""
HIDDEN = re.compile(r"\(\(\((?:[^()]|\([^()]*\))*\)\)\)")
"""Index terms that print nothing."""
OPEN = re.compile(r"(?ms)^(\[(?:source|listing|literal)\b[^\]\n]*\]\n(?:\.\S.*?\n)?)--[ \t]*\n(.*?)^--[ \t]*$")
"""A listing between the marks of a block of any kind, which the reader takes for text."""
DANGLING = re.compile(
    r"(?m)^(?:\[\[[^\]\n]*\]\][ \t]*\n(?:\[[^\]\n]*\][ \t]*\n)*(?:\.(?P<title>\w.*)\n)?|\.(?P<alone>\w.*)\n)"
    r"(?=[ \t]*\n)"
)
"""Name and title of a block that is not there, as where it was a drawing: the reader stops."""
REFERENCE = re.compile(
    r"<<(?=[\w{./#])(?:[^<>,\n]*#)?(?P<id>[^<>,#\n]*[^<>,#\s])>>|xref:(?:[^\s\[#]*#)?(?P<named>[^\s\[#]+)\[(?:xrefstyle=[^\]\n]*)?\]"
)
"""A reference without a text of its own."""
SHIFT = re.compile(r"(?m)^(?![ \t]).*?<<[ \t][^<>\n]*>>.*$")
"""A line with operators that the reader takes for a reference."""
WINDOW = re.compile(r"((?:https?://|link:)[^\s\[]*\[[^\]\n]*?)\^(?=[\],])")
"""The sign behind a link's text that opens a window."""
BLOCK = re.compile(r"(?ms)^(-{4,}|\.{4,}|\+{4,}|/{4,})[ \t]*\n.*?^\1[ \t]*$")
CONDITION = re.compile(r"(?P<kind>ifn?def|ifeval|endif)::(?P<names>[^\[\s]*)\[(?P<line>.*)\][ \t]*$")
NAME = re.compile(r"[^,+]+")
ATTRIBUTE = re.compile(r":([\w-]+):")
"""A line that sets an attribute."""


def prepare(text: str) -> str:
    """Without lines whose conditions fail, and, save in listings, without comments, index terms and boxes.

    The reader stops at comments within a paragraph, and knows no conditions.
    """
    text = OPEN.sub(r"\1----\n\2----", "\n".join(_decided([*text.split("\n"), ""])))
    return outside(BLOCK, _plain, text)


def _decided(lines: Iterable[str]) -> Iterator[str]:
    """Lines whose conditions hold; the attributes are those that the lines above set, and no expression holds."""
    holding: list[bool] = []
    given: set[str] = set()
    for line in lines:
        condition = CONDITION.match(line)
        if condition and condition["kind"] == "endif":
            del holding[-1:]
            continue
        holds = condition is None or _holds(condition, given)
        if condition and (condition["kind"] == "ifeval" or not condition["line"]):
            holding.append(holds)
            continue
        line = condition["line"] if condition else line
        if holds and all(holding):
            if attribute := ATTRIBUTE.match(line):
                given.add(attribute[1])
            yield line


def _holds(condition: re.Match[str], given: Set[str]) -> bool:
    """Whether a condition holds: names joined by commas ask for any of them, by plus signs for all."""
    names = [name in given for name in NAME.findall(condition["names"])]
    found = all(names) if "+" in condition["names"] else any(names)
    return condition["kind"] != "ifeval" and found == (condition["kind"] == "ifdef")


def _plain(text: str) -> str:
    text = SHIFT.sub(lambda found: found[0].replace("<< ", "&lt;&lt; "), text)
    text = WINDOW.sub(r"\1", REFERENCE.sub(_worded, text))
    text = HIDDEN.sub("", SIDEBAR.sub("", COMMENT.sub("", text)))
    return DANGLING.sub(lambda found: f"{found['title'] or found['alone'] or ''}\n", text)


def _worded(found: re.Match[str]) -> str:
    """The words of a name that stands for the title of a section or figure."""
    name = found["id"] or found["named"].removesuffix(".adoc").rpartition("/")[2]
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
        layouts=partial(by_inclusion, suffixes=SUFFIXES, include=INCLUDE),
    ),
)
