"""Read the rows of data files one by one (parquet, CSV, JSON, JSON lines), and copy selected rows to a file."""

import csv
import gzip
import itertools
import json
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from infuser_core.errors import DocumentError
from infuser_core.prompts.reasoning import announce, replace_halves
from infuser_core.system import durable
from infuser_core.system.hub import stem_and_suffix

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LISTS = ("examples", "data", "questions", "rows")
_PACKINGS = {
    b"PK\x03\x04": "a zip archive or a workbook",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"\xfd7zX": "packed by xz",
}
"""First bytes of files that are no data files, with their kind."""


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of one file, plain or compressed by gzip. Raises DocumentError naming an unreadable file."""
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
        raise DocumentError(f"cannot read {path}: a folder", hint="name the file in it, also after a hub's address")
    if (first := _first_bytes(path)) in _PACKINGS:
        raise DocumentError(f"{path} is {_PACKINGS[first]}", hint="unpack it, or save it as JSON, CSV or parquet")
    if _format_suffix(path) == ".parquet":
        # Imported here: Arrow takes a third of a second to load, and only parquet needs it.
        from infuser_core.store.tables import read_foreign_rows

        return read_foreign_rows(path)
    return _read_csv(path) if _format_suffix(path) in _DELIMITERS else _read_json(path)


def _format_suffix(path: Path) -> str:
    """The suffix of the file's format; parquet is recognised by its first bytes under any name."""
    return ".parquet" if _first_bytes(path) == b"PAR1" else stem_and_suffix(path.name)[1]


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _is_gzip(path: Path) -> bool:
    return _first_bytes(path)[:2] == b"\x1f\x8b"


def _text(path: Path, **how: Any) -> TextIO:
    """Open a file as text, decompressed."""
    return cast(TextIO, (gzip.open if _is_gzip(path) else open)(path, "rt", encoding="utf-8-sig", **how))


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with _text(path, newline="") as file:
        reader = csv.DictReader(file, delimiter=_DELIMITERS[_format_suffix(path)], strict=True)
        names = [name for name in reader.fieldnames or () if name]
        if len({*names}) < len(names):
            raise DocumentError(f"{path} has two columns of one name", hint=f"name each once: {', '.join(names)}")
        for row in reader:
            # A comma in a text without quotes shifts the later cells; empty cells at the end do no harm.
            if any(row.pop(None, ())):  # type: ignore[call-overload]
                where = f"{path}, line {reader.line_num}"
                raise DocumentError(f"{where} has more cells than the header", hint="put texts with commas in quotes")
            yield row


def _read_json(path: Path) -> Iterator[dict[str, Any]]:
    """Read a list, an object with a list, or one object per line; a `.jsonl` file is never in memory as a whole."""
    with _text(path) as file:
        first = next((line for line in file if line.strip()), "")
        if _format_suffix(path) == ".jsonl" or _is_row(first):
            yield from _read_json_lines(path, itertools.chain([first], file))
            return
        file.seek(0)
        try:
            value, halves = parse_json(file.read())
        except (json.JSONDecodeError, RecursionError) as error:
            hint = "a list of objects, or one object per line"
            raise DocumentError(f"{path} is not JSON: {error}", hint=hint) from error
    announce(path, halves)
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), [value])
    for number, row in enumerate(value if isinstance(value, list) else [value], 1):
        yield _check_object(row, f"{path}, row {number}")


def _is_row(line: str) -> bool:
    """Whether a line is one row: an object that does not contain the list of rows."""
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(value, dict) and not any(isinstance(value.get(name), list) for name in _LISTS)


def _read_json_lines(path: Path, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    total = 0
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row, halves = parse_json(line)
        except (json.JSONDecodeError, RecursionError) as error:
            hint = "one JSON object per line; an interrupted download ends like this: fetch the file again"
            raise DocumentError(f"{path}, line {number} is not JSON: {error}", hint=hint) from error
        total += halves
        yield _check_object(row, f"{path}, line {number}")
    announce(path, total)


def parse_json(text: str) -> tuple[Any, int]:
    """Parse JSON. Returns the value and the number of texts with half a surrogate pair, which becomes U+FFFD."""
    value = json.loads(text)
    # No tokenizer accepts half a pair. JSON writes it as an escape, which most texts do not have.
    return replace_halves(value) if "\\ud" in text.lower() else (value, 0)


def _check_object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DocumentError(f"{where} is no object", hint="one object per question")
    return row


def keep_rows(source: Path, target: Path, places: Collection[int]) -> None:
    """Copy the rows with these numbers, from 1, to another file, unchanged and in the same order and format."""
    if _is_gzip(source) or _format_suffix(source) == ".tsv":
        raise DocumentError(f"{source}: rows cannot be left out of this format", hint="save it as JSON, CSV or parquet")
    if _format_suffix(source) == ".parquet":
        from infuser_core.store.tables import take_rows

        return take_rows(source, target, sorted(places))
    with durable.replacing(target) as draft:
        if _format_suffix(source) == ".jsonl":
            with _text(source) as file, draft.open("w", encoding="utf-8") as output:
                lines = enumerate(filter(str.strip, file), 1)
                output.writelines(line for place, line in lines if place in places)
        elif _format_suffix(source) == ".csv":
            with _text(source, newline="") as file, draft.open("w", encoding="utf-8", newline="") as output:
                # The first row has the names.
                table = enumerate(cells for cells in csv.reader(file) if cells)
                csv.writer(output).writerows(cells for place, cells in table if place == 0 or place in places)
        else:
            rows = [row for place, row in enumerate(rows_of(source), 1) if place in places]
            try:
                whole, _ = parse_json(source.read_text(encoding="utf-8-sig"))
            except json.JSONDecodeError:
                # One object per line, although the suffix is not `.jsonl`.
                whole = None
            name = next((name for name in _LISTS if isinstance(whole, dict) and isinstance(whole.get(name), list)), "")
            content = {**whole, name: rows} if name else rows
            draft.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
