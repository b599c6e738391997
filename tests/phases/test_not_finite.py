"""A number that is not finite excludes its own question or document and is reported; no other result changes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, objective_settings
from objectives import objective
from places import CONFIGS
from safetensors.torch import load_file, save_file
from solver_rows import anchor, answers, question
from stock_engines import local_trainer
from test_generate_questions import config_of, document, generate, influence
from test_studies import DEV, OBJECTIVE, rollouts

from infuser_core.algorithm.preset import Objective
from infuser_core.config.overlays import load
from infuser_core.config.roles import OptimizerSettings
from infuser_core.cotrain.phases import dev_gradient as gradient_phase
from infuser_core.cotrain.phases import score_influence as score_phase
from infuser_core.cotrain.phases import update_generator as generator_phase
from infuser_core.cotrain.phases import update_solver
from infuser_core.cotrain.phases import update_solver as solver_phase
from infuser_core.cotrain.phases.dev_gradient import dev_gradient
from infuser_core.cotrain.phases.score_influence import ScoreSettings, ScoringResult
from infuser_core.cotrain.phases.training import UpdateSettings, train_group
from infuser_core.cotrain.phases.update_generator import GeneratorUpdate
from infuser_core.cotrain.phases.update_solver import SolverSettings, SolverUpdate
from infuser_core.engines.fake import FakeTrainer, fake_anchor
from infuser_core.errors import EngineError
from infuser_core.protocols import Progress, StepReport, TrainGroup, no_progress
from infuser_core.schemas import Checkpoint, Gradient, InfluenceScore, NotFinite, Rollout, ScoreStatus
from infuser_core.store.store import Outcome
from tasks.rollouts import steps_of
from tasks.work import add_not_finite

CONFIG = load([CONFIGS / "nano.yaml"])
NAMES = ["q1", "q2", "q3", "q4"]
NAN = math.nan


def loaded(folder: Path, *, kind: type[FakeTrainer] = FakeTrainer) -> FakeTrainer:
    folder.mkdir()
    fake_anchor(folder / "anchor")
    trainer = kind()
    trainer.load(anchor(folder))
    return trainer


def varied(names: Sequence[str], *, poisoned: Sequence[str] = ()) -> list[Rollout]:
    """Two answers to each question, one of them right; a log-probability of the poisoned ones' first is NaN."""
    rows = [row for name in names for row in answers(name, ["", ""], correct=[True, False])]
    rows = [replace(row, token_ids=[*row.token_ids[:1], int(row.group_id[1])]) for row in rows]
    return [poison(row) if row.group_id in poisoned and row.sample_index == 0 else row for row in rows]


def poison(row: Rollout) -> Rollout:
    return replace(row, sampler_logprobs=[NAN, *row.sampler_logprobs[1:]])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Dev gradient


def directed(folder: Path, rows: list[Rollout]) -> tuple[Gradient, list[NotFinite]]:
    return dev_gradient(rows, loaded(folder), gradient_phase.settings_of(CONFIG), workspace=folder)


def test_a_dev_question_without_a_finite_gradient_leaves_the_direction_to_the_others(tmp_path: Path):
    facts, (lost,) = directed(tmp_path / "found", varied(NAMES, poisoned=["q2"]))
    without, _ = directed(tmp_path / "without", varied(["q1", "q3", "q4"]))
    assert facts == without and facts.norm > 0
    assert files(tmp_path / "found") == files(tmp_path / "without")
    assert (lost.group_id, lost.quantity, lost.tensor) == ("q2", "loss", "weights") and math.isnan(lost.value)


def test_without_one_finite_dev_question_the_phase_says_where_and_what_to_try(tmp_path: Path):
    with pytest.raises(EngineError, match=r"loss of q1 is nan, its gradient not finite in weights, .* of 4") as told:
        directed(tmp_path / "x", varied(NAMES, poisoned=NAMES))
    assert "engine.dtype=float32" in told.value.hint


# Scores


def scored(folder: Path, names: Sequence[str], *, poisoned: Sequence[str] = ()) -> ScoringResult:
    trainer, settings = loaded(folder), score_phase.settings_of(CONFIG, iteration=0, probe=True)
    facts, _ = dev_gradient(varied(["d1"]), trainer, gradient_phase.settings_of(CONFIG), workspace=folder)
    return score_phase.score_influence(
        [question(name) for name in names], varied(names, poisoned=poisoned), trainer,
        settings, reference=folder / gradient_phase.FILE, reference_norm=facts.norm,
        workspace=folder,
    )  # fmt: skip


