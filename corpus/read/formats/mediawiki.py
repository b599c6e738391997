"""MediaWiki: wiki text, and exports of a wiki's pages, with what their templates show."""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from corpus.read.books.format import Format

PAGE = re.compile(r"(?m)^= [^=\n]+ =$")
SECTION = re.compile(r"(?m)^==+[^=\n].*==+\s*$")
REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
LITERAL = re.compile(r"(?is)<!--.*?-->|<(math|chem|nowiki|source|syntaxhighlight|pre)\b[^>]*>.*?</\1>")
GALLERY = re.compile(r"(?is)<gallery\b[^>]*>(.*?)</gallery>")
DRAWING = re.compile(r"(?is)<(?:timeline|graph|imagemap|score)\b[^>]*>.*?</\w+>")
"""Languages of drawings, which are no text."""
HELD = re.compile("\0(\\d+)\0")
"""Mark in the place of text that is put back as it was."""
TEMPLATE = re.compile(r"\{\{\s*([^{}|]*?)\s*(\|[^{}]*)?\}\}")
BAR = re.compile(r"\|(?![^\[\]]*\]\])")
"""A bar between arguments, none within a link."""
NAMED = re.compile(r"\s*[\w -]+=(?!=)")
FIRST = re.compile(r"\s*1\s*=")
SENTENCE = 5
"""Words from which the one argument of a template without meaning here is text: boxes, notes, asides."""
MAX_DEPTH = 12
"""Pages within pages, at most."""
SHOWN = {
    **dict.fromkeys(("math", "mvar", "var", "nowrap", "nobr", "tt", "code", "kbd", "small", "em", "strong"), "{0}"),
    **dict.fromkeys(("frac", "sfrac"), r"<math>\tfrac{{{0}}}{{{1}}}</math>"),
    **dict.fromkeys(("sqrt", "radic"), r"<math>\sqrt{{{0}}}</math>"),
    **dict.fromkeys(("convert", "cvt"), "{0} {1}"),
    **dict.fromkeys(("lang", "transl", "transliteration"), "{1}"),
    "sup": "<sup>{0}</sup>",
    "sub": "<sub>{0}</sub>",
    "abs": "|{0}|",
    "efn": "<ref>{0}</ref>",
    "=": "=",
    "!": "|",
}
"""Common templates: the part of their arguments that a reader sees."""


def pages(text: str) -> str:
    """The articles of an export one after the other, each below its title; wiki text as it is. Templates are shown."""
    if not text.lstrip().startswith("<mediawiki"):
        return _shown(text, {})
    texts: dict[str, str] = {}
    articles: list[str] = []
    for page in ElementTree.fromstring(text).iterfind(".//{*}page"):
        title, revisions = page.findtext("{*}title", ""), [each.text or "" for each in page.iterfind(".//{*}text")]
        texts[title] = revisions[-1] if revisions else ""
        if page.findtext("{*}ns", "0") == "0" and not REDIRECT.match(texts[title]):
            articles.append(title)
    return "\n\n".join(f"= {title} =\n\n{_shown(texts[title], texts)}" for title in articles)


def _shown(text: str, pages: Mapping[str, str], depth: int = 0) -> str:
    """Wiki text with pages where they are included and the text of templates; others stay, for pandoc to leave out."""
    held: list[str] = []

    def hold(literal: str) -> str:
        held.append(literal)
        return f"\0{len(held) - 1}\0"

    def show(found: re.Match[str]) -> str:
        page = pages.get(found[1].removeprefix(":")) if found[1].startswith(":") else None
        if page is not None and depth < MAX_DEPTH:
            return hold(_shown(page, pages, depth + 1))
        said = _said(found[1], BAR.split(found[2] or "")[1:])
        return hold(found[0]) if said is None else said

    text = DRAWING.sub(
        lambda found: hold(f"{{{{drawing|{found[0]}}}}}"), GALLERY.sub(_pictures, text.replace("\0", ""))
    )
    text = LITERAL.sub(lambda found: hold(found[0]), text)
    while TEMPLATE.search(text):
        text = TEMPLATE.sub(show, text)
    while HELD.search(text):
        text = HELD.sub(lambda found: held[int(found[1])], text)
    return text


def _pictures(gallery: re.Match[str]) -> str:
    """The pictures of a gallery, each on its own with its caption."""
    return "\n\n".join(f"[[{line.strip()}]]" for line in gallery[1].splitlines() if line.strip())


def _said(name: str, arguments: list[str]) -> str | None:
    """The part of a template's arguments that a reader sees; None where nobody knows."""
    given = [FIRST.sub("", each).strip() for each in arguments if FIRST.match(each) or not NAMED.match(each)]
    form = SHOWN.get(name[:1].lower() + name[1:])
    if form is None:
        given = given if given or len(arguments) != 1 else [NAMED.sub("", arguments[0]).strip()]
        return given[0] if len(given) == 1 and len(given[0].split()) >= SENTENCE else None
    try:
        return form.format(*given)
    except IndexError:
        return None


FORMATS = (Format(suffixes=(".mediawiki", ".wiki"), reader="mediawiki", prepare=pages, split=PAGE, finer=SECTION),)
