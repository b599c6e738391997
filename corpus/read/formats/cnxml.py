"""OpenStax books: CNXML modules in the order of their collection, as HTML whose MathML pandoc turns into LaTeX."""

import html
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from corpus.read.books.format import Format, Layout, Part, Tree

COLLECTION = ".collection.xml"
MATH = "{http://www.w3.org/1998/Math/MathML}"
# Element of CNXML to the elements of HTML around its content.
TAGS = {
    "para": "p", "item": "li", "row": "tr", "thead": "thead", "tbody": "tbody", "quote": "blockquote", "sup": "sup",
    "sub": "sub", "term": "strong", "definition": "div", "meaning": "p", "foreign": "em", "cite": "em",
    "preformat": "pre", "cite-title": "em", "caption": "caption", "note": "div", "section": "div", "equation": "div",
}  # fmt: skip
COUNTED = {"figure": "Figure", "table": "Table", "example": "Example", "equation": "Equation"}
SIGNS = re.compile(r"[\s\u2212+=<>\u00b1\u00d7\u2264\u2265.,;:()]+")
BOXES = {
    "example": "Example",
    "exercise": "Exercise",
    "solution": "Solution",
    "proof": "Proof",
    "commentary": "Comment",
}
"""Boxes that begin with their name where they have no title of their own."""
LEFT_OUT = frozenset({"metadata", "label", "image", "colspec", "iframe", "footnote-ref"})
EMPHASIS = {"bold": "strong", "italics": "em", "underline": "u", "smallcaps": "span", "normal": "span"}
DEEPEST = 200
"""Elements within elements that are followed."""


def _layouts(tree: Tree) -> list[Layout]:
    """One book per collection file, its chapters' titles above their modules."""
    made = []
    for name in tree.names():
        if name.endswith(COLLECTION):
            top = posixpath.dirname(posixpath.dirname(name))
            content = ElementTree.fromstring(tree.text(name)).find("{*}content")
            parts = list(_parts(tree, content, top, 0)) if content is not None else []
            if any(part.name for part in parts):
                made.append(Layout(root=name, parts=parts, base=top))
    return made


def _parts(tree: Tree, content: Element, top: str, depth: int) -> Iterator[Part]:
    for each in content:
        kind = each.tag.rpartition("}")[2]
        if kind == "module":
            name = posixpath.join(top, "modules", each.get("document", ""), "index.cnxml")
            if tree.text(name):
                yield Part(name=name, depth=depth)
        elif kind == "subcollection":
            title = next((found.text or "" for found in each if found.tag.endswith("}title")), "")
            inner = each.find("{*}content")
            yield Part(title=title, depth=depth)
            yield from _parts(tree, inner, top, depth + 1) if inner is not None else ()


def prepare(text: str) -> str:
    """A module as HTML."""
    document = ElementTree.fromstring(text)
    _number(document)
    title = document.findtext("{*}title") or document.findtext(".//{*}title") or ""
    content, glossary = document.find("{*}content"), document.find("{*}glossary")
    body = _inner(content, 2, 0) if content is not None else ""
    words = f"<h2>Glossary</h2>{_inner(glossary, 3, 0)}" if glossary is not None else ""
    return f"<html><body><h1>{html.escape(title)}</h1>{body}{words}</body></html>"


def _number(document: Element) -> None:
    """Gives every figure, table, example and equation its number in the module, and every link its target's."""
    counts: Counter[str] = Counter()
    names = {}
    for each in document.iter():
        kind = each.tag.rpartition("}")[2] if isinstance(each.tag, str) else ""
        if kind in COUNTED and "unnumbered" not in each.get("class", ""):
            counts[kind] += 1
            names[each.get("id", "")] = f"{COUNTED[kind]} {counts[kind]}"
            each.set("named", names[each.get("id", "")])
    for equation in document.iterfind(".//{*}equation"):
        for formula in equation.iter(f"{MATH}math"):
            formula.set("display", "block")
    for link in document.iterfind(".//{*}link"):
        if not len(link) and not (link.text or "").strip() and not link.get("url", "").startswith("#"):
            link.text = names.get(link.get("target-id", ""), "the linked section")