def test_a_question_without_a_finite_score_has_that_status_and_changes_no_other(tmp_path: Path):
    found = scored(tmp_path / "found", NAMES, poisoned=["q2"])
    without = scored(tmp_path / "without", ["q1", "q3", "q4"])
    assert [row for row in found.scores if row.question_id != "q2"] == without.scores
    assert found.logprobs == without.logprobs
    assert files(tmp_path / "found") == files(tmp_path / "without")
    assert [row.group_id for row in found.not_finite] == ["q2"] and not without.not_finite
    row = found.scores[1]
    assert (row.status, row.solver_accuracy) == (ScoreStatus.NOT_FINITE, 0.5) and math.isnan(row.score)


def test_scoring_ends_where_no_score_is_finite(tmp_path: Path):
    with pytest.raises(EngineError, match="q1 is nan, its gradient not finite in weights"):
        scored(tmp_path / "x", NAMES, poisoned=NAMES)


def test_a_reference_that_is_not_finite_scores_nothing(tmp_path: Path):
    trainer = loaded(tmp_path / "x")
    trainer.forward_backward([poisoned_group()], objective(), denominator=1)
    norm = trainer.keep_gradient(tmp_path / gradient_phase.FILE)
    with pytest.raises(EngineError, match="gradient of the dev objective has the norm nan: not finite in weights"):
        score_phase.score_influence(
            [question("q1")], varied(["q1"]), trainer, score_phase.settings_of(CONFIG, iteration=0, probe=True),
            reference=tmp_path / gradient_phase.FILE, reference_norm=norm, workspace=tmp_path,
        )  # fmt: skip


def poisoned_group() -> TrainGroup:
    return train_group(varied(["q1"], poisoned=["q1"]), [0.5, -0.5])


# The words of the stages


def test_a_stage_tells_how_many_are_not_finite_and_names_the_first(tmp_path: Path):
    found = stepped(tmp_path / "x", varied(NAMES, poisoned=["q2", "q3"]))
    made = add_not_finite(Outcome(tables={}, summary=steps_of(0, found.updates)), found.not_finite)
    # The clamp of the ratio stops the NaN on its way back: a later step of the update would have been taken.
    first = "the first left out: loss of q2 is nan"
    assert made.summary == {"step": 2, "steps_taken": 2, "not_finite": 2, "status": first}
    assert made.tables["not_finite"].rows == found.not_finite
    assert add_not_finite(Outcome(tables={}, summary={}), []).tables == {}


def test_a_stage_tells_of_skipped_steps(tmp_path: Path):
    told = steps_of(0, stepped(tmp_path / "x", varied(NAMES), kind=Flickering).updates)
    assert told == {"step": 3, "steps_taken": 3, "status": "1 of 4 steps skipped: no finite gradient norm"}


# The generator's update

WRITTEN = generate(document("d1"), document("d2"), document("d3"))
SCORES = [0.01 * place**2 for place in range(12)]


def rewarded(folder: Path, rows: list[Rollout], scores: Sequence[InfluenceScore], *changes: str) -> GeneratorUpdate:
    trainer = loaded(folder)
    (folder / "out").mkdir()
    settings = generator_phase.settings_of(config_of("cotrain.generator.minibatch=2", *changes), iteration=0)
    known = {row.rollout_id for row in rows}
    return generator_phase.update_generator(
        rows, [row for row in WRITTEN.questions if row.rollout_id in known], scores, trainer, settings,
        workspace=folder / "out", before=anchor(folder),
    )  # fmt: skip


def rated(scores: Sequence[float], *, odd: str = ScoreStatus.SCORED) -> list[InfluenceScore]:
    return [
        influence(row.question_id, score, status=ScoreStatus.SCORED if math.isfinite(score) else odd)
        for row, score in zip(WRITTEN.questions, scores, strict=True)
    ]


