"""OpenStax books: CNXML modules in the order of their collection, converted to HTML with MathML for pandoc."""

import html
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from corpus.read.books.format import BookLayout, BookPart, BookTree, Format

COLLECTION = ".collection.xml"
MATH = "{http://www.w3.org/1998/Math/MathML}"
# HTML element for each CNXML element.
TAGS = {
    "para": "p", "item": "li", "row": "tr", "thead": "thead", "tbody": "tbody", "quote": "blockquote", "sup": "sup",
    "sub": "sub", "term": "strong", "definition": "div", "meaning": "p", "foreign": "em", "cite": "em",
    "preformat": "pre", "cite-title": "em", "caption": "caption", "note": "div", "section": "div", "equation": "div",
}  # fmt: skip
COUNTED = {"figure": "Figure", "table": "Table", "example": "Example", "equation": "Equation"}
NUMBER = "kind-and-number"
"""Attribute that stores an element's kind and number, such as `Figure 2`."""
SIGNS = re.compile(r"[\s\u2212+=<>\u00b1\u00d7\u2264\u2265.,;:()]+")
BOXES = {each: each.capitalize() for each in ("example", "exercise", "solution", "proof")} | {"commentary": "Comment"}
"""Boxes that begin with the name of their kind if they have no title."""
LEFT_OUT = frozenset({"metadata", "label", "image", "colspec", "iframe", "footnote-ref"})
EMPHASIS = {"bold": "strong", "italics": "em", "underline": "u", "smallcaps": "span", "normal": "span"}
DEEPEST = 200
"""Nesting depth of elements above which a module is rejected."""


def _find_layouts(tree: BookTree) -> list[BookLayout]:
    """Find the books of a tree: one per collection file, with the titles of its chapters above their modules."""
    layouts = []
    for name in tree.names():
        if name.endswith(COLLECTION):
            top = posixpath.dirname(posixpath.dirname(name))
            content = ElementTree.fromstring(tree.text(name)).find("{*}content")
            parts = list(_parts(tree, content, top, 0)) if content is not None else []
            if any(part.name for part in parts):
                layouts.append(BookLayout(root=name, parts=parts, base=top))
    return layouts


def _parts(tree: BookTree, content: Element, top: str, depth: int) -> Iterator[BookPart]:
    for child in content:
        kind = child.tag.rpartition("}")[2]
        if kind == "module":
            name = posixpath.join(top, "modules", child.get("document", ""), "index.cnxml")
            if tree.text(name):
                yield BookPart(name=name, depth=depth)
        elif kind == "subcollection":
            title = next((item.text or "" for item in child if item.tag.endswith("}title")), "")
            inner = child.find("{*}content")
            yield BookPart(title=title, depth=depth)
            yield from _parts(tree, inner, top, depth + 1) if inner is not None else ()


def prepare(text: str) -> str:
    """Convert a CNXML module to HTML."""
    document = ElementTree.fromstring(text)
    _number_elements(document)
    title = document.findtext("{*}title") or document.findtext(".//{*}title") or ""
    content, glossary = document.find("{*}content"), document.find("{*}glossary")
    body = _inner_html(content, 2, 0) if content is not None else ""
    terms = f"<h2>Glossary</h2>{_inner_html(glossary, 3, 0)}" if glossary is not None else ""
    return f"<html><body><h1>{html.escape(title)}</h1>{body}{terms}</body></html>"


def _number_elements(document: Element) -> None:
    """Number the figures, tables, examples and equations of a module, and name their numbers in links without text."""
    counts: Counter[str] = Counter()
    names = {}
    for child in document.iter():
        kind = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else ""
        if kind in COUNTED and "unnumbered" not in child.get("class", ""):
            counts[kind] += 1
            names[child.get("id", "")] = f"{COUNTED[kind]} {counts[kind]}"
            child.set(NUMBER, names[child.get("id", "")])
    for equation in document.iterfind(".//{*}equation"):
        for formula in equation.iter(f"{MATH}math"):
            formula.set("display", "block")
    for link in document.iterfind(".//{*}link"):
        if not len(link) and not (link.text or "").strip() and not link.get("url", "").startswith("#"):
            link.text = names.get(link.get("target-id", ""), "the linked section")


