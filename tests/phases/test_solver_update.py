"""The solver's update: its band of accuracies, answers that stop early, and the old policy of later steps."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import CONFIGS
from solver_rows import anchor, answers, question

from infuser_core.algorithm.preset import PRESETS
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import update_solver as phase
from infuser_core.cotrain.phases.dev_gradient import dev_gradient
from infuser_core.cotrain.phases.dev_gradient import settings_of as gradient_of
from infuser_core.cotrain.phases.training import by_group
from infuser_core.engines.fake import FakeTrainer
from infuser_core.schemas import Rollout, TrainerLogprobs, Update

NANO = CONFIGS / "nano.yaml"
CONFIG = load([NANO])

# Questions whose accuracy lies outside the solver's band are not trained on, and stay on record

RIGHT = {"never": 0, "rarely": 1, "half": 2, "mostly": 3, "always": 4}
ROWS = [row for name, won in RIGHT.items() for row in answers(name, ["x"] * 4, correct=[n < won for n in range(4)])]


@pytest.mark.parametrize(
    ("band", "groups"), [(None, 3), ((0.25, 0.75), 3), ((0.3, 0.75), 2), ((0.5, 0.5), 1), ((0.9, 1.0), 0)]
)
def test_only_the_band_is_trained_on(
    trainer: FakeTrainer, tmp_path: Path, band: tuple[float, float] | None, groups: int
):
    settings = replace(phase.settings_of(CONFIG, iteration=0), band=band)
    done = phase.update_solver(
        [question(name) for name in RIGHT], ROWS, trainer, settings, workspace=tmp_path, before=anchor(tmp_path),
    )  # fmt: skip
    assert sum(update.num_groups for update in done.updates) == groups


def test_every_question_stays_on_record_with_its_accuracy():
    rows = phase.rate_difficulty(by_group(ROWS), (0.25, 0.5))
    assert {row.question_id: (row.accuracy, row.inside) for row in rows} == {
        "never": (0.0, False), "rarely": (0.25, True), "half": (0.5, True), "mostly": (0.75, False),
        "always": (1.0, False),
    }  # fmt: skip


# A minibatch mixes documents


def test_documents_are_spread_evenly():
    order = phase.stratified_order(["A"] * 8 + ["B"] * 4 + ["C"] * 2)
    assert order == [0, 8, 1, 12, 2, 9, 3, 4, 10, 5, 13, 6, 11, 7]


def test_singletons_keep_their_order():
    assert phase.stratified_order(list("DBCA")) == [0, 1, 2, 3]
    assert phase.stratified_order(["A", "B", "C", *"DDDDDD"])[3:6] == [0, 1, 2]


@given(st.lists(st.sampled_from("abcde")))
def test_every_row_once(documents: list[str]):
    assert sorted(phase.stratified_order(documents)) == list(range(len(documents)))


# A response that stops without an answer costs the solver, in its update alone: no length cap, no other verdict

STOPPED, CUT, WRONG = ("no_answer", "stop"), ("no_answer", "length"), ("wrong", "stop")
NONE = PRESETS["paper"].mid_eos_verdicts


def ended(ends: list[tuple[str, str]]) -> list[Rollout]:
    """Answers to one question with these verdicts and finish reasons."""
    rows = answers("q", [""] * len(ends))
    return [replace(row, verdict=said, finish_reason=end) for row, (said, end) in zip(rows, ends, strict=True)]


def updated(trainer: FakeTrainer, folder: Path, ends: list[tuple[str, str]], penalty: float) -> list[Update]:
    settings = replace(phase.settings_of(CONFIG, iteration=0), mid_eos_penalty=penalty)
    out = folder / f"out{penalty}"
    out.mkdir()
    done = phase.update_solver(
        [question("q")], ended(ends), trainer, settings, workspace=out, before=anchor(folder),
    )  # fmt: skip
    return done.updates


@pytest.mark.parametrize(
    ("verdict", "finish_reason", "reward", "shaped"),
    [
        ("no_answer", "stop", 0.0, -0.5),
        ("no_answer", "length", 0.0, 0.0),
        ("no_answer", "prompt_too_long", 0.0, 0.0),
        ("wrong", "stop", 0.0, 0.0),
        ("unverified", "stop", 0.0, 0.0),
        ("correct", "stop", 1.0, 1.0),
    ],
)
def test_the_penalty_is_for_stopping_without_an_answer(verdict: str, finish_reason: str, reward: float, shaped: float):
    assert mid_eos_shaped(reward, verdict, finish_reason, penalty=-0.5, verdicts=NONE) == shaped


def test_the_penalty_is_added():
    assert mid_eos_shaped(-0.25, "no_answer", "stop", penalty=-0.5, verdicts=NONE) == -0.75


def test_shaping_comes_before_flat_groups_are_removed(trainer: FakeTrainer, tmp_path: Path):
    assert updated(trainer, tmp_path, [STOPPED, WRONG, CUT, WRONG], 0.0) == []
    (step,) = updated(trainer, tmp_path, [STOPPED, WRONG, CUT, WRONG], -0.5)
    assert (step.num_groups, step.num_responses, step.cut, step.flat_share) == (1, 4, 1, 0.0)
    assert step.gradient_norm > 0


def test_a_group_that_only_stops_early_stays_flat(trainer: FakeTrainer, tmp_path: Path):
    assert updated(trainer, tmp_path, [STOPPED] * 4, -0.5) == []


def test_the_dev_gradient_knows_nothing_of_it(trainer: FakeTrainer, tmp_path: Path):
    shaped = load([NANO], ["cotrain.mid_eos_penalty=-0.5"])
    assert gradient_of(shaped) == gradient_of(CONFIG)
    rows = ended([STOPPED, WRONG])
    assert dev_gradient(rows, trainer, gradient_of(shaped), workspace=tmp_path)[0].norm == 0
    right = [replace(rows[0], verdict="correct", reward=1.0), rows[1]]
    assert dev_gradient(right, trainer, gradient_of(shaped), workspace=tmp_path)[0].norm > 0


# What the scoring pass computed of the old policy is taken, what it left out is computed here

SETTINGS = phase.settings_of(
    load([NANO], ["cotrain.solver.minibatch=1", "cotrain.solver.learning_rate=0.5"]), iteration=0
)
NAMES = ["q1", "q2", "q3", "q4"]


def pair(name: str) -> list[Rollout]:
    rows = answers(name, ["", ""], correct=[False, True])
    return [replace(row, token_ids=[2 + row.sample_index, int(name[1])]) for row in rows]


def stepped(trainer: FakeTrainer, folder: Path, name: str, known: list[TrainerLogprobs]) -> list[Update]:
    trainer.load(anchor(folder))
    (folder / name).mkdir()
    return phase.update_solver(
        [question(name) for name in NAMES], [row for name in NAMES for row in pair(name)], trainer, SETTINGS,
        workspace=folder / name, before=anchor(folder), old_logprobs=known,
    ).updates  # fmt: skip


@pytest.mark.parametrize("scored", [["q1"], ["q2", "q4"], NAMES])
def test_a_part_of_the_old_policy_is_completed(trainer: FakeTrainer, tmp_path: Path, scored: list[str]):
    every = stepped(trainer, tmp_path, "none", [])
    assert any(abs(step.mean_ratio - 1) > 1e-3 for step in every), "later steps must move away from the old policy"
    uniform = 2.772588722239781  # the fake anchor's policy over its 16 buckets
    known = [
        TrainerLogprobs(rollout_id=row.rollout_id, logprobs=[-uniform] * 2) for name in scored for row in pair(name)
    ]
    some = stepped(trainer, tmp_path, "some", known)
    assert [step.mean_ratio for step in some] == pytest.approx([step.mean_ratio for step in every], abs=1e-6)
