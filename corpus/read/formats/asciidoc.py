"""AsciiDoc books, read by pandoc 3.9 or later, with include directives resolved within the book."""

import re
from collections.abc import Iterable, Iterator

from corpus.read.books import antora
from corpus.read.books.format import BookLayout, BookTree, Format
from corpus.read.books.order import order_by_inclusion
from corpus.read.books.references import Targets, resolving
from corpus.read.doubt import unresolved
from corpus.read.formats.markdown import substitute_outside

SUFFIXES = (".adoc", ".asciidoc", ".asc")
INCLUDE = re.compile(
    r"(?m)^include::(?P<name>[^\[\n]+)\[(?:[^\]\n]*?\b(?:tags?|lines)=[\"']?)?"
    r"(?P<part>(?<=[=\"'])[^\]\s,\"']+|)[^\]\n]*\][ \t]*$"
)
"""An inclusion, with the name of an excerpt."""
CHAPTER = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*== (?=\S)")
"""Beginning of a chapter, including the attribute lines above its title."""
SECTION = re.compile(r"(?m)^(?:\[[^\n]*\]\n+)*={3,4} (?=\S)")

COMMENT = re.compile(r"(?m)^//(?!//).*\n?")
SIDEBAR = re.compile(r"(?m)^\*{4,}[ \t]*$")
"""Delimiters of a sidebar, which pandoc takes for text if an empty line follows."""
HIDDEN = re.compile(r"\(\(\((?:[^()]|\([^()]*\))*\)\)\)")
"""Index terms that print nothing."""
OPEN = re.compile(r"(?ms)^(\[(?:source|listing|literal)\b[^\]\n]*\]\n(?:\.\S.*?\n)?)--[ \t]*\n(.*?)^--[ \t]*$")
"""A listing between the delimiters of an open block, which pandoc takes for text."""
DANGLING = re.compile(
    r"(?m)^(?:\[\[[^\]\n]*\]\][ \t]*\n(?:\[[^\]\n]*\][ \t]*\n)*(?:\.(?P<title>\w.*)\n)?|\.(?P<alone>\w.*)\n)"
    r"(?=[ \t]*\n)"
)
"""Name and title of a missing block, such as a drawing: pandoc fails on them."""
REFERENCE = re.compile(
    r"<<(?=[\w{./#])(?:[^<>,\n]*#)?(?P<id>[^<>,#\n]*[^<>,#\s])>>|xref:(?:[^\s\[#]*#)?(?P<target>[^\s\[#]+)\[(?:xrefstyle=[^\]\n]*)?\]"
)
"""A reference without link text."""
TITLED = re.compile(r"(?m)^(?:\[[^\n]*\][ \t]*\n)*(?:\.(?P<block>[^\s.].*)|={1,6}[ \t]+(?P<heading>\S.*))$")
"""A heading, or the title of a block, with the lines above it that name it."""
NAMED = re.compile(r"\[\[(?P<name>[^\[\],]+)(?:,(?P<text>[^\[\]]*))?\]\]|(?m:^)\[[\w-]*#(?P<short>[\w:.-]+)")
ANCHOR = re.compile(r"\[\[[^\[\]]*\]\]")
SHIFT = re.compile(r"(?m)^(?![ \t]).*?<<[ \t][^<>\n]*>>.*$")
"""A line with shift operators, which pandoc takes for a reference."""
CROSS = re.compile(r"xref:[^\s\[\]]+\[(?!xrefstyle=)(?P<words>[^\]\n]+)\]")
"""A reference with its text; pandoc takes two colons in it for the term of a list."""
WINDOW = re.compile(r"((?:https?://|link:)[^\s\[]*\[[^\]\n]*?)\^(?=[\],])")
"""The caret after a link's text, which makes the link open in a new window."""
LINK = re.compile(r"(?P<target>(?:https?://|link:)[^\s\[]*\[)(?P<text>[^\]\n]*#[^\]\n]*)(?=\])")
"""A link with a number sign in its text, behind which pandoc takes the text for a name."""
PASSED = re.compile(r"\bpass:[a-z,]*\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*)\]")
"""Markup of the output, in practice HTML, which pandoc prints."""
CODE_TAG, TAG = re.compile(r"</?code>"), re.compile(r"</?[A-Za-z][^<>\n]*>")
BLOCK = re.compile(r"(?ms)^(-{4,}|\.{4,}|\+{4,}|/{4,})[ \t]*\n.*?^\1[ \t]*$")
CONDITION = re.compile(r"(?P<kind>ifn?def|ifeval|endif)::(?P<names>[^\[\s]*)\[(?P<line>.*)\][ \t]*$")
NAME = re.compile(r"[^,+]+")
ATTRIBUTE = re.compile(r":(?P<off>!)?(?P<name>\w[\w-]*)(?(off)|!?):[ \t]*(?P<value>.*?)[ \t]*$")
"""A line that sets an attribute."""
USE = re.compile(r"(?<!\\)\{(\w[\w-]*)\}")
"""The use of an attribute."""
BUILT_IN = {
    "amp": "&", "apos": "'", "asterisk": "*", "backslash": "\\", "backtick": "`", "caret": "^", "cpp": "C++",
    "empty": "", "endsb": "]", "gt": ">", "lt": "<", "nbsp": "\u00a0", "plus": "+", "quot": '"', "sp": " ",
    "startsb": "[", "tilde": "~", "vbar": "|",
}  # fmt: skip
"""Attributes that every AsciiDoc text has."""
EDGE = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,})[ \t]*$")
"""The beginning or end of a block whose text is not markup."""
ABOVE = re.compile(r"[ \t]*$|[.\[]\S.*$|\+[ \t]*$|(?:image|include|video)::|//|:[\w!-]+:|={1,6}[ \t]|<\d+>")
"""A line above a block that is no text: its title, its attributes, another block, or the sign of a list."""


