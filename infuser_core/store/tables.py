"""Rows to parquet and back: frozen dataclasses on one side, arrow on the other."""

import dataclasses
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from infuser_core import durable, schemas
from infuser_core.errors import DocumentError

Row = TypeVar("Row")

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


def arrow_schema(row_type: type) -> pa.Schema:
    """The arrow schema of a row type, in field order; lists and optional fields included."""
    hints = typing.get_type_hints(row_type)
    fields = [(field.name, _arrow_type(hints[field.name])) for field in dataclasses.fields(row_type)]
    metadata = {"infuser_row": row_type.__name__, "infuser_schema": str(schemas.SCHEMA_VERSION)}
    return pa.schema([pa.field(name, kind) for name, kind in fields], metadata=metadata)


def _arrow_type(hint: Any) -> pa.DataType:
    origin = typing.get_origin(hint)
    if origin is list:
        return pa.list_(_arrow_type(typing.get_args(hint)[0]))
    if origin in (typing.Union, types.UnionType):
        (inner,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _arrow_type(inner)
    assert hint in _SCALARS, f"no parquet type for {hint}"
    return _SCALARS[hint]


def write_rows(path: Path, rows: Sequence[Any], row_type: type) -> None:
    """One zstd parquet file; an empty sequence gives a file with the schema and no rows."""
    schema = arrow_schema(row_type)
    names = schema.names
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    table = pa.table([pa.array(columns[name], schema.field(name).type) for name in names], schema=schema)
    pq.write_table(table, path, compression="zstd", compression_level=3, row_group_size=10_000)


def save_rows(path: Path, rows: Sequence[Any], row_type: type) -> None:
    """The same, durable and whole or not at all. Raises StoreError where it cannot be written."""
    hint = "free some space or choose another folder; then run the same command again"
    with durable.write_errors(path.parent, hint=hint), durable.replacing(path) as draft:
        write_rows(draft, rows, row_type)


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """The rows of one file, in order. A column that an older version did not have takes its field's default.

    Other unknown or missing columns are a programmer's error.
    """
    # `pq.read_table` gives the same and imports arrow's data sets for it.
    with pq.ParquetFile(path) as file:
        table = file.read()
    fields = dataclasses.fields(typing.cast(Any, row_type))
    known = [field.name for field in fields if field.name in table.column_names or field.default is dataclasses.MISSING]
    assert table.column_names == known, f"{path.name}: columns {table.column_names}, expected {known}"
    return [row_type(**row) for row in table.to_pylist()]


def head(path: Path, count: int) -> list[dict[str, Any]]:
    """The first rows of one file as dictionaries."""
    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=count), None)
    return [] if batch is None else list(batch.to_pylist())


def foreign_rows(path: Path, *, at_once: int = 512, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Rows of somebody else's parquet file as dictionaries, `at_once` of them in memory.

    With `columns` only those are read; one that the file does not have is left out. Raises DocumentError when the
    file is no parquet file.
    """
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=at_once, columns=columns):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise DocumentError(f"{path} is no parquet file: {error}", hint="fetch the file again") from error
