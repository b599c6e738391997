"""Books of Markdown files: Quarto, R Markdown, MDX, MyST, Jupyter Book, mdBook, MkDocs and folders with a toc block."""

import posixpath
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from corpus.read.books import quarto
from corpus.read.books.format import BookLayout, BookPart, BookTree, Format
from corpus.read.books.myst import find_titles, load_settings, plain_markdown, resolve
from corpus.read.books.order import natural_key, order_by_contents, order_by_numbers
from corpus.read.books.references import Targets, resolving
from corpus.read.doubt import unresolved

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
"""Cells whose text is printed unchanged, such as remarks in boxes."""
WHOLE = re.compile(
    r"(?ms)^(?P<fence>[ \t]*(?:`{3,}|~{3,}))[ \t]*\{(?P<head>[A-Za-z][^\n]*)\}[ \t]*\n"
    r"(?P<options>(?:[ \t]*(?:#\||//\||%%\|)[^\n]*\n)*)(?P<code>.*?)^(?P=fence)[ \t]*$"
)
"""A complete code cell with its settings, which are in braces or on separate lines."""
OFF = re.compile(r"\b(echo|include|eval)[ \t]*[=:][ \t]*(?:FALSE|F|false|False)\b")
STRING = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
CAPTION = re.compile(
    r"\b(?:fig|tab)\.cap[ \t]*=[ \t]*(?:[\w.$:]+\()?(?P<sign>[\"'])(?!(?P=sign))(?P<text>.+?)(?<!\\)(?P=sign)"
)
CAPTIONS = ("fig-cap", "fig.cap", "tbl-cap", "tab.cap")
"""Names of settings on separate lines that give a caption."""
QUOTED = re.compile(r"\\([\\\"'])")
WORDS = re.compile(r"(?m)^\(ref:([^)\s]+)\)[ \t]+(\S.*)$")
"""A paragraph that defines the text for a bookdown name (`(ref:name)`) used elsewhere."""
NAME = re.compile(r"\(ref:([^)\s]+)\)")
INFO = re.compile(r"(?m)^([ \t]*(?:`{3,}|~{3,})[ \t]*[\w+#-]+)[ \t]*[ \t,:][^`\n]*$")
"""The first line of a code block that has more than a language, which pandoc takes for text."""
RUST = re.compile(r"(?ms)^([ \t]*)(`{3,}|~{3,})[ \t]*\{?\.?rust\b[^\n]*\n.*?^\1\2[`~]*[ \t]*$")
UNSHOWN = re.compile(r"(?m)^[ \t]*#(?:[ \t].*)?\n")
"""A line of Rust code that mdBook compiles but does not print; attributes (`#[...]`) are printed."""
ESCAPED = re.compile(r"(?m)^([ \t]*)##")
COMPUTED = re.compile(r"(?<!`)`(?:r|\{(?:r|python|julia|ojs)\})[ \t]+[^`\n]+`(?!`)")
"""Code within a sentence in whose place the book prints its result."""
OPTION = re.compile(r"(?m)^[ \t]*(?:#\||//\||%%\|)[ \t](.*)\n")
SHORTCODE = re.compile(r"\{\{<.*?>\}\}")
TABLE = re.compile(r"(?m)(?<=\S\n)(?=\|.*\|[ \t]*\n\|[ \t]*:?-[-:| \t]*\|[ \t]*$)(?<!\|\n)(?<!\|[ \t]\n)")
"""The beginning of a table right below a line of text, which ends the paragraph except for pandoc."""
SIGN = re.compile(r"(?<![\\$])(\$\\[A-Za-z]+\$)(?=\d)")
"""A sign in a formula right before a number, which pandoc takes for text between sums of dollars."""
DIRECTIVE = re.compile(r"(?m)^ {0,3}(\{\{[%#][^`\n]*\}\})[ \t]*$")
"""A line with a directive for mdBook, one of its preprocessors or Hugo."""
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
"""Start tag of a tab or another component whose name is printed on the page."""
SETTING = re.compile(r"(?<![\w-])(\w+)=[\"']([^\"'\n]+)[\"']")
NAMES = {"hfoption": "id", "TabItem": "value"}
"""Setting with the name of a component that has no label and no title."""
BETWEEN_TAGS = re.compile(r"(?ms)^([ \t]*<(?P<tag>[A-Z][\w.]*)\b[^<>]*(?<!/)>[ \t]*\n)(.*?)(?=^[ \t]*</(?P=tag)>)")
"""Text between the tags of a component that are on separate lines."""
FENCED = re.compile(r"(?ms)^([ \t]*)(`{3,}|~{3,}).*?^\1\2[`~]*[ \t]*$")
"""A code block between fences."""
ANCHOR = re.compile(r"<span id=[\"'][^\"'>]*[\"']>\s*</span>|<a (?:id|name)=[\"'][^\"'>]*[\"']>\s*</a>")
PICTURE = re.compile(r"!\[([^\]\n]*)\]\(([^()\n]*)\)|<img\b[^<>]*?src=[\"']?([^<>\"']*)[^<>]*>")
JUMP = re.compile(r"(?<!!)\[((?:[^\[\]\n\\]|\\.)*)\]\(#[^()\s]*\)")
RAISED = re.compile(r"(\d+|\w?)<(sup|sub)>\*?([\w+\u2212-]+)\*?</\2>")
BREAK = re.compile(r"<br ?/?>")
STYLE = re.compile(
    r"</?(?:a|b|center|details|div|em|figcaption|figure|font|h[1-6]|i|iframe|img|mark|p|small|span|strong|summary|u)"
    r"(?:\s[^<>]*)?>",
    re.IGNORECASE,
)
CODE = re.compile(rf"{FENCED.pattern}|`[^`\n]+`")
BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
BETWEEN_RULES = re.compile(r"(?ms)(?:\A|(?<=^\n))---[ \t]*\n(?=\S)(?P<inner>.*?)^(?:---|\.\.\.)[ \t]*$")
"""Text that pandoc takes for metadata: between rules, after an empty line or at the beginning."""
TITLE = re.compile(r"(?m)^#[ \t]|(?<=\S\n)=+[ \t]*$|<h1\b")
KEY = re.compile(r"[\w-]+[ \t]*:(?:\s|$)")
"""The beginning of metadata, in YAML that may be invalid later."""


