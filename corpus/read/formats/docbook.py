"""DocBook books: the main file with its entities, and with the files that entities and inclusions name."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from corpus.read.books.format import BookTree, Format
from corpus.read.books.order import order_by_inclusion
from corpus.read.books.references import ResolvedTree, Targets
from corpus.read.books.tree import MAX_FILE_BYTES
from corpus.read.doubt import unresolved
from infuser_core.errors import DocumentError

SUFFIXES = (".docbook", ".dbk", ".xml")
XML = (*SUFFIXES, ".ent", ".mod", ".dtd")
"""Files of a DocBook book that may define entities."""
XINCLUDE = re.compile(
    r"""<(?:\w+:)?include\b[^>]*?\bhref=["'](?P<name>[^"']*)["'][^>]*?(?:/>|>.*?</(?:\w+:)?include\s*>)""", re.DOTALL
)
ENTITY = re.compile(
    r"""<!ENTITY\s+(?P<name>[\w.-]+)\s+(?:(?P<outer>SYSTEM|PUBLIC\s+(?:"[^"]*"|'[^']*'))\s+)?(?:"(?P<text>[^"]*)"|'(?P<other>[^']*)')"""
)
"""Definition of an entity: a text, or the name of a file."""
HEAD = re.compile(r"<\?xml\b[^>]*\?>|<!DOCTYPE\b[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
REFERENCE = re.compile(r"&(?P<name>[A-Za-z_][\w.-]*);")
INDEX = re.compile(r"(?s)<indexterm\b[^>]*(?:/>|>.*?</indexterm\s*>)")
"""A term of the index, which prints nothing; between paragraphs pandoc takes it for text."""
ROOT = re.compile(r"(?s)(?:\s|<\?.*?\?>)*<(?P<name>[\w:.-]+)")
ELEMENT = re.compile(
    r"(?:\w+:)?(?:set|book|part|article|preface|chapter|appendix|sect(?:ion|[1-5])|simplesect|topic|reference|refentry"
    r"|bibliography|glossary|index|dedication|acknowledgements|colophon|qandaset|revhistory|\w*info)"
)
"""Names of the elements of DocBook that a file may have as its root."""
UNPARSED = re.compile(r"(?s)<!\[CDATA\[(?P<text>.*?)\]\]>|<!--.*?-->")
"""Text without markup, or a comment: neither has entities or inclusions."""
XREF = re.compile(r"""<xref\b(?![^>]*\bendterm=)[^>]*?\blinkend=["'](?P<id>[^"']+)["'][^>]*?(?:/>|>\s*</xref\s*>)""")
"""A reference without text; pandoc knows the titles of few of the elements to which it may refer."""
TARGET = re.compile(
    r"""(?s)<\w+\b(?=[^>]*?\bid=["'](?P<id>[^"']+)["'])(?=(?:[^>]*?\bxreflabel=["'](?P<label>[^"']*)["'])?)[^>]*>\s*"""
    r"""(?:(?:<(?P<head>\w*info|func\w+)\b(?:(?!</(?P=head)).)*?)?"""
    r"""<(?P<kind>title|term|glossterm|command|function)\b[^>]*>(?P<title>.*?)</(?P=kind)\s*>)?"""
)
"""An element with an identifier, and its label or title."""
WORD, TAG = re.compile(r"[A-Za-z][\w-]*"), re.compile(r"<[^<>]*>")
MAX_ENTITY_DEPTH = 8
"""Largest depth of entities within entities; stops those that contain themselves."""


class _WholeTree:
    """View of a tree in which DocBook's entities are texts, or inclusions of the files that they name."""

    def __init__(self, tree: BookTree) -> None:
        self._tree = tree
        self._entities: dict[str, str] = {}
        for name in tree.names():
            for match in ENTITY.finditer(self._source(name)) if name.lower().endswith(XML) else ():
                text = match["text"] if match["text"] is not None else match["other"]
                self._entities.setdefault(match["name"], f'<xi:include href="{text}"/>' if match["outer"] else text)

    def names(self) -> Sequence[str]:
        """Paths of all files."""
        return self._tree.names()

    def text(self, name: str) -> str:
        """A file's text: a part of the book without its head and with its entities, or the text of a listing.

        Raises DocumentError for entities that expand to more than a file may have.
        """
        text = self._source(name)
        if not text.lstrip().startswith("<"):
            return html.escape(text, quote=False)
        text = HEAD.sub("", text)
        for _ in range(MAX_ENTITY_DEPTH):
            # Before the expansion: ten entities in each of eight others make gigabytes of a few lines.
            size = len(text) + sum(len(self._entities.get(each["name"], "")) for each in REFERENCE.finditer(text))
            if size > MAX_FILE_BYTES:
                raise DocumentError(
                    f"{name}: entities expand to more than {MAX_FILE_BYTES} characters", hint="expand them with xmllint"
                )
            text = REFERENCE.sub(lambda reference: self._entities.get(reference["name"], reference[0]), text)
        return INDEX.sub("", REFERENCE.sub(self._entity_text, text))

    def _source(self, name: str) -> str:
        """A file's text; if it is XML, without comments, and with its unparsed text escaped."""
        text = self._tree.text(name)
        is_xml = text.lstrip().startswith("<") or name.lower().endswith(XML)
        return UNPARSED.sub(lambda part: html.escape(part["text"] or "", quote=False), text) if is_xml else text

    def _entity_text(self, reference: re.Match[str]) -> str:
        """The character that HTML names like an entity; for another one its name as the book writes it, or a mark.

        Names of products, keys and abbreviations are defined by the program that typesets the book.
        """
        if html.unescape(reference[0]) != reference[0]:
            return reference[0]
        name = reference["name"]
        return name if not name.islower() else self._spellings.get(name) or unresolved(name)

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """The most frequent spelling with a capital of every word that has one, by its small letters."""
        words = Counter[str]()
        for name in self._tree.names():
            if name.lower().endswith(SUFFIXES):
                words.update(WORD.findall(REFERENCE.sub("", TAG.sub(" ", self._source(name)))))
        return {word.lower(): word for word, _ in reversed(words.most_common()) if word != word.lower()}


def find_titles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the identifiers of a text's elements, each with the element's label or title as it is written."""
    for element in TARGET.finditer(text):
        if title := element["label"] or element["title"]:
            yield element["id"], title.strip()


def resolve(text: str, targets: Targets) -> str:
    """Replace the references without text by the titles of their targets."""
    return XREF.sub(lambda reference: targets.title(reference["id"]), text)


@lru_cache(maxsize=2)
def view(tree: BookTree) -> BookTree:
    """View of a tree in which entities and references are texts."""
    return ResolvedTree(_WholeTree(tree), SUFFIXES, find_titles, resolve)


def prepare(text: str) -> str:
    """The text, which begins with an element of DocBook; raises ValueError for any other XML."""
    root = ROOT.match(text)
    if root and not ELEMENT.fullmatch(root["name"]):
        raise ValueError(f"the root element {root['name']} is not DocBook's")
    return text


FORMATS = (
    Format(
        suffixes=SUFFIXES,
        reader="docbook",
        include=XINCLUDE,
        view=view,
        prepare=prepare,
        layouts=lambda tree: order_by_inclusion(view(tree), SUFFIXES, XINCLUDE),
    ),
)
