"""Headings of PDFs beside those of the same book's source, by the heading score of opendataloader-bench.

    pip install apted rapidfuzz
    .venv/bin/python tests/bench/headings.py BOOK.pdf=BOOK.html OTHER.pdf=FIRST.epub,SECOND.epub ...

The truth is what pandoc reads of the source, as the truth of that bench is: words without marks of emphasis or code,
without the targets of links, fences and rules of tables, and without lists of contents and links to the next page, none
of which a page prints. Its score (MHS) is one minus the edit distance of two trees, divided by the larger one's nodes:
headings of all levels below one root, each with one node of the text up to the next; a node that stands for another
costs the edit distance of their texts, as a share of the longer. It is taken chapter by chapter, where
opendataloader-bench takes page by page; a chapter whose title the Markdown lacks counts nothing. `withheld` reads the
same file as if it had no bookmarks, which a page of that bench does not have either.
"""

import argparse
import importlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from measure import Row, shown

from corpus.read.embedded import ReadingConfig, convert
from corpus.read.lines import key

HEADING = re.compile(r"^(#{1,6})\s+(.*)$")
LABEL = re.compile(r"^#+ (?:Note|Tip|Caution|Warning|Important)\n", re.MULTILINE)
"""Labels of boxes, which some programs write as headings."""
ESCAPED = re.compile(r"\\(?=[^\w\s#])")
DRAWN = re.compile(r"^ *(?:`{3,}|~{3,}).*$|^ *\|[-:| ]+\|$", re.MULTILINE)
"""Fences of listings and rules of tables."""
AS_PRINTED = """
local function words(element) return element.content end
local function none() return {} end
local function link(element) return pandoc.utils.stringify(element) == "\\u{b6}" and {} or element.content end
local contents = { toc = true, contents = true, ["toctree-wrapper"] = true, sphinxsidebar = true, region = true }
local ways = { header = true, ["nav-panel"] = true, navheader = true, navfooter = true }
local function links(element)
  for _, item in ipairs(element.content) do
    if #item ~= 1 or #item[1].content ~= 1 or item[1].content[1].t ~= "Link" then return end
  end
  return {}
end
local function list(element)
  local blocks = {}
  for _, item in ipairs(element.content) do
    blocks[#blocks + 1] = pandoc.Plain(item[1])
    for _, definition in ipairs(item[2]) do for _, block in ipairs(definition) do blocks[#blocks + 1] = block end end
  end
  return blocks
end
local function division(element)
  local titled = false
  element:walk({ Header = function() titled = true end })
  for _, class in ipairs(element.classes) do if contents[class] or ways[class] and not titled then return {} end end
  return element.content
end
return {
  { Div = division, BulletList = links },
  { HorizontalRule = none, Link = link, Emph = words, Strong = words, Span = words, SmallCaps = words, Underline = words, Image = none,
    RawInline = none, RawBlock = none, DefinitionList = list, BlockQuote = words,
    Code = function(element) return pandoc.Str(element.text) end },
}
"""
"""Filter of pandoc that keeps of a source what a page prints."""
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^ *\2[`~]*$", re.MULTILINE | re.DOTALL)
"""Listings: a comment in them may begin as a heading does."""
CHAPTERS = 3
"""Headings of one level that make it the level of chapters."""


@dataclass(slots=True, kw_only=True)
class Node:
    """A node of the tree that is compared."""

    tag: str
    """document, heading or content."""
    text: str = ""
    """Its text with blanks collapsed."""
    children: list["Node"] = field(default_factory=list)
    """Headings of the document, or the text below a heading."""

    @property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)


def tree(markdown: str) -> Node:
    """Headings below one root whatever their level, each with its text as one node."""
    root = Node(tag="document")
    place, lines = root, list[str]()
    for line in [*markdown.splitlines(), None]:
        found = HEADING.match(line) if line is not None else None
        if line is not None and not found:
            lines.append(line)
            continue
        text = " ".join(" ".join(lines).split())
        if text:
            place.children.append(Node(tag="content", text=text))
        lines = []
        if found:
            place = Node(tag="heading", text=" ".join(found[2].split()))
            root.children.append(place)
    return root


def plain(markdown: str) -> str:
    """Markdown whose listings have no line that begins as a heading, without what is drawn around its words."""
    return ESCAPED.sub("", DRAWN.sub("", FENCED.sub(lambda listing: listing[0].replace("\n#", "\n "), markdown)))


def similarity(truth: str, made: str) -> float:
    """The heading score of two Markdown texts, 0 to 1."""
    apted, distance = importlib.import_module("apted"), importlib.import_module("rapidfuzz.distance")

    class Costs(apted.Config):  # type: ignore[misc, name-defined]
        """One for a node, the distance of its text for another text."""

        def rename(self, one: Node, other: Node) -> float:
            if one.tag != other.tag:
                return 1.0
            return float(distance.Levenshtein.normalized_distance(one.text, other.text))

    trees: list[Any] = [tree(truth), tree(made)]
    edits = apted.APTED(*trees, Costs()).compute_edit_distance()
    return max(0.0, 1.0 - edits / max(one.size for one in trees))


def chapters(markdown: str) -> list[tuple[str, str]]:
    """(title, Markdown) of the chapters of a source: the highest level that has several headings."""
    found = [(len(m[1]), m[2], m.start()) for m in re.finditer(HEADING.pattern, markdown, re.MULTILINE)]
    level = next(n for n in range(1, 7) if sum(depth == n for depth, *_ in found) >= CHAPTERS)
    starts = [(title, start) for depth, title, start in found if depth == level]
    ends = [start for _, start in starts[1:]] + [len(markdown)]
    return [(title, markdown[start:end]) for (title, start), end in zip(starts, ends, strict=True)]


def same_chapters(truth: Sequence[tuple[str, str]], made: str) -> list[str]:
    """Markdown of the same chapters of a conversion; empty for one whose title it lacks."""
    heads = [(key(m[2]), m.start()) for m in re.finditer(HEADING.pattern, made, re.MULTILINE)]
    places: list[int | None] = []
    after = 0
    for title, _ in truth:
        place = next((start for name, start in heads if start >= after and name == key(title)), None)
        places.append(place)
        after = after if place is None else place + 1
    known = [place for place in places if place is not None]
    ends = dict(pairwise([*known, len(made)]))
    return ["" if place is None else made[place : ends[place]] for place in places]


def source_markdown(path: Path) -> str:
    """The words of a source, or of several files with commas between their names, as pandoc reads them."""
    if path.suffix == ".md":
        return plain(path.read_text())
    pandoc = importlib.import_module("pypandoc").get_pandoc_path()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as printed:
        printed.write(AS_PRINTED)
        printed.flush()
        command = [pandoc, "-t", "gfm-raw_html", "--wrap=none", f"--lua-filter={printed.name}", *str(path).split(",")]
        return plain(LABEL.sub("", subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def rows(pairs: Sequence[tuple[Path, Path]]) -> Iterator[Row]:
    """Two rows for each book, and two for all."""
    every: dict[str, list[float]] = {"given": [], "withheld": []}
    seconds, pages = 0.0, 0
    for path, source in pairs:
        truth = chapters(source_markdown(source))
        for name in every:
            start = time.process_time()
            reading = convert(str(path), ReadingConfig(use_outline=name == "given"))
            seconds, pages = seconds + time.process_time() - start, pages + reading.num_pages
            made = same_chapters(truth, plain(reading.markdown))
            scores = [similarity(text, own) if own else 0.0 for (_, text), own in zip(truth, made, strict=True)]
            every[name] += scores
            missing = sum(not own for own in made)
            detail = f"{reading.num_pages} pages, {len(truth)} chapters, {missing} without their title"
            yield Row(name=f"{path.name}, outline {name}: MHS", value=statistics.mean(scores), unit="", detail=detail)
    for name, scores in every.items():
        yield Row(name=f"all, outline {name}: MHS", value=statistics.mean(scores), unit="", target=">= 0.85")
    yield Row(name="conversion", value=pages / seconds, unit="pages/s", target=">= 15", detail=f"{pages} pages")


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", help="BOOK.pdf=SOURCE")
    given = parser.parse_args(arguments)
    pairs = [(Path(pdf), Path(source)) for pdf, source in (pair.split("=", 1) for pair in given.pairs)]
    return shown(rows(pairs), as_json=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
