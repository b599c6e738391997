"""Books of Markdown files: Quarto, R Markdown, MDX, Jupyter Book, mdBook, MkDocs and folders with a toc block."""

import posixpath
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import yaml

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.myst import SEPARATORS, plain
from corpus.read.books.order import by_numbers, natural, of_contents

QUARTO = (".qmd", ".rmd", ".rmarkdown")
MDX = (".mdx",)
PLAIN = (".md", ".markdown", ".mdown", ".myst")
SUFFIXES = (*QUARTO, *MDX, *PLAIN, ".ipynb", ".rst")
INCLUDE = re.compile(
    r"(?m)^[ \t]*\{\{(?:<[ \t]*include|#(?:rustdoc_)?include)[ \t]+"
    r"(?P<name>[^\s}:>]+)(?P<part>[\w:-]*)[^}\n]*\}\}[ \t]*$"
)
CELL = re.compile(r"(?m)^([ \t]*(?:`{3,}|~{3,}))[ \t]*\{\.?([A-Za-z][\w+-]*)\b[^\n]*\}[ \t]*$")
PROSE = re.compile(r"(?ms)^([ \t]*`{3,})[ \t]*\{(?:block2?|asis)\b[^}\n]*\}[ \t]*\n(.*?)^\1[ \t]*$")
"""Cells whose text is printed as it stands: remarks in boxes."""
WHOLE = re.compile(
    r"(?ms)^(?P<fence>[ \t]*(?:`{3,}|~{3,}))[ \t]*\{(?P<head>[A-Za-z][^\n]*)\}[ \t]*\n"
    r"(?P<options>(?:[ \t]*(?:#\||//\||%%\|)[^\n]*\n)*)(?P<code>.*?)^(?P=fence)[ \t]*$"
)
"""A cell with its settings, which stand in braces or in lines of its own."""
OFF = re.compile(r"\b(echo|include|eval)[ \t]*[=:][ \t]*(?:FALSE|F|false|False)\b")
STRING = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
CAPTION = re.compile(
    r"\b(?:fig|tab)\.cap[ \t]*=[ \t]*(?:[\w.$:]+\()?(?P<sign>[\"'])(?!(?P=sign))(?P<text>.+?)(?<!\\)(?P=sign)"
)
CAPTIONS = ("fig-cap", "fig.cap", "tbl-cap", "tab.cap")
"""Settings that hold a caption, where they stand in lines of their own."""
QUOTED = re.compile(r"\\([\\\"'])")
WORDS = re.compile(r"(?m)^\(ref:([^)\s]+)\)[ \t]+(\S.*)$")
"""A paragraph with the words for a name that stands elsewhere for them."""
NAME = re.compile(r"\(ref:([^)\s]+)\)")
KINDS = {
    "fig": "Figure",
    "tbl": "Table",
    "sec": "Section",
    "eq": "Equation",
    "lst": "Listing",
    "thm": "Theorem",
    "lem": "Lemma",
    "cor": "Corollary",
    "prp": "Proposition",
    "def": "Definition",
    "exm": "Example",
    "exr": "Exercise",
    "alg": "Algorithm",
}
"""Words that Quarto prints before the number of what a label names."""
REFERENCE = re.compile(
    r"\\{1,2}@ref\((?:[a-z]+:)?(?P<label>[^)\s]+)\)(?P<part>(?=\w))?"
    rf"|(?<![\w\\@`/.-])@(?P<kind>{'|'.join(KINDS)})-(?P<typed>[\w-]*\w)"
)
"""A reference by a number that only the book's program knows: of bookdown, or of Quarto."""
INFO = re.compile(r"(?m)^([ \t]*(?:`{3,}|~{3,})[ \t]*[\w+#-]+)[ \t]*[ \t,:][^`\n]*$")
"""The first line of a block of code with more than its language, which pandoc takes for text."""
RUST = re.compile(r"(?ms)^([ \t]*)(`{3,}|~{3,})[ \t]*\{?\.?rust\b[^\n]*\n.*?^\1\2[`~]*[ \t]*$")
UNSHOWN = re.compile(r"(?m)^[ \t]*#(?:[ \t].*)?\n")
"""A line of Rust that is compiled but not printed; attributes are."""
ESCAPED = re.compile(r"(?m)^([ \t]*)##")
OPTION = re.compile(r"(?m)^[ \t]*(?:#\||//\||%%\|)[ \t](.*)\n")
SHORTCODE = re.compile(r"\{\{<.*?>\}\}")
DIRECTIVE = re.compile(r"(?m)^ {0,3}(\{\{[%#][^`\n]*\}\})[ \t]*$")
"""A line that calls mdBook, one of its programs or Hugo."""
LABEL = re.compile(
    r"(?m)^:(?:label|width|height|numref|begin_tab|end_tab|bibliography)[:`].*$|:(?:label|eqlabel):`[^`\n]*`"
    r"|\(\\{1,2}#[a-z]+:[^)\s]+\)"
)
ROLE = re.compile(r":(?:numref|eqref|ref|cite|citet|citep|doc|term):`([^`\n]*)`")
SUMMARY = re.compile(r"(?m)^([ \t]*)(?:[-*+][ \t]+)?\[[^\]\n]*\]\(([^)\s#]+)")
TOC = re.compile(r"(?ms)^(`{3,})\{?(?:toc|toctree)\}?[^\n]*\n(.*?)^\1")
IMPORT = re.compile(r"(?m)^(?:import|export)\s[^\n]*(?:\n[ \t}][^\n]*)*$")
JSX = re.compile(r"</?[A-Z][\w.]*(?:\s[^<>]*)?/?>|\{/\*.*?\*/\}", re.DOTALL)
TAB = re.compile(r"(?m)^(?P<margin>[ \t]*)<(?P<tag>hfoption|[A-Z]\w*[a-z][\w.]*)\b(?P<settings>[^<>]*)(?<!/)>")
"""A tag that begins a tab or another component with a name, which its page prints."""
SETTING = re.compile(r"(?<![\w-])(\w+)=[\"']([^\"'\n]+)[\"']")
NAMES = {"hfoption": "id", "TabItem": "value"}
"""Setting that names a component which has neither a label nor a title."""
BETWEEN_TAGS = re.compile(r"(?ms)^([ \t]*<(?P<tag>[A-Z][\w.]*)\b[^<>]*(?<!/)>[ \t]*\n)(.*?)(?=^[ \t]*</(?P=tag)>)")
"""Text between two tags of a component, each on a line of its own."""
FENCED = re.compile(r"(?ms)^([ \t]*)(`{3,}|~{3,}).*?^\1\2[`~]*[ \t]*$")
"""A block of code between fences."""
BETWEEN_RULES = re.compile(r"(?ms)(?:\A|(?<=^\n))---[ \t]*\n(?=\S)(?P<inner>.*?)^(?:---|\.\.\.)[ \t]*$")
"""Text that pandoc takes for metadata: between rules, behind an empty line or at the beginning."""
TITLE = re.compile(r"(?m)^#[ \t]|(?<=\S\n)=+[ \t]*$|<h1\b")
KEY = re.compile(r"[\w-]+[ \t]*:(?:\s|$)")
"""The beginning of metadata, in YAML that may be broken further on."""


