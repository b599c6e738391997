"""The paper's numbers in reports: every cell once, categories, headings of benchmarks."""

from collections import Counter
from decimal import Decimal

import pytest

from infuser_core.report import paper_numbers
from infuser_core.report.paper_numbers import sheets


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("humaneval_plus", "HumanEval+"),
        ("livecodebench", "LiveCodeBench v1-5"),
        ("olympiadbench_phys", "OlympiadBench (Phys)"),
        ("olympiadbench", "olympiadbench"),
        ("aime2024", "AIME2024"),
        ("nano_target", "nano_target"),
    ],
)
def test_benchmark_names_find_their_heading(name: str, row: str):
    known = [row for rows in sheets("main")[0].categories().values() for row in rows]
    assert paper_numbers.row_of(name, known) == row


def test_every_cell_stands_once():
    places = Counter((cell.table, cell.anchor, cell.column, cell.row) for cell in paper_numbers.cells())
    assert [place for place, count in places.items() if count > 1] == []
    assert len(places) == 906


def test_values_keep_their_decimals():
    found = paper_numbers.sheets("main")[0]
    cell = found.find("INFUSER", "MMLU-Pro")
    assert cell is not None
    assert (cell.text, cell.value, cell.digits, cell.deviation) == ("60.20", Decimal("60.20"), 2, Decimal("0.48"))
    assert found.find("R-Few", "AIME2024") is None


def test_categories_are_read_from_the_order_of_rows():
    sizes = {(found.table, tuple(map(len, found.categories().values()))) for found in paper_numbers.accuracy_sheets()}
    assert {size for table, size in sizes if table != "olmo"} == {(4, 6, 2, 2)}
    assert ("olmo", (4, 5, 2, 2)) in sizes
