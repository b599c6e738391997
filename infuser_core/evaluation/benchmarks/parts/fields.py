"""Read fields of a data set's row; errors name the field, the expected value and the actual one."""

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infuser_core.errors import DocumentError
from infuser_core.prompts.templates import LETTERS

Row = Mapping[str, Any]
_LETTER_KEYS = (("letter", "content"), ("key", "value"), ("label", "text"))
PRINTED_LIST = re.compile(r"\s*\[\s*[{\"']")
"""Start of a list of texts or objects that was written into a table's cell; no mathematical answer starts like it."""
_PLACE = re.compile(r"-?\d{1,9}", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,(?:\\!)?\d{3})+(?:\.\d+)?")
_OPEN, _CLOSE = "([{", ")]}"


def refuse(field: str, expected: str, value: Any) -> DocumentError:
    """Make the error for a field with another value than expected."""
    text = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    return DocumentError(
        f"field {field}: expected {expected}, found {text}", hint="is it the right data set and revision?"
    )


def first_value(row: Row, names: str) -> Any:
    """The first of the columns `a|b|c` that is not None; None if all are missing."""
    return next((row[name] for name in names.split("|") if row.get(name) is not None), None)


def map_columns(row: Row, columns: Mapping[str, str], *, as_written: bool = False) -> Row:
    """Rename columns: the row with the values at dotted paths, under the names that a reader expects.

    A part of a path is a key of an object or an index of a list, from 0, or from -1 at the end; objects and lists may
    be JSON texts. Every path inside a null is null. Unless `as_written`, a text that is a list becomes one. Raises
    DocumentError with the row's columns for a path that it does not have.
    """
    read = _value_at if as_written else lambda row, path: parse_list(_value_at(row, path))
    return {**row, **{name: read(row, path) for name, path in columns.items()}} if columns else row


def _value_at(row: Row, path: str) -> Any:
    value: Any = row
    for part in [path] if path in row else path.split("."):
        value = _parse(value)
        if value is None:
            return None
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and _PLACE.fullmatch(part) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            raise DocumentError(f"no {path}; there are {', '.join(column_paths(row))}", hint="correct `columns`")
    return value


def parse_list(value: Any) -> Any:
    """Parse a cell with a list in JSON or Python; any other value is unchanged."""
    return _parse(value) if isinstance(value, str) and PRINTED_LIST.match(value) else value