class _Lenient(yaml.SafeLoader):
    """Settings of site generators have tags of their own."""


_Lenient.add_multi_constructor("", lambda loader, suffix, node: None)


def _settings(text: str) -> Any:
    try:
        return yaml.load(text, _Lenient)
    except (yaml.YAMLError, RecursionError):
        return None


def _chapters(value: Any, depth: int = 0) -> Iterator[Part]:
    """Files of a nested table of contents, in order, with the titles of groups."""
    if isinstance(value, str):
        yield Part(name=value, depth=depth)
    elif isinstance(value, list):
        for each in value:
            yield from _chapters(each, depth)
    elif isinstance(value, dict):
        name = next(
            (value[key] for key in ("file", "root", "part", "href", "caption") if isinstance(value.get(key), str)), ""
        )
        is_file = "file" in value or "root" in value or "href" in value or name.endswith(SUFFIXES)
        if name:
            yield Part(name=name, depth=depth) if is_file else Part(title=name, depth=depth)
        inner = [value[key] for key in ("chapters", "sections", "parts", "appendices", "contents") if key in value]
        for each in inner or ([] if name else list(value.values())):
            yield from _chapters(each, min(depth + (bool(name) and "root" not in value), 5))


def _book(text: str) -> list[Part]:
    """Files that `_quarto.yml`, `_toc.yml`, `_bookdown.yml` and `mkdocs.yml` list."""
    value = _settings(text)
    if not isinstance(value, dict):
        return []
    book = value.get("book")
    if isinstance(book, dict):
        appendices = book.get("appendices")
        return list(
            _chapters([book.get("chapters"), *([{"part": "Appendices", "chapters": appendices}] if appendices else [])])
        )
    if "rmd_files" in value or "nav" in value:
        return list(_chapters(value.get("rmd_files") or value.get("nav")))
    return list(
        _chapters({key: value[key] for key in ("root", "file", "parts", "chapters", "sections") if key in value})
    )


