"""Scores of saved answers against a plain count, and the rule for questions that did not fit."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.errors import DamagedArtifactError
from infuser_core.evaluation.evaluate import TOO_LONG, grade
from infuser_core.evaluation.plan import ExamPlan, Sheet
from infuser_core.evaluation.record import EvaluationRecord
from infuser_core.evaluation.scores import question_scores, results_of, sheet_scores
from infuser_core.evaluation.statistics.bootstrap import Z, wilson
from infuser_core.nano import world
from infuser_core.results.report import results
from infuser_core.schemas import BenchmarkResponse, QuestionScore

QUESTIONS = world.draw_questions("test", world.TARGET, 8, 0)
KINDS = {"correct": "stop", "wrong": "stop", "no_answer": "length", "long": TOO_LONG}


def sheet(label: str, *, category: str = "nano", samples: int = 2, available: int = 4) -> Sheet:
    return Sheet(
        label=label,
        name=label,
        title=label.title(),
        category=category,
        samples=samples,
        max_tokens=24,
        num_available=available,
        expected=None,
    )


def plan(labels: tuple[str, ...] = ("first", "second")) -> ExamPlan:
    questions = {label: QUESTIONS[4 * place : 4 * place + 4] for place, label in enumerate(labels)}
    return ExamPlan(sheets=[sheet(label) for label in labels], questions=questions)


def response(label: str, question, index: int, kind: str) -> BenchmarkResponse:
    wrong = "ABCD"[("ABCD".index(question.answer) + 1) % 4]
    text = {"correct": f"\\boxed{{{question.answer}}}", "wrong": f"\\boxed{{{wrong}}}"}.get(kind, "")
    return BenchmarkResponse(
        benchmark=label,
        question_id=question.question_id,
        sample_index=index,
        response=text,
        finish_reason=KINDS[kind],
        prompt_tokens=30,
        response_tokens=len(text),
    )


def counted(rows: list[BenchmarkResponse], asked: ExamPlan, *, too_long: str = "wrong") -> list[QuestionScore]:
    return question_scores(asked, rows, grade(rows, asked.by_key(), preset="paper"), too_long=too_long)


def rows_of(kinds: list[str]) -> list[BenchmarkResponse]:
    """Two samples for each of eight questions; a question that did not fit has no sample that did."""
    asked = plan().question_rows()
    rows = []
    for place, question in enumerate(asked):
        own = kinds[2 * place : 2 * place + 2]
        own = ["long", "long"] if "long" in own else own
        rows += [response(question.benchmark, question, index, kind) for index, kind in enumerate(own)]
    return rows


@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=16, max_size=16), drop=st.booleans())
def test_scores_equal_a_plain_count(kinds: list[str], drop: bool):
    rows = rows_of(kinds)
    questions = counted(rows, plan(), too_long="drop" if drop else "wrong")
    right = {(q.benchmark, q.question_id): q.answer for q in plan().question_rows()}
    for found in sheet_scores(plan(), questions, checkpoint_id="c"):
        mine = [row for row in rows if row.benchmark == found.score.benchmark]
        kept = [row for row in mine if not (drop and row.finish_reason == TOO_LONG)]
        correct = sum(row.response == f"\\boxed{{{right[row.benchmark, row.question_id]}}}" for row in kept)
        assert found.score.num_questions == len(kept) // 2
        assert found.num_too_long == sum(row.finish_reason == TOO_LONG for row in mine) // 2
        assert found.score.accuracy == pytest.approx(correct / len(kept) if kept else 0.0)
        asked = [row for row in kept if row.finish_reason != TOO_LONG]
        cut = sum(row.finish_reason == "length" for row in asked)
        assert found.share_at_limit == pytest.approx(cut / max(1, len(asked)))
        silent = sum(row.response == "" for row in kept)
        assert found.score.answered == pytest.approx(1 - silent / max(1, len(kept)))
        tokens = sum(row.response_tokens for row in asked) / max(1, len(asked))
        assert found.score.mean_response_tokens == pytest.approx(tokens)


@given(share=st.floats(0, 1), count=st.integers(1, 10_000))
def test_the_interval_holds_the_shares_that_a_score_test_would_not_refuse(share: float, count: int):
    found = wilson(share, count)
    assert 0 <= found[0] <= share + 1e-12 and share - 1e-12 <= found[1] <= 1
    for bound in found:
        # At a bound the test statistic is exactly z; at 0 and 1 the interval is cut.
        assert (share - bound) ** 2 == pytest.approx(Z**2 * bound * (1 - bound) / count, abs=1e-9)


def test_no_questions_say_nothing():
    assert wilson(0.0, 0) == (0.0, 1.0)


def test_the_order_of_answers_changes_no_score():
    rows = rows_of(["correct", "wrong", "no_answer", "correct"] * 4)
    forward = counted(rows, plan())
    assert forward == counted(rows[::-1], plan())
    assert [(q.benchmark, q.question_id) for q in forward] == list(plan().by_key())


def test_a_question_without_answers_is_refused():
    with pytest.raises(DamagedArtifactError, match="1 questions have no saved response"):
        counted(rows_of(["correct"] * 16)[2:], plan())
    with pytest.raises(DamagedArtifactError, match="8 questions"):
        counted([], plan())


def record() -> EvaluationRecord:
    identity = {
        "model": "digest",
        "seed": 1,
        "sampling": {"temperature": 0.7},
        "prompt_tokens": 9,
        "benchmarks": {},
        "limit": 4,
    }
    return EvaluationRecord(
        model="a|b", identity=identity, sheets=plan().sheets, notes=["first: 4 questions, expected 5"]
    )


def found_of(kinds: list[str]) -> tuple[dict, list]:
    questions = counted(rows_of(kinds), plan())
    scores = sheet_scores(plan(), questions, checkpoint_id="c")
    return results_of(record(), scores, preset="paper", too_long="wrong"), questions


def test_every_table_shows_the_same_numbers():
    found, questions = found_of(["correct", "wrong"] * 4 + ["correct"] * 7 + ["no_answer"])
    assert found["benchmarks"]["first"]["accuracy"] == 0.5
    assert found["benchmarks"]["second"]["accuracy"] == 0.875
    assert found["categories"] == {"nano": 0.6875, "overall": 0.6875}
    assert "first: 4 questions, expected 5" in found["notes"]

    terminal, page = results.results_text(found), results.results_markdown(found)
    for number in ("50.00", "87.50", "68.75"):
        assert number in terminal and number in page
    assert "a\\|b" in page, "a name cannot break the page"
    (first, second) = csv.DictReader(io.StringIO(results.results_csv(found)))
    assert (float(first["accuracy"]), float(second["accuracy"])) == (0.5, 0.875)

    board = results.leaderboard(found, plan(), questions)
    assert board["results"]["first"]["acc,none"] == 0.5 and board["results"]["first"]["acc_stderr,none"] == 0.0
    assert board["results"]["second"]["acc_stderr,none"] == pytest.approx(0.125)
    assert board["n-samples"]["first"] == {"original": 4, "effective": 4}
    assert board["versions"] == {"first": "paper", "second": "paper"}
    assert board["higher_is_better"]["first"] == {"acc": True}
    assert json.loads(json.dumps(board)) == board
