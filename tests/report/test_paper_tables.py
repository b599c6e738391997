"""The paper's numbers in reports, and our results beside them."""

import csv
import io
import re
import statistics
from collections import Counter
from decimal import Decimal

import pytest

from infuser_core.errors import UsageError
from infuser_core.report import paper_numbers, paper_tables, publication
from infuser_core.report.paper_numbers import sheets
from infuser_core.report.publication import render
from infuser_core.statistics.averages import Spread

ANCHOR = sheets("main")[0].anchor
OURS = {
    "base": {"mmlu_pro": [52.5], "gpqa_diamond": [31.0], "supergpqa": [26.0], "bbeh": [6.5], "own_exam": [1.0]},
    "ours": {
        "mmlu_pro": [60.0, 61.0, 62.0],
        "GPQA-Diamond": [36.0, 37.5, 38.0],
        "supergpqa": [33.0, 33.0, 33.5],
        "bbeh": [10.0, 12.0, 11.0],
    },
}


def line(table: publication.Layout, label: str) -> dict[str, Spread | None]:
    found = next(scores for row, scores, _ in table.lines() if row == label)
    return {method.name: score for method, score in zip(table.methods, found, strict=True)}


def ours() -> publication.Layout:
    return paper_tables.beside_paper(OURS, anchor=ANCHOR, base="base", intervals={"ours": {"mmlu_pro": (59.0, 63.0)}})


def test_our_columns_have_seeds_averages_and_improvements():
    table = ours()
    row = line(table, "MMLU-Pro")["ours"]
    assert row is not None and (row.mean, row.sd, row.seeds, row.low) == (61, 1.0, 3, 59.0)
    average = line(table, "Average: General")["ours"]
    seeds = [statistics.fmean(values) for values in zip(*OURS["ours"].values(), strict=True)]
    assert average is not None and float(average.mean) == pytest.approx(statistics.fmean(seeds))
    assert average.sd == pytest.approx(statistics.stdev(seeds))
    gain = line(table, "Relative improvement (%): General")["ours"]
    assert gain is not None and float(gain.mean) == pytest.approx(100 * (statistics.fmean(seeds) / 29.0 - 1))
    assert line(table, "Average: General")["base"] is not None
    assert line(table, "MATH500")["ours"] is None
    assert "Average: Overall" not in table.rows


def test_benchmarks_that_the_paper_has_not_stand_in_their_own_row():
    assert ours().rows[-1] == "own_exam"


def test_the_papers_columns_are_marked_and_as_printed():
    table = ours()
    assert [method.reported for method in table.methods] == [False, False, *[True] * 6]
    reported = table.methods[3]
    assert reported.name == "INFUSER" and reported.heading == "INFUSER (reported, not reproduced)"
    score = reported.scores["Relative improvement (%): General"]
    assert float(score.mean) == 20.26


def test_the_best_printed_number_is_bold_and_ties_are_all():
    table = render(paper_tables.printed_layout(sheets("main")[0]), "markdown")
    row = next(text for text in table.splitlines() if text.startswith("| MATH500"))
    assert row == "| MATH500 | 61.20 | 76.65 ± 1.10 | 76.85 | 73.90 | **78.00** | **78.00** |"
    row = next(text for text in table.splitlines() if text.startswith("| HMMT"))
    assert row.endswith("| **4.50** | -- | -- |")


def test_intervals_are_shown_on_demand():
    table = ours()
    assert "[59.00, 63.00]" not in render(table, "markdown").replace("\\", "")
    assert "**61.00** ± 1.00 [59.00, 63.00]" in render(table, "markdown", intervals=True).replace("\\", "")
    assert r"\textbf{61.00} $\pm$ 1.00 [59.00, 63.00]" in render(table, "latex", intervals=True)


def test_latex_is_balanced_and_escaped():
    text = render(ours(), "latex")
    assert text.count("{") == text.count("}") and text.count(r"\begin{") == text.count(r"\end{") == 2
    assert r"Relative improvement (\%): Math \& physics" in text and r"own\_exam" in text
    rows = [row for row in text.splitlines() if row.endswith(r"\\")]
    spans = [sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", row)) for row in rows]
    assert {row.replace(r"\&", "").count("&") + more for row, more in zip(rows, spans, strict=True)} == {8}
    assert publication.latex_escape(r"a\b{c}~^") == r"a\textbackslash{}b\{c\}\textasciitilde{}\textasciicircum{}"


def test_csv_holds_unrounded_numbers():
    rows = list(csv.DictReader(io.StringIO(render(ours(), "csv"))))
    mine = next(row for row in rows if (row["row"], row["method"]) == ("GPQA-Diamond", "ours"))
    assert float(mine["mean"]) == pytest.approx(111.5 / 3, abs=1e-12)
    assert (mine["printed"], mine["seeds"], mine["source"], mine["best"]) == ("37.17", "3", "measured", "0")
    assert {row["source"] for row in rows if row["method"] == "SPICE"} == {publication.REPORTED}


def test_what_does_not_exist_is_named():
    with pytest.raises(UsageError, match="no table 'main' for 'other'"):
        paper_tables.beside_paper(OURS, anchor="other")
    twice = [publication.Method(name="a", scores={})] * 2
    with pytest.raises(UsageError, match="two columns are called a"):
        publication.layout("t", twice, {})


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
    assert paper_tables.row_of(name, known) == row


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
