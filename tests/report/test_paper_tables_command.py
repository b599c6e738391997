"""`infuser report tables`: three ways to write a table, pinned by files, and our runs beside the paper's numbers.

`INFUSER_GOLDEN=write` writes the files again.
"""

import csv
import io
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest
from places import TESTS
from report_runs import three_runs
from typer.testing import CliRunner

from flows.cli.main import app
from infuser_core.errors import UsageError
from infuser_core.report.paper_numbers import sheets
from infuser_core.report.publication import REPORTED
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

GOLDEN = TESTS / "golden_tables"
ENDINGS = {"markdown": "md", "latex": "tex", "csv": "csv"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables") / "store"
    three_runs(root)
    return root


@pytest.fixture
def said(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(root))

    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["report", "tables", *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return said


@pytest.mark.parametrize("style", ENDINGS)
def test_our_runs_beside_the_paper_are_pinned(said, style: str):
    written = said("plain-1", "plain-2", "fixed-1", "--table", "main", "--intervals", "--format", style)
    path = GOLDEN / f"runs.{ENDINGS[style]}"
    if os.environ.get("INFUSER_GOLDEN") == "write":
        path.write_text(written)
    assert written == path.read_text()


@pytest.mark.parametrize("table", ["main", "ablation", "dev_leakage"])
def test_the_papers_tables_are_pinned(said, table: str):
    written = said("--table", table, "--format", "latex")
    path = GOLDEN / f"paper-{table}.tex"
    if os.environ.get("INFUSER_GOLDEN") == "write":
        path.write_text(written)
    assert written == path.read_text()


def test_every_table_of_the_paper_is_written_in_every_way(said):
    for style in ENDINGS:
        assert said("--format", style)
    latex = said("--format", "latex")
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == len(sheets())
    for table in latex.split(r"\end{table}")[:-1]:
        plain = re.sub(r"\\[{}]", "", table)
        assert plain.count("{") == plain.count("}"), table[:200]
        rows = [row.replace(r"\&", "") for row in table.splitlines() if row.endswith(r"\\")]
        spans = [sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", row)) for row in rows]
        assert len({row.count("&") + more for row, more in zip(rows, spans, strict=True)}) == 1, table[:200]
        assert not re.search(r"(?<!\\)[%#_]", table.replace("% \\usepackage", "")), table[:200]


def latex_has(package: str) -> bool:
    """Whether a TeX with this package is installed: its parts come one by one."""
    asked = ["kpsewhich", f"{package}.sty"]
    return (
        shutil.which("pdflatex") is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not latex_has("booktabs"), reason="needs pdflatex with booktabs")
def test_latex_compiles_with_the_packages_that_it_names(said, tmp_path: Path):
    latex = said("--format", "latex")
    packages = latex.splitlines()[0].removeprefix("% ")
    page = rf"\documentclass{{article}}{packages}\begin{{document}}{latex}\end{{document}}"
    (tmp_path / "tables.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-600:]
    assert "Overfull" not in done.stdout


def test_means_deviations_and_improvements_are_those_of_the_rows(said, root: Path):
    rows = list(csv.DictReader(io.StringIO(said("plain-1", "plain-2", "fixed-1", "--format", "csv"))))
    lens = Lens(Store(root))
    found = lens.query(
        "select run, benchmark, accuracy from benchmark_scores where phase = 'evaluate' and iteration = 3 order by run"
    )
    lens.close()
    for benchmark, heading in (("gpqa_diamond", "GPQA-Diamond"), ("medqa", "MedQA")):
        values = [100 * r["accuracy"] for r in found if r["benchmark"] == benchmark and r["run"].startswith("plain")]
        mine = next(row for row in rows if (row["row"], row["method"]) == (heading, "tiny"))
        assert float(mine["mean"]) == pytest.approx(statistics.mean(values))
        assert float(mine["sd"]) == pytest.approx(statistics.stdev(values))
        assert mine["seeds"] == "2" and mine["source"] == "measured"


def test_the_papers_columns_say_that_they_are_reported(said):
    rows = list(csv.DictReader(io.StringIO(said("plain-1", "--format", "csv"))))
    sources = {row["method"]: row["source"] for row in rows}
    assert sources["SPICE"] == sources["INFUSER"] == REPORTED and sources["tiny"] == "measured"
    (cell,) = [row for row in rows if (row["row"], row["method"]) == ("MMLU-Pro", "INFUSER")]
    assert (cell["printed"], cell["sd"], cell["seeds"], cell["best"]) == ("60.20", "0.48", "3", "1")


def test_intervals_stand_only_where_they_are_asked_for(said):
    bare, full = (said("plain-1", "--format", "markdown", *more) for more in ((), ("--intervals",)))
    assert "\\[" not in bare and re.search(r"\*\*?\d+\.\d+\*\*? \\\[\d+\.\d+, \d+\.\d+\\\]", full)


def test_tables_can_go_to_a_file(said, tmp_path: Path):
    out = tmp_path / "new" / "main.tex"
    assert said("--table", "main", "--format", "latex", "--out", str(out)).strip() == str(out)
    assert out.read_text() == said("--table", "main", "--format", "latex")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "none"], "no table 'none'"),
        (["--format", "word"], "no format 'word'"),
        (["plain-1", "--table", "corpus"], "no table 'corpus'"),
        (["plain-1", "--anchor", "other"], "no table 'main' for 'other'"),
    ],
)
def test_what_does_not_exist_is_named(root: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INFUSER_STORE", str(root))
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(app, ["report", "tables", *words], catch_exceptions=False)
