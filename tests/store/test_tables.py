"""Rows and series survive the way to parquet and back, bit for bit; the formats are pinned."""

import dataclasses
import json
import math
import os
import pickle
import typing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import places
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infuser_core import schemas
from infuser_core.cotrain.phases.training import SharedBackward, by_group, train_group
from infuser_core.engines.training.packing import Packer
from infuser_core.schemas import Rollout, TrainerLogprobs
from infuser_core.store import tables
from infuser_core.store.series import Series
from infuser_core.store.tables import arrow_schema, concatenate_files, first_rows, read_rows, row_writer, write_rows
from infuser_core.store.views import TABLES

GOLDEN = places.GOLDEN / "schemas.json"
ROW_TYPES = sorted({*TABLES.values()}, key=lambda kind: kind.__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """Every kind of field that a row may have."""

    text: str
    """Text."""
    count: int
    """A whole number."""
    value: float
    """A number."""
    flag: bool
    """True or false."""
    words: list[str]
    """Texts."""
    nested: list[list[float]]
    """Lists of numbers."""
    maybe: int | None
    """A number or nothing."""
    maybe_words: list[str] | None
    """Texts or nothing."""


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBER = st.floats(allow_nan=False)
EVERYTHING = st.builds(
    Everything,
    text=TEXT,
    count=WHOLE,
    value=NUMBER,
    flag=st.booleans(),
    words=st.lists(TEXT, max_size=3),
    nested=st.lists(st.lists(NUMBER, max_size=3), max_size=3),
    maybe=st.none() | WHOLE,
    maybe_words=st.none() | st.lists(TEXT, max_size=2),
)


def strategy(row_type: type) -> st.SearchStrategy:
    """Any row of a type."""
    hints = typing.get_type_hints(row_type)
    values = {str: TEXT, int: WHOLE, float: NUMBER, bool: st.booleans()}
    listed = {list[kind]: st.lists(values[kind], max_size=3) for kind in values}
    optional = {kind | None: st.none() | values[kind] for kind in values}
    series = {
        Sequence[int]: st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        Sequence[float]: st.lists(st.floats(allow_nan=False, width=32), max_size=3),
    }
    known = values | listed | optional | series
    return st.builds(row_type, **{name: known[hint] for name, hint in hints.items()})


@given(st.lists(EVERYTHING, max_size=4))
def test_every_kind_of_field_survives(tmp_path_factory: pytest.TempPathFactory, rows: list[Everything]):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_rows(path, rows, Everything)
    read = read_rows(path, Everything)
    # repr also tells 0.0 from -0.0 and 1 from True.
    assert repr(read) == repr(rows)


@given(st.data())
def test_every_noun_survives(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    row_type = data.draw(st.sampled_from(ROW_TYPES))
    rows = data.draw(st.lists(strategy(row_type), max_size=2))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_rows(path, rows, row_type)
    assert repr(read_rows(path, row_type)) == repr(rows)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path):
    rows = [schemas.Topic(domain="Physics", subdomain=f"part {number}", num_questions=number) for number in range(100)]
    for name in ("one", "other"):
        write_rows(tmp_path / name, rows, schemas.Topic)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    name: str
    value: float | None
    words: list[str]


def measures(*values: float | None) -> list[Measure]:
    return [Measure(name=f"m{place}", value=value, words=["w" * 99] * 9) for place, value in enumerate(values)]


def groups_and_statistics(path: Path) -> list[tuple[int, bool]]:
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        return [(group.num_rows, group.column(1).statistics is not None) for group in groups]


@pytest.mark.parametrize("values", [(1.0, math.nan, 2.0), (math.nan, None, math.nan), (7.0, None, math.nan, -math.inf)])
def test_sql_finds_nan(tmp_path: Path, values: tuple[float | None, ...]):
    written, joined = tmp_path / "rows.parquet", tmp_path / "joined.parquet"
    rows = measures(*values)
    with row_writer(written, Measure, group=1) as keep:
        for row in rows:
            keep(row)
    concatenate_files([(written, []), (written, ["m0"])], joined, column="name")
    assert repr(read_rows(written, Measure)) == repr(rows)
    for path, expected in ((written, rows), (joined, rows + rows[1:])):
        numbers = [row.value for row in expected if row.value is not None]
        for question, holds in {
            "isnan(value)": math.isnan,
            "value <= 2": lambda number: number <= 2,
            "value > 5": lambda number: math.isnan(number) or number > 5,  # SQL orders NaN after every number
        }.items():
            ((count,),) = duckdb.sql(f"select count(*) from '{path}' where {question}").fetchall()
            assert count == sum(map(holds, numbers)), (path.name, question)
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".tmp"] == []