@pytest.mark.parametrize("odd", [ScoreStatus.SCORED, ScoreStatus.NOT_FINITE])
@pytest.mark.parametrize("value", [NAN, math.inf])
def test_one_of_twelve_scores_changes_only_its_own_row(tmp_path: Path, value: float, odd: str):
    scores = [value if place == 5 else score for place, score in enumerate(SCORES)]
    lost = WRITTEN.questions[5]
    found = rewarded(tmp_path / "found", WRITTEN.rollouts, rated(scores, odd=odd))
    excluded = f"cotrain.exclude_questions=[{lost.question_id}]"
    eleven = rewarded(tmp_path / "eleven", WRITTEN.rollouts, rated(SCORES), excluded)
    others = [row for row in found.scores if row.rollout_id != lost.rollout_id]
    assert others == eleven.scores and len(others) == 11 and any(row.advantage for row in others)
    assert found.updates == eleven.updates and len(found.updates) == 2
    assert files(tmp_path / "found" / "out") == files(tmp_path / "eleven" / "out")
    (row,) = [row for row in found.scores if row.rollout_id == lost.rollout_id]
    assert math.isnan(row.reward) and (row.advantage, row.trained) == (0.0, False)
    assert [(row.group_id, row.quantity) for row in found.not_finite] == [(lost.rollout_id, "reward")]


def test_a_reward_that_needs_no_influence_is_none_the_worse(tmp_path: Path):
    found = rewarded(tmp_path / "x", WRITTEN.rollouts, rated([NAN] * 12), "cotrain.reward.name=variance")
    assert not found.not_finite and {row.reward for row in found.scores} == {0.25}


def test_the_generator_is_not_trained_on_invalid_texts_alone(tmp_path: Path):
    with pytest.raises(EngineError, match=r"reward of .* is nan, the first of 12"):
        rewarded(tmp_path / "x", WRITTEN.rollouts, rated([NAN] * 12))


def test_a_document_without_a_finite_gradient_leaves_the_generators_update(tmp_path: Path):
    rows = [poison(row) if row.rollout_id == WRITTEN.rollouts[-1].rollout_id else row for row in WRITTEN.rollouts]
    name = rows[-1].group_id
    found = rewarded(tmp_path / "found", rows, rated(SCORES))
    without = rewarded(tmp_path / "without", [row for row in rows if row.group_id != name], rated(SCORES))
    assert [row for row in found.scores if row.document_id != name] == without.scores
    assert found.updates == without.updates != []
    assert files(tmp_path / "found" / "out") == files(tmp_path / "without" / "out")
    assert [row.group_id for row in found.not_finite] == [name]
    own = [row for row in found.scores if row.document_id == name]
    assert len(own) == 4 and all(math.isfinite(row.reward) and not row.trained for row in own)


# The solver's update


def stepped(
    folder: Path, rows: list[Rollout], *, minibatch: int = 1, kind: type[FakeTrainer] = FakeTrainer
) -> SolverUpdate:
    trainer = loaded(folder, kind=kind)
    (folder / "out").mkdir()
    changed = [f"cotrain.solver.minibatch={minibatch}", "cotrain.solver.learning_rate=0.5"]
    settings = solver_phase.settings_of(load([CONFIGS / "nano.yaml"], changed), iteration=0)
    return solver_phase.update_solver(
        [question(name) for name in NAMES], rows, trainer, settings, workspace=folder / "out", before=anchor(folder)
    )


@pytest.mark.parametrize("minibatch", [1, 2, 3, 4])
def test_a_question_without_a_finite_gradient_leaves_the_solvers_update(tmp_path: Path, minibatch: int):
    found = stepped(tmp_path / "found", varied(NAMES, poisoned=["q3"]), minibatch=minibatch)
    without = stepped(tmp_path / "without", varied(["q1", "q2", "q4"]), minibatch=minibatch)
    assert found.updates == without.updates != []
    assert files(tmp_path / "found" / "out") == files(tmp_path / "without" / "out")
    assert [(row.group_id, row.quantity) for row in found.not_finite] == [("q3", "loss")]


def test_the_solvers_update_ends_where_nothing_is_left(tmp_path: Path):
    with pytest.raises(EngineError, match=r"loss of q1 is nan, .*, the first of 4"):
        stepped(tmp_path / "x", varied(NAMES, poisoned=NAMES))


class Flickering(FakeTrainer):
    """A device that errs once: the gradient of the second step, and of nothing that is computed again."""

    passes = 0

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        report = super().forward_backward(groups, objective, denominator=denominator, progress=progress)
        self.passes += 1
        if self.passes == 2:
            self._flat.gradient[0] = NAN
        return report


def test_a_skipped_step_is_not_counted_as_taken(tmp_path: Path):
    done = stepped(tmp_path / "x", varied(NAMES), kind=Flickering)
    assert [(row.step, row.skipped) for row in done.updates] == [(1, False), (1, True), (2, False), (3, False)]
    assert not done.not_finite


def test_an_update_that_took_no_step_is_none(tmp_path: Path):
    with pytest.raises(EngineError, match="took none of 1 steps"):
        stepped(tmp_path / "x", varied(["q1"]), kind=type("Second", (Flickering,), {"passes": 1}))


