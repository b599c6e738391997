"""Format of the answers of an anchor by checkpoint, and paired changes."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher import Launcher, SmallRun
from report_views import VIEWS, database

from infuser_core.errors import UsageError
from infuser_core.evaluation.statistics.response_format import MEASURES, box_form, checkpoint_form, paired_changes
from infuser_core.results.report.content import Query
from infuser_core.results.report.response_format import form_of, format_section

GOOD = "So it is \\boxed{B}."
BAD = {
    "one_box": "Either \\boxed{A} or \\boxed{B}",
    "box_last": "\\boxed{B}, which follows from the law.",
    "no_marks": "<|im_start|>assistant It is \\boxed{B}",
    "no_roles": "Fine.\nUser: and then?\n\\boxed{B}",
    "no_thoughts": "<think>well</think> \\boxed{B}",
    "own_script": "\u041f\u043e\u044d\u0442\u043e\u043c\u0443 \u043e\u0442\u0432\u0435\u0442 \\boxed{B}",
}
"""Measure to a response that lacks it and nothing else."""


def answers(*texts: str, ends: Sequence[str] = (), phase: str = "rollout_dev") -> Query:
    """A run whose first checkpoint answers well, and whose second gives these texts."""
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in VIEWS}
    for iteration, said in ((0, [GOOD] * len(texts)), (2, texts)):
        for place, text in enumerate(said):
            end = ends[place] if iteration and ends else "stop"
            rows["rollouts"].append(
                ("r", iteration, phase, "k", f"q{place}/0", f"q{place}", 0, "solver", [5, 6, 1], text, end,
                 "correct", 1.0, "")
            )  # fmt: skip
    return database(rows)


@pytest.mark.parametrize("measure", BAD)
def test_each_measure_sees_its_own_fault_and_no_other(measure: str):
    before, after = form_of(answers(BAD[measure], GOOD), "r")["checkpoints"]
    assert set(before["shares"].values()) == {1.0}
    assert after["shares"] == {name: 0.5 if name == measure else 1.0 for name in MEASURES}


def test_an_answer_that_was_cut_and_one_without_a_box_are_seen():
    found = form_of(answers("and so on", GOOD, ends=["length", "stop"]), "r")
    last = found["checkpoints"][-1]["shares"]
    assert (last["ended"], last["one_box"], last["box_last"]) == (0.5, 0.5, 0.5)
    (change,) = [row for row in found["changes"] if row["measure"] == "ended"]
    assert (change["before"], change["after"], change["difference"]["value"], found["at"]) == (1.0, 0.5, -0.5, 2)
    assert change["difference"]["low"] <= -0.5 <= change["difference"]["high"]
    rows = format_section(found).tables[1].rows
    assert ["ends by itself", "100.0%", "50.0%", "-50.0"] in [row[:4] for row in rows]


def test_formulas_greek_and_a_foreign_name_are_no_change_of_script():
    fine = (
        "Let \u03b1 = \u221a2 and \U0001d465 \u2208 \u211d, as in Poincar\u00e9's proof. "
        + "x " * 60
        + "\\boxed{\u03b1}"
    )
    assert form_of(answers(fine + "."), "r")["checkpoints"][-1]["shares"]["own_script"] == 1.0
    assert form_of(answers("a broken sign \ufffd \\boxed{B}"), "r")["checkpoints"][-1]["shares"]["own_script"] == 0.0


@given(st.integers(0, 3), st.text(alphabet=" .$\\]*\n", max_size=5), st.text(alphabet="ab1", max_size=2))
def test_boxes_are_counted_and_only_marks_may_follow_the_last(count: int, marks: str, words: str):
    tail = " and ".join(f"\\boxed{{{n}}}" for n in range(count)) + marks + words
    assert box_form(tail) == (count == 1, count > 0 and not words)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("\\boxed{a \\boxed{b}}$.", (True, True)),
        ("\\boxed{B} and \\boxed{C", (True, False)),
        ("\\boxed{ \\frac{1}{2} }\\]", (True, True)),
        ("\\boxed{", (False, False)),
    ],
)
def test_boxes_within_boxes_and_boxes_that_never_close(tail: str, expected: tuple[bool, bool]):
    assert box_form(tail) == expected


def test_changes_are_paired_by_question():
    held = {name: True for name in MEASURES}
    before = [{"question_id": f"q{n}", "tokens": 4, **held} for n in range(4)]
    after = [{"question_id": f"q{n}", "tokens": n, **held, "ended": n > 2} for n in (1, 2, 3, 9)]
    found = {row["measure"]: row["difference"] for row in paired_changes(before, after)}
    assert found["ended"]["questions"] == 3 and found["ended"]["left_out"] == 2
    assert found["ended"]["value"] == pytest.approx(-2 / 3) and found["one_box"]["value"] == 0
    assert paired_changes(before, [{"question_id": "other", "tokens": 1, **held}]) == []
    assert checkpoint_form(3, after)["median_tokens"] == 2.5


def test_a_run_without_answers_has_no_section_and_an_unknown_phase_is_named():
    empty = database({name: [] for name in VIEWS})
    assert format_section(form_of(empty, "r")).lines == []
    with pytest.raises(UsageError, match="no answers of phase validate"):
        form_of(answers(GOOD), "r", phase="validate")


def test_responses_of_a_strong_solver_are_described_too():
    found = form_of(answers(BAD["own_script"], GOOD, phase="check_keys"), "r", phase="check_keys")
    assert format_section(found).lines[0].startswith("Shares of strong solver's answers to generated questions")


@pytest.fixture(scope="module")
def found(launch: Launcher, small_run: SmallRun) -> dict:
    ended = launch("report", "habits", "small", "--json", store=small_run.root)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_the_command_shows_every_validated_checkpoint(found: dict):
    assert (found["run"], found["phase"]) == ("small", "validate")
    assert [row["iteration"] for row in found["checkpoints"]] == [0, 1, 2]
    assert {row["responses"] for row in found["checkpoints"]} == {16}
    assert [row["measure"] for row in found["changes"]] == list(MEASURES)


def test_other_answers_are_looked_at_on_request(launch: Launcher, small_run: SmallRun):
    ended = launch("report", "habits", "small", "--phase", "rollout_questions", store=small_run.root)
    assert ended.code == 0 and "answers of rollout_questions" in ended.out and "own script" in ended.out
