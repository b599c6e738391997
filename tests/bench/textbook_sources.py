"""Chapters of open textbooks: fetched at a pinned commit, typeset to PDF here, and read from their source by pandoc.

None of it uses `corpus.read`. AsciiDoc comes to pandoc as asciidoctor's DocBook, CNXML as HTML.
"""

import json
import re
import subprocess
import sys
import tarfile
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from textwrap import dedent
from typing import Any

import pypandoc
from textbook_scores import LEAST_SIGNS, Truth, formula_key

CHAPTERS = Path(__file__).with_name("textbooks.json")
LATEX = r"""\documentclass[11pt]{book}
\usepackage[T1]{fontenc}\usepackage[utf8]{inputenc}
\usepackage{amsmath,amssymb,amsthm,array,booktabs,cancel,graphicx,listings,multicol,enumitem,ifthen,pifont,tasks,url,wrapfig}
\usepackage[table]{xcolor}\usepackage{tikz}\usetikzlibrary{patterns,snakes}\usepackage{lmodern,FONT}
\lstset{basicstyle=\ttfamily\small,columns=flexible,showstringspaces=false,keepspaces}
"""
SIGNS = "".join(rf"\DeclareUnicodeCharacter{{{code}}}{{\ensuremath{{{tex}}}}}" for code, tex in (
    ("2212", "-"), ("221E", r"\infty"), ("2229", r"\cap"), ("2032", "'"), ("03B8", r"\theta"), ("2260", r"\neq")))  # fmt: skip
"""Signs of the books' prose that LaTeX does not know without this."""
OPTIONS = ("--top-level-division=chapter", "-V", "documentclass=book", "-V", f"header-includes={SIGNS}")
TYPESET = "import sys, typst; typst.compile(sys.argv[1], output=sys.argv[2], root=sys.argv[3])"
PARTS = {"para": "p", "list": "ul", "item": "li", "emphasis": "em", "term": "b", "row": "tr", "entry": "td", "section": "section",
         "equation": "p", "sub": "sub", "sup": "sup", "tgroup": "table", "thead": "thead", "tbody": "tbody", "link": "span", "cite": "span"}  # fmt: skip
"""HTML of CNXML's elements; others are divisions."""
ABSENT = ("metadata", "figure", "media", "footnote", "solution", "iframe", "label", "colspec")
"""Elements that are left out of the chapter."""
ACCENTS = {"^": "\u0302", "¯": "\u0304", "‾": "\u0304", "~": "\u0303", "→": "\u20d7", "˙": "\u0307", "¨": "\u0308"}
LEAST_LETTERS = 40
UNREAD = "\ufffc"
"""Matrices, arrays and binomials, which have no notation on one line: they are wrong in every text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One row of `textbooks.json`."""

    name: str
    book: str
    repository: str
    commit: str
    licence: str
    format: str
    files: Sequence[str]
    """Paths in the repository, the chapter first; folders are fetched whole."""
    engine: str = ""
    """`latex` or `typst` for a chapter that pandoc writes."""
    font: str = "lmodern"
    definitions: str = ""
    """The book's commands that the chapter uses."""


def chapters() -> list[Chapter]:
    return [Chapter(**row) for row in json.loads(CHAPTERS.read_text())]


def fetch_chapter(chapter: Chapter, folder: Path, mirror: Path | None) -> Path:
    """Lay out a chapter's files below `folder`; returns the chapter's. `mirror` holds OWNER+NAME/repo, git folders."""
    git_dir = folder / "git" / chapter.repository.replace("/", "+")
    if mirror:
        git_dir = mirror / chapter.repository.replace("/", "+") / "repo"
    elif not git_dir.exists():
        subprocess.run(["git", "init", "--quiet", "--bare", git_dir], check=True)
    git = ["git", f"--git-dir={git_dir}"]
    if subprocess.run([*git, "cat-file", "-e", chapter.commit], capture_output=True).returncode:
        address = f"https://github.com/{chapter.repository}"
        subprocess.run([*git, "fetch", "--quiet", "--depth", "1", address, chapter.commit], check=True)
    packed = subprocess.run([*git, "archive", chapter.commit, *chapter.files], check=True, capture_output=True).stdout
    place = folder / chapter.name
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(place, filter="data")
    if chapter.format == "typst":
        (place / "imports.typ").write_text(chapter.definitions)
    return place / chapter.files[0]


def pandoc(text: str, *words: str, cwd: Path | None = None) -> str:
    command = [pypandoc.get_pandoc_path(), *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=cwd).stdout


