"""Works that a book cites: the author and year for each key, from its BibTeX files and its bibliography."""

import re
from collections.abc import Sequence

from corpus.read.books.format import BookTree
from corpus.read.doubt import unresolved

ENTRY = re.compile(
    r"(?im)^[ \t]*@(?!comment|string|preamble)\w+\s*[{(]\s*(?P<key>[^\s,]+)\s*,(?P<fields>(?s:.*?))(?=^[ \t]*@|\Z)"
)
NAMES = re.compile(r"(?i)\b(?:author|editor)\s*=\s*[{\"](?P<names>(?:[^{}\"]|\{(?:[^{}]|\{[^{}]*\})*\})*)")
YEAR = re.compile(r"(?i)\b(?:year|date)\s*=\s*[{\"]?\s*(?P<year>\d{4}[a-z]?)")
TITLE = re.compile(r"(?i)\btitle\s*=\s*[{\"]+(?P<title>[^{}\"]+)")
ITEM = re.compile(r"\\bibitem(?:\[(?P<label>[^\[\]]*)\])?\{(?P<key>[^{}]+)\}")
MARKUP = re.compile(r"\\[\"'`^~=.]\s*|\\[A-Za-z]+\s*|[{}]")
FEW = 2
"""Most authors who are all named."""


def cited_works(tree: BookTree) -> dict[str, tuple[str, str]]:
    """Names and year of every work that a book can cite, by its key; the name may be the number of the work."""
    works = {}
    for name in tree.names():
        if name.lower().endswith((".tex", ".bbl")) and r"\bibitem" in (text := tree.text(name)):
            for place, item in enumerate(ITEM.finditer(text), 1):
                label = MARKUP.sub("", item["label"] or str(place))
                names, _, year = label.partition("(")
                works[item["key"].strip()] = (names.strip(), year.partition(")")[0])
    for name in tree.names():
        if name.lower().endswith(".bib"):
            for entry in ENTRY.finditer(tree.text(name)):
                if work := _work_of(entry["fields"]):
                    works.setdefault(entry["key"], work)
    return works


def _work_of(fields: str) -> tuple[str, str] | None:
    year, names, title = YEAR.search(fields), NAMES.search(fields), TITLE.search(fields)
    people = re.split(r"\s+and\s+", " ".join(names["names"].split())) if names else []
    # "Last, First", "First Last", or an organisation in braces.
    last = [
        MARKUP.sub(
            "",
            each
            if each.startswith("{") and each.endswith("}")
            else each.partition(",")[0]
            if "," in each
            else each.rpartition(" ")[2],
        )
        for each in people
    ]
    if last:
        joined = " and ".join(last) if len(last) <= FEW and last[-1] != "others" else f"{last[0]} et al."
    else:
        joined = MARKUP.sub("", title["title"]).strip() if title else ""
    return (joined, year["year"] if year else "") if joined else None


def citation_text(
    works: dict[str, tuple[str, str]], keys: Sequence[str], *, note: str = "", in_text: bool = False
) -> str:
    """Text of a citation: `(Euler, 1768, p. 3)`, or `Euler (1768)` in a sentence; a mark for an unknown key."""
    if unknown := [key for key in keys if key not in works]:
        return " ".join(map(unresolved, unknown))
    if in_text:
        return " and ".join(f"{names} ({year})" if year else names for names, year in map(works.__getitem__, keys))
    texts = [", ".join(filter(None, works[key])) for key in keys]
    joined = "; ".join([*texts[:-1], ", ".join(filter(None, (texts[-1], note)))])
    return f"[{joined}]" if all(works[key][0].isdecimal() for key in keys) else f"({joined})"
