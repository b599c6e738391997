"""reStructuredText and Sphinx books: chapters in the order of the toctrees, beginning at the index."""

import posixpath
import re
from collections.abc import Iterator

from corpus.read.books.format import BookLayout, BookPart, BookTree, Format
from corpus.read.books.order import order_by_contents, resolve_name
from corpus.read.books.references import Targets, resolving

SUFFIXES = (".rst", ".rest")
PAGES = (*SUFFIXES, ".md", ".ipynb")
"""Endings of pages that a toctree may list without their ending."""
INCLUDE = re.compile(r"(?m)^[ \t]*\.\. include:: *(?P<name>\S+)[ \t]*$")
TOCTREE = re.compile(r"(?m)^([ \t]*)\.\. toctree::.*\n((?:[ \t]*\n|\1[ \t]+\S.*(?:\n|$))*)")
ENTRY = re.compile(r"(?:.*<(?P<target>[^<>]+)>|(?P<plain>[^:\s]\S*))\s*")
DIRECTIVE = re.compile(r"(?m)^([ \t]*)\.\. (?:currentmodule|index|highlight|contents)::.*\n(?:\1[ \t]+:?\S.*\n)*")
UNPRINTED = re.compile(
    r"(?m)^([ \t]*)\.\. (?:(?:test(?:setup|cleanup)|spelling(?::word-list)?)::.*\n"
    r"|(?:doctest|test\w+)::.*\n(?:\1[ \t]+:.*\n)*?\1[ \t]+:hide:.*\n)"
    r"(?:[ \t]*\n|\1[ \t]+\S.*(?:\n|$))*"
)
"""Code of a test that the page does not show, and words for a spelling checker."""
COMMENT = re.compile(r"(?m)^([ \t]*)\.\.[ \t]*\n(?=\1[ \t]+\S)(?:[ \t]*\n|\1[ \t]+\S.*(?:\n|$))*")
_DRAWINGS = (
    "aafig|actdiag|asy|blockdiag|digraph|ditaa|graph|graphviz|inheritance-diagram|mermaid|msc|nwdiag|packetdiag|plantuml"
    "|rackdiag|seqdiag|svgbob|tikz|uml"
)
DRAWING = re.compile(
    rf"(?m)^(?P<margin>[ \t]*)\.\. (?:{_DRAWINGS})::[ \t]*(?P<caption>.*)\n(?:(?P=margin)[ \t]+:.*\n)*"
    r"(?P<code>(?:[ \t]*\n|(?P=margin)[ \t]+\S.*(?:\n|$))*)"
)
"""A picture in a language for drawings, which pandoc takes for text."""
ONLY = re.compile(r"(?m)^([ \t]*)\.\. only::.*$")
"""A part of the text for some kinds of output."""
RUNNABLE = re.compile(
    r"(?m)^([ \t]*)\.\. (?:activecode|codelens|doctest|testcode|testoutput|ipython|plot|jupyter-execute"
    r"|code-cell|runblock|prompt)::(.*)\n(?:\1[ \t]+:.*\n)*"
)
"""A listing that a page or a test of it runs, in Python unless it names another language."""
DOCTEST = re.compile(r"(?m)(?<=\n)(?<![^\n]\n)(?P<margin>[ \t]*)>>> .*\n(?:(?P=margin)\S.*\n)*")
"""A session of Python, which needs no directive in reStructuredText; pandoc takes it for prose."""
LITERAL = re.compile(r"(?!\.\. ).*::$|\.\. (?:code|code-block|sourcecode|parsed-literal|literalinclude|raw|math)::")
SHELLS = frozenset({"bash", "sh", "shell", "console", "cmd", "powershell"})
LANGUAGE = re.compile(r":language: *(\w+)")
ROLE = re.compile(r"``.+?``|(?<![\w:]):(?P<name>[A-Za-z][\w:.+-]*):`(?P<text>(?:[^`\\]|\\.)+)`", re.DOTALL)
"""A role; code that may look like one is matched first."""
_NATIVE = "code emphasis literal math raw strong sub subscript sup superscript t title title-reference"
NATIVE = frozenset(_NATIVE.split())
"""Roles that pandoc knows."""
HEAD = re.compile(
    r"(?m)^(?:[^\w\s]{3,}[ \t]*\n)?[ \t]*(?P<title>\S[^\n]*)\n(?P<under>[=~^\"'`#*+.:_<>-])(?P=under)+[ \t]*$"
)
"""A heading with the line below it, and the one above it."""
LABELS = re.compile(
    r"(?m)^[ \t]*(?P<labels>(?:\.\. _[^\n]+:[ \t]*\n(?:[ \t]*\n)*)+)(?=(?P<next>[^\n]*(?:\n[^\n]*){0,12}))"
)
"""Labels with the lines below them."""
LABEL = re.compile(r"\.\. _`?(?P<name>[^\n`]+?)`?:[ \t]*$", re.MULTILINE)
TITLED = re.compile(
    r"[ \t]*\.\. (?:(?:\w+-)?table|topic|admonition|note|proof|prf:\w+)::[ \t]*(?P<title>\S.*)"
    r"|[ \t]*\.\. [\w:-]+::.*\n(?:[ \t]+:.*\n)*?[ \t]+:(?:caption|alt-caption):[ \t]*(?P<caption>\S.*)"
    r"|(?P<margin>[ \t]*)\.\. figure::.*\n(?:(?P=margin)[ \t]+:.*\n)*[ \t]*\n(?P<figure>(?P=margin)[ \t]+\S.*)"
)
"""A block with a title or a caption."""
SIGNS = re.compile(r"[\\{}\[\]`*_|\s]+")
UNMARKED = str.maketrans("", "", "*`")
SUBSTITUTION = re.compile(r"(?m)^\.\. \|(?P<name>[^|\n]+)\| .*$")
BLANKS = re.compile(r"(?m)[ \t]+$")
"""Trailing whitespace: a line of spaces after a directive would end the directive's text."""
STATEMENT = re.compile(r"(?m)^([ \t]*)\.\. (?:proof|prf):([\w-]+)::[ \t]*(.*)$")
"""A theorem or similar statement, in the syntax of Sphinx extensions."""