def _summary(text: str) -> list[Part]:
    found = [(len(blank.expandtabs(4)), name) for blank, name in SUMMARY.findall(text)]
    widths = sorted({width for width, _ in found})
    return [Part(name=name, depth=min(widths.index(width), 4)) for width, name in found]


def _blocks(tree: Tree, name: str, text: str, depth: int = 0) -> list[Part]:
    """Entries of the toc blocks of an index, those of their own blocks behind each."""
    made = []
    for match in TOC.finditer(text):
        for line in match[2].splitlines():
            entry = line.strip()
            if not entry or entry.startswith(":") or depth > 3:
                continue
            path = f"{name.rpartition('/')[0]}/{entry}".lstrip("/")
            below = next((path + end for end in PLAIN if path + end in tree.names()), "")
            if below:
                made += [Part(name=below, depth=depth), *_blocks(tree, below, tree.text(below), depth + 1)]
    return made


MANIFESTS = {
    "_quarto.yml": _book,
    "_toc.yml": _book,
    "_bookdown.yml": _book,
    "mkdocs.yml": _book,
    "SUMMARY.md": _summary,
}


def _layouts(tree: Tree) -> list[Layout]:
    made: list[Layout] = []
    for name in tree.names():
        file = name.rpartition("/")[2]
        if file in MANIFESTS:
            entries = MANIFESTS[file](tree.text(name))
            if file == "_bookdown.yml" and not entries:
                folder = name.removesuffix(file)
                entries = [Part(name=each.removeprefix(folder)) for each in _rmd(tree, folder)]
            if file == "mkdocs.yml":
                entries = [
                    Part(name=f"docs/{each.name}" if each.name else "", title=each.title, depth=each.depth)
                    for each in entries
                ]
            base = posixpath.dirname(name)
            # mdBook's listings lie beside its texts.
            top = base.rpartition("/")[0] if posixpath.basename(base) == "src" and file == "SUMMARY.md" else base
            made += [replace(layout, base=top) for layout in of_contents(tree, name, entries, SUFFIXES)]
        elif file == "index.md" and TOC.search(tree.text(name)):
            folder = name.removesuffix(file)
            entries = [
                Part(name=each.name.removeprefix(folder), depth=each.depth)
                for each in _blocks(tree, name, tree.text(name))
            ]
            made += of_contents(tree, name, entries, PLAIN)
    return made or by_numbers(tree, (*QUARTO, *MDX))


def _rmd(tree: Tree, folder: str) -> list[str]:
    mine = [name for name in tree.names() if name.startswith(folder) and "/" not in name[len(folder) :]]
    chapters = sorted((name for name in mine if name.lower().endswith(QUARTO)), key=natural)
    return sorted(chapters, key=lambda name: not name.lower().endswith("index.rmd"))


def without_false_metadata(text: str) -> str:
    """Markdown under its own title, whose remarks between rules are text: pandoc refuses all for what is no YAML."""

    def plain_rules(found: re.Match[str]) -> str:
        inner = found["inner"]
        if isinstance(_settings(inner), dict):
            return found[0]
        return "" if not found.start() and KEY.match(inner) else f"* * *\n\n{inner}\n* * *"

    return _titled(_replaced(BETWEEN_RULES, plain_rules, text))


