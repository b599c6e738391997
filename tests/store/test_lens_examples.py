"""The statements in docs/sql.md run, and every view that it names exists."""

import re
from collections.abc import Iterator

import pytest
from launcher import SmallRun
from places import ROOT

from infuser_core.store.views import Lens

PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def lens(small_run: SmallRun) -> Iterator[Lens]:
    found = Lens(small_run.store)
    yield found
    found.close()


def test_there_are_five() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("number", range(5))
def test_every_example_answers_with_rows(lens: Lens, number: int) -> None:
    assert lens.query(EXAMPLES[number])


def test_every_view_of_the_page_exists_and_every_joined_view_stands_on_the_page(lens: Lens) -> None:
    named = {name for line in PAGE.splitlines() if line.startswith("| `") for name in re.findall(
        r"`([a-z_]+)`", line.split("|")[1]
    )}  # fmt: skip
    assert named <= set(lens.views())
    assert {
        "question_history",
        "solver_answers",
        "benchmark_answers",
        "checkpoints",
        "artifacts",
        "artifact_inputs",
    } <= named


def test_a_question_history_has_one_row_per_question(lens: Lens) -> None:
    (row,) = lens.query("select (select count(*) from question_history) as a, (select count(*) from questions) as b")
    assert row["a"] == row["b"] > 0


def test_every_benchmark_answer_has_one_verdict(lens: Lens) -> None:
    (row,) = lens.query("select count(*) as n, count(verdict) as judged from benchmark_answers")
    (tally,) = lens.query("select sum(num_samples) as n from question_scores")
    assert row["n"] == row["judged"] == tally["n"]


def test_a_listing_shows_every_view(lens: Lens) -> None:
    assert set(lens.views()) <= {row["name"] for row in lens.query("show tables")}
