"""Rows of data files of any kind: parquet, CSV, JSON or JSON lines, read one by one and written in part."""

import csv
import itertools
import json
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from infuser_core import durable
from infuser_core.errors import DocumentError

_LISTS = ("examples", "data", "questions", "rows")


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file. Raises DocumentError naming the file when it cannot be read."""
    try:
        yield from _reader(path)
    except OSError as error:
        raise DocumentError(
            f"cannot read {path}: {error.strerror or error}", hint="check the path and its rights"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DocumentError(f"{path} is damaged: {error}", hint="fetch the file again") from error


def _reader(path: Path) -> Iterable[dict[str, Any]]:
    if path.is_dir():
        raise DocumentError(f"cannot read {path}: a folder", hint="name the file in it, also behind a hub's address")
    if path.suffix == ".parquet":
        # Arrow costs a third of a second: only those who read parquet pay.
        from infuser_core.store.tables import foreign_rows

        return foreign_rows(path)
    if path.suffix == ".csv":
        return _csv(path)
    return _json(path)


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file)


def _json(path: Path) -> Iterator[dict[str, Any]]:
    """A list, an object holding one, or one object per line; a `.jsonl` file is never held as a whole."""
    with path.open(encoding="utf-8-sig") as file:
        first = next((line for line in file if line.strip()), "")
        if path.suffix == ".jsonl" or _is_row(first):
            yield from _lines(path, itertools.chain([first], file))
            return
    yield from _listed(path)


def _is_row(line: str) -> bool:
    """Whether a line is an object of its own, and not one that holds the rows."""
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and not any(isinstance(found.get(name), list) for name in _LISTS)


def _lines(path: Path, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            hint = "one JSON object per line; an interrupted download ends like this: fetch the file again"
            raise DocumentError(f"{path}, line {number} is not JSON: {error}", hint=hint) from error
        yield _object(row, f"{path}, line {number}")


def _listed(path: Path) -> Iterator[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DocumentError(f"{path} is not JSON: {error}", hint="a list of objects, or one object per line") from error
    if isinstance(found, dict):
        found = next((found[name] for name in _LISTS if isinstance(found.get(name), list)), [found])
    for number, row in enumerate(found if isinstance(found, list) else [found], 1):
        yield _object(row, f"{path}, row {number}")


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DocumentError(f"{where} is no object", hint="one object per question")
    return row


def keep_rows(source: Path, target: Path, wanted: Collection[int]) -> None:
    """Write the rows whose place, from 1, is wanted, unchanged, in the source's order and format."""
    if source.suffix == ".parquet":
        from infuser_core.store.tables import take_rows

        return take_rows(source, target, sorted(wanted))
    with durable.replacing(target) as draft:
        if source.suffix == ".jsonl":
            lines = filter(str.strip, source.read_text(encoding="utf-8-sig").splitlines(keepends=True))
            text = "".join(line for place, line in enumerate(lines, 1) if place in wanted)
            draft.write_text(text, encoding="utf-8")
            return None
        rows = [row for place, row in enumerate(rows_of(source), 1) if place in wanted]
        if source.suffix == ".csv":
            _write_csv(draft, source, rows)
        else:
            draft.write_text(json.dumps(_shaped(source, rows), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _write_csv(draft: Path, source: Path, rows: list[dict[str, Any]]) -> None:
    with source.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file), [])
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _shaped(source: Path, rows: list[dict[str, Any]]) -> Any:
    """The rows in what holds them: a list, or an object with one beside other fields."""
    try:
        held = json.loads(source.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError:
        # One object per line under another suffix.
        return rows
    name = next((name for name in _LISTS if isinstance(held, dict) and isinstance(held.get(name), list)), None)
    return rows if name is None else {**held, name: rows}