def column_paths(row: Row, above: str = "") -> Iterator[str]:
    """Names of a row's columns as the setting `columns` takes them, e.g. `answer.text` for a field of an object."""
    for name, each in row.items():
        if isinstance(each, Mapping) and each:
            yield from column_paths(each, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def chat_turns(value: Any, role: str) -> list[str] | None:
    """Texts of one role's turns of a chat, which may be JSON in a cell; None if the value is not a chat.

    Raises DocumentError for a turn with an image, or another part that is not a text.
    """
    chat = parse_list(value)
    is_chat = isinstance(chat, list) and all(
        isinstance(each, Mapping) and {"role", "content"} <= {*each} for each in chat
    )
    return [_turn_text(turn["content"]) for turn in chat if turn["role"] == role] if chat and is_chat else None


def _turn_text(content: Any) -> str:
    """Text of a turn, whose content is a text or a list of parts."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    if len(texts) != len(parts):
        raise refuse("content", "a turn of text alone", content)
    return "".join(texts)


def raw_text(row: Row, names: str) -> str:
    """Read a text untrimmed, a number as text, or the only item of a list. Raises DocumentError if blank or missing."""
    value = sole_item(first_value(row, names))
    if (text := _as_text(value)) is None or not text.strip():
        raise refuse(names, "a text", value)
    return text


def sole_item(value: Any) -> Any:
    """The item of a list that has exactly one, or the value itself."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def read_text(row: Row, names: str) -> str:
    """Read a text as `raw_text` does, trimmed."""
    return raw_text(row, names).strip()


def read_label(row: Row, names: str) -> str:
    """Read a text for breakdowns, or the first item of a list; empty for NaN, an empty cell in tables."""
    value = first_value(row, names)
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if (text := _as_text(value)) is None:
        raise refuse(names, "a text", value)
    return text.strip()


def _as_text(value: Any) -> str | None:
    """The text of a text or a finite number; None for other values, which have several spellings."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if plain and (isinstance(value, str) or math.isfinite(value)) else None


def read_list(row: Row, names: str) -> list[Any]:
    """Read the items of a list, also of JSON in a cell; empty without one."""
    items = _parse(first_value(row, names) or [])
    if not isinstance(items, list):
        raise refuse(names, "a list", items)
    return items


def read_choices(row: Row, names: str, *, fewest: int, most: int = len(LETTERS)) -> list[str]:
    """Read the choices in order of their letters, trimmed, from any form of `choices_by_label`."""
    choices = [choice.strip() for choice in choices_by_label(row, names).values()]
    if not fewest <= len(choices) <= most:
        count = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise refuse(names, f"{count} choices", f"{len(choices)} choices")
    return choices


def choices_by_label(row: Row, names: str) -> dict[str, str]:
    """Read the choices by label, in order: letters from A, or numbers from 0 or 1 if the row has those.

    They are a list, a mapping, labelled objects, lists of labels and texts, or one of these as JSON or Python in a
    cell; only the last choices may lack a text. Raises DocumentError for another form, a gap, or a repeated label.
    """
    value = first_value(row, names)
    pairs = _label_pairs(_parse(value))
    if pairs is not None:
        choices = {key: choice for key, each in pairs if (choice := _as_text(each)) is not None}
        numbers = [list(map(str, range(start, start + len(pairs)))) for start in (0, 1)]
        if len(choices) == len(pairs) and list(choices) in [[*LETTERS[: len(pairs)]], *numbers]:
            return choices
    expected = "choices as a list, or by letter from A on without a gap (as JSON in a cell of CSV)"
    raise refuse(names, expected, value)


def _parse(value: Any) -> Any:
    """The value of a text in JSON or Python; any other value unchanged."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value) if isinstance(value, str) else value
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return value


def _label_pairs(choices: Any) -> list[tuple[str, Any]] | None:
    """Labels in order, each with its choice; None for another form."""
    if isinstance(choices, Mapping):
        for key, content in _LETTER_KEYS:
            labels, texts = choices.get(key), choices.get(content)
            if isinstance(labels, list) and isinstance(texts, list):
                return _sort_pairs(zip(labels, texts, strict=True)) if len(labels) == len(texts) else None
        return _sort_pairs(choices.items())
    if not isinstance(choices, list | tuple):
        return None
    for key, content in _LETTER_KEYS:
        if choices and all(isinstance(item, Mapping) and key in item for item in choices):
            return _sort_pairs((item[key], item.get(content)) for item in choices)
    # More choices than letters are numbered: the caller limits their number.
    labels = LETTERS if len(choices) <= len(LETTERS) else [str(place) for place in range(len(choices))]
    return list(zip(labels, choices, strict=False))


def _sort_pairs(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """Pairs by label, without the last ones that have no text: tables fill the missing cells of a row with null."""
    ordered = sorted(
        ((str(key).strip().upper(), each) for key, each in pairs), key=lambda pair: (len(pair[0]), pair[0])
    )
    while ordered and ordered[-1][1] is None:
        ordered.pop()
    return ordered


def read_letter(row: Row, names: str, choices: Sequence[str]) -> str:
    """Read the letter of one of the choices, upper-case; some data sets publish it as a list of one."""
    value = sole_item(first_value(row, names))
    if isinstance(value, str) and len(value.strip()) == 1 and value.strip().upper() in LETTERS[: len(choices)]:
        return value.strip().upper()
    raise refuse(names, f"a letter from A to {LETTERS[len(choices) - 1]}", value)


def check_answer_text(row: Row, names: str, choices: Sequence[str], letter: str) -> None:
    """Refuse a row whose spelled-out answer is not the choice that its letter means; blanks do not count."""
    answer, choice = first_value(row, names), choices[LETTERS.index(letter)]
    if answer is not None and str(answer).split() != choice.split():
        raise refuse(names, f"the text of choice {letter}, {choice!r}", answer)


def row_tag(*parts: str) -> str:
    """Twelve hex digits computed from a row's contents, for rows without an identifier."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]


def split_commas(text: str, *, grouped: bool = True) -> list[str]:
    """The parts between commas outside all brackets. `grouped`: a number with grouped thousands is one part."""
    if grouped and _GROUPED.fullmatch(text.strip().strip("$")):
        return [text.strip()]
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if sign == "," and depth <= 0 and not text.startswith("!", place + 1):
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def strip_dollars(text: str) -> str:
    r"""The text without dollar signs of mathematics, paired or not; `\$` is money and stays."""
    return re.sub(r"(?<!\\)\$", "", text).strip()
