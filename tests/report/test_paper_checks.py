"""Recomputing the paper's numbers finds what holds, what rounding explains, and what cannot hold together."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.paper.check import Check, Recomputed, Status, judge, mean, quotient, same, sample_sd
from infuser_core.paper.consistency import counts, findings, paper_check
from infuser_core.report.paper_numbers import Cell
from infuser_core.statistics.rounding import half_up

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