def test_statistics_go_only_where_nan_is(tmp_path: Path):
    for name, values, statistics in (("plain", (1.0, 2.0), True), ("nan", (1.0, math.nan), False)):
        write_rows(tmp_path / name, measures(*values), Measure)
        assert groups_and_statistics(tmp_path / name) == [(2, statistics)]


def test_a_row_group_ends_before_its_texts_are_too_long_to_read(tmp_path: Path):
    rows, path = measures(*map(float, range(50)), math.nan), tmp_path / "rows.parquet"
    with row_writer(path, Measure, group_bytes=10_000) as keep:
        for row in rows:
            keep(row)
    groups = groups_and_statistics(path)
    assert len(groups) > 4 and all(rows < 12 for rows, _ in groups)
    assert repr(read_rows(path, Measure)) == repr(rows)
    with row_writer(path, Measure, group_bytes=1) as keep:
        keep(rows[0])
    assert read_rows(path, Measure) == rows[:1], "one row is written whole, whatever its length"


def test_no_rows_keep_their_columns(tmp_path: Path):
    write_rows(tmp_path / "rows.parquet", [], schemas.Rollout)
    assert read_rows(tmp_path / "rows.parquet", schemas.Rollout) == []
    assert pq.read_schema(tmp_path / "rows.parquet").equals(arrow_schema(schemas.Rollout))


def test_a_page_shows_the_first_rows(tmp_path: Path):
    rows = [schemas.AuditFact(name=str(number), value=number) for number in range(9)]
    write_rows(tmp_path / "rows.parquet", rows, schemas.AuditFact)
    assert first_rows(tmp_path / "rows.parquet", 2) == [{"name": "0", "value": 0.0}, {"name": "1", "value": 1.0}]
    write_rows(tmp_path / "none.parquet", [], schemas.AuditFact)
    assert first_rows(tmp_path / "none.parquet", 2) == []


def test_rows_of_another_type_are_refused(tmp_path: Path):
    write_rows(tmp_path / "rows.parquet", [], schemas.Topic)
    with pytest.raises(AssertionError, match="columns"):
        read_rows(tmp_path / "rows.parquet", schemas.Source)


def test_tables_are_compressed_with_zstd(tmp_path: Path):
    write_rows(tmp_path / "rows.parquet", [schemas.AuditFact(name="a", value=1.0)], schemas.AuditFact)
    assert pq.ParquetFile(tmp_path / "rows.parquet").metadata.row_group(0).column(0).compression == "ZSTD"


