"""Rows of data files of any kind: parquet, CSV, JSON or JSON lines, read one by one and written in part."""

import csv
import gzip
import itertools
import json
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from infuser_core import durable
from infuser_core.errors import DocumentError
from infuser_core.hub import stem_and_suffix
from infuser_core.reasoning import announce, replace_halves

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LISTS = ("examples", "data", "questions", "rows")
_PACKED = {
    b"PK\x03\x04": "a zip archive or a workbook",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"\xfd7zX": "packed by xz",
}
"""First bytes of what is no data file, and what it is."""


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file, also packed by gzip. Raises DocumentError naming the file when it cannot be read."""
    try:
        yield from _reader(path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DocumentError(f"{path} is damaged: {error}", hint="fetch the file again") from error
    except csv.Error as error:
        raise DocumentError(f"{path} is no CSV: {error}", hint="double quotes within quotes, or save JSON") from error
    except OSError as error:
        raise DocumentError(
            f"cannot read {path}: {error.strerror or error}", hint="check the path and its rights"
        ) from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DocumentError(
            f"{path} is not UTF-8: byte {byte:#04x}", hint="convert it: `iconv -f LATIN1 -t UTF-8`, or from UTF-16"
        ) from error


def _reader(path: Path) -> Iterable[dict[str, Any]]:
    if path.is_dir():
        raise DocumentError(f"cannot read {path}: a folder", hint="name the file in it, also behind a hub's address")
    if (first := _first_bytes(path)) in _PACKED:
        raise DocumentError(f"{path} is {_PACKED[first]}", hint="unpack it, or save it as JSON, CSV or parquet")
    if _suffix(path) == ".parquet":
        # Arrow costs a third of a second: only those who read parquet pay.
        from infuser_core.store.tables import foreign_rows

        return foreign_rows(path)
    return _csv(path) if _suffix(path) in _DELIMITERS else _json(path)


def _suffix(path: Path) -> str:
    """The suffix of the file's format; parquet is one by its first bytes, whatever its name."""
    return ".parquet" if _first_bytes(path) == b"PAR1" else stem_and_suffix(path.name)[1]


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _is_gzip(path: Path) -> bool:
    return _first_bytes(path)[:2] == b"\x1f\x8b"


def _text(path: Path, **how: Any) -> TextIO:
    """The file's text, unpacked."""
    return cast(TextIO, (gzip.open if _is_gzip(path) else open)(path, "rt", encoding="utf-8-sig", **how))


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with _text(path, newline="") as file:
        reader = csv.DictReader(file, delimiter=_DELIMITERS[_suffix(path)], strict=True)
        names = [name for name in reader.fieldnames or () if name]
        if len({*names}) < len(names):
            raise DocumentError(f"{path} has two columns of one name", hint=f"name each once: {', '.join(names)}")
        for row in reader:
            # A comma in a text without quotes moves the cells after it; empty cells at the end move none.
            if any(row.pop(None, ())):  # type: ignore[call-overload]
                where = f"{path}, line {reader.line_num}"
                raise DocumentError(f"{where} has more cells than the header", hint="put texts with commas in quotes")
            yield row


def _json(path: Path) -> Iterator[dict[str, Any]]:
    """A list, an object holding one, or one object per line; a `.jsonl` file is never held as a whole."""
    with _text(path) as file:
        first = next((line for line in file if line.strip()), "")
        if _suffix(path) == ".jsonl" or _is_row(first):
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
    total = 0
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row, halves = loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            hint = "one JSON object per line; an interrupted download ends like this: fetch the file again"
            raise DocumentError(f"{path}, line {number} is not JSON: {error}", hint=hint) from error
        total += halves
        yield _object(row, f"{path}, line {number}")
    announce(path, total)


def _listed(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with _text(path) as file:
            found, halves = loads(file.read())
    except (json.JSONDecodeError, RecursionError) as error:
        raise DocumentError(f"{path} is not JSON: {error}", hint="a list of objects, or one object per line") from error
    announce(path, halves)
    if isinstance(found, dict):
        found = next((found[name] for name in _LISTS if isinstance(found.get(name), list)), [found])
    for number, row in enumerate(found if isinstance(found, list) else [found], 1):
        yield _object(row, f"{path}, row {number}")


def loads(text: str) -> tuple[Any, int]:
    """Value of JSON, and number of texts with half a surrogate pair: no tokenizer takes one, so it becomes U+FFFD."""
    value = json.loads(text)
    # JSON writes one as an escape: most texts have none and are not walked through.
    return replace_halves(value) if "\\ud" in text.lower() else (value, 0)


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DocumentError(f"{where} is no object", hint="one object per question")
    return row


def keep_rows(source: Path, target: Path, wanted: Collection[int]) -> None:
    """Write the rows whose place, from 1, is wanted, unchanged, in the source's order and format."""
    if _is_gzip(source) or _suffix(source) == ".tsv":
        raise DocumentError(f"{source}: rows cannot be left out of this format", hint="save it as JSON, CSV or parquet")
    if _suffix(source) == ".parquet":
        from infuser_core.store.tables import take_rows

        return take_rows(source, target, sorted(wanted))
    with durable.replacing(target) as draft:
        if _suffix(source) == ".jsonl":
            with _text(source) as file, draft.open("w", encoding="utf-8") as output:
                lines = enumerate(filter(str.strip, file), 1)
                output.writelines(line for place, line in lines if place in wanted)
        elif _suffix(source) == ".csv":
            with _text(source, newline="") as file, draft.open("w", encoding="utf-8", newline="") as output:
                # The first one has the names.
                table = enumerate(cells for cells in csv.reader(file) if cells)
                csv.writer(output).writerows(cells for place, cells in table if place == 0 or place in wanted)
        else:
            rows = [row for place, row in enumerate(rows_of(source), 1) if place in wanted]
            draft.write_text(json.dumps(_shaped(source, rows), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _shaped(source: Path, rows: list[dict[str, Any]]) -> Any:
    """The rows in what holds them: a list, or an object with one beside other fields."""
    try:
        held, _ = loads(source.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError:
        # One object per line under another suffix.
        return rows
    name = next((name for name in _LISTS if isinstance(held, dict) and isinstance(held.get(name), list)), None)
    return rows if name is None else {**held, name: rows}
