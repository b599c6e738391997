"""The solver's update: its groups, its health limits, and a run without a signal."""

from dataclasses import replace
from pathlib import Path

import pytest
from engine_tiny import objective_settings
from hypothesis import given
from hypothesis import strategies as st
from launcher import Launcher, SmallRun, copy_store
from places import CONFIGS
from solver_rows import anchor, answers, question
from test_studies import rollouts

from infuser_core.algorithm.preset import PRESETS
from infuser_core.algorithm.score import mid_eos_shaped
from infuser_core.config.overlays import load
from infuser_core.config.roles import SolverRole
from infuser_core.cotrain.phases import update_solver as phase
from infuser_core.cotrain.phases.dev_gradient import dev_gradient
from infuser_core.cotrain.phases.dev_gradient import settings_of as gradient_of
from infuser_core.cotrain.phases.parts.health import LIMITS, health_warnings
from infuser_core.cotrain.phases.training import by_group
from infuser_core.engines.fake import FakeTrainer
from infuser_core.schemas import Rollout, TrainerLogprobs, Update
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

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


# Settings and numbers of an update: step sizes over iterations, responses cut at the limit, limits with warnings


def sizes(**settings: object) -> list[float]:
    role = SolverRole(learning_rate=1.0, advantage="mean_centred", **settings)  # type: ignore[arg-type]
    return [role.step_size(iteration, iterations=6) for iteration in range(6)]


def test_step_sizes_rise_and_fall_over_iterations() -> None:
    assert sizes() == [1.0] * 6
    assert sizes(warmup=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert sizes(warmup=2, schedule="linear") == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert sizes(schedule="cosine") == pytest.approx([1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987], abs=1e-6)


def test_a_response_cut_at_the_limit_has_no_credit_where_those_are_masked() -> None:
    rows = rollouts("q", seed=0)[:4]
    rows[1] = replace(rows[1], finish_reason="length")
    credit = [-0.5, 0.5, -0.5, 0.5]
    assert objective_settings().mask_overlong(rows, credit) == credit
    assert objective_settings(overlong="mask").mask_overlong(rows, credit) == [-0.5, 0.0, -0.5, 0.5]


SOUND = Update(
    role="solver", step=1, num_groups=4, num_tokens=90, loss=0.1, gradient_norm=0.3, learning_rate=1e-3,
    clip_fraction=0.01, clip_fraction_high=0.0, mean_ratio=1.0, mean_tis=1.0, truncated=0.0, sampler_kl=1e-6,
    policy_kl=1e-4, anchor_kl=0.0, entropy=0.4, cut=0, skipped=False, num_responses=16, flat_share=0.2,
    below_epsilon=0.0,
)  # fmt: skip


def test_each_limit_warns_of_its_largest_value_with_the_setting_to_turn() -> None:
    assert health_warnings("solver", [SOUND]) == health_warnings("solver", []) == []
    for field, value in (
        ("sampler_kl", 0.2),
        ("truncated", 0.5),
        ("clip_fraction", 0.6),
        ("policy_kl", 0.75),
        ("flat_share", 0.95),
    ):
        (line,) = health_warnings("solver", [SOUND, replace(SOUND, **{field: value}), SOUND])
        assert f"is {value:.3g}, above" in line and line.startswith("solver: ")
    (line,) = health_warnings("solver", [SOUND, replace(SOUND, cut=8)])
    assert "share of responses cut at the limit is 0.5, above 0.3" in line
    assert all(
        "engine." in limit.remedy or "learning_rate" in limit.remedy or "cotrain." in limit.remedy for limit in LIMITS
    )


def test_a_collapsed_entropy_warns_but_not_that_of_a_step_without_tokens() -> None:
    (line,) = health_warnings("solver", [SOUND, replace(SOUND, entropy=0.002)])
    assert line.startswith("solver: entropy per token is 0.002, below 0.01") and "learning_rate" in line
    assert health_warnings("solver", [replace(SOUND, entropy=0.0, num_tokens=0)]) == []


# A run whose dev set teaches nothing any more goes on: scores are 0, the generator rests, and the report says so


def test_a_dev_set_without_variance_is_handled_and_reported(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_store(small_run.root, tmp_path / "store")
    # Next to no temperature: all answers of a group are the same.
    still = ["--set", "cotrain.sampling.temperature=1e-4", "--set", "cotrain.iterations=1", "--name", "still"]
    ended = launch(*small_run.arguments[:3], *still, store=store)
    assert ended.code == 0, ended.err

    lens = Lens(Store(store), runs=["still"])
    gradients = lens.query("select norm, num_varied, num_groups from gradients")
    scores = lens.query("select distinct status, score from scores")
    trained = lens.query("select distinct trained from generator_scores")
    (steps,) = lens.query("select count(*) as taken from updates where role = 'generator'")
    keys = {row["phase"]: row["artifact_key"] for row in lens.query("select phase, artifact_key from run_artifacts")}
    lens.close()
    assert gradients == [{"norm": 0.0, "num_varied": 0, "num_groups": 8}]
    assert scores == [{"status": "no_dev_signal", "score": 0.0}]
    assert trained == [{"trained": False}]
    assert steps["taken"] == 0

    weights = [
        (store / "artifacts" / phase / keys[phase] / "model.safetensors").read_bytes()
        for phase in ("anchor", "update_generator")
    ]
    assert weights[0] == weights[1], "the generator is the anchor still"
    page = launch("show", keys["update_generator"], store=store).out
    assert "skipped: no group with variance" in page
    report = (store / "runs" / "still" / "report" / "report.md").read_text()
    assert "Dev signal exhausted in 1 iterations, first in iteration 0" in report