ENTRY = ("file", "root", "part", "href", "caption", "title")
"""Keys of an entry's file, or of the title of a group of entries, the most telling first."""
BELOW = ("chapters", "sections", "parts", "appendices", "contents", "children")
"""Keys of the entries below one."""


def _chapters(value: Any, depth: int = 0) -> Iterator[BookPart]:
    """Yield the files of a nested table of contents (parsed YAML) in order, with the titles of groups."""
    if isinstance(value, str):
        yield BookPart(name=value, depth=depth)
    elif isinstance(value, list):
        for entry in value:
            yield from _chapters(entry, depth)
    elif isinstance(value, dict):
        name = next((value[key] for key in ENTRY if isinstance(value.get(key), str)), "")
        is_file = "file" in value or "root" in value or "href" in value or name.endswith(SUFFIXES)
        if name:
            yield BookPart(name=name, depth=depth) if is_file else BookPart(title=name, depth=depth)
        inner = [value[key] for key in BELOW if key in value]
        for entry in inner or ([] if name else list(value.values())):
            yield from _chapters(entry, min(depth + (bool(name) and "root" not in value), 5))


def _yaml_parts(text: str) -> list[BookPart]:
    """Parts that `_quarto.yml`, `_toc.yml`, `myst.yml`, `_bookdown.yml` and `mkdocs.yml` list."""
    value = load_settings(text)
    if not isinstance(value, dict):
        return []
    book, project = value.get("book"), value.get("project")
    if isinstance(project, dict) and isinstance(project.get("toc"), list):
        return list(_chapters(project["toc"]))
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