def test_formats_are_pinned():
    formats = {
        table: {field.name: str(field.type) for field in arrow_schema(row_type)} for table, row_type in TABLES.items()
    }
    found = {"schema_version": schemas.SCHEMA_VERSION, "tables": formats}
    if os.environ.get("INFUSER_REFRESH_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    # The text also compares the order of columns, which is part of the format.
    assert json.dumps(found, indent=1) + "\n" == GOLDEN.read_text(), (
        "a table's columns changed, and stores in the field have the old ones: raise schemas.SCHEMA_VERSION and the "
        "VERSION of the phases that write the table, then INFUSER_REFRESH_GOLDEN=1 pytest tests/store/test_tables.py"
    )


def test_a_column_means_the_same_in_every_table_and_every_identifier_names_a_row():
    known: dict[str, tuple[str, str, str, bool]] = {}
    for row_type in TABLES.values():
        for name, column in schemas.columns(row_type).items():
            meaning = (column.label, column.unit, column.refers_to, column.is_text)
            assert known.setdefault(name, meaning) == meaning, (row_type, name)
            assert column.refers_to or not name.endswith("_id") or name == "record_id", (row_type, name)
        names = schemas.columns(row_type)
        assert len({schemas.heading(name) for name in names}) == len(names), row_type


def test_the_empty_table_of_scores_has_the_columns_that_digests_of_scores_depend_on():
    counts = ["num_groups", "num_responses", "cut", "flat_share", "num_tokens", "loss"]
    schema = arrow_schema(SharedBackward)
    assert schema.names == [*counts, *schemas.TOKEN_MEANS]
    assert [schema.field(name).type for name in schema.names] == [
        pa.float64() if name not in ("num_groups", "num_responses", "cut", "num_tokens") else pa.int64()
        for name in schema.names
    ]


COUNTS = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 200_000)
REAL = st.floats(width=32)


def bits(values: object) -> bytes:
    return np.asarray(values, dtype=np.float64).tobytes()


def rollout(place: int, tokens: list[int], logprobs: list[float]) -> Rollout:
    return Rollout(
        rollout_id=f"g{place // 2}/{place % 2}",
        group_id=f"g{place // 2}",
        sample_index=place % 2,
        role="solver",
        checkpoint_id="c",
        prompt_token_ids=[place // 2, 7],
        token_ids=tokens,
        sampler_logprobs=logprobs,
        text="text",
        finish_reason="stop",
        verdict="correct",
        reward=1.0,
        malformed_reason="",
    )


def drawn(count: int, length: int = 40) -> list[Rollout]:
    draw = np.random.default_rng(count)
    return [
        rollout(
            place, draw.integers(0, 150_000, size).tolist(), (-draw.exponential(size=size)).astype(np.float32).tolist()
        )
        for place, size in enumerate(draw.integers(1, length, count))
    ]


def written_plainly(path: Path, rows: list[Rollout]) -> None:
    """The whole table from Python's lists in one call."""
    schema = arrow_schema(Rollout)
    columns = [pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names]
    table = pa.table(columns, schema=schema)
    numbers = ("prompt_token_ids", "token_ids", "sampler_logprobs")
    repeated = [name for name in schema.names if name not in numbers]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=10_000,
        use_dictionary=repeated,
        write_statistics=repeated,
        use_byte_stream_split=[f"{name}.list.element" for name in numbers],
    )


@given(st.lists(COUNTS, max_size=30))
def test_a_series_is_a_list_to_its_readers(numbers: list[int]):
    series = Series.of(numbers, int)
    assert series == numbers and numbers == series and list(series) == numbers and len(series) == len(numbers)
    assert [series[place] for place in range(len(numbers))] == numbers and bool(series) == bool(numbers)
    assert series[1:5] == numbers[1:5] and repr(series) == repr(numbers) and json.loads(repr(series)) == numbers
    assert pickle.loads(pickle.dumps(series)) == series == Series.of(np.asarray(numbers, np.int64), int)
    assert [1, *numbers] == [1] + series and [*numbers, 1] == series + [1]  # noqa: RUF005
    assert series != [*numbers, 1] and series != "x"
    assert np.asarray(series, dtype=np.int64).tolist() == numbers


@given(st.lists(REAL, max_size=30))
def test_no_bit_of_a_real_number_is_lost(numbers: list[float]):
    series = Series.of(numbers, float)
    assert bits(series) == bits(numbers) == bits(list(series))


def test_numbers_take_32_bits_and_are_a_copy():
    assert np.asarray(Series.of([1, 2**31 - 1], int)).dtype == np.int32
    assert np.asarray(Series.of([0.1, math.inf, math.nan, -0.0], float)).dtype == np.float32
    with pytest.raises(OverflowError):
        Series.of([2**31], int)
    changing = np.zeros(3, np.float32)
    kept = Series.of(changing, float)
    changing[:] = 1
    assert kept == [0.0, 0.0, 0.0]


