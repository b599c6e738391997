"""Write rows (frozen dataclasses) to parquet files and read them back; read and copy other parquet files.

Fields of the type `Sequence[int]` or `Sequence[float]` are stored as lists of 32-bit numbers and read as `Series`:
arrays are copied without creating a Python object for each number.
"""

import dataclasses
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infuser_core import schemas
from infuser_core.errors import DocumentError
from infuser_core.store.series import KINDS, Series
from infuser_core.system import durable

Row = TypeVar("Row")

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}
_WORKERS = min(8, os.cpu_count() or 1)
_GROUP = 10_000
"""Maximum rows of a parquet row group."""
_GROUP_NUMBERS = 1 << 22
"""Numbers in series at which a row group ends, which limits the memory that writers and readers need."""
_GROUP_BYTES = 1 << 30
"""Maximum bytes of a row group with more than one row: readers cannot read a list of texts of 2 GiB."""


ArrowTable: TypeAlias = pa.Table
"""Columns in memory, which `to_pandas` turns into a DataFrame."""


def as_arrow(rows: Sequence[Any], row_type: type) -> ArrowTable:
    """Rows of one type as an arrow table."""
    return pa.Table.from_pylist(
        [{field.name: getattr(row, field.name) for field in dataclasses.fields(row_type)} for row in rows],
        arrow_schema(row_type),
    )


def arrow_schema(row_type: type) -> pa.Schema:
    """The arrow schema of a row type, in field order; supports lists and optional fields."""
    hints = typing.get_type_hints(row_type)
    fields = [(field.name, _arrow_type(hints[field.name])) for field in dataclasses.fields(row_type)]
    metadata = {"infuser_row": row_type.__name__, "infuser_schema": str(schemas.SCHEMA_VERSION)}
    return pa.schema([pa.field(name, kind) for name, kind in fields], metadata=metadata)


def _arrow_type(hint: Any) -> pa.DataType:
    origin = typing.get_origin(hint)
    if origin is Sequence:
        return pa.list_(pa.from_numpy_dtype(KINDS[typing.get_args(hint)[0]]))
    if origin is list:
        return pa.list_(_arrow_type(typing.get_args(hint)[0]))
    if origin in (typing.Union, types.UnionType):
        (inner,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _arrow_type(inner)
    assert hint in _SCALARS, f"no parquet type for {hint}"
    return _SCALARS[hint]


def write_rows(path: Path, rows: Iterable[Any], row_type: type) -> None:
    """Write rows to a zstd-compressed parquet file in row groups of limited size; without rows, only the schema."""
    with row_writer(path, row_type) as keep:
        for row in rows:
            keep(row)


@contextmanager
def row_writer(
    path: Path, row_type: type, *, group: int = _GROUP, group_bytes: int = _GROUP_BYTES
) -> Iterator[Callable[[Any], None]]:
    """Open a parquet file for writing row by row; yields a function that adds a row.

    Holds one row group at a time in memory.
    """
    schema, series = arrow_schema(row_type), _series_of(row_type)
    waiting: list[Any] = []
    numbers, has_group = 0, False

    with _writer(path, schema, group_bytes) as write:

        def end_group() -> None:
            nonlocal numbers, has_group
            columns = [
                _column([getattr(row, field.name) for row in waiting], field.type, series.get(field.name))
                for field in schema
            ]
            write(pa.table(columns, schema=schema))
            waiting.clear()
            numbers, has_group = 0, True

        def keep(row: Any) -> None:
            nonlocal numbers
            waiting.append(row)
            numbers += sum(len(getattr(row, name)) for name in series)
            if len(waiting) == group or numbers >= _GROUP_NUMBERS:
                end_group()

        yield keep
        if waiting or not has_group:
            end_group()


@contextmanager
def _writer(path: Path, schema: pa.Schema, group_bytes: int = _GROUP_BYTES) -> Iterator[Callable[[pa.Table], None]]:
    """Open a parquet file for writing; yields a function that adds a table as a row group, a large one as several.

    The minimum and maximum in a column's statistics ignore NaN, so that readers that filter by them would skip row
    groups with NaN. Therefore a file with NaN is rewritten without statistics of the columns concerned.
    """
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    with_nan: set[str] = set()
    with _file(path, schema) as file:

        def write(table: pa.Table) -> None:
            if table.nbytes > group_bytes and len(table) > 1:
                half = len(table) // 2
                write(table.slice(0, half))
                write(table.slice(half))
                return
            file.write_table(table.combine_chunks())
            with_nan.update(name for name in floats if pc.any(pc.is_nan(table[name])).as_py())

        yield write
    if with_nan:
        with (
            durable.replacing(path) as draft,
            pq.ParquetFile(path) as source,
            _file(draft, schema, no_statistics=with_nan) as file,
        ):
            for number in range(source.num_row_groups):
                file.write_table(source.read_row_group(number))


def _file(path: Path, schema: pa.Schema, *, no_statistics: Collection[str] = ()) -> pq.ParquetWriter:
    """Open a parquet writer with encodings by column.

    Numbers in lists (tokens, log-probabilities) use byte stream split, which suits them better than a dictionary, and
    have no statistics. All other columns have a dictionary and, except for `no_statistics`, statistics.
    """
    numbers = [
        f"{field.name}.list.element"
        for field in schema
        if pa.types.is_list(field.type) and pa.types.is_primitive(field.type.value_type)
    ]
    others = [
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
        for field in schema
        if f"{field.name}.list.element" not in numbers
    ]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=others,
        write_statistics=[name for name in others if name not in no_statistics],
        use_byte_stream_split=numbers,
    )