def _summary_parts(text: str) -> list[BookPart]:
    """Parts that mdBook's `SUMMARY.md` lists."""
    entries = [(len(blank.expandtabs(4)), name) for blank, name in SUMMARY.findall(text)]
    widths = sorted({width for width, _ in entries})
    return [BookPart(name=name, depth=min(widths.index(width), 4)) for width, name in entries]


def _toc_parts(tree: BookTree, name: str, text: str, depth: int = 0) -> list[BookPart]:
    """Parts listed in the toc blocks of an index, each followed by the parts listed in its own toc blocks."""
    parts = []
    for match in TOC.finditer(text):
        for line in match[2].splitlines():
            entry = line.strip()
            if not entry or entry.startswith(":") or depth > 3:
                continue
            path = f"{name.rpartition('/')[0]}/{entry}".lstrip("/")
            below = next((path + end for end in PLAIN if path + end in tree.names()), "")
            if below:
                parts += [BookPart(name=below, depth=depth), *_toc_parts(tree, below, tree.text(below), depth + 1)]
    return parts


MANIFESTS = {
    "_quarto.yml": _yaml_parts,
    "_toc.yml": _yaml_parts,
    "myst.yml": _yaml_parts,
    "_bookdown.yml": _yaml_parts,
    "mkdocs.yml": _yaml_parts,
    "SUMMARY.md": _summary_parts,
}


def _find_layouts(tree: BookTree) -> list[BookLayout]:
    """Find the books of a tree by their manifests or toc blocks, else by the numbers of their files."""
    layouts: list[BookLayout] = []
    for name in tree.names():
        file = name.rpartition("/")[2]
        if file in MANIFESTS:
            entries = MANIFESTS[file](tree.text(name))
            if file == "_bookdown.yml" and not entries:
                # Without a list, bookdown takes the folder's files by name, with the index first.
                folder = name.removesuffix(file)
                files = [each for each in tree.names() if each.startswith(folder) and "/" not in each[len(folder) :]]
                chapters = sorted((each for each in files if each.lower().endswith(QUARTO)), key=natural_key)
                chapters.sort(key=lambda each: not each.lower().endswith("index.rmd"))
                entries = [BookPart(name=each.removeprefix(folder)) for each in chapters]
            if file == "mkdocs.yml":
                entries = [
                    BookPart(name=f"docs/{each.name}" if each.name else "", title=each.title, depth=each.depth)
                    for each in entries
                ]
            base = posixpath.dirname(name)
            # The listings of an mdBook are in folders next to `src`, so they belong to the book's folder.
            top = base.rpartition("/")[0] if posixpath.basename(base) == "src" and file == "SUMMARY.md" else base
            layouts += [replace(layout, base=top) for layout in order_by_contents(tree, name, entries, SUFFIXES)]
        elif file == "index.md" and TOC.search(tree.text(name)):
            folder = name.removesuffix(file)
            entries = [
                BookPart(name=each.name.removeprefix(folder), depth=each.depth)
                for each in _toc_parts(tree, name, tree.text(name))
            ]
            layouts += order_by_contents(tree, name, entries, PLAIN)
    return layouts or order_by_numbers(tree, (*QUARTO, *MDX))


ROWS = re.compile(
    r"(?s)\\begin\{(?P<name>(?:align|array|cases|eqnarray|gather|multline|split|[bpvV]?matrix)(?:ed)?\*?)\}.*?\\end\{(?P=name)\}"
)
ROW = re.compile(r"(?<!\\)\\{3,4}(?=\s)")
"""End of a formula's row with more backslashes than LaTeX has: other programs take one for an escape."""