def _toctree_entries(tree: BookTree, name: str) -> list[str]:
    lines = [line.strip() for match in TOCTREE.finditer(tree.text(name)) for line in match[2].splitlines()]
    matches = [ENTRY.fullmatch(line) for line in lines if line and not line.startswith(":")]
    targets = [match["target"] or match["plain"] for match in matches if match]
    return [path for target in targets if (path := resolve_name(tree, name, target, PAGES))]


def _collect_depths(tree: BookTree, name: str, depths: dict[str, int], depth: int) -> None:
    """Add a file and the files of its toctrees, in reading order, with their depths to `depths`."""
    if name not in depths:
        depths[name] = depth
        for entry in _toctree_entries(tree, name):
            _collect_depths(tree, entry, depths, min(depth + 1, 5))


def _find_layouts(tree: BookTree) -> list[BookLayout]:
    """Find the books of a tree: one for every index file that no toctree lists."""
    indexes = [name for name in tree.names() if name.endswith(SUFFIXES) and "toctree::" in tree.text(name)]
    inner = {entry for name in indexes for entry in _toctree_entries(tree, name)}
    layouts = []
    for root in (name for name in indexes if name not in inner):
        depths: dict[str, int] = {}
        _collect_depths(tree, root, depths, 0)
        top = posixpath.dirname(root) or "."
        parts = [BookPart(name=posixpath.relpath(name, top), depth=max(depth - 1, 0)) for name, depth in depths.items()]
        layouts += order_by_contents(tree, root, parts, ())
    return layouts


