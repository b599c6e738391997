"""Jupyter notebooks: text and code cells with their printed output, without pictures and HTML tables."""

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from corpus.read.books.format import Format
from corpus.read.books.order import order_by_numbers
from corpus.read.formats.markdown import READER, prepare_markdown

SUFFIXES = (".ipynb",)
OUTPUT_CHARS = 2000
"""Longest printed output that is included in the Markdown, characters."""
OBJECTS = re.compile(r"\[?(?:<\w+(?:\.\w+)+\b[^<>\n]*>[,\s]*)+\]?")
"""Names of Python objects, printed in place of a picture or a page."""

FORMULA = re.compile(r"(?s)\$+(?:\s*\\displaystyle)?(?P<inner>[^$]+)\$+")
"""A result that is one formula."""
ATTACHMENT = re.compile(r"!\[[^\]\n]*\]\(attachment:[^)\n]*\)")
PLACEHOLDER = re.compile(
    r"(?i)\s*(?:#+[ \t]*(?:(?:put|write|enter|insert|add)[ \t]+)?(?:your[ \t]+)?(?:code|solution|answer)"
    r"(?:[ \t]+goes)?[ \t]+here[ \t.!:]*(?:\n\s*|$))*"
)
"""A cell for the reader's own code; it may be empty."""


def prepare(text: str) -> str:
    """Turn a notebook (JSON) into Markdown: no pictures, tracebacks, long outputs or cells for the reader's code."""
    book = json.loads(text)
    language = (book.get("metadata") or {}).get("language_info", {}).get("name") or "python"
    return "\n\n".join(part for cell in book.get("cells") or [] for part in _cell_parts(cell, language))


def _cell_parts(cell: dict[str, Any], language: str) -> Iterator[str]:
    """Yield a cell's text, or its code and its outputs, in Markdown."""
    source = _text_of(cell.get("source"))
    tags = {tag.replace("_", "-") for tag in (cell.get("metadata") or {}).get("tags") or []}
    if "remove-cell" in tags:
        yield _fence(source, "{=hidden}")
    elif cell.get("cell_type") == "markdown":
        yield prepare_markdown(ATTACHMENT.sub("", source))
    elif cell.get("cell_type") == "code" and not PLACEHOLDER.fullmatch(source):
        yield _fence(source, "{=hidden}" if "remove-input" in tags else language)
        outputs = () if "remove-output" in tags else cell.get("outputs") or ()
        yield from filter(None, map(_output_text, outputs))


def _output_text(output: dict[str, Any]) -> str:
    """A cell's output in Markdown; empty if it has no text, or too much."""
    kind = output.get("output_type")
    if kind == "stream":
        printed = _text_of(output.get("text"))
        return _fence(printed, "text") if output.get("name") == "stdout" and len(printed) <= OUTPUT_CHARS else ""
    data = output.get("data") or {}
    if kind not in ("execute_result", "display_data") or {"image/png", "image/svg+xml", "image/jpeg"} & data.keys():
        return ""
    forms = {form: content for form, value in data.items() if len(content := _text_of(value)) <= OUTPUT_CHARS}
    # Prefer the formula to the output for a terminal.
    if formula := FORMULA.fullmatch(forms.get("text/latex", "").strip()):
        return f"$${formula['inner'].strip()}$$"
    if "text/markdown" in forms:
        return prepare_markdown(forms["text/markdown"])
    plain = forms.get("text/plain", "")
    return "" if not plain.strip() or OBJECTS.fullmatch(plain.strip()) else _fence(plain, "text")


def _fence(text: str, language: str) -> str:
    """A listing that no line of its text ends."""
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence} {language}\n{text.strip(chr(10))}\n{fence}"


def _text_of(text: Any) -> str:
    """Text of a notebook's field, which is stored as one string or as a list of lines."""
    return text if isinstance(text, str) else "".join(text or [])


FORMATS = (
    Format(
        suffixes=SUFFIXES,
        reader=f"{READER}-yaml_metadata_block-smart",
        prepare=prepare,
        layouts=partial(order_by_numbers, suffixes=SUFFIXES),
    ),
)
