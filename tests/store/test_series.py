"""Long lists of numbers as arrays: the same rows and files as lists give, to the last bit."""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.cotrain.phases.training import by_group, train_group
from infuser_core.engines.training.packing import Packer
from infuser_core.schemas import Rollout, TrainerLogprobs
from infuser_core.store import tables
from infuser_core.store.series import Series
from infuser_core.store.tables import arrow_schema, read_rows, write_rows

WHOLE = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 200_000)
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


@given(st.lists(WHOLE, max_size=30))
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
        packed.append([packer.pack(segments, trim=trim) for segments in packer.plan(groups) for trim in (False, True)])
    names = ("input_ids", "position_ids", "predictors_S", "targets_S", "sampler_logprobs_S", "old_logprobs_S", "rows_S")
    for one, other in zip(*packed, strict=True):
        assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)
        expected = [token for tokens in one.targets_S.split(1) for token in tokens.tolist()]
        assert other.targets_S.tolist() == expected and one.input_ids.dtype == torch.int64
        assert one.sampler_logprobs_S.dtype == one.old_logprobs_S.dtype == dtype
