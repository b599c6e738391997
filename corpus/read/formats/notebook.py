"""Notebooks: text and code cells with their printed output; pictures and tables of markup are left out."""

import json
import re
from functools import partial
from typing import Any

from corpus.read.books.format import Format
from corpus.read.books.order import by_numbers

SUFFIXES = (".ipynb",)
OUTPUT_CHARS = 2000
"""Longest printed output that is kept."""
OBJECTS = re.compile(r"\[?(?:<\w+(?:\.\w+)+\b[^<>\n]*>[,\s]*)+\]?")
"""Names of objects of the language, in place of a picture or a page."""

PLACEHOLDER = re.compile(
    r"(?i)\s*(?:#+[ \t]*(?:(?:put|write|enter|insert|add)[ \t]+)?(?:your[ \t]+)?(?:code|solution|answer)"
    r"(?:[ \t]+goes)?[ \t]+here[ \t.!:]*(?:\n\s*|$))*"
)
"""A cell for the reader's own code; it may be empty."""


def prepare(text: str) -> str:
    """The notebook with its text alone: no pictures, no errors' coloured traces, no outputs longer than a page."""
    book = json.loads(text)
    if isinstance(book, dict):
        book["cells"] = [cell for cell in book.get("cells") or [] if not _is_room(cell)]
        for cell in book["cells"]:
            cell.pop("attachments", None)
            if cell.get("cell_type") == "code":
                cell["outputs"] = [kept for output in cell.get("outputs") or [] if (kept := _printed(output))]
    return json.dumps(book)


def _is_room(cell: dict[str, Any]) -> bool:
    """Whether a cell is room for the reader's own code."""
    return cell.get("cell_type") == "code" and bool(PLACEHOLDER.fullmatch(_joined(cell.get("source"))))


def _printed(output: dict[str, Any]) -> dict[str, Any] | None:
    kind = output.get("output_type")
    if kind == "stream":
        return output if output.get("name") == "stdout" and len(_joined(output.get("text"))) <= OUTPUT_CHARS else None
    data = output.get("data") or {}
    # Its latex is the formula; its plain text is what a terminal shows.
    kept = next((name for name in ("text/latex", "text/markdown", "text/plain") if name in data), "")
    if kind not in ("execute_result", "display_data") or not kept or len(_joined(data[kept])) > OUTPUT_CHARS:
        return None
    if {"image/png", "image/svg+xml", "image/jpeg"} & data.keys() or OBJECTS.fullmatch(_joined(data[kept]).strip()):
        return None
    return {**output, "data": {kept: data[kept]}}


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else "".join(text or [])


FORMATS = (Format(suffixes=SUFFIXES, reader="ipynb", prepare=prepare, layouts=partial(by_numbers, suffixes=SUFFIXES)),)
