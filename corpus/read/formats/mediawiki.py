"""MediaWiki text and exports of a wiki's pages, with common templates expanded."""

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
"""Elements in drawing languages, which are not text of the book."""
PLACEHOLDER = re.compile("\0(\\d+)\0")
"""Placeholder for text that is restored unchanged."""
TEMPLATE = re.compile(r"\{\{\s*([^{}|]*?)\s*(\|[^{}]*)?\}\}")
BAR = re.compile(r"\|(?![^\[\]]*\]\])")
"""A bar between arguments, not one within a link."""
NAMED = re.compile(r"\s*[\w -]+=(?!=)")
FIRST = re.compile(r"\s*1\s*=")
SENTENCE = 5
"""Least number of words for the single argument of an unknown template to be text, as in boxes, notes and asides."""
MAX_DEPTH = 12
"""Largest depth of pages that are included within pages."""
TEMPLATES = {
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
"""Common templates, with the wiki text that their arguments become."""


def prepare(text: str) -> str:
    """Expand the templates of wiki text; the articles of an XML export are joined, each below its title."""
    if not text.lstrip().startswith("<mediawiki"):
        return _expand(text, {})
    texts: dict[str, str] = {}
    articles: list[str] = []
    for page in ElementTree.fromstring(text).iterfind(".//{*}page"):
        title, revisions = page.findtext("{*}title", ""), [each.text or "" for each in page.iterfind(".//{*}text")]
        texts[title] = revisions[-1] if revisions else ""
        if page.findtext("{*}ns", "0") == "0" and not REDIRECT.match(texts[title]):
            articles.append(title)
    return "\n\n".join(f"= {title} =\n\n{_expand(texts[title], texts)}" for title in articles)


def _expand(text: str, pages: Mapping[str, str], depth: int = 0) -> str:
    """Expand included pages and known templates in wiki text; pandoc drops the other templates."""
    literals: list[str] = []

    def protect(literal: str) -> str:
        literals.append(literal)
        return f"\0{len(literals) - 1}\0"

    def expand_template(template: re.Match[str]) -> str:
        page = pages.get(template[1].removeprefix(":")) if template[1].startswith(":") else None
        if page is not None and depth < MAX_DEPTH:
            return protect(_expand(page, pages, depth + 1))
        visible = _template_text(template[1], BAR.split(template[2] or "")[1:])
        return protect(template[0]) if visible is None else visible

    def separate_pictures(gallery: re.Match[str]) -> str:
        return "\n\n".join(f"[[{line.strip()}]]" for line in gallery[1].splitlines() if line.strip())

    text = GALLERY.sub(separate_pictures, text.replace("\0", ""))
    text = DRAWING.sub(lambda drawing: protect(f"{{{{drawing|{drawing[0]}}}}}"), text)
    text = LITERAL.sub(lambda literal: protect(literal[0]), text)
    while TEMPLATE.search(text):
        text = TEMPLATE.sub(expand_template, text)
    while PLACEHOLDER.search(text):
        text = PLACEHOLDER.sub(lambda mark: literals[int(mark[1])], text)
    return text


def _template_text(name: str, arguments: list[str]) -> str | None:
    """Wiki text that a template prints, made from its arguments; None if that is unknown."""
    values = [FIRST.sub("", each).strip() for each in arguments if FIRST.match(each) or not NAMED.match(each)]
    form = TEMPLATES.get(name[:1].lower() + name[1:])
    if form is None:
        values = values if values or len(arguments) != 1 else [NAMED.sub("", arguments[0]).strip()]
        return values[0] if len(values) == 1 and len(values[0].split()) >= SENTENCE else None
    try:
        return form.format(*values)
    except IndexError:
        return None


FORMATS = (Format(suffixes=(".mediawiki", ".wiki"), reader="mediawiki", prepare=prepare, split=PAGE, finer=SECTION),)