def normalize_metadata(text: str) -> str:
    """Make the metadata's title a heading if the text has none, and turn what only looks like metadata into text.

    pandoc rejects a whole text if a part between two horizontal rules is not YAML.
    """

    def keep_metadata(block: re.Match[str]) -> str:
        inner = block["inner"]
        if isinstance(load_settings(inner), dict):
            return block[0]
        return "" if not block.start() and KEY.match(inner) else f"* * *\n\n{inner}\n* * *"

    text = _substitute(BETWEEN_RULES, keep_metadata, text)
    metadata = BETWEEN_RULES.match(text)
    settings = load_settings(metadata["inner"]) if metadata else None
    title = settings.get("title") if isinstance(settings, dict) else None
    if not metadata or not isinstance(title, str) or TITLE.search(FENCED.sub("", text[metadata.end() :])):
        return text
    return f"{metadata[0]}\n\n# {' '.join(title.split())}\n\n{text[metadata.end() :]}"


def _substitute(pattern: re.Pattern[str], change: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace the matches of a pattern outside code blocks."""
    code = [match.span() for match in FENCED.finditer(text)]
    return pattern.sub(lambda m: m[0] if any(start < m.start() < end for start, end in code) else change(m), text)


def substitute_outside(code: re.Pattern[str], change: Callable[[str], str], text: str) -> str:
    """Apply `change` to the text outside the matches of the pattern `code`."""
    result, place = [], 0
    for match in code.finditer(text):
        result += [change(text[place : match.start()]), match[0]]
        place = match.end()
    return "".join([*result, change(text[place:])])


def clean_markup(text: str, pictures: list[str]) -> str:
    """Remove anchors, links within the file, pictures and styles from a text in Markdown, except in code.

    Superscripts and subscripts become LaTeX. The captions of pictures, or their names, are added to `pictures`.
    """

    def clean(part: str) -> str:
        pictures.extend(match[1] or match[2] or match[3] for match in PICTURE.finditer(part))
        part = JUMP.sub(r"\1", PICTURE.sub("", ANCHOR.sub("", part)))
        part = RAISED.sub(lambda match: f"${match[1]}{'^' if match[2] == 'sup' else '_'}{{{match[3]}}}$", part)
        return STYLE.sub("", BREAK.sub(" ", part))

    return BLANK.sub("\n\n", substitute_outside(CODE, clean, text))


def _replace_cell(cell: re.Match[str]) -> str:
    """Mark a cell's code as hidden if the book does not print it, and add the caption of its figure or table."""
    settings = f"{cell['head']}\n{cell['options']}"
    off = {match[1] for match in OFF.finditer(STRING.sub("", settings))}
    fence = cell["fence"]
    code = f"{fence}{{=hidden}}\n{cell['code']}{fence}" if off & {"echo", "include"} else cell[0]
    caption = ""
    if not off & {"eval", "include"}:
        options = load_settings("".join(f"{line}\n" for line in OPTION.findall(cell["options"])))
        options = options if isinstance(options, dict) else {}
        caption = next((options[key] for key in CAPTIONS if isinstance(options.get(key), str)), "")
        if not caption and (match := CAPTION.search(settings)):
            caption = QUOTED.sub(r"\1", match["text"])
        caption = " ".join(caption.split())
    margin = fence[: len(fence) - len(fence.lstrip())]
    return f"{code}\n\n{margin}{caption}\n" if caption else code


def prepare_quarto(text: str) -> str:
    """Prepare Quarto or R Markdown for pandoc: make cells fenced code, and remove options, labels and shortcodes."""
    text = _substitute(WHOLE, _replace_cell, PROSE.sub(r"\2", normalize_metadata(text)))
    # Replace each name by the text it stands for; the text of an unused name stays in its place.
    words = dict(WORDS.findall(text))
    uses = set(NAME.findall(FENCED.sub("", WORDS.sub("", text))))
    text = _substitute(WORDS, lambda match: "" if match[1] in uses else match[2], text)
    text = _substitute(NAME, lambda match: words.get(match[1], match[0]), text)
    text = _substitute(COMPUTED, lambda match: unresolved("result"), OPTION.sub("", CELL.sub(r"\1 \2", text)))
    return ROLE.sub(r"\1", LABEL.sub("", SHORTCODE.sub("", text)))


def _resolve_quarto(text: str, targets: Targets) -> str:
    """Resolve the references in the text and in the captions of cells, which are settings of code."""

    def resolve_setting(setting: re.Match[str]) -> str:
        return quarto.resolve(setting[0], targets)

    text = CAPTION.sub(resolve_setting, OPTION.sub(resolve_setting, text))
    return substitute_outside(FENCED, lambda part: quarto.resolve(part, targets), text)


def prepare_markdown(text: str) -> str:
    """Prepare a Markdown file of a book, which may be MyST, for pandoc by turning it into plain Markdown."""
    # Convert MyST first: once a directive is removed, the horizontal rules around it may follow empty lines.
    text = INFO.sub(r"\1", normalize_metadata(plain_markdown(text)))
    text = _substitute(ROWS, lambda formula: ROW.sub(r"\\\\", formula[0]), text)
    text = _substitute(DIRECTIVE, lambda match: f"`{match[1]}`{{=directive}}", text)
    text = _substitute(TABLE, lambda match: "\n", _substitute(TAB, _component_name, text))
    text = _substitute(SIGN, lambda match: f"{match[1]}<!-- -->", text)
    text = RUST.sub(lambda match: ESCAPED.sub(r"\1#", UNSHOWN.sub("", match[0])), text)
    return ROLE.sub(r"\1", LABEL.sub("", SHORTCODE.sub("", text)))


def _dedent_components(text: str) -> str:
    """Remove the indentation of text between component tags, where it does not mean code."""
    return _substitute(BETWEEN_TAGS, lambda match: match[1] + _dedent_components(textwrap.dedent(match[3])), text)


def _component_name(tag: re.Match[str]) -> str:
    """A component's name on a separate line in place of its tag; the tag if it has no name."""
    settings = dict(SETTING.findall(tag["settings"]))
    keys = ("label", "title", NAMES.get(tag["tag"], ""))
    name = next((settings[key] for key in keys if key in settings), "")
    return f"\n{tag['margin']}**{name}**\n\n" if name else tag[0]


def prepare_mdx(text: str) -> str:
    """Prepare MDX for pandoc: remove imports and component tags outside code; the text between tags stays."""
    text = _dedent_components(INFO.sub(r"\1", normalize_metadata(text)))
    text = _substitute(TAB, _component_name, text)
    return substitute_outside(FENCED, lambda part: JSX.sub("", IMPORT.sub("", part)), text)


READER = "".join(
    (
        "markdown+lists_without_preceding_blankline-blank_before_header-blank_before_blockquote-implicit_figures",
        "-simple_tables-multiline_tables+gfm_auto_identifiers+autolink_bare_uris-example_lists-citations+alerts",
    )
)
"""Pandoc's reader of Markdown as books write it."""

FORMATS = (
    # R Markdown also has formulas in backslashed brackets; elsewhere these are escaped brackets. It prints the
    # description of a picture in a separate paragraph.
    Format(
        suffixes=QUARTO,
        reader=f"{READER}+tex_math_single_backslash+implicit_figures",
        include=INCLUDE,
        view=resolving(QUARTO, quarto.find_titles, _resolve_quarto),
        prepare=prepare_quarto,
        layouts=_find_layouts,
    ),
    Format(suffixes=MDX, reader=READER, prepare=prepare_mdx),
    Format(
        suffixes=PLAIN,
        reader=READER,
        include=INCLUDE,
        view=resolving(PLAIN, find_titles, resolve),
        prepare=prepare_markdown,
    ),
)
