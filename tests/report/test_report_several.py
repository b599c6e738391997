"""One page for several runs: every figure has its numbers and its SQL, and no section is empty."""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_runs import HOSTILE, ITERATIONS, RUNS, looked_at, make, three_runs
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.results.report import outline, page
from infuser_core.results.report.build import newest_checks
from infuser_core.results.report.content import Report, ReportSection
from infuser_core.results.report.queries import report_runs
from infuser_core.store.runs import create_run, read_config
from infuser_core.store.store import Store
from infuser_core.store.views import Lens


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("several") / "store"
    names = three_runs(root)
    looked_at(root, names[0], [0, 2], {"base": 0.4, "strong": 0.8})
    return root


@pytest.fixture(scope="module")
def lens(root: Path) -> Iterator[Lens]:
    found = Lens(Store(root))
    yield found
    found.close()


def reported(lens: Lens, root: Path, names: list[str]) -> Report:
    chosen = report_runs({name: read_config(root, name) for name in names})
    return outline.runs_report(lens.query, chosen, checks=newest_checks(root, names))


@pytest.fixture(scope="module")
def report(lens: Lens, root: Path) -> Report:
    return reported(lens, root, list(RUNS))


def section(report: Report, title: str) -> ReportSection:
    return next(one for one in report.all_sections if one.title == title)


def cells(report: Report, title: str, table: int = 0) -> list[list[str]]:
    return section(report, title).tables[table].rows


def test_every_figure_has_a_table_and_its_sql(report: Report):
    for one in report.all_sections:
        assert not one.figures or (one.tables and one.tables[0].rows and one.sql), one.title
    assert sum(len(one.figures) for one in report.all_sections) >= 15


def test_every_statement_runs(report: Report, lens: Lens):
    statements = [statement for one in report.all_sections for statement in one.sql]
    assert len(statements) > 15
    for statement in statements:
        assert isinstance(lens.query(statement), list), statement


def test_the_page_shows_the_statements_that_ran(report: Report):
    shown = page.render(report)
    assert shown.count('<details class="sql">') == sum(bool(one.sql) for one in report.all_sections)
    assert "WITH chosen(run, variant, seed) AS (VALUES" in shown


def test_seeds_become_mean_deviation_and_ends(report: Report, lens: Lens):
    rows = [row for row in cells(report, "Validation accuracy") if row[0] == "tiny"]
    last = lens.query(
        "select accuracy from benchmark_scores where phase = 'validate' and iteration = ? and run like 'plain%'",
        [ITERATIONS],
    )
    values = [row["accuracy"] for row in last]
    expected = [statistics.mean(values), statistics.stdev(values), min(values), max(values)]
    assert rows[-1][:7] == ["tiny", str(ITERATIONS), "2", *(f"{100 * value:.1f}%" for value in expected)]


def test_a_single_seed_has_no_deviation(report: Report):
    (last,) = [row for row in cells(report, "Validation accuracy") if row[:2] == ["tiny-fixed", "3"]]
    assert last[4] == "-" and last[3] == last[5] == last[6]


def test_categories_are_those_that_the_benchmarks_declare(report: Report):
    found = {row[1] for row in cells(report, "Categories")}
    assert found == {"general", "math", "medical", "coding"}


def test_the_anchor_is_one_for_all_variants(report: Report):
    rows = cells(report, "Benchmarks")
    assert {row[0] for row in rows if row[2] == "anchor"} == {"anchor"}
    assert {row[0] for row in rows if row[2] == "selected"} == {"tiny", "tiny-fixed"}


def test_a_frozen_generator_has_no_influence_and_the_rest_has(report: Report):
    assert {row[0] for row in cells(report, "Influence")} == {"tiny"}


def test_the_dev_members_are_found_by_their_words(report: Report):
    rows = cells(report, "Leakage split")
    assert {row[1] for row in rows} == {"gpqa_diamond"}
    assert [row[3] for row in rows[:3]] == ["6", "18", "24"]