def _mark_session(session: re.Match[str]) -> str:
    """A session of Python as a listing; unchanged within a listing."""
    margin = session["margin"]
    width = len(margin)
    for line in reversed(session.string[: session.start()].splitlines()):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < width:
            if LITERAL.match(line.strip()):
                return session[0]
            width = indent
        if not width:
            break
    lines = "".join(f"   {line}\n" for line in session[0].splitlines())
    return f"{margin}.. code-block:: python\n\n{lines}"


def prepare(text: str) -> str:
    """Prepare reStructuredText for pandoc, which does not know Sphinx.

    Directives that print nothing are removed, those of extensions become standard ones, and references by number
    become labels.
    """

    def as_listing(directive: re.Match[str]) -> str:
        language = LANGUAGE.search(directive[0])
        word = next(iter(directive[2].split()), "")
        return f"{directive[1]}.. code-block:: {language[1] if language else word if word in SHELLS else 'python'}\n"

    def as_image(drawing: re.Match[str]) -> str:
        margin, code = drawing["margin"], SIGNS.sub(" ", drawing["code"]).strip()
        image = f"{margin}.. image:: drawing\n{margin}   :alt: {code or 'drawing'}\n\n"
        return f"{image}{margin}{drawing['caption'].strip()}\n\n"

    def as_admonition(directive: re.Match[str]) -> str:
        title = f" ({directive[3].strip()})" if directive[3].strip() else ""
        return f"{directive[1]}.. admonition:: {directive[2].capitalize()}{title}"

    text = ONLY.sub(
        r"\1.. container:: only",
        UNPRINTED.sub("", DIRECTIVE.sub("", TOCTREE.sub("", BLANKS.sub("", text.expandtabs())))),
    )
    text = DRAWING.sub(as_image, COMMENT.sub("", text))
    text = DOCTEST.sub(_mark_session, RUNNABLE.sub(as_listing, text))
    return STATEMENT.sub(as_admonition, text)


def find_titles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the labels of a file, each with the title or caption below it, and the file's title."""
    for match in LABELS.finditer(text):
        block, head = TITLED.match(match["next"]), HEAD.match(match["next"])
        title = (block["title"] or block["caption"] or block["figure"]) if block else head["title"] if head else ""
        for label in LABEL.finditer(match["labels"]) if title else ():
            yield label["name"], _plain(title.strip())
    if first := HEAD.search(text):
        yield "", _plain(first["title"].strip())


def _plain(title: str) -> str:
    """A title without its markup."""
    words = ROLE.sub(lambda role: role["text"].partition("<")[0].strip() if role["text"] else role[0], title)
    return words.translate(UNMARKED)


def resolve(text: str, targets: Targets) -> str:
    """Replace roles of Sphinx by what they print, and add the substitutions that `conf.py` defines."""

    def printed(role: re.Match[str]) -> str:
        name, words = role["name"], role["text"]
        if not name or name in NATIVE:
            return role[0]
        words = " ".join(words.split())
        if (plain := targets.role(name, words)) is not None:
            return _escape(plain)
        code = words.rpartition(".")[2] if words.startswith("~") else words.lstrip("!")
        return f"``{code}``"

    settings = targets.tree.settings
    lines = "\n".join(str(settings.get(key, "")) for key in ("rst_prolog", "rst_epilog"))
    texts = {match["name"]: match[0] for match in SUBSTITUTION.finditer(lines)}
    texts |= {key: f".. |{key}| replace:: {settings[key]}" for key in ("version", "release") if settings.get(key)}
    own = {match["name"] for match in SUBSTITUTION.finditer(text)}
    added = [line for name, line in texts.items() if f"|{name}|" in text and name not in own]
    return "\n".join([ROLE.sub(printed, text), *(f"\n{line}\n" for line in added)])


def _escape(text: str) -> str:
    return re.sub(r"([*`|\\]|_(?!\w))", r"\\\1", text)


FORMATS = (
    Format(
        suffixes=SUFFIXES,
        reader="rst",
        include=INCLUDE,
        view=resolving(SUFFIXES, find_titles, resolve),
        prepare=prepare,
        layouts=_find_layouts,
    ),
)