def _inner_html(element: Element, level: int, depth: int) -> str:
    """HTML of an element's content; `level` is the heading level of its sections' titles."""
    if depth > DEEPEST:
        raise RecursionError(f"elements more than {DEEPEST} deep")
    parts = [html.escape(element.text or "")]
    for child in element:
        if child.tag == element.tag.replace("section", "title") and child.tag != element.tag:
            title = _inner_html(child, level, depth + 1)
            parts.append(f"<h{level - 1}>{title}</h{level - 1}>{html.escape(child.tail or '')}")
            continue
        parts += [_element_html(child, level, depth + 1), html.escape(child.tail or "")]
    return "".join(parts)


def _lines(formula: Element) -> list[Element]:
    """The lines of a formula; pandoc would run them together."""
    lines = [ElementTree.Element(formula.tag, formula.attrib)]
    for child in formula:
        if child.tag == "mspace" and child.get("linebreak") == "newline":
            lines.append(ElementTree.Element(formula.tag, formula.attrib))
        else:
            lines[-1].append(child)
    return [line for line in lines if len(line)] if len(lines) > 1 else [formula]


def _element_html(element: Element, level: int, depth: int) -> str:
    kind = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else "metadata"
    if isinstance(element.tag, str) and element.tag.startswith(MATH):
        # Remove the namespace from MathML, as HTML requires.
        formula = deepcopy(element)
        formula.tail = None
        for child in formula.iter():
            child.tag = child.tag.rpartition("}")[2]
            # Authors write operators as text; turn these into operators.
            if child.tag == "mtext" and child.text and child.text.strip() and SIGNS.fullmatch(child.text):
                child.tag = "mo"
        return "<br/>".join(ElementTree.tostring(line, encoding="unicode") for line in _lines(formula))
    if kind == "media":
        return f'<img src="figure" alt="{html.escape(element.get("alt", ""), quote=True)}"/>'
    if kind in LEFT_OUT:
        return ""
    inner = _inner_html(element, min(level + (kind == "section"), 6), depth)
    if kind in TAGS:
        return f"<{TAGS[kind]}>{inner}</{TAGS[kind]}>"
    if kind == "title":
        return f"<p><strong>{inner}</strong></p>"
    if kind == "exercise" and not re.search(r"[^\W_]|<(?:math|img)\b", re.sub("</?(?!math|img)[^>]*>", "", inner)):
        # Omit an exercise without text, which is in a separate bank of exercises.
        return ""
    if kind in BOXES and element.find("{*}title") is None:
        return f'<div class="{kind}"><p><strong>{element.get(NUMBER) or BOXES[kind]}</strong></p>{inner}</div>'
    return _html_by_attributes(element, kind, inner)


NUMBERING = {"lower-alpha": "a", "upper-alpha": "A", "lower-roman": "i", "upper-roman": "I"}
"""Type of an ordered list in HTML, by CNXML's number style."""


def _html_by_attributes(element: Element, kind: str, inner: str) -> str:
    """HTML of an element whose conversion depends on its attributes, such as a list or a table cell."""
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
        number = f"<p><strong>{element.get(NUMBER)}</strong></p>" if element.get(NUMBER) else ""
        return f"{number}<table>{inner}</table>"
    if kind == "emphasis":
        tag = EMPHASIS.get(element.get("effect", "bold"), "em")
        return f"<{tag}>{inner}</{tag}>"
    if kind == "figure":
        number = f"<strong>{element.get(NUMBER)}</strong> " if element.get(NUMBER) else ""
        return f"<div>{inner.replace('<caption>', '<p>' + number, 1).replace('</caption>', '</p>', 1)}</div>"
    if kind == "code":
        block = element.get("display") == "block" or "\n" in inner.strip()
        return f"<pre><code>{inner}</code></pre>" if block else f"<code>{inner}</code>"
    if kind == "newline":
        return "<br/>"
    return f"<div>{inner}</div>" if kind == "example" else inner


FORMATS = (
    Format(suffixes=(".cnxml",), reader="html", prepare=prepare),
    Format(suffixes=(COLLECTION,), reader="html", layouts=_find_layouts),
)