def _inner(element: Element, level: int, depth: int) -> str:
    if depth > DEEPEST:
        raise RecursionError(f"elements more than {DEEPEST} deep")
    parts = [html.escape(element.text or "")]
    for each in element:
        if each.tag == element.tag.replace("section", "title") and each.tag != element.tag:
            parts.append(f"<h{level - 1}>{_inner(each, level, depth + 1)}</h{level - 1}>{html.escape(each.tail or '')}")
            continue
        parts += [_one(each, level, depth + 1), html.escape(each.tail or "")]
    return "".join(parts)


def _one(element: Element, level: int, depth: int) -> str:
    kind = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else "metadata"
    if isinstance(element.tag, str) and element.tag.startswith(MATH):
        return _formula(element)
    if kind == "media":
        return f'<img src="figure" alt="{html.escape(element.get("alt", ""), quote=True)}"/>'
    if kind in LEFT_OUT:
        return ""
    inner = _inner(element, min(level + (kind == "section"), 6), depth)
    if kind in TAGS:
        return f"<{TAGS[kind]}>{inner}</{TAGS[kind]}>"
    if kind == "title":
        return f"<p><strong>{inner}</strong></p>"
    if kind == "exercise" and not re.search(r"[^\W_]|<(?:math|img)\b", re.sub("</?(?!math|img)[^>]*>", "", inner)):
        # Its text is kept in a bank of exercises.
        return ""
    if kind in BOXES and element.find("{*}title") is None:
        return f"<div><p><strong>{element.get('named') or BOXES[kind]}</strong></p>{inner}</div>"
    return _special(element, kind, inner)


NUMBERING = {"lower-alpha": "a", "upper-alpha": "A", "lower-roman": "i", "upper-roman": "I"}
"""Signs of an item by CNXML's name of them, as HTML has it."""


def _special(element: Element, kind: str, inner: str) -> str:
    """Elements whose HTML depends on their attributes."""
    if kind == "list":
        if element.get("list-type") != "enumerated":
            return f"<ul>{inner}</ul>"
        return f'<ol type="{NUMBERING.get(element.get("number-style", ""), "1")}">{inner}</ol>'
    if kind == "entry":
        cell = "th" if element.get("role") == "head" else "td"
        first, last = (element.get(name, "").removeprefix("col").removeprefix("c") for name in ("namest", "nameend"))
        span = int(last) - int(first) + 1 if first.isdecimal() and last.isdecimal() else 1
        return f'<{cell} colspan="{max(span, 1)}">{inner}</{cell}>'
    if kind == "table":
        named = f"<p><strong>{element.get('named')}</strong></p>" if element.get("named") else ""
        return f"{named}<table>{inner}</table>"
    if kind == "emphasis":
        tag = EMPHASIS.get(element.get("effect", "bold"), "em")
        return f"<{tag}>{inner}</{tag}>"
    if kind == "figure":
        named = f"<strong>{element.get('named')}</strong> " if element.get("named") else ""
        return f"<div>{inner.replace('<caption>', '<p>' + named, 1).replace('</caption>', '</p>', 1)}</div>"
    if kind == "code":
        block = element.get("display") == "block" or "\n" in inner.strip()
        return f"<pre><code>{inner}</code></pre>" if block else f"<code>{inner}</code>"
    if kind == "newline":
        return "<br/>"
    return f"<div>{inner}</div>" if kind == "example" else inner


def _formula(element: Element) -> str:
    """MathML in the default namespace, as HTML has it."""
    copied = deepcopy(element)
    copied.tail = None
    for each in copied.iter():
        each.tag = each.tag.rpartition("}")[2]
        # Authors write operators as text.
        if each.tag == "mtext" and each.text and each.text.strip() and SIGNS.fullmatch(each.text):
            each.tag = "mo"
    return ElementTree.tostring(copied, encoding="unicode")


FORMATS = (
    Format(suffixes=(".cnxml",), reader="html", prepare=prepare),
    Format(suffixes=(COLLECTION,), reader="html", layouts=_layouts),
)
