"""Recomputing the paper's numbers finds what holds, what rounding explains, and what cannot hold together."""

from decimal import Decimal
from fractions import Fraction

import pytest
from feasible import best_row_fits, columns, count_of, paper_cell, questions, row_fit, runs_needed, samples
from hypothesis import given
from hypothesis import strategies as st
from inconsistencies import counts, findings, page, paper_check
from places import ROOT
from recompute import Check, Recomputed, Status, judge, mean, quotient, same, sample_sd

from infuser_core.report import paper_numbers
from infuser_core.report.paper_numbers import Cell
from infuser_core.statistics.averages import half_up

EXPECTED = {
    "main": (63, 1, 0),
    "ablation": (31, 1, 0),
    "glr": (48, 2, 0),
    "olmo": (15, 1, 0),
    "hybrid": (14, 2, 0),
    "gen_quality": (3, 0, 0),
    "dev_leakage": (4, 0, 0),
    "text_deltas": (8, 0, 0),
    "dev_size": (9, 0, 0),
    "val_quota": (1, 0, 0),
}


def apart(kind: str, status: str) -> list[Check]:
    return [check for check in paper_check() if check.kind == kind and check.status == status]


@pytest.mark.parametrize("group", EXPECTED)
def test_counts_by_table(group: str):
    found = {count.group: (count.exact, count.rounding, count.inconsistent) for count in counts(paper_check())}
    assert found[group] == EXPECTED[group]


def test_tables_that_print_the_same_number_twice_disagree_in_five_cells():
    found = {
        (check.table, check.cell.split(" / ", 1)[1], check.printed, check.recomputed)
        for check in apart("cross-table", "inconsistent")
    }
    assert found == {
        ("glr", "Base / BBEH", "5.18", "7.57"),
        ("glr", "Base / Category average: General", "28.86", "29.46"),
        ("dev_size", "14-benchmark mean / Base", "28.95", "28.78"),
        ("dev_size", "General / dev 800", "35.63", "35.51"),
        ("dev_size", "14-benchmark mean / dev 800", "33.54", "33.51"),
    }


def test_deviations_printed_in_two_ways_are_within_rounding():
    found = {(check.printed, check.recomputed) for check in apart("cross-table", "within rounding")}
    assert found == {("0.96", "0.97"), ("0.37", "0.36"), ("36.63", "36.64")}


def test_the_third_seed_gives_all_printed_deviations():
    found = [check for check in paper_check() if check.kind == "derived" and check.table == "main"]
    assert len([check for check in found if "Category average" not in check.cell]) == 14
    assert {check.status for check in found} == {"exact", "within rounding"}
    assert all(abs(Decimal(check.printed) - Decimal(check.recomputed)) <= Decimal("0.015") for check in found)


def test_the_sample_sizes_of_the_mixture_cannot_both_hold():
    (check,) = [check for check in paper_check() if check.table == "corpus" and check.status == "inconsistent"]
    assert (check.printed, check.recomputed) == ("2152111", "2075775")


def test_standard_deviations_are_those_of_samples():
    found = [check for check in paper_check() if check.kind == "sd"]
    assert len(found) == 8 and {check.status for check in found} == {"exact"}
    (wide,) = [check for check in found if check.printed == "2.80"]
    assert "population formula gives 2.29" in wide.note


def test_the_iterations_seconds_add_up_within_rounding():
    found = [check for check in paper_check() if check.table == "wall_clock" and check.kind == "sum"]
    assert sorted((check.printed, check.recomputed, str(check.status)) for check in found) == [
        ("100", "100", "exact"),
        ("100", "100", "exact"),
        ("1730", "1730", "exact"),
        ("2761", "2762", "within rounding"),
    ]


def test_findings_name_the_single_seeds_and_the_mean_of_three():
    said = "\n".join(findings())
    assert "the column INFUSER is Science-only: seed 456" in said
    assert "the column 4e-6 is Science-only: seed 42" in said
    assert "Dev-only 32.21 lies below that seed (33.31) but above the mean of the seeds (31.49)" in said
    assert "10 of 14 cells of the column 6e-6 are no single run's; as a mean of 3 runs 0 miss" in said
    assert "5 of 28 cells that are means over seeds" in said
    assert "79 of 81 distinct category averages" in said and "65 are means in binary" in said
    assert "6 distinct cells lie halfway between two decimals, 6 of them" in said
    assert "BBEH: 4494 questions explain 20 of 20 distinct single-run cells; next 4493: 17" in said


def cell(text: str, std: str = "") -> Cell:
    return Cell(table="t", anchor="a", column="c", row="r", text=text, std=std)


numbers = st.decimals(1, 99, places=6)


@given(st.lists(numbers, min_size=2, max_size=6), st.integers(0, 3))
def test_numbers_that_were_rounded_apart_are_never_called_inconsistent(values: list[Decimal], digits: int):
    cells = [cell(str(half_up(value, digits))) for value in values]
    true = sum(map(Fraction, values), Fraction(0)) / len(values)
    assert judge(half_up(true, digits), digits, mean(cells)) != Status.INCONSISTENT
    deviation = sample_sd([Recomputed(value=Fraction(value), slack=Fraction(0)) for value in values])
    assert judge(half_up(deviation.value, digits), digits, sample_sd([same(one) for one in cells])) != "inconsistent"


@given(numbers, numbers)
def test_a_ratio_of_rounded_numbers_holds_the_true_one(first: Decimal, second: Decimal):
    cells = [same(cell(str(half_up(value, 1)))) for value in (first, second)]
    true = 100 * (Fraction(first) / Fraction(second) - 1)
    assert judge(half_up(true, 2), 2, quotient(*cells, scale=100, shift=-1)) != Status.INCONSISTENT


def test_a_number_off_by_more_than_rounding_is_inconsistent():
    assert judge(Decimal("10.02"), 2, mean([cell("10.00"), cell("10.00")])) == Status.INCONSISTENT
    assert judge(Decimal("10.01"), 2, mean([cell("10.00"), cell("10.00")])) == Status.ROUNDING
    assert judge(Decimal("10.00"), 2, mean([cell("10.00"), cell("10.00")])) == Status.EXACT


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


def test_the_page_in_the_docs_is_what_the_script_writes():
    assert (ROOT / "docs" / "paper-inconsistencies.md").read_text(encoding="utf-8") == page()


def test_samples_and_questions_of_every_benchmark_are_known():
    expected = {"AIME2024": 32, "HMMT": 32, "HumanEval+": 8, "GPQA-Diamond": 5, "MATH500": 4, "LiveCodeBench v1-5": 2}
    assert {row: samples(row) for row in expected} == expected
    assert {samples(row) for row in questions() if row not in expected} == {1, 32}
    rows = {
        cell.row
        for found in paper_numbers.accuracy_sheets()
        for cell in found.cells
        if paper_numbers.is_benchmark(cell.row) and cell.digits == 2
    }
    assert rows == set(questions())


@pytest.mark.parametrize(
    ("correct", "total", "shown"),
    [(114, 960, "11.87"), (90, 960, "9.38"), (102, 960, "10.62"), (126, 960, "13.13"), (1025, 1312, "78.12")],
)
def test_cells_at_a_tie_print_as_binary_shares_do(correct: int, total: int, shown: str):
    assert paper_cell(correct, total) == Decimal(shown)