def test_pass_at_k_starts_at_the_accuracy(report: Report):
    first = next(row for row in cells(report, "pass@k") if row[:3] == ["math500", "tiny-fixed, selected", "1"])
    accuracy = next(
        row for row in cells(report, "Benchmarks") if row[:3] == ["tiny-fixed", "math500", "selected"]
    )  # fmt: skip
    assert first[3] == accuracy[4]


def test_the_gap_over_the_base_solver_is_drawn(report: Report):
    rows = cells(report, "Strong-against-weak gap")
    assert [row[0] for row in rows] == ["plain-1: base", "plain-1: strong"] * 2 and rows[1][5].startswith("+")


def test_settings_that_differ_are_listed(report: Report):
    assert cells(report, "Settings that differ") == [["cotrain.generator.update", "true", "false"]]


def test_coverage_adds_up_over_iterations(report: Report):
    rows = [row for row in cells(report, "Corpus coverage") if row[0] == "tiny"]
    assert [row[3] for row in rows] == ["25.0%", "50.0%", "75.0%"]


def test_a_sweep_makes_a_curve_over_the_setting(tmp_path: Path):
    for at, dev in enumerate((100, 200, 400)):
        make(tmp_path, f"r{at}", seed=at, dev_size=dev)
    lens = Lens(Store(tmp_path))
    found = reported(lens, tmp_path, ["r0", "r1", "r2"])
    lens.close()
    one = section(found, "Settings that differ")
    assert {row[0] for row in cells(found, "Runs")} == {"r0", "r1", "r2"}
    assert {row[1] for row in cells(found, "Runs")} == {f"tiny cotrain.dev_size={dev}" for dev in (100, 200, 400)}
    assert [row[1] for row in one.tables[1].rows[:3]] == ["100", "200", "400"]
    assert one.figures[0].xlabel == "cotrain.dev_size"


def test_a_frozen_solver_has_its_control(tmp_path: Path):
    make(tmp_path, "still", solver={"update": False})
    lens = Lens(Store(tmp_path))
    found = reported(lens, tmp_path, ["still"])
    lens.close()
    assert cells(found, "Frozen-solver control")[0][:2] == ["tiny", str(ITERATIONS)]


def test_no_section_is_empty(tmp_path: Path):
    create_run(tmp_path, "bare", {"name": "bare", "seed": 1})
    lens = Lens(Store(tmp_path))
    found = reported(lens, tmp_path, ["bare"])
    lens.close()
    assert [one.title for one in found.all_sections] == ["Runs"]


def test_hostile_text_is_shown_and_never_run(report: Report):
    shown = page.render(report)
    assert HOSTILE not in shown and "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown


def test_the_command_writes_page_and_figures(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(root))
    out, figures = tmp_path / "new" / "page.html", tmp_path / "figures"
    done = CliRunner().invoke(app, ["report", *RUNS, "--html", str(out), "--figures", str(figures)])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(out)
    assert {path.suffix for path in figures.iterdir()} == {".svg", ".png"}
    for path in figures.glob("*.svg"):
        assert (figures / f"{path.stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "var(" not in path.read_text() and "currentColor" not in path.read_text()
    again = tmp_path / "again.html"
    CliRunner().invoke(app, ["report", *RUNS, "--html", str(again)])
    assert again.read_bytes() == out.read_bytes()


def test_compare_prints_and_writes_the_page(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(root))
    out = tmp_path / "compare.html"
    done = CliRunner().invoke(app, ["report", "compare", *RUNS, "--json", "--html", str(out)])
    assert done.exit_code == 0, done.output
    assert [row["variant"] for row in json.loads(done.stdout)] == ["tiny", "tiny-fixed"]
    assert re.search(r"tiny minus tiny-fixed", out.read_text())


def test_chart_ids_do_not_meet(report: Report):
    ids = re.findall(r'\bid="([^"]*)"', page.render(report))
    assert len(ids) == len(set(ids))