def test_files_of_64_bits_from_older_versions_are_read(tmp_path: Path):
    rows = drawn(7)
    write_rows(tmp_path / "now", rows, Rollout)
    wide = {
        name: pa.list_(pa.float64() if name == "sampler_logprobs" else pa.int64())
        for name in ("prompt_token_ids", "token_ids", "sampler_logprobs")
    }
    table = pq.read_table(tmp_path / "now")
    schema = pa.schema([pa.field(field.name, wide.get(field.name, field.type)) for field in table.schema])
    pq.write_table(table.cast(schema), tmp_path / "before")
    assert read_rows(tmp_path / "before", Rollout) == rows


@pytest.mark.parametrize("count", [0, 1, 7])
def test_files_have_the_bytes_of_a_table_of_lists(tmp_path: Path, count: int):
    rows = drawn(count)
    written_plainly(tmp_path / "plain", rows)
    write_rows(tmp_path / "lists", rows, Rollout)
    back = read_rows(tmp_path / "lists", Rollout)
    write_rows(tmp_path / "series", back, Rollout)
    assert back == rows and all(isinstance(row.token_ids, Series) for row in back)
    assert len({(tmp_path / name).read_bytes() for name in ("plain", "lists", "series")}) == 1


def test_many_numbers_make_several_row_groups_that_come_back_in_order(tmp_path: Path):
    numbers = tables._GROUP_NUMBERS
    tokens = np.arange(numbers // 2 + 5)
    rows = [rollout(place, Series.of(tokens + place, int), Series.of(tokens / 3, float)) for place in range(3)]
    rows.append(rollout(3, [], []))
    write_rows(tmp_path / "rows", rows, Rollout)
    with pq.ParquetFile(tmp_path / "rows") as file:
        assert file.num_row_groups == 4 and file.read().num_rows == 4
    assert read_rows(tmp_path / "rows", Rollout) == rows


def test_log_probabilities_of_the_trainer_come_back_to_the_last_bit(tmp_path: Path):
    narrow = Series.of([-0.1, -1e-30, -0.0], float)
    rows = [
        TrainerLogprobs(rollout_id="r", logprobs=narrow),
        TrainerLogprobs(rollout_id="s", logprobs=[]),
    ]
    write_rows(tmp_path / "rows", rows, TrainerLogprobs)
    assert [bits(row.logprobs) for row in read_rows(tmp_path / "rows", TrainerLogprobs)] == [
        bits(row.logprobs) for row in rows
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_packed_tensors_of_series_and_of_lists_are_the_same(dtype: torch.dtype):
    rows = drawn(12)
    stored = [
        replace(
            row,
            prompt_token_ids=Series.of(row.prompt_token_ids, int),
            token_ids=Series.of(row.token_ids, int),
            sampler_logprobs=Series.of(row.sampler_logprobs, float),
        )
        for row in rows
    ]
    packer = Packer(token_budget=100, device=torch.device("cpu"), dtype=dtype, layout=lambda shapes, device: shapes)  # type: ignore[arg-type,return-value]
    packed = []
    for each in (rows, stored):
        old = {row.rollout_id: row.sampler_logprobs for row in each}
        groups = [train_group(own, [1.0, -1.0], old) for own in by_group(each).values()]
        packed.append([packer.pack(segments) for segments in packer.plan(groups)])
    names = ("input_ids", "position_ids", "predictors_S", "targets_S", "sampler_logprobs_S", "old_logprobs_S", "rows_S")
    for one, other in zip(*packed, strict=True):
        assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)
        expected = [token for tokens in one.targets_S.split(1) for token in tokens.tolist()]
        assert other.targets_S.tolist() == expected and one.input_ids.dtype == torch.int64
        assert one.sampler_logprobs_S.dtype == one.old_logprobs_S.dtype == dtype
