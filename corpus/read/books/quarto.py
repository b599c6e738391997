"""References and citations of Quarto and R Markdown: titles of sections, and authors with years."""

import re
from collections.abc import Iterator

from corpus.read.books.citations import citation_text
from corpus.read.books.references import Targets

HEADING = re.compile(r"(?m)^#+[ \t]+(?P<title>[^\n{]*\w[^\n{]*?)[ \t]*\{[^}\n]*#(?P<label>[\w:.-]+)[^}\n]*\}[ \t]*$")
"""A heading with a label."""
SECTION = re.compile(r"\\{1,2}@ref\((?P<label>[^):\s]+)\)|(?<![\w\\@`/.-])@(?P<typed>sec-[\w-]*\w)")
CITATION = re.compile(
    r"(?P<code>(?P<ticks>`+).+?(?P=ticks))"
    r"|(?<![\w\]\\])\[(?P<before>[^\[\]@\n]*?)(?P<works>-?(?<!\w)@[^\[\]\n]*\w)\](?!\()"
    r"|(?<![\w@`/.\\\[-])@(?P<name>[A-Za-z](?:[\w:./-]*\w)?)"
)
"""Works cited in brackets, with words before and after them, or in a sentence; code is matched first."""
KEY = re.compile(r"@([\w:./-]*\w)")


def find_titles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the labels of sections, each with the title."""
    for heading in HEADING.finditer(text):
        yield heading["label"], heading["title"].strip()


def resolve(text: str, targets: Targets) -> str:
    """Replace references to sections by their titles, and citations by what the book prints."""

    def title(reference: re.Match[str]) -> str:
        heading = targets.tree.titles.get((reference["label"] or reference["typed"]).lower())
        words = "" if reference["label"] else "Section "
        return f"{words}“{heading}”" if heading else reference[0]

    def cited(citation: re.Match[str]) -> str:
        works = targets.tree.works
        if citation["code"] or (citation["name"] and citation["name"] not in works):
            return citation[0]
        if citation["name"]:
            return citation_text(works, citation["name"], in_text=True)
        *_, note = KEY.split(citation["works"])
        keys = ",".join(KEY.findall(citation["works"]))
        return f"{citation['before']}{citation_text(works, keys, note=note.strip(' ,'))}"

    return CITATION.sub(cited, SECTION.sub(title, text))
