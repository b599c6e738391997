"""A printed accuracy is a number of correct responses, or it is not."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.paper.consistency import paper_check
from infuser_core.paper.feasible import best_row_fits, columns, count_of, row_fit, runs_needed
from infuser_core.statistics.rounding import paper_cell


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(st.integers(1, 4000))
    return draw(st.integers(0, total)), total


@given(runs())
def test_every_number_of_correct_responses_is_found_again(run: tuple[int, int]):
    count, total = run
    value = paper_cell(count, total)
    found = count_of(value, total)
    assert found is not None and paper_cell(found, total) == value


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_the_search_agrees_with_trying_every_number(hundredths: int, total: int):
    value = Decimal(hundredths) / 100
    every = any(paper_cell(count, total) == value for count in range(total + 1))
    assert (count_of(value, total) is not None) is every


@pytest.mark.parametrize(
    ("value", "total", "count"),
    [
        ("35.31", 674, 238),
        ("10.17", 236, 24),
        ("55.46", 1273, 706),
        ("13.02", 2450, 319),
        ("20.68", 1760, 364),
        ("10.42", 960, 100),
        ("2.49", 2976, 74),
        ("32.37", 800, 259),
        ("86.50", 800, 692),
        ("41.85", 800, None),
    ],
)
def test_known_cells(value: str, total: int, count: int | None):
    assert count_of(Decimal(value), total) == count


def test_a_value_that_one_run_cannot_have_several_can():
    assert runs_needed(Decimal("12.01"), 236) == 3
    assert runs_needed(Decimal("10.17"), 236) == 1
    assert runs_needed(Decimal("33.33"), 1, most=2) is None


@pytest.mark.parametrize(
    ("row", "number", "fits", "cells"),
    [
        ("OlympiadBench (Phys)", 236, 11, 11),
        ("OlympiadBench (Math)", 674, 17, 17),
        ("MedQA", 1273, 18, 18),
        ("MedXpertQA", 2450, 15, 15),
        ("GPQA-Diamond", 198, 19, 19),
        ("AIME2024", 30, 18, 18),
        ("HMMT", 93, 17, 17),
        ("LiveCodeBench v1-5", 880, 18, 18),
        ("HumanEval+", 164, 17, 19),
        ("BBEH", 4494, 20, 20),
        ("BBEH", 4493, 17, 20),
        ("BBEH", 4520, 9, 20),
    ],
)
def test_questions_recovered_from_cells(row: str, number: int, fits: int, cells: int):
    found = row_fit(row, number)
    assert (found.fits, found.cells) == (fits, cells)
    assert best_row_fits(row, best=1)[0].fits >= fits


def test_numbers_taken_over_with_one_decimal_are_not_tested():
    assert not {"R-Few", "SPICE"} & {column.name for column in columns()}


def test_one_column_of_the_sweep_is_no_single_run():
    missing = {(c.table, c.anchor, c.name): len(c.misses) for c in columns() if c.table == "glr" and c.misses}
    assert sorted(missing.values()) == [1, 10]
    ten = next(place for place, count in missing.items() if count == 10)
    assert ten[2] == "6e-6"


def test_every_cell_of_the_table_has_its_check():
    checks = [check for check in paper_check() if check.kind == "feasibility"]
    assert len(checks) == sum(len(column.cells) for column in columns()) + 6
    assert [c.printed for c in checks if c.table == "dev_leakage" and c.status == "inconsistent"] == ["41.85"]
