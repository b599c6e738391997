"""Conversion of books' sources, folder by folder: parts, formulas kept, seconds and memory.

    .venv/bin/python tests/bench/corpus_books.py FOLDER_OR_FILE...

Formulas of the source are counted in its text by patterns, without pandoc: MathML elements, LaTeX's inline and display
delimiters and environments outside of comments and code.
"""

import re
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from corpus.find.guard import WebConfig
from corpus.find.intake import gather
from corpus.read.books.convert import convert_book, is_book
from corpus.read.books.library import format_of
from corpus.read.books.tree import Archive, decoded
from infuser_core.child import Limits

MATHML = re.compile(r"<(?:m:)?math[\s>]")
CODE = re.compile(r"(?ms)^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\1[`~]*[ \t]*$|`[^`\n]+`")
VERBATIM = re.compile(r"(?s)\\begin\{(verbatim|lstlisting|minted|asy|tikzpicture)\*?\}.*?\\end\{\1\*?\}")
COMMENT = re.compile(r"(?m)(?<!\\)%.*$")
TEX = re.compile(
    r"(?s)\$\$.+?\$\$|(?<![\\$])\$(?=[^\s$])[^$\n]+(?:\n[^$\n]+){0,3}?\$|\\\[.+?\\\]|\\\(.+?\\\)"
    r"|\\begin\{(equation|align|gather|multline|eqnarray|displaymath|math)\*?\}.*?\\end\{\1\*?\}"
)
ROLE = re.compile(r":math:`|^[ \t]*\.\. math::|(?:latexmath|stem):\[", re.MULTILINE)


def formulas(name: str, text: str) -> int:
    """Formulas of a source file, by patterns."""
    if name.endswith((".cnxml", ".html", ".htm", ".xhtml")):
        return len(MATHML.findall(text))
    if name.endswith((".rst", ".adoc", ".asc", ".asciidoc")):
        return len(ROLE.findall(text))
    if name.endswith(".tex"):
        text = VERBATIM.sub("", COMMENT.sub("", text))
    if name.endswith(".ipynb"):
        text = text.replace("\\n", "\n").replace("\\\\", "\\")
    return len(TEX.findall(CODE.sub("", text)))


def measure(path: Path, folder: Path) -> None:
    """One line for each book below a path."""
    for item in gather([str(path)], folder / "out", folder, WebConfig()):
        if item.path is None or not is_book(item.path):
            continue
        begin = time.monotonic()
        page = convert_book(item.path, "book", Limits())
        seconds = time.monotonic() - begin
        cuts = Counter(page.removed_for)
        unused = {text for text, why in zip(page.removed, page.removed_for, strict=True) if why == "unused"}
        names = [name for name in _names(item.path) if format_of(name) and name not in unused]
        asked = sum(formulas(name, _text(item.path, name)) for name in names)
        kept = formulas("book.md", page.markdown)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        print(
            f"| {Path(item.given).parent.name}/{Path(item.given).name} | {page.num_pages} | {len(page.markdown)} | {asked} "
            f"| {kept} | {seconds:.1f} | {peak} | {dict(cuts)} | {page.reason[:160]} |",
            flush=True,
        )


def _names(path: Path) -> list[str]:
    return list(Archive(path).names()) if path.suffix == ".zip" else [path.name]


def _text(path: Path, name: str) -> str:
    return Archive(path).text(name) if path.suffix == ".zip" else decoded(path.read_bytes())


if __name__ == "__main__":
    print(
        "| book | parts | characters | formulas in the source | in the Markdown | seconds | peak MB | left out | reason |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for each in sys.argv[1:]:
            measure(Path(each), Path(temporary))
