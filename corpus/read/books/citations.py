"""Works that a book cites: the author and year for each key, from its BibTeX files and its bibliography."""

import re

from corpus.read.books.format import BookTree
from corpus.read.doubt import unresolved

ENTRY = re.compile(
    r"(?im)^[ \t]*@(?!comment|string|preamble)\w+\s*[{(]\s*(?P<key>[^\s,]+)\s*,(?P<fields>(?s:.*?))(?=^[ \t]*@|\Z)"
)
NAMES = re.compile(r"(?i)\b(?:author|editor)\s*=\s*[{\"](?P<names>(?:[^{}\"]|\{(?:[^{}]|\{[^{}]*\})*\})*)")
YEAR = re.compile(r"(?i)\b(?:year|date)\s*=\s*[{\"]?\s*(?P<year>\d{4}[a-z]?)")
TITLE = re.compile(r"(?i)\btitle\s*=\s*[{\"]+(?P<title>[^{}\"]+)")
LAST = re.compile(r"^\{.*\}$|^[^,]*(?=,)|\S*$")
"""Last name in `Last, First` and `First Last`, or an organisation in braces."""
ITEM = re.compile(r"\\bibitem(?:\[(?P<label>[^\[\]]*)\])?\{(?P<key>[^{}]+)\}")
MARKUP = re.compile(r"\\[\"'`^~=.]\s*|\\[A-Za-z]+\s*|[{}]")
FEW = 2
"""Most authors who are all named."""


def cited_works(tree: BookTree) -> dict[str, tuple[str, str]]:
    """Names and year of every work that a book can cite, by its key; the name may be the number of the work."""
    works = {}
    for name in tree.names():
        if name.lower().endswith((".tex", ".bbl")):
            for place, item in enumerate(ITEM.finditer(tree.text(name)), 1):
                names, _, year = MARKUP.sub("", item["label"] or str(place)).partition("(")
                works[item["key"].strip()] = (names.strip(), year.partition(")")[0])
    for name in tree.names():
        for entry in ENTRY.finditer(tree.text(name)) if name.lower().endswith(".bib") else ():
            if work := _work_of(entry["fields"]):
                works.setdefault(entry["key"], work)
    return works


def _work_of(fields: str) -> tuple[str, str] | None:
    names, year, title = (match[1] if (match := each.search(fields)) else "" for each in (NAMES, YEAR, TITLE))
    last = [MARKUP.sub("", LAST.findall(each)[0]) for each in re.split(r"\s+and\s+", " ".join(names.split()))]
    joined = " and ".join(last) if len(last) <= FEW and last[-1] != "others" else f"{last[0]} et al."
    joined = joined if names else MARKUP.sub("", title).strip()
    return (joined, year) if joined else None


def citation_text(works: dict[str, tuple[str, str]], keys: str, *, note: str = "", in_text: bool = False) -> str:
    """Text of a citation: `(Euler, 1768, p. 3)`, or `Euler (1768)` in a sentence; a mark for an unknown key.

    `keys` are separated by commas.
    """
    names = [name for key in keys.split(",") if (name := key.strip())] or [""]
    if unknown := [name for name in names if name not in works]:
        return " ".join(map(unresolved, unknown))
    cited = [works[name] for name in names]
    if in_text:
        return " and ".join(f"{people} ({year})" if year else people for people, year in cited)
    joined = "; ".join(", ".join(filter(None, work)) for work in cited) + (f", {note}" if note else "")
    return f"[{joined}]" if all(people.isdecimal() for people, _ in cited) else f"({joined})"
