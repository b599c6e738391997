"""Fields of a foreign row, checked: what is missing or of another kind is named with what was expected."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from infuser_core.errors import DocumentError
from infuser_core.prompts.load import LETTERS

Row = Mapping[str, Any]
_LETTER_KEYS = (("letter", "content"), ("key", "value"), ("label", "text"))
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,(?:\\!)?\d{3})+(?:\.\d+)?")
_OPEN, _CLOSE = "([{", ")]}"


def refuse(field: str, expected: str, found: Any) -> DocumentError:
    """The error for one field."""
    shown = repr(found) if len(repr(found)) <= 60 else f"{repr(found)[:57]}..."
    return DocumentError(
        f"field {field}: expected {expected}, found {shown}", hint="is it the right data set and revision?"
    )


def value(row: Row, names: str) -> Any:
    """The first of `a|b|c` that the row has and that is not None; None when there is none."""
    return next((row[name] for name in names.split("|") if row.get(name) is not None), None)


def text(row: Row, names: str) -> str:
    """A text that is not blank, trimmed; numbers become text."""
    found = value(row, names)
    if isinstance(found, bool) or not isinstance(found, str | int | float) or not str(found).strip():
        raise refuse(names, "a text", found)
    return str(found).strip()


def label(row: Row, names: str) -> str:
    """A text for breakdowns, or empty; of a list its first item."""
    found = value(row, names)
    if isinstance(found, list | tuple):
        found = found[0] if found else ""
    return "" if found is None else str(found).strip()


def options(row: Row, names: str, *, fewest: int, most: int = len(LETTERS)) -> list[str]:
    """Choices by letter: a list, a mapping, or lettered objects; only the last letters may lack a text."""
    found = value(row, names)
    listed = _by_letter(found) if isinstance(found, Mapping) else _unlettered(found)
    if listed is None:
        raise refuse(names, "choices as a list, or by letter from A on without a gap", found)
    if not fewest <= len(listed) <= most:
        wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise refuse(names, f"{wanted} choices", f"{len(listed)} choices")
    return listed


def _by_letter(found: Mapping[str, Any]) -> list[str] | None:
    there = {key: text for key, text in found.items() if text is not None}
    if sorted(there) != list(LETTERS[: len(there)]):
        return None
    return [str(there[key]).strip() for key in sorted(there)]


def _unlettered(found: Any) -> list[str] | None:
    if not isinstance(found, Sequence) or isinstance(found, str):
        return None
    for key, content in _LETTER_KEYS:
        if found and all(isinstance(item, Mapping) and key in item for item in found):
            return _by_letter({str(item[key]): item.get(content) for item in found})
    plain = all(isinstance(item, str | int | float) for item in found)
    return [str(item).strip() for item in found] if plain else None


def letter(row: Row, names: str, choices: Sequence[str]) -> str:
    """The letter of one of the choices, upper-case; some publish it as a list of one."""
    found = value(row, names)
    found = found[0] if isinstance(found, list) and len(found) == 1 else found
    if isinstance(found, str) and len(found.strip()) == 1 and found.strip().upper() in LETTERS[: len(choices)]:
        return found.strip().upper()
    raise refuse(names, f"a letter from A to {LETTERS[len(choices) - 1]}", found)


def agree(row: Row, names: str, choices: Sequence[str], key: str) -> None:
    """Refuse a row whose written answer is not the text of the choice that its letter names."""
    written, chosen = value(row, names), choices[LETTERS.index(key)]
    if written is not None and _bare(str(written)) != _bare(chosen):
        raise refuse(names, f"the text of choice {key}, {chosen!r}", written)


def _bare(text: str) -> str:
    return " ".join(text.split())


def tag(*parts: str) -> str:
    """Twelve hex digits that identify a row without an identifier, wherever it stands in its file."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]


def listed(text: str, *, grouped: bool = True) -> list[str]:
    """The parts between commas outside all brackets. `grouped`: a number with grouped thousands is one part."""
    if grouped and _GROUPED.fullmatch(text.strip().strip("$")):
        return [text.strip()]
    found, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if sign == "," and depth <= 0 and not text.startswith("!", place + 1):
            found.append(text[start:place].strip())
            start = place + 1
    return [part for part in [*found, text[start:].strip()] if part]


def without_dollars(text: str) -> str:
    r"""The text without marks of mathematics, of which some lists have too few; `\$` is money and stays."""
    return re.sub(r"(?<!\\)\$", "", text).strip()