def source_tree(chapter: Chapter, path: Path) -> dict[str, Any]:
    """Pandoc's tree of a chapter's source."""
    text, reader = path.read_text(), chapter.format
    if chapter.format == "asciidoc":
        command = ["asciidoctor", "-q", "-b", "docbook5", "-o", "-", path]
        text, reader = subprocess.run(command, check=True, capture_output=True, text=True).stdout, "docbook"
    if chapter.format == "cnxml":
        text, reader = ET.tostring(html_of(ET.fromstring(text), 0), encoding="unicode"), "html"
    if chapter.format == "latex":
        text = chapter.definitions + text
    tree: dict[str, Any] = json.loads(pandoc(text, "-f", reader, "-t", "json", cwd=path.parent))
    return tree


def typeset_chapter(chapter: Chapter, path: Path, tools: Path) -> Path:
    """Typeset a chapter; `tools` is the Python that has typst. Exits with a message if a sign or the PDF is missing."""
    engine, pdf, source = chapter.engine or chapter.format, path.with_suffix(".pdf").resolve(), path
    if chapter.engine:
        path = source.with_suffix(f".{engine}")
        tree = json.dumps(source_tree(chapter, source))
        path.write_text(pandoc(tree, "-f", "json", "-t", engine, "-s", *OPTIONS, "-V", f"fontfamily={chapter.font}"))
    elif engine == "latex":
        path = source.with_suffix(".latex")
        preamble = LATEX.replace("FONT", chapter.font) + chapter.definitions
        path.write_text(f"{preamble}\n\\begin{{document}}\n{source.read_text()}\n\\end{{document}}\n")
    # A smaller font for listings, so that lines are not broken.
    path.with_name("theme.yml").write_text("extends: default\ncode:\n  font-size: 7\n")
    root = source.parents[len(Path(chapter.files[0]).parts) - 1]
    command: list[Any] = {
        "asciidoc": ["asciidoctor-pdf", "-q", "--theme", "theme.yml", "-a", "doctype=book", "-o", pdf, path.resolve()],
        "typst": [tools, "-c", TYPESET, path.resolve(), pdf, root],
        "latex": ["pdflatex", "-interaction=nonstopmode", f"-jobname={pdf.stem}", path.resolve()],
    }[engine]
    for _ in range(2 if engine == "latex" else 1):
        subprocess.run(command, cwd=path.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = pdf.with_suffix(".log").read_text(errors="replace") if engine == "latex" else ""
    if absent := re.findall(r"Unicode character (.*)", log):
        sys.exit(f"{chapter.name}: LaTeX left out {', '.join(sorted(set(absent)))}")
    if not pdf.exists():
        sys.exit(f"{chapter.name}: no PDF from {' '.join(map(str, command))}")
    return pdf


def html_of(node: ET.Element, depth: int) -> ET.Element:
    """HTML of a CNXML element."""
    name, text = node.tag.rpartition("}")[2], node.text or ""
    if "MathML" in node.tag:
        for each in node.iter():
            each.tag = each.tag.rpartition("}")[2]
        return node
    html = ET.Element(PARTS.get(name, "div"))
    if name == "title":
        html.tag = f"h{max(depth, 1)}"
    elif name == "code":
        html.tag, text = ("pre", dedent(text.strip("\n"))) if "\n" in text else ("code", text)
    elif name == "list" and node.get("list-type") == "enumerated":
        html.tag = "ol"
    html.text = text
    for child in node:
        if child.tag.rpartition("}")[2] not in ABSENT:
            html.append(html_of(child, depth + (name in ("document", "section"))))
        elif (child.tail or "").strip():
            # The text after an element that is left out.
            html.append(ET.Element("span"))
        else:
            continue
        html[-1].tail = child.tail
    return html


@dataclass(slots=True)
class TreeReader:
    """Collects what pandoc's tree of a chapter says; formulas in texts are their numbers between two UNREAD signs."""

    headings: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)
    formulas: list[str] = field(default_factory=list)
    """LaTeX of the formulas."""
    lines: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def read_blocks(self, nodes: Any) -> None:
        """Read blocks, in whatever lists they are nested."""
        if isinstance(nodes, list):
            for node in nodes:
                self.read_blocks(node)
        elif isinstance(nodes, dict):
            kind, content = nodes.get("t"), nodes.get("c")
            if kind == "Header":
                self.headings.append(self.text_of(content[2]))
            elif kind in ("Para", "Plain"):
                self.paragraphs.append(self.text_of(content))
            elif kind == "CodeBlock":
                self.lines += content[1].expandtabs(4).splitlines()
            elif kind == "Table":
                rows = [self.read_row(row) for row in _rows_of(content)]
                # Columns that are empty from top to bottom only add space.
                columns = [column for column in zip_longest(*rows, fillvalue="") if any(column)]
                self.rows += map(list, zip(*columns, strict=True))
            elif kind == "DefinitionList":
                for term, meaning in content:
                    self.paragraphs.append(self.text_of(term))
                    self.read_blocks(meaning)
            elif kind != "RawBlock":
                self.read_blocks(content)

    def read_row(self, row: Any) -> list[str]:
        inner = TreeReader(formulas=self.formulas)
        cells = []
        for cell in row[1]:
            inner.read_blocks(cell[4])
            cells.append("".join(inner.paragraphs))
            inner.paragraphs.clear()
        return cells

    def text_of(self, nodes: Any) -> str:
        return "".join(map(self.inline_text, nodes))

    def inline_text(self, node: Any) -> str:
        kind, content = node["t"], node.get("c")
        if kind == "Str":
            return str(content)
        if kind in ("Space", "SoftBreak", "LineBreak"):
            return " "
        if kind == "Code":
            return str(content[1])
        if kind == "Math":
            self.formulas.append(content[1])
            return f"{UNREAD}{len(self.formulas) - 1}{UNREAD}"
        if kind == "Quoted":
            sign = '"' if content[0]["t"] == "DoubleQuote" else "'"
            return f"{sign}{self.text_of(content[1])}{sign}"
        if kind == "Note":
            # Printed at the foot of the page: its formulas count, and its place in the order is not known.
            TreeReader(formulas=self.formulas).read_blocks(content)
            return ""
        if kind in ("Cite", "RawInline", "Image") or (kind == "Link" and "reference-type" in str(content[0])):
            return UNREAD
        inlines = next((part for part in content if isinstance(part, list) and part and isinstance(part[0], dict)), [])
        return self.text_of(inlines if kind in ("Span", "Link") else content)