def _series_of(row_type: type) -> dict[str, type]:
    """Names of the fields that are sequences of numbers, with the type of the numbers, int or float."""
    hints = typing.get_type_hints(row_type)
    return {name: typing.get_args(hint)[0] for name, hint in hints.items() if typing.get_origin(hint) is Sequence}


def _column(values: list[Any], kind: pa.DataType, numbers: type | None) -> pa.Array:
    if numbers is None:
        return pa.array(values, kind)
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    flat = np.concatenate([np.empty(0, KINDS[numbers]), *(np.asarray(each, KINDS[numbers]) for each in values)])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat), type=kind)


def save_rows(path: Path, rows: Sequence[Any], row_type: type) -> None:
    """Write rows to a parquet file durably and atomically. Raises StoreError if it cannot be written."""
    hint = "free some space or choose another folder; then run the same command again"
    with durable.write_errors(path.parent, hint=hint), durable.replacing(path) as draft:
        write_rows(draft, rows, row_type)


class TableRows(Sequence[Row]):
    """The rows of a parquet file as a sequence that reads one row group at a time, when it is needed.

    A column that is missing in the file takes its field's default. A missing column without default (a
    `default_factory` does not count), an unknown column, or another order of columns fails an assertion.
    """

    def __init__(self, path: Path, row_type: type[Row]) -> None:
        self._path, self._type = path, row_type
        # Not `pq.read_table`, which also imports arrow's data sets.
        with pq.ParquetFile(path) as file:
            self._names, self._metadata = file.schema_arrow.names, file.metadata
        fields = dataclasses.fields(typing.cast(Any, row_type))
        expected = [field.name for field in fields if field.name in self._names or field.default is dataclasses.MISSING]
        assert self._names == expected, f"{path.name}: columns {self._names}, expected {expected}"
        self._series = _series_of(row_type)

    def __len__(self) -> int:
        return int(self._metadata.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for number in range(self.num_groups):
            yield from self.group(number)

    def __getitem__(self, place: Any) -> Any:
        for number in range(self.num_groups):
            size = self._metadata.row_group(number).num_rows
            if place < size:
                return self.group(number)[place]
            place -= size
        raise IndexError(place)

    @property
    def num_groups(self) -> int:
        """Number of row groups in the file."""
        return int(self._metadata.num_row_groups)

    def group(self, number: int) -> list[Row]:
        """Read the rows of one row group."""
        # Each call opens a reader: a reader cannot be shared by threads.
        with pq.ParquetFile(self._path, metadata=self._metadata) as own:
            # Read one series column at a time to free its arrow table before the next.
            columns = {
                name: _slices(own.read_row_group(number, columns=[name]).column(name), kind)
                for name, kind in self._series.items()
                if name in self._names
            }
            others = [name for name in self._names if name not in self._series]
            columns |= own.read_row_group(number, columns=others).to_pydict()
        rows = zip(*(columns[name] for name in self._names), strict=True)
        return [self._type(**dict(zip(self._names, row, strict=True))) for row in rows]


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """Read all rows of a parquet file, row groups in parallel; for missing columns see TableRows."""
    rows = TableRows(path, row_type)
    if rows.num_groups < 2:
        return list(rows)
    with ThreadPoolExecutor(_WORKERS) as pool:
        all_rows = [row for group in pool.map(rows.group, range(rows.num_groups)) for row in group]
    pa.default_memory_pool().release_unused()
    return all_rows


def _slices(column: pa.ChunkedArray, kind: type) -> list[Series]:
    series: list[Series] = []
    for chunk in column.chunks:
        flat = chunk.values.to_numpy().astype(KINDS[kind], copy=False)
        series += [Series(flat[start:end]) for start, end in pairwise(chunk.offsets.to_numpy())]
    return series


def concatenate_files(parts: Sequence[tuple[Path, Collection[str]]], target: Path, *, column: str) -> None:
    """Concatenate parquet files with equal columns into one, as `write_rows` would have written it.

    Each part is a file and a collection of values: rows whose `column` has one of these values are left out. If the
    first file lacks the column, or its name is empty, all rows are copied. Reads one row group at a time.
    """
    schema = pq.read_schema(parts[0][0])
    with _writer(target, schema) as write:
        waiting, num_groups = schema.empty_table(), 0
        for table in _without(parts, column if column in schema.names else ""):
            waiting = pa.concat_tables([waiting, table.cast(schema)])
            while waiting.num_rows >= _GROUP:
                write(waiting.slice(0, _GROUP))
                waiting, num_groups = waiting.slice(_GROUP), num_groups + 1
        if waiting.num_rows or not num_groups:
            write(waiting)


def _without(parts: Sequence[tuple[Path, Collection[str]]], column: str) -> Iterator[pa.Table]:
    for path, values in parts:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number)
                if column and values:
                    table = table.filter(pc.invert(pc.is_in(table[column], value_set=pa.array(sorted(values)))))
                yield table


def take_rows(source: Path, target: Path, places: Sequence[int]) -> None:
    """Copy rows of any parquet file, by their numbers from 1, to a new file with the same columns and metadata."""
    table = pq.read_table(source)
    with durable.replacing(target) as draft:
        pq.write_table(table.take([place - 1 for place in places]), draft, compression="zstd")


def first_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """Read the first `count` rows of a parquet file as dictionaries."""
    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=count), None)
    return [] if batch is None else list(batch.to_pylist())


def read_foreign_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of any parquet file as dictionaries, some hundred at a time.

    Raises DocumentError if the file is not a parquet file.
    """
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=512):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise DocumentError(f"{path} is no parquet file: {error}", hint="fetch the file again") from error


def read_arrow(table: Any, name: str) -> list[dict[str, Any]]:
    """Read the rows of a table of pyarrow, pandas or polars. Raises DocumentError for a column of several types."""
    try:
        return list(pa.table(table).to_pylist())
    except pa.ArrowException as error:
        hint = "give each column one type, e.g. all answers as text"
        raise DocumentError(f"{name}: {', '.join(map(str, error.args))}", hint=hint) from error


def decompress_zstd(content: bytes) -> bytes:
    """Decompress Zstandard data, which Python's standard library does not support."""
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read())
