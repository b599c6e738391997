"""References within a book: titles of its files, sections, figures and tables, by the names that others use."""

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

from corpus.read.books.citations import citation_text, cited_works
from corpus.read.books.format import BookTree
from corpus.read.books.order import resolve_name
from corpus.read.doubt import unresolved

Learn = Callable[[str], Iterator[tuple[str, str]]]
"""Yields the names in a file that others may refer to, each with its title; the file's own title has the name ''."""
Resolve = Callable[[str, "Targets"], str]
"""Replaces the references in a file's text."""
ROLES = {"rfc": "RFC {}", "pep": "PEP {}", "cve": "CVE-{}", "cwe": "CWE-{}", "pypi": "{}", "manpage": "{}", "man": "{}"}
"""Text of roles of Sphinx that name a document elsewhere."""
PROSE = frozenset({"abbr", "dfn", "emphasis", "guilabel", "menuselection", "strong", "term", "title", "sub", "sup"})
TARGETED = re.compile(r"(?s)(?P<text>.*?)\s*(?<!\\)<(?P<target>[^<>]+)>")
SENTENCE = re.compile(r"(?<=\w{2})\.\s+(?=[A-Z])")
"""End of the first sentence of a caption."""
SUFFIXES = (".rst", ".rest", ".md", ".myst", ".ipynb", ".adoc", ".asciidoc", ".asc", ".txt")


class Targets:
    """Targets of the references of one file."""

    def __init__(self, tree: "ResolvedTree", name: str) -> None:
        self.tree, self.name = tree, name

    def title(self, label: str) -> str:
        """Title of what a label names; a mark for an unknown one, or one without a title."""
        return self.tree.titles.get(_key(label)) or unresolved(label)

    def document(self, path: str) -> str:
        """Title of a file of the book; a mark for an unknown one."""
        file = resolve_name(self.tree, self.name, path, SUFFIXES)
        return self.tree.titles.get(f"{file}:") or unresolved(path)

    def role(self, name: str, text: str) -> str | None:
        """Text of a role of Sphinx as it is printed; None for a role that this module does not know."""
        if name.startswith(("cite", "footcite")):
            return citation_text(self.tree.works, text, in_text=name.endswith(("t", "ts")))
        split = TARGETED.fullmatch(text)
        words, target = (split["text"], split["target"]) if split else ("", text)
        kind = name.rpartition(":")[2].lower()
        if kind in ("ref", "numref", "any", "eq") or name == "prf:ref":
            words = re.sub(r"\s*(?:%s|\{number\}|\{name\})", "", words)
            title = self.title(target)
            is_caption = kind == "numref" and title[:1] not in "[(" and not title.isdecimal()
            title = f"“{SENTENCE.split(title)[0].rstrip('.,')}”" if is_caption else title
            return f"{words} {title}" if kind == "numref" and words else words or title
        if kind == "doc":
            return words or self.document(target)
        if kind in ROLES:
            return words or ROLES[kind].format(target.partition("#")[0])
        if kind in PROSE:
            return words or target
        if kind in self.tree.external_links:
            return words or self.tree.external_links[kind].replace("%s", target)
        if words:
            return words
        return f"{kind.upper() if len(kind) < 5 else kind} {text}" if text.lstrip("#").isdecimal() else None


class ResolvedTree:
    """View of a tree in which references are the titles of what they refer to."""

    def __init__(self, tree: BookTree, suffixes: Sequence[str], learn: Learn, resolve: Resolve) -> None:
        self._tree, self._suffixes, self._learn, self._resolve = tree, tuple(suffixes), learn, resolve

    def names(self) -> Sequence[str]:
        """Paths of all files."""
        return self._tree.names()

    def text(self, name: str) -> str:
        """A file's text with its references resolved."""
        text = self._tree.text(name)
        return self._resolve(text, Targets(self, name)) if name.lower().endswith(self._suffixes) else text

    @cached_property
    def titles(self) -> dict[str, str]:
        """Titles by label, and of files by their path with a colon."""
        titles: dict[str, str] = {}
        for name in self._tree.names():
            if name.lower().endswith(self._suffixes):
                for label, title in self._learn(self._tree.text(name)):
                    titles.setdefault(_key(label) if label else f"{name}:", title)
        return titles

    @cached_property
    def works(self) -> dict[str, tuple[str, str]]:
        """Works that the book cites, by key."""
        return cited_works(self._tree)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Values of the book's `conf.py` that are literals."""
        values: dict[str, Any] = {}
        for name in self._tree.names():
            with suppress(SyntaxError, ValueError, RecursionError):
                for each in ast.parse(self._tree.text(name)).body if posixpath.basename(name) == "conf.py" else ():
                    if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                        with suppress(ValueError, TypeError, RecursionError):
                            values.setdefault(each.targets[0].id, ast.literal_eval(each.value))
        return values

    @cached_property
    def external_links(self) -> dict[str, str]:
        """Captions of the roles that `conf.py` defines for links, with `%s` for the target."""
        links = self.settings.get("extlinks")
        pairs = links.items() if isinstance(links, dict) else ()
        return {
            key.lower(): str(value[1] or "%s") for key, value in pairs if isinstance(value, tuple) and len(value) > 1
        }


def _key(label: str) -> str:
    return " ".join(label.lower().split())


def resolving(suffixes: Sequence[str], learn: Learn, resolve: Resolve) -> Callable[[BookTree], BookTree]:
    """View of a format whose files have references: `learn` finds their targets, `resolve` replaces them."""
    return lru_cache(maxsize=2)(lambda tree: ResolvedTree(tree, suffixes, learn, resolve))