def _replaced(pattern: re.Pattern[str], change: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with what a pattern finds changed, save in blocks of code."""
    code = [match.span() for match in FENCED.finditer(text)]
    return pattern.sub(lambda m: m[0] if any(start < m.start() < end for start, end in code) else change(m), text)


def outside(code: re.Pattern[str], change: Callable[[str], str], text: str) -> str:
    """The text changed, save in the blocks of code that a pattern finds."""
    made, place = [], 0
    for match in code.finditer(text):
        made += [change(text[place : match.start()]), match[0]]
        place = match.end()
    return "".join([*made, change(text[place:])])


def _titled(text: str) -> str:
    """The text with the title of its metadata above it, as pages print it, where it has no title of its own."""
    found = BETWEEN_RULES.match(text)
    settings = _settings(found["inner"]) if found else None
    title = settings.get("title") if isinstance(settings, dict) else None
    if not found or not isinstance(title, str) or TITLE.search(FENCED.sub("", text[found.end() :])):
        return text
    return f"{found[0]}\n\n# {' '.join(title.split())}\n\n{text[found.end() :]}"


def _cell(cell: re.Match[str]) -> str:
    """A cell, as a record of it where its book does not print the code, and the caption of what it draws."""
    settings = f"{cell['head']}\n{cell['options']}"
    off = {found[1] for found in OFF.finditer(STRING.sub("", settings))}
    fence = cell["fence"]
    shown = f"{fence}{{=hidden}}\n{cell['code']}{fence}" if off & {"echo", "include"} else cell[0]
    caption = "" if off & {"eval", "include"} else _caption(cell)
    margin = fence[: len(fence) - len(fence.lstrip())]
    return f"{shown}\n\n{margin}{caption}\n" if caption else shown


def _caption(cell: re.Match[str]) -> str:
    settings = _settings("".join(f"{line}\n" for line in OPTION.findall(cell["options"])))
    known = settings if isinstance(settings, dict) else {}
    found = next((known[key] for key in CAPTIONS if isinstance(known.get(key), str)), "")
    if not found and (said := CAPTION.search(f"{cell['head']}\n{cell['options']}")):
        found = QUOTED.sub(r"\1", said["text"])
    return " ".join(found.split())


def _in_words(text: str) -> str:
    """The text with the words for each name in its place, or where they stand already when no text has the name."""
    words = dict(WORDS.findall(text))
    used = set(NAME.findall(FENCED.sub("", WORDS.sub("", text))))
    text = _replaced(WORDS, lambda found: "" if found[1] in used else found[2], text)
    return _replaced(NAME, lambda found: words.get(found[1], found[0]), text)


def _label(reference: re.Match[str]) -> str:
    """The words of a label for the number that a page prints."""
    words = SEPARATORS.sub(" ", reference["label"] or f"{KINDS[reference['kind']]} {reference['typed']}")
    return f"{words} " if reference["part"] is not None else words


def prepare(text: str) -> str:
    """Cells as fenced code with their language alone; options, labels and shortcodes of the generators left out."""
    text = _in_words(_replaced(WHOLE, _cell, PROSE.sub(r"\2", without_false_metadata(text))))
    text = _replaced(REFERENCE, _label, OPTION.sub("", CELL.sub(r"\1 \2", text)))
    return ROLE.sub(r"\1", LABEL.sub("", SHORTCODE.sub("", text)))


def from_myst(text: str) -> str:
    """A part of a book of Markdown files, which may be MyST."""
    # Rules around a directive come to stand behind empty lines without it.
    text = INFO.sub(r"\1", without_false_metadata(plain(text)))
    text = _replaced(TAB, _named, _replaced(DIRECTIVE, lambda found: f"`{found[1]}`{{=directive}}", text))
    text = RUST.sub(lambda found: ESCAPED.sub(r"\1#", UNSHOWN.sub("", found[0])), text)
    return ROLE.sub(r"\1", LABEL.sub("", SHORTCODE.sub("", text)))


def _flush(text: str) -> str:
    """The text without the indentation of what stands between tags, which is no code."""
    return _replaced(BETWEEN_TAGS, lambda found: found[1] + _flush(textwrap.dedent(found[3])), text)


def _named(tag: re.Match[str]) -> str:
    """A component's name as a line of its own in place of its tag; the tag where it has none."""
    settings = dict(SETTING.findall(tag["settings"]))
    keys = ("label", "title", NAMES.get(tag["tag"], ""))
    name = next((settings[key] for key in keys if key in settings), "")
    return f"\n{tag['margin']}**{name}**\n\n" if name else tag[0]


def components(text: str) -> str:
    """MDX as Markdown: imports and tags of components left out, save in code; what stands between tags stays."""
    text = _replaced(TAB, _named, _flush(INFO.sub(r"\1", without_false_metadata(text))))
    return outside(FENCED, lambda part: JSX.sub("", IMPORT.sub("", part)), text)


READER = "".join(
    (
        "markdown+lists_without_preceding_blankline-blank_before_header-blank_before_blockquote-implicit_figures",
        "-simple_tables-multiline_tables+gfm_auto_identifiers+autolink_bare_uris-example_lists-citations+alerts",
    )
)

FORMATS = (
    # R Markdown sets formulas between backslashed brackets, too; elsewhere these are escaped brackets. It prints the
    # words for a picture that stands alone.
    Format(
        suffixes=QUARTO,
        reader=f"{READER}+tex_math_single_backslash+implicit_figures",
        include=INCLUDE,
        prepare=prepare,
        layouts=_layouts,
    ),
    Format(suffixes=MDX, reader=READER, prepare=components),
    Format(suffixes=PLAIN, reader=READER, include=INCLUDE, prepare=from_myst),
)
