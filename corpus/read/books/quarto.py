"""References and citations of Quarto and R Markdown: titles of sections, words of labels, and authors with years."""

import re
from collections.abc import Iterator

from corpus.read.books.citations import citation_text
from corpus.read.books.myst import SEPARATORS
from corpus.read.books.references import Targets

HEADING = re.compile(r"(?m)^#+[ \t]+(?P<title>[^\n{]*\w[^\n{]*?)[ \t]*\{[^}\n]*#(?P<label>[\w:.-]+)[^}\n]*\}[ \t]*$")
"""A heading with a label."""
KINDS = {
    "fig": "Figure", "tbl": "Table", "sec": "Section", "eq": "Equation", "lst": "Listing", "thm": "Theorem",
    "lem": "Lemma", "cor": "Corollary", "prp": "Proposition", "def": "Definition", "exm": "Example", "exr": "Exercise",
    "alg": "Algorithm",
}  # fmt: skip
"""Words that Quarto prints before a number, by the label's prefix."""
REFERENCE = re.compile(
    r"\\{1,2}@ref\((?:[a-z]+:)?(?P<label>[^)\s]+)\)(?P<part>(?=\w))?"
    r"|(?:(?P<open>\[)(?P<before>[^\[\]@\n]*?))?(?<![\w\\@`/.-])(?P<bare>-)?"
    rf"@(?P<typed>(?P<kind>{'|'.join(KINDS)})-[\w-]*\w)(?(open)\])"
)
"""A reference of bookdown or Quarto, whose number only these programs know; `[Chapter -@sec-x]` gives its own word."""
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
    """Replace references by titles, or by the words of their labels, and citations by what the book prints."""

    def words_of(reference: re.Match[str]) -> str:
        label, kind = reference["label"] or reference["typed"], reference["kind"]
        title = targets.tree.titles.get(label.lower())
        words = f"“{title}”" if title else SEPARATORS.sub(" ", label.removeprefix(f"{kind}-"))
        words = words if not kind or reference["bare"] else f"{KINDS[kind]} {words}"
        return f"{reference['before'] or ''}{words}{'' if reference['part'] is None else ' '}"

    def cited(citation: re.Match[str]) -> str:
        works = targets.tree.works
        if citation["code"] or (citation["name"] and citation["name"] not in works):
            return citation[0]
        if citation["name"]:
            return citation_text(works, citation["name"], in_text=True)
        *_, note = KEY.split(citation["works"])
        keys = ",".join(KEY.findall(citation["works"]))
        return f"{citation['before']}{citation_text(works, keys, note=note.strip(' ,'))}"

    return CITATION.sub(cited, REFERENCE.sub(words_of, text))
