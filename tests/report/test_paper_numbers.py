"""The paper's numbers are package data that reads as it was printed."""

from collections import Counter
from decimal import Decimal

from infuser_core.report import paper_numbers


def test_every_cell_stands_once():
    places = Counter((cell.table, cell.anchor, cell.column, cell.row) for cell in paper_numbers.cells())
    assert [place for place, count in places.items() if count > 1] == []
    assert len(places) == 906


def test_values_keep_their_decimals():
    found = paper_numbers.sheet("main", paper_numbers.sheets("main")[0].anchor)
    assert found is not None
    cell = found.find("INFUSER", "MMLU-Pro")
    assert cell is not None
    assert (cell.text, cell.value, cell.digits, cell.deviation) == ("60.20", Decimal("60.20"), 2, Decimal("0.48"))
    assert cell.slack == Decimal("0.005")
    assert found.find("R-Few", "AIME2024") is None


def test_categories_are_read_from_the_order_of_rows():
    sizes = {(found.table, tuple(map(len, found.categories().values()))) for found in paper_numbers.accuracy_sheets()}
    assert {size for table, size in sizes if table != "olmo"} == {(4, 6, 2, 2)}
    assert ("olmo", (4, 5, 2, 2)) in sizes


def test_samples_follow_the_sampling_table():
    expected = {"AIME2024": 32, "HMMT": 32, "HumanEval+": 8, "GPQA-Diamond": 5, "MATH500": 4, "LiveCodeBench v1-5": 2}
    assert {row: paper_numbers.samples(row) for row in expected} == expected
    assert {paper_numbers.samples(row) for row in paper_numbers.questions() if row not in expected} == {1, 32}
    assert paper_numbers.samples("AIME2025") == 32


def test_every_benchmark_row_of_two_decimals_has_its_questions():
    rows = {
        cell.row
        for found in paper_numbers.accuracy_sheets()
        for cell in found.cells
        if paper_numbers.is_benchmark(cell.row) and cell.digits == 2
    }
    assert rows == set(paper_numbers.questions())
