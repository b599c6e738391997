"""Rows to parquet and back: frozen dataclasses on one side, arrow on the other.

Fields of the type `Sequence[int]` or `Sequence[float]` are lists of 32-bit numbers in the file and come back as
`Series`: long ones go from array to array, without an object for each number.
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
from typing import Any, TypeVar

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
"""Most rows of a parquet row group."""
_GROUP_NUMBERS = 1 << 22
"""Numbers of series at which a row group ends, so that writer and reader hold little beside the rows themselves."""
_GROUP_BYTES = 1 << 30
"""Most bytes of a row group, unless one row has more: readers cannot read a list of texts of 2 GiB."""


def arrow_schema(row_type: type) -> pa.Schema:
    """The arrow schema of a row type, in field order; lists and optional fields included."""
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
    """One zstd parquet file in row groups of limited size; without rows a file with the schema alone."""
    with row_writer(path, row_type) as keep:
        for row in rows:
            keep(row)


@contextmanager
def row_writer(
    path: Path, row_type: type, *, group: int = _GROUP, group_bytes: int = _GROUP_BYTES
) -> Iterator[Callable[[Any], None]]:
    """A function that adds a row to such a file: one row group at a time is in memory."""
    schema, series = arrow_schema(row_type), _series_of(row_type)
    waiting: list[Any] = []
    numbers, written = 0, False

    with _writer(path, schema, group_bytes) as write:

        def end_group() -> None:
            nonlocal numbers, written
            columns = [
                _column([getattr(row, field.name) for row in waiting], field.type, series.get(field.name))
                for field in schema
            ]
            write(pa.table(columns, schema=schema))
            waiting.clear()
            numbers, written = 0, True

        def keep(row: Any) -> None:
            nonlocal numbers
            waiting.append(row)
            numbers += sum(len(getattr(row, name)) for name in series)
            if len(waiting) == group or numbers >= _GROUP_NUMBERS:
                end_group()

        yield keep
        if waiting or not written:
            end_group()


@contextmanager
def _writer(path: Path, schema: pa.Schema, group_bytes: int = _GROUP_BYTES) -> Iterator[Callable[[pa.Table], None]]:
    """A function that adds a table as a row group, or as several where it is large.

    Least and largest value of a column leave NaN out, and readers skip the row groups that hold one: such a column is
    written again without them.
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
    """Numbers in lists are packed byte by byte of their places, for tokens and log-probabilities repeat in few of
    them; of a dictionary, or of the least and largest number, they have no use, and the rest has."""
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
    """Fields that hold a sequence of numbers, and whether those are int or float."""
    hints = typing.get_type_hints(row_type)
    return {name: typing.get_args(hint)[0] for name, hint in hints.items() if typing.get_origin(hint) is Sequence}


def _column(values: list[Any], kind: pa.DataType, numbers: type | None) -> pa.Array:
    if numbers is None:
        return pa.array(values, kind)
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    flat = np.concatenate([np.empty(0, KINDS[numbers]), *(np.asarray(each, KINDS[numbers]) for each in values)])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat), type=kind)


def save_rows(path: Path, rows: Sequence[Any], row_type: type) -> None:
    """The same, durable and whole or not at all. Raises StoreError where it cannot be written."""
    hint = "free some space or choose another folder; then run the same command again"
    with durable.write_errors(path.parent, hint=hint), durable.replacing(path) as draft:
        write_rows(draft, rows, row_type)


class TableRows(Sequence[Row]):
    """The rows of one file, in order, read a row group at a time as they are asked for.

    A column that an older version did not have takes its field's default. Other unknown or missing columns are a
    programmer's error.
    """

    def __init__(self, path: Path, row_type: type[Row]) -> None:
        self._path, self._type = path, row_type
        # `pq.read_table` gives the same and imports arrow's data sets for it.
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
        """Row groups of the file."""
        return int(self._metadata.num_row_groups)

    def group(self, number: int) -> list[Row]:
        """The rows of one group."""
        # A reader of its own: one is not for several threads.
        with pq.ParquetFile(self._path, metadata=self._metadata) as own:
            # A series at a time, so that its arrow form is gone before the next one.
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
    """All rows of one file; see TableRows."""
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
    """The rows of several files of one kind as `write_rows` would have written them, a row group at a time.

    Of each file the rows are left out whose `column` has one of its values; an empty name leaves out none. A table
    without that column is copied whole.
    """
    schema = pq.read_schema(parts[0][0])
    with _writer(target, schema) as write:
        waiting, written = schema.empty_table(), 0
        for table in _without(parts, column if column in schema.names else ""):
            waiting = pa.concat_tables([waiting, table.cast(schema)])
            while waiting.num_rows >= _GROUP:
                write(waiting.slice(0, _GROUP))
                waiting, written = waiting.slice(_GROUP), written + 1
        if waiting.num_rows or not written:
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
    """Write some rows of somebody's parquet file, by place from 1, with its columns and metadata."""
    table = pq.read_table(source)
    with durable.replacing(target) as draft:
        pq.write_table(table.take([place - 1 for place in places]), draft, compression="zstd")


def first_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """The first rows of one file as dictionaries."""
    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=count), None)
    return [] if batch is None else list(batch.to_pylist())


def read_foreign_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of somebody else's parquet file as dictionaries, some hundred of them in memory.

    Raises DocumentError when the file is no parquet file.
    """
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=512):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise DocumentError(f"{path} is no parquet file: {error}", hint="fetch the file again") from error


def decompress_zstd(content: bytes) -> bytes:
    """Content that was packed by Zstandard, which Python's own libraries do not read."""
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read())