def prepare(text: str) -> str:
    """Prepare AsciiDoc for pandoc, which fails on comments within a paragraph and does not evaluate conditions.

    Removes lines whose conditions fail, and, outside listings, comments, index terms and the delimiters of sidebars.
    Attributes become their values, and a listing right below a line of text begins after an empty line.
    """
    text = OPEN.sub(r"\1----\n\2----", "\n".join(_lines_that_hold([*text.split("\n"), ""])))
    return substitute_outside(BLOCK, _clean_text, text)


def _lines_that_hold(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines whose conditions hold, with the attributes set by lines above; expressions count as false.

    An empty line parts a line of text and a listing below it.
    """
    stack: list[bool] = []
    attributes = dict(BUILT_IN)
    block = above = ""

    def value_of(use: re.Match[str]) -> str:
        is_unknown = "-" in use[1] and use.string.count("`", 0, use.start()) % 2 == 0
        return attributes.get(use[1], unresolved(use[1]) if is_unknown else use[0])

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
                attributes.pop(attribute["name"], None)
                if not (attribute["off"] or line.startswith(f":{attribute['name']}!")):
                    attributes[attribute["name"]] = USE.sub(value_of, attribute["value"])
            elif edge := EDGE.match(line):
                if not block and not ABOVE.match(above):
                    yield ""
                block = "" if block == edge[1] else block or edge[1]
            line = line if block or attribute else USE.sub(value_of, line)
            yield line
            above = "" if EDGE.match(line) else line


def _clean_text(text: str) -> str:
    text = PASSED.sub(lambda passed: TAG.sub("", CODE_TAG.sub("`", passed[1])), text)
    text = SHIFT.sub(lambda line: line[0].replace("<< ", "&lt;&lt; "), CROSS.sub(r"\g<words>", text))
    text = LINK.sub(lambda link: link["target"] + link["text"].replace("#", "&#35;"), text)
    text = WINDOW.sub(r"\1", REFERENCE.sub(lambda each: unresolved(each["id"] or each["target"]), text))
    text = HIDDEN.sub("", SIDEBAR.sub("", COMMENT.sub("", text)))
    return DANGLING.sub(lambda block: f"{block['title'] or block['alone'] or ''}\n", text)


def find_titles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names of sections and titled blocks, each with its title, and the file's title."""
    for match in TITLED.finditer(text):
        title = (match["heading"] or match["block"]).strip()
        title = ANCHOR.sub("", title).strip()
        for name in NAMED.finditer(match[0]):
            yield name["name"] or name["short"], (name["text"] or "").strip() or title
        if match["heading"]:
            yield title, title
            yield f"_{re.sub(r'[^a-z0-9]+', '_', title.lower()).strip('_')}", title
    if first := re.search(r"(?m)^={1,2}[ \t]+(\S.*)$", text):
        yield "", first[1].strip()


def resolve(text: str, targets: Targets) -> str:
    """Replace references without text by the titles of their targets, except in listings."""

    def title(reference: re.Match[str]) -> str:
        name = reference["id"] or reference["target"]
        is_file = name.endswith(SUFFIXES)
        return targets.document(antora.path_of(targets.name, name)) if is_file else targets.title(name)

    def included(include: re.Match[str]) -> str:
        start, end = include.start("name") - include.start(), include.end("name") - include.start()
        return f"{include[0][:start]}{antora.path_of(targets.name, include['name'])}{include[0][end:]}"

    values = antora.attributes_of(targets.tree)
    text = INCLUDE.sub(included, USE.sub(lambda use: values.get(use[1], use[0]), text)) if values else text
    return substitute_outside(BLOCK, lambda part: REFERENCE.sub(title, part), text)


def _find_layouts(tree: BookTree) -> list[BookLayout]:
    """Find the books of a tree: those of Antora, and files that include their chapters."""
    return antora.find_layouts(tree) + order_by_inclusion(tree, SUFFIXES, INCLUDE)


FORMATS = (
    Format(
        suffixes=SUFFIXES,
        reader="asciidoc",
        include=INCLUDE,
        view=resolving(SUFFIXES, find_titles, resolve),
        prepare=prepare,
        split=CHAPTER,
        finer=SECTION,
        above="== {empty}\n\n=== {empty}\n\n",
        layouts=_find_layouts,
    ),
)