def _rows_of(table: Any) -> Iterator[Any]:
    yield from table[3][1]
    for body in table[4]:
        yield from [*body[2], *body[3]]


def read_truth(chapter: Chapter, path: Path) -> Truth:
    """Headings, prose, formulas, listings and tables of a chapter's source."""
    reader = TreeReader()
    reader.read_blocks(source_tree(chapter, path)["blocks"])
    keys = formula_keys(reader.formulas)
    insert = re.compile(f"{UNREAD}(\\d+){UNREAD}")
    fill = lambda text: insert.sub(lambda found: "".join(keys[int(found[1])]), text)  # noqa: E731
    return Truth(
        headings=[fill(title) for title in reader.headings],
        paragraphs=[
            text for text in reader.paragraphs if UNREAD not in text and sum(map(str.isalnum, text)) >= LEAST_LETTERS
        ],
        formulas=[row for rows in keys for row in rows],
        lines=reader.lines,
        rows=[[formula_key(fill(cell)) for cell in row] for row in reader.rows],
    )


def formula_keys(formulas: Sequence[str]) -> list[list[str]]:
    """The key of each formula, or of each of its lines, by pandoc's MathML."""
    blocks = [{"t": "Para", "c": [{"t": "Math", "c": [{"t": "InlineMath"}, formula]}]} for formula in formulas]
    tree = {"pandoc-api-version": [1, 23, 1], "meta": {}, "blocks": blocks}
    html = pandoc(json.dumps(tree), "-f", "json", "-t", "html", "--mathml")
    keys = []
    for paragraph in ET.fromstring(f"<html>{html}</html>"):
        math = next((each for each in paragraph.iter() if each.tag.endswith("}math")), None)
        written = "" if math is None else linear(math)
        keys.append([key for line in written.split("\n") if (key := formula_key(line))])
    return keys


def linear(node: ET.Element) -> str:
    """A MathML element on one line; `\\n` between the lines of an aligned formula."""
    kind = node.tag.rpartition("}")[2]
    if kind == "mtable":
        lines = ["".join(map(linear, row)) for row in node]
        # Only aligned lines have a column set to the left.
        return "\n".join(lines) if "left" in ET.tostring(node, "unicode") else UNREAD * LEAST_SIGNS
    parts = [linear(child) for child in node if not child.tag.endswith("annotation")]
    if kind in ("msub", "munder"):
        return f"{parts[0]}_{{{parts[1]}}}"
    if kind == "mover" and unicodedata.combining(accent := ACCENTS.get(parts[1], parts[1])[:1] or " "):
        return parts[0] + accent if len(parts[0]) == 1 else f"overline{{{parts[0]}}}"
    if kind in ("msup", "mover"):
        return f"{parts[0]}^{{{parts[1]}}}"
    if kind in ("msubsup", "munderover"):
        return f"{parts[0]}_{{{parts[1]}}}^{{{parts[2]}}}"
    if kind == "mfrac":
        return UNREAD * LEAST_SIGNS if node.get("linethickness") == "0" else f"frac{{{parts[0]}}}{{{parts[1]}}}"
    if kind == "mroot":
        return f"sqrt[{parts[1]}]{{{parts[0]}}}"
    if kind == "msqrt":
        return f"sqrt{{{''.join(parts)}}}"
    return "" if kind == "mphantom" else (node.text or "") + "".join(parts)
