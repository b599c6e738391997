"""Markdeep: Markdown in a web page without tags, which a script of the page prints."""

import re
from collections.abc import Iterator

from corpus.read.books.format import Format
from corpus.read.formats.markdown import READER

CLAIM = re.compile(r"<!--\s*Markdeep\b|<script[^>]*markdeep(?:\.min)?\.js", re.IGNORECASE)
PAGE = re.compile(
    r"(?ims)(?P<code>^[ \t]*(?P<sign>[~`])(?P=sign){2,}.*?^[ \t]*(?P=sign){3,}[ \t]*$)"
    r"|<!--.*?-->|<(?P<tag>style|script)\b.*?</(?P=tag)\s*>|<(?:meta|link)\b[^>]*>|</?div\b[^>]*>|</?kbd>"
)
"""Parts of the page itself, but not in listings; its divisions keep print together and would end paragraphs."""
FENCE = re.compile(r"([ \t]*)([~`])\2{2,}[ \t]*(\S*)")
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]")
LISTING = re.compile(r"[ \t]*\[(?:Listing|Figure) \[([\w-]+)\]:[ \t]*(.*)\][ \t]*")
"""A caption with the name by which the text refers to it."""


def prepare(text: str) -> str:
    """Markdown without indentation save in lists, since nothing indented is code; fences that mark lines left out."""
    bare = PAGE.sub(lambda found: found["code"] or "", text)
    return "\n".join(_lines(bare.splitlines())) + "\n"


def _lines(lines: list[str]) -> Iterator[str]:
    margin, sign, in_list = 0, "", False
    for line in lines:
        found = FENCE.fullmatch(line.rstrip()) or FENCE.match(line)
        if sign:
            if not found or found[2] != sign:
                yield line[min(margin, len(line) - len(line.lstrip())) :]
            elif not found[3]:
                yield 3 * sign
                sign = ""
        elif found:
            margin, sign = len(found[1]), found[2]
            yield f"\n{3 * sign} {found[3]}".rstrip(" ")
        else:
            in_list = bool(ITEM.match(line)) or (in_list and line[:1] in ("", " ", "\t"))
            line = line if in_list else line.lstrip()
            listing = LISTING.fullmatch(line)
            yield f"\n{listing[2]}" if listing else line


FORMATS = (Format(suffixes=(".md.html",), reader=READER, claim=CLAIM, prepare=prepare),)