# A question of a transformer's packed pass whose numbers are not finite leaves it; its neighbours stay


@pytest.fixture(scope="module")
def random_anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("model"))


def four() -> list[Rollout]:
    return [*rollouts("a", seed=0), *rollouts("b", seed=2)]


def scored_by_model(random_anchor: Checkpoint, folder: Path, rows: list[Rollout]) -> ScoringResult:
    folder.mkdir()
    trainer = local_trainer()
    trainer.load(random_anchor)
    facts, _ = dev_gradient(rollouts("d", seed=1), trainer, DEV, workspace=folder)
    return score_phase.score_influence(
        [question(name) for name in dict.fromkeys(row.group_id for row in rows)], rows, trainer,
        ScoreSettings(objective=OBJECTIVE, mode="preconditioned_cosine", probe=True),
        reference=folder / gradient_phase.FILE, reference_norm=facts.norm, workspace=folder,
    )  # fmt: skip


def test_one_question_of_a_pass_is_lost_and_no_other(random_anchor: Checkpoint, tmp_path: Path):
    rows = four()
    name = rows[0].group_id
    spoiled = [
        replace(row, sampler_logprobs=[math.nan] * len(row.token_ids)) if row is rows[1] else row for row in rows
    ]
    found = scored_by_model(random_anchor, tmp_path / "found", spoiled)
    without = scored_by_model(random_anchor, tmp_path / "without", [row for row in rows if row.group_id != name])
    assert found.scores[1:] == without.scores and found.logprobs == without.logprobs
    assert [row.status for row in found.scores] == [ScoreStatus.NOT_FINITE] + [ScoreStatus.SCORED] * 3
    assert [(row.group_id, row.quantity) for row in found.not_finite] == [(name, "loss")] and found.not_finite[0].tensor


UNKNOWN = 63
"""A token whose embedding is broken."""


def without_unknown(tokens: list[int]) -> list[int]:
    return [2 if token == UNKNOWN else token for token in tokens]


def updated(random_anchor: Checkpoint, folder: Path, rows: list[Rollout]) -> SolverUpdate:
    folder.mkdir()
    trainer = local_trainer()
    trainer.load(random_anchor)
    step = UpdateSettings(
        learning_rate=1e-2, minibatch=1, advantage="mean_centred",
        objective=objective_settings(), optimizer=OptimizerSettings(),
    )  # fmt: skip
    return update_solver.update_solver(
        [question(name) for name in dict.fromkeys(row.group_id for row in rows)], rows, trainer,
        SolverSettings(step=step, band=None, ranks=False, mid_eos_penalty=0.0, left_out=[]), workspace=folder,
        before=random_anchor,
    )  # fmt: skip


@pytest.mark.parametrize("place", [0, 1])
def test_a_prompt_that_the_model_cannot_read_spoils_no_other_question(tmp_path: Path, place: int):
    broken = make_checkpoint(tmp_path, tied=False)
    spoil(broken, "model.embed_tokens.weight", UNKNOWN)
    rows = [
        replace(row, prompt_token_ids=without_unknown(row.prompt_token_ids), token_ids=without_unknown(row.token_ids))
        for row in four()
    ]
    name = list(dict.fromkeys(row.group_id for row in rows))[place]
    others = [row for row in rows if row.group_id != name]
    odd = [
        replace(row, prompt_token_ids=[UNKNOWN, *row.prompt_token_ids[1:]]) if row.group_id == name else row
        for row in rows
    ]
    found, without = updated(broken, tmp_path / "found", odd), updated(broken, tmp_path / "without", others)
    assert [row.group_id for row in found.not_finite] == [name]
    assert found.updates == without.updates and len(found.updates) == 3


def spoil(checkpoint: Checkpoint, tensor: str, row: int) -> None:
    weights = load_file(f"{checkpoint.path}/model.safetensors")
    weights[tensor][row] = torch.nan
    save_file(weights, f"{checkpoint.path}/model.safetensors", metadata={"format": "pt"})


def test_broken_weights_are_named(random_anchor: Checkpoint, tmp_path: Path):
    broken = make_checkpoint(tmp_path)
    spoil(broken, "model.layers.1.mlp.down_proj.weight", 0)
    trainer = local_trainer()
    trainer.load(broken)
    with pytest.raises(EngineError, match=r"itself is not finite in model.layers.1.mlp.down_proj.weight of"):
        dev_gradient(four(), trainer, DEV, workspace=tmp_path)
