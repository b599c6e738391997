"""Books of Markdown files: Quarto, R Markdown, MDX, Jupyter Book, mdBook, MkDocs and folders with a toc block."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml

from corpus.read.books.format import Format, Layout, Part, Tree
from corpus.read.books.myst import plain
from corpus.read.books.order import by_numbers, natural, of_contents

QUARTO = (".qmd", ".rmd", ".rmarkdown")
MDX = (".mdx",)
PLAIN = (".md", ".markdown", ".mdown", ".myst")
SUFFIXES = (*QUARTO, *MDX, *PLAIN, ".ipynb", ".rst")
INCLUDE = re.compile(
    r"(?m)^[ \t]*\{\{(?:<[ \t]*include|#(?:rustdoc_)?include)[ \t]+(?P<name>[^\s}:>]+)[^}\n]*\}\}[ \t]*$"
)
CELL = re.compile(r"(?m)^([ \t]*(?:`{3,}|~{3,}))[ \t]*\{(?:\.|=)?([A-Za-z][\w+-]*)\b[^}\n]*\}[ \t]*$")
PROSE = re.compile(r"(?ms)^([ \t]*`{3,})[ \t]*\{(?:block2?|asis)\b[^}\n]*\}[ \t]*\n(.*?)^\1[ \t]*$")
"""Cells whose text is printed as it stands: remarks in boxes."""
OPTION = re.compile(r"(?m)^[ \t]*(?:#\||//\||%%\|)[ \t].*\n")
SHORTCODE = re.compile(r"\{\{<.*?>\}\}")
LABEL = re.compile(
    r"(?m)^:(?:label|width|height|numref|begin_tab|end_tab|bibliography)[:`].*$|:(?:label|eqlabel):`[^`\n]*`"
)
ROLE = re.compile(r":(?:numref|eqref|ref|cite|citet|citep|doc|term):`([^`\n]*)`")
SUMMARY = re.compile(r"(?m)^([ \t]*)(?:[-*+][ \t]+)?\[[^\]\n]*\]\(([^)\s#]+)")
TOC = re.compile(r"(?ms)^(`{3,})\{?(?:toc|toctree)\}?[^\n]*\n(.*?)^\1")
IMPORT = re.compile(r"(?m)^(?:import|export)\s[^\n]*(?:\n[ \t}][^\n]*)*$")
JSX = re.compile(r"</?[A-Z][\w.]*(?:\s[^<>]*)?/?>|\{/\*.*?\*/\}", re.DOTALL)
FENCED = re.compile(r"(?ms)^([ \t]*)(`{3,}|~{3,}).*?^\1\2[`~]*[ \t]*$")
"""A block of code between fences."""
BETWEEN_RULES = re.compile(r"(?ms)(?:\A|(?<=^\n))---[ \t]*\n(?=\S)(?P<inner>.*?)^(?:---|\.\.\.)[ \t]*$")
"""Text that pandoc takes for metadata: between rules, behind an empty line or at the beginning."""
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
    tops = {layout.base for layout in made}
    nested = {
        one.base
        for one in made
        for top in tops
        if one.base != top and f"{one.base}/".startswith(f"{top}/" if top else "")
    }
    return [one for one in made if one.base not in nested] or by_numbers(tree, (*QUARTO, *MDX))


def _rmd(tree: Tree, folder: str) -> list[str]:
    mine = [name for name in tree.names() if name.startswith(folder) and "/" not in name[len(folder) :]]
    chapters = sorted((name for name in mine if name.lower().endswith(QUARTO)), key=natural)
    return sorted(chapters, key=lambda name: not name.lower().endswith("index.rmd"))


def without_false_metadata(text: str) -> str:
    """Markdown whose remarks between rules are text: pandoc refuses all of it for what is no YAML there."""
    code = [match.span() for match in FENCED.finditer(text)]

    def plain_rules(found: re.Match[str]) -> str:
        inner = found["inner"]
        if isinstance(_settings(inner), dict) or any(start < found.start() < end for start, end in code):
            return found[0]
        return "" if not found.start() and KEY.match(inner) else f"* * *\n\n{inner}\n* * *"

    return BETWEEN_RULES.sub(plain_rules, text)


def prepare(text: str) -> str:
    """Cells as fenced code with their language alone; options, labels and shortcodes of the generators left out."""
    text = OPTION.sub("", CELL.sub(r"\1 \2", PROSE.sub(r"\2", without_false_metadata(text))))
    return ROLE.sub(r"\1", LABEL.sub("", SHORTCODE.sub("", text)))


def from_myst(text: str) -> str:
    """A part of a book of Markdown files, which may be MyST."""
    return ROLE.sub(r"\1", LABEL.sub("", SHORTCODE.sub("", plain(without_false_metadata(text)))))


def components(text: str) -> str:
    """MDX as Markdown: imports and tags of components left out, save in code; what stands between tags stays."""
    text = without_false_metadata(text)
    made, place = [], 0
    for match in FENCED.finditer(text):
        made += [JSX.sub("", IMPORT.sub("", text[place : match.start()])), match[0]]
        place = match.end()
    return "".join([*made, JSX.sub("", IMPORT.sub("", text[place:]))])


READER = "".join(
    (
        "markdown+lists_without_preceding_blankline-blank_before_header-blank_before_blockquote-implicit_figures",
        "-simple_tables-multiline_tables+gfm_auto_identifiers+autolink_bare_uris-example_lists-citations",
    )
)

FORMATS = (
    Format(suffixes=QUARTO, reader=READER, include=INCLUDE, prepare=prepare, layouts=_layouts),
    Format(suffixes=MDX, reader=READER, prepare=components),
    Format(suffixes=PLAIN, reader=READER, include=INCLUDE, prepare=from_myst),
)
