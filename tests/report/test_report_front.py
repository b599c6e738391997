"""The first page of a run's report: its question, what was tried and found, the control, samples and limits."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from report_runs import make, three_runs

from infuser_core.config.run import RunConfig
from infuser_core.evaluation.statistics.bootstrap import paired_difference
from infuser_core.results.report.build import write_report
from infuser_core.results.report.front import title_of
from infuser_core.store import runs
from infuser_core.store.store import Store
from infuser_core.store.views import Lens


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("front") / "store"
    three_runs(root)
    return root


@pytest.fixture(scope="module")
def lines(root: Path) -> list[str]:
    return write_report(root, "plain-1").with_suffix(".md").read_text(encoding="utf-8").splitlines()


def cells(lines: list[str], heading: str) -> list[list[str]]:
    """Rows of the first table after a heading."""
    start = lines.index(f"## {heading}")
    rows = []
    for line in lines[start:]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def test_the_summary_says_what_was_tried_and_found_and_names_the_control(lines: list[str]):
    tried, found, control = lines[2], lines[4], lines[6]
    assert "for 30 iterations from questions of a generator that was rewarded by influence" in tried
    assert found.startswith("Accuracy from the anchor to the checkpoint of iteration 3: gpqa diamond ")
    assert control.startswith(
        "Compared with its control fixed-1 (cotrain.generator.update=false), on the same questions: "
    )


def test_the_result_is_paired_with_the_control_by_question(root: Path, lines: list[str]):
    with closing(Lens(Store(root), runs=["plain-1", "fixed-1"])) as lens:
        rows = lens.query(
            """select q.run, q.question_id, q.num_correct / q.num_samples as share from question_scores q
            join selections s on s.run = q.run and q.iteration = s.selected_iteration
            where q.phase = 'evaluate' and q.benchmark = 'math500' order by q.question_id"""
        )
    sides = [[row["share"] for row in rows if row["run"] == run] for run in ("fixed-1", "plain-1")]
    gap = paired_difference(*map(np.array, sides))
    (row,) = [row for row in cells(lines, "Result") if row[0] == "math500"]
    assert row[1] == "24"
    assert row[-3:] == [
        f"{100 * sum(sides[0]) / 24:.1f}%", f"{100 * gap.value:+.1f}", f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}",
    ]  # fmt: skip


def test_samples_come_from_the_first_and_the_latest_iteration(lines: list[str]):
    rows = cells(lines, "What the generator wrote")
    assert {row[2] for row in rows} == {"0", "2"}
    best = [float(row[3]) for row in rows if row[1] == "highest influence" and row[2] == "2"]
    worst = [float(row[3]) for row in rows if row[1] == "lowest influence" and row[2] == "2"]
    assert best and worst and min(best) >= max(worst)


def test_a_run_without_a_control_says_so(tmp_path: Path):
    make(tmp_path, "alone")
    text = write_report(tmp_path, "alone").with_suffix(".md").read_text(encoding="utf-8")
    assert "The store has no control" in text and "control, points" not in text


@pytest.mark.parametrize(
    ("change", "question"),
    [
        ({}, "Does it help to reward questions by their influence?"),
        ({"reward": {"name": "r_zero"}}, "Does it help to reward questions by r zero?"),
        ({"generator": {"update": False}}, "What does a solver learn without a generator that learns?"),
    ],
)
def test_the_title_is_the_question_that_the_run_asks(root: Path, change: dict, question: str):
    raw = runs.read_config(root, "plain-1")
    for name, value in change.items():
        raw["cotrain"][name] = {**raw["cotrain"][name], **value}
    assert title_of(RunConfig.model_validate(raw), "mine") == f"{question} Run mine"
