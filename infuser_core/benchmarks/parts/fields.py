"""Fields of a foreign row, checked: what is missing or of another kind is named with what was expected."""

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infuser_core.errors import DocumentError
from infuser_core.prompts.load import LETTERS

Row = Mapping[str, Any]
_LETTER_KEYS = (("letter", "content"), ("key", "value"), ("label", "text"))
PRINTED = re.compile(r"\s*\[\s*[{\"']")
"""Start of a list of texts or objects that a table printed into a cell; no answer of mathematics opens like one."""
_PLACE = re.compile(r"-?\d{1,9}", re.ASCII)
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


def mapped(row: Row, columns: Mapping[str, str], *, as_written: bool = False) -> Row:
    """The row with what is at these dotted paths, by the names that a reader knows.

    A part of a path is a key of an object or a place in a list, from 0 or from -1 at the end; a text may hold both as
    JSON. Below null all is null. Unless `as_written`, a text that is a list becomes one. Raises DocumentError with the
    columns that are there for a path that is not.
    """
    read = _at if as_written else lambda row, path: printed(_at(row, path))
    return {**row, **{name: read(row, path) for name, path in columns.items()}} if columns else row


def _at(row: Row, path: str) -> Any:
    found: Any = row
    for part in [path] if path in row else path.split("."):
        found = _parsed(found)
        if found is None:
            return None
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and _PLACE.fullmatch(part) and -len(found) <= int(part) < len(found):
            found = found[int(part)]
        else:
            raise DocumentError(f"no {path}; there are {', '.join(paths(row))}", hint="correct `columns`")
    return found


def printed(found: Any) -> Any:
    """The list of a cell that holds one as JSON or Python; any other value as it is."""
    return _parsed(found) if isinstance(found, str) and PRINTED.match(found) else found


def paths(row: Row, above: str = "") -> Iterator[str]:
    """Columns of a row as `columns` names them: what an object holds, by the object's name and a dot."""
    for name, each in row.items():
        if isinstance(each, Mapping) and each:
            yield from paths(each, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def turns(found: Any, role: str) -> list[str] | None:
    """Texts of one role's turns of a chat, which may be JSON in a cell; None for what is no chat.

    Raises DocumentError for a turn with an image, or another part that is no text.
    """
    found = printed(found)
    is_chat = isinstance(found, list) and all(
        isinstance(each, Mapping) and {"role", "content"} <= {*each} for each in found
    )
    return [_spoken(turn["content"]) for turn in found if turn["role"] == role] if found and is_chat else None


def _spoken(content: Any) -> str:
    """Text of a turn: it is one, or a list of parts."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    if len(texts) != len(parts):
        raise refuse("content", "a turn of text alone", content)
    return "".join(texts)


def written(row: Row, names: str) -> str:
    """A text that is not blank, as it is, or of a list its only item; numbers become text, and nothing else does."""
    found = only(value(row, names))
    if (string := _text(found)) is None or not string.strip():
        raise refuse(names, "a text", found)
    return string


def only(found: Any) -> Any:
    """The item of a list that has one, or the value itself."""
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def text(row: Row, names: str) -> str:
    """The same, trimmed."""
    return written(row, names).strip()


def label(row: Row, names: str) -> str:
    """A text for breakdowns, or empty; of a list its first item. NaN is how tables write an empty cell."""
    found = value(row, names)
    if isinstance(found, list | tuple):
        found = found[0] if found else None
    if found is None or (isinstance(found, float) and math.isnan(found)):
        return ""
    if (string := _text(found)) is None:
        raise refuse(names, "a text", found)
    return string.strip()


def _text(found: Any) -> str | None:
    """Text of a text or a finite number; None for anything else, which has no one way to be printed."""
    plain = isinstance(found, str | int | float) and not isinstance(found, bool)
    return str(found) if plain and (isinstance(found, str) or math.isfinite(found)) else None


def several(row: Row, names: str) -> list[Any]:
    """Items of a list, also as JSON in a cell; empty without one."""
    found = _parsed(value(row, names) or [])
    if not isinstance(found, list):
        raise refuse(names, "a list", found)
    return found


def options(row: Row, names: str, *, fewest: int, most: int = len(LETTERS)) -> list[str]:
    """Choices by letter, trimmed, in any form of `labelled`."""
    choices = [choice.strip() for choice in labelled(row, names).values()]
    if not fewest <= len(choices) <= most:
        wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise refuse(names, f"{wanted} choices", f"{len(choices)} choices")
    return choices


def labelled(row: Row, names: str) -> dict[str, str]:
    """Choices in order by label: letters from A on, or numbers from 0 or 1 on where the row has those.

    They are a list, a mapping, labelled objects, lists of labels and texts, or one of these as JSON or Python in a
    cell; only the last may lack a text. Raises DocumentError for another form, a gap, or a label that is there twice.
    """
    found = value(row, names)
    pairs = _pairs(_parsed(found))
    if pairs is not None:
        choices = {key: choice for key, each in pairs if (choice := _text(each)) is not None}
        numbers = [list(map(str, range(start, start + len(pairs)))) for start in (0, 1)]
        if len(choices) == len(pairs) and list(choices) in [[*LETTERS[: len(pairs)]], *numbers]:
            return choices
    expected = "choices as a list, or by letter from A on without a gap (as JSON in a cell of CSV)"
    raise refuse(names, expected, found)


def _parsed(found: Any) -> Any:
    """The value; of a list or a mapping that was printed into a cell, what was printed."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(found) if isinstance(found, str) else found
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return found


def _pairs(found: Any) -> list[tuple[str, Any]] | None:
    """Labels, in order, with what they label; None for no form of choices."""
    if isinstance(found, Mapping):
        for key, content in _LETTER_KEYS:
            labels, texts = found.get(key), found.get(content)
            if isinstance(labels, list) and isinstance(texts, list):
                return _sorted(zip(labels, texts, strict=True)) if len(labels) == len(texts) else None
        return _sorted(found.items())
    if not isinstance(found, list | tuple):
        return None
    for key, content in _LETTER_KEYS:
        if found and all(isinstance(item, Mapping) and key in item for item in found):
            return _sorted((item[key], item.get(content)) for item in found)
    # More choices than letters are numbered: the reader says how many there may be.
    labels = LETTERS if len(found) <= len(LETTERS) else [str(place) for place in range(len(found))]
    return list(zip(labels, found, strict=False))


def _sorted(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """By label, without the last ones that have no text: tables fill what a shorter row lacks with null."""
    named = sorted(((str(key).strip().upper(), each) for key, each in pairs), key=lambda pair: (len(pair[0]), pair[0]))
    while named and named[-1][1] is None:
        named.pop()
    return named


def letter(row: Row, names: str, choices: Sequence[str]) -> str:
    """The letter of one of the choices, upper-case; some publish it as a list of one."""
    found = only(value(row, names))
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
