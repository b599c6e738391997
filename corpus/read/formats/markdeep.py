"""Markdeep documents: web pages with Markdown that a script on the page renders."""

import re
from collections.abc import Iterator

from corpus.read.books.format import Format
from corpus.read.formats.markdown import READER

CLAIM = re.compile(r"<!--\s*Markdeep\b|<script[^>]*markdeep(?:\.min)?\.js", re.IGNORECASE)
PAGE = re.compile(
    r"(?ims)(?P<code>^[ \t]*(?P<sign>[~`])(?P=sign){2,}.*?^[ \t]*(?P=sign){3,}[ \t]*$)"
    r"|<!--.*?-->|<(?P<tag>style|script)\b.*?</(?P=tag)\s*>|<(?:meta|link)\b[^>]*>|</?div\b[^>]*>|</?kbd>"
)
"""HTML markup of the page itself, outside listings; `div` tags would end paragraphs."""
FENCE = re.compile(r"([ \t]*)([~`])\2{2,}[ \t]*(\S*)")
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]")
LISTING = re.compile(r"[ \t]*\[(?:Listing|Figure) \[([\w-]+)\]:[ \t]*(.*)\][ \t]*")
"""A caption with the label by which the text refers to it."""


def prepare(text: str) -> str:
    """Convert Markdeep to plain Markdown: remove HTML, and indentation outside lists, which does not mean code."""
    bare = PAGE.sub(lambda part: part["code"] or "", text)
    return "\n".join(_plain_lines(bare.splitlines())) + "\n"


def _plain_lines(lines: list[str]) -> Iterator[str]:
    """Yield lines without indentation, with standard fences and captions; fences that only highlight are left out."""
    margin, sign, in_list = 0, "", False
    for line in lines:
        fence = FENCE.fullmatch(line.rstrip()) or FENCE.match(line)
        if sign:
            if not fence or fence[2] != sign:
                yield line[min(margin, len(line) - len(line.lstrip())) :]
            elif not fence[3]:
                yield 3 * sign
                sign = ""
        elif fence:
            margin, sign = len(fence[1]), fence[2]
            yield f"\n{3 * sign} {fence[3]}".rstrip(" ")
        else:
            in_list = bool(ITEM.match(line)) or (in_list and line[:1] in ("", " ", "\t"))
            line = line if in_list else line.lstrip()
            listing = LISTING.fullmatch(line)
            yield f"\n{listing[2]}" if listing else line


FORMATS = (Format(suffixes=(".md.html",), reader=READER, claim=CLAIM, prepare=prepare),)
