"""Jupyter notebooks: text and code cells with their printed output, without pictures and HTML tables."""

import json
import re
from functools import partial
from typing import Any

from corpus.read.books.format import Format
from corpus.read.books.order import order_by_numbers

SUFFIXES = (".ipynb",)
OUTPUT_CHARS = 2000
"""Longest printed output that is included in the Markdown, characters."""
OBJECTS = re.compile(r"\[?(?:<\w+(?:\.\w+)+\b[^<>\n]*>[,\s]*)+\]?")
"""Names of Python objects, printed in place of a picture or a page."""

PLACEHOLDER = re.compile(
    r"(?i)\s*(?:#+[ \t]*(?:(?:put|write|enter|insert|add)[ \t]+)?(?:your[ \t]+)?(?:code|solution|answer)"
    r"(?:[ \t]+goes)?[ \t]+here[ \t.!:]*(?:\n\s*|$))*"
)
"""A cell for the reader's own code; it may be empty."""


def prepare(text: str) -> str:
    """Reduce a notebook (JSON) to its text: no pictures, tracebacks, long outputs or cells for the reader's code."""
    book = json.loads(text)
    if isinstance(book, dict):
        book["cells"] = [
            cell
            for cell in book.get("cells") or []
            if cell.get("cell_type") != "code" or not PLACEHOLDER.fullmatch(_text_of(cell.get("source")))
        ]
        for cell in book["cells"]:
            cell.pop("attachments", None)
            if cell.get("cell_type") == "code":
                outputs = [_text_output(output) for output in cell.get("outputs") or []]
                cell["outputs"] = [output for output in outputs if output]
    return json.dumps(book)


def _text_output(output: dict[str, Any]) -> dict[str, Any] | None:
    """Reduce a cell's output to its text; None if it has no text, or too much."""
    kind = output.get("output_type")
    if kind == "stream":
        return output if output.get("name") == "stdout" and len(_text_of(output.get("text"))) <= OUTPUT_CHARS else None
    data = output.get("data") or {}
    # Prefer LaTeX, which is the formula, to plain text, which is the output for a terminal.
    form = next((name for name in ("text/latex", "text/markdown", "text/plain") if name in data), "")
    if kind not in ("execute_result", "display_data") or not form or len(_text_of(data[form])) > OUTPUT_CHARS:
        return None
    if {"image/png", "image/svg+xml", "image/jpeg"} & data.keys() or OBJECTS.fullmatch(_text_of(data[form]).strip()):
        return None
    return {**output, "data": {form: data[form]}}


def _text_of(text: Any) -> str:
    """Text of a notebook's field, which is stored as one string or as a list of lines."""
    return text if isinstance(text, str) else "".join(text or [])


FORMATS = (
    Format(suffixes=SUFFIXES, reader="ipynb", prepare=prepare, layouts=partial(order_by_numbers, suffixes=SUFFIXES)),
)
