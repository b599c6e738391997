"""The studies of a run: effects of single steps, scores by name, gradient quality, selections."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_tiny import make_checkpoint, make_groups, objective_settings
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from stock_engines import local_trainer

from infuser_core.algorithm.advantage import centre
from infuser_core.config.roles import OptimizerSettings
from infuser_core.cotrain.phases.dev_gradient import DevSettings
from infuser_core.cotrain.phases.parts.real_steps import reweighted_measure
from infuser_core.cotrain.phases.score_influence import ScoreSettings, score_influence
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, train_group
from infuser_core.cotrain.studies.candidates import (
    PAPER,
    SCORES,
    NamedScore,
    named_scores,
    ranks_within,
    values_by_score,
)
from infuser_core.cotrain.studies.effects import exact_measure, sample_questions, step_effects
from infuser_core.cotrain.studies.gradients import GradientSettings, gradient_quality, inner_products
from infuser_core.cotrain.studies.question_gradients import load_flat
from infuser_core.cotrain.studies.selection import (
    WORST,
    ArmPlan,
    Reached,
    SelectionArm,
    SelectionSettings,
    datamodelling,
    run_arms,
    select_questions,
    summary,
)
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.errors import EngineError
from infuser_core.protocols import Trainer
from infuser_core.schemas import Checkpoint, InfluenceScore, Question, QuestionLabel, Rollout

OBJECTIVE = objective_settings()
DEV = DevSettings(objective=OBJECTIVE)


def settings(learning_rate: float, *, truncated: bool = False) -> UpdateSettings:
    """A step; `truncated` has importance weights, which see the sampler's log-probabilities."""
    return UpdateSettings(
        learning_rate=learning_rate,
        minibatch=4,
        advantage="mean_centred",
        objective=objective_settings(**({} if truncated else {"tis_cap": None}), max_tokens=1),
        optimizer=OptimizerSettings(),
    )


def rollouts(name: str, *, seed: int) -> list[Rollout]:
    rows = []
    for group in make_groups([(5, [4, 3, 6, 2]), (4, [3, 3, 5, 2])], seed=seed):
        for index, row in enumerate(group.rows):
            rows.append(
                Rollout(
                    rollout_id=f"{name}{group.group_id}/{index}",
                    group_id=f"{name}{group.group_id}",
                    sample_index=index,
                    role="solver",
                    checkpoint_id="anchor",
                    prompt_token_ids=group.prompt_token_ids,
                    token_ids=row.token_ids,
                    sampler_logprobs=row.sampler_logprobs,
                    text="",
                    finish_reason="stop",
                    verdict="correct" if index % 2 else "wrong",
                    reward=float(index % 2),
                    malformed_reason="",
                )
            )
    return rows


def questions() -> list[Question]:
    names = dict.fromkeys(row.group_id for row in rollouts("q", seed=0))
    blank = {"text": "", "choices": [], "answer": "", "verifier": "choice", "domain": "", "subdomain": ""}
    return [Question(question_id=n, document_id="d", rollout_id=f"{n}/0", reasoning="", **blank) for n in names]


def score(question_id: str, status: str = "scored") -> InfluenceScore:
    values = {"cosine": 0.1, "dot": 0.1, "raw_cosine": 0.2, "direction_norm": 1.0, "gradient_norm": 1.0}
    return InfluenceScore(
        question_id=question_id, status=status, score=0.1, reference_norm=1.0, solver_accuracy=0.25, **values
    )


def gradient_of(trainer: LocalTrainer, rows: Sequence[Rollout], folder: Path) -> dict[str, torch.Tensor]:
    constants = objective_settings(tis_cap=None, max_tokens=1).constants([])
    groups = [train_group(group, centre([row.reward for row in group])) for group in by_group(rows).values()]
    trainer.zero_grad()
    trainer.forward_backward(groups, constants, denominator=len(groups))
    trainer.keep_gradient(folder / "g.safetensors")
    trainer.zero_grad()
    return load_file(folder / "g.safetensors")


def test_measured_change_is_the_inner_product_of_gradient_and_step(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    trainer = local_trainer(optimizer={"weight_decay": 0.0, "max_grad_norm": 1e9})
    trainer.load(checkpoint)
    answers, dev, held_out = (rollouts(name, seed=n) for n, name in enumerate(("q", "d", "h")))
    gradient = gradient_of(trainer, dev, tmp_path)
    before = load_file(Path(checkpoint.path) / "model.safetensors")
    trainer.load(checkpoint)
    measures = {
        name: reweighted_measure(rows, trainer, temperature=1.0)
        for name, rows in (("dev", dev), ("held_out", held_out))
    }
    chosen = [*by_group(answers)][:1]
    on_dev, on_held_out = step_effects(chosen, answers, trainer, checkpoint, measures, settings(1e-5))[0]
    constants = objective_settings(tis_cap=None, max_tokens=1).constants([])
    group = next(iter(by_group(answers).values()))
    trainer.forward_backward([train_group(group, centre([row.reward for row in group]))], constants, denominator=1)
    trainer.optim_step(1e-5)
    (tmp_path / "after").mkdir()
    trainer.save(tmp_path / "after")
    after = load_file(tmp_path / "after" / "model.safetensors")
    predicted = sum(float((gradient[n].double() * (after[n].double() - before[n].double())).sum()) for n in gradient)
    assert on_dev.change == pytest.approx(predicted, rel=0.02)
    assert on_dev.change != on_held_out.change and on_dev.error > 0


def test_the_trainer_ends_where_it_started(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    trainer = local_trainer()
    trainer.load(checkpoint)
    answers = rollouts("q", seed=0)
    measures = {"dev": reweighted_measure(answers, trainer, temperature=1.0)}
    step_effects([*by_group(answers)][:1], answers, trainer, checkpoint, measures, settings(1e-2))
    (tmp_path / "end").mkdir()
    assert trainer.save(tmp_path / "end") == 0
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (tmp_path / "end" / name).read_bytes() == (Path(checkpoint.path) / name).read_bytes()


def test_only_scored_questions_are_sampled_and_the_seed_decides_which() -> None:
    scores = [score(f"q{n}", "scored" if n % 2 else "zero_variance") for n in range(20)]
    chosen = sample_questions(scores, 4, seed=1)
    assert [row.question_id for row in chosen] == [row.question_id for row in sample_questions(scores, 4, seed=1)]
    assert len(chosen) == 4 and all(row.status == "scored" for row in chosen)
    assert len(sample_questions(scores, 99, seed=1)) == 10


def test_a_question_whose_step_is_not_finite_leaves_the_others_to_be_measured(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    trainer = local_trainer()
    trainer.load(checkpoint)
    answers, dev = rollouts("q", seed=0), rollouts("d", seed=1)
    names = list(by_group(answers))
    odd = [
        replace(row, sampler_logprobs=[math.nan] * len(row.token_ids)) for row in answers if row.group_id == names[0]
    ]
    given = [*odd, *(row for row in answers if row.group_id != names[0])]
    measures = {"dev": reweighted_measure(dev, trainer, temperature=1.0)}
    arguments = (given, trainer, checkpoint, measures, settings(1e-3, truncated=True))
    effects, not_finite = step_effects(names, *arguments)
    assert [(row.group_id, row.quantity) for row in not_finite] == [(names[0], "loss")]
    assert effects == step_effects(names[1:], *arguments)[0]
    with pytest.raises(EngineError, match="nothing finite is left to train on: loss of"):
        step_effects(names[:1], *arguments)


# The generator's gradient is compared with that of real effects: from inner products alone, batch by batch


UNCAPPED = objective_settings(tis_cap=None, max_tokens=1)
QUALITY = GradientSettings(objective=UNCAPPED, documents=2, batches=60, invalid=0.0)
ROWS = [
    replace(row, rollout_id=f"{place}/{row.rollout_id}", group_id=f"{place}/{row.group_id}")
    for place in range(4)
    for row in rollouts("doc", seed=place)
]
QUESTIONS = [
    Question(question_id=row.rollout_id, text="", choices=[], answer="", verifier="choice", rollout_id=row.rollout_id)
    for row in ROWS
]
RNG = np.random.default_rng(0)
EFFECTS = {row.rollout_id: float(value) for row, value in zip(ROWS, RNG.normal(size=len(ROWS)), strict=True)}


def test_inner_products_are_those_of_the_trainers_gradients(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    trainer = local_trainer()
    found = inner_products(ROWS[:3], trainer, checkpoint, UNCAPPED, workspace=tmp_path)
    vectors = []
    for row in ROWS[:3]:
        trainer.zero_grad()
        trainer.forward_backward([train_group([row], [1.0])], UNCAPPED.constants([]), denominator=1)
        trainer.keep_gradient(tmp_path / "one.safetensors")
        vectors.append(load_flat(tmp_path / "one.safetensors"))
    assert found == pytest.approx(np.array(vectors) @ np.array(vectors).T, rel=1e-4)


def test_a_reward_that_knows_the_effects_comes_first_and_noise_points_nowhere() -> None:
    # One direction of the generator that is good: a text's share in it is its effect.
    good_R = np.array([EFFECTS[row.rollout_id] for row in ROWS])
    features_RN = np.column_stack([good_R, 0.3 * RNG.normal(size=(len(ROWS), 3))])
    scores = [
        replace(score(row.rollout_id), score=float(noise))
        for row, noise in zip(ROWS, RNG.normal(size=40), strict=False)
    ]
    found = gradient_quality(ROWS, QUESTIONS, scores, EFFECTS, features_RN @ features_RN.T, QUALITY, seed=0)
    by_name = {(row.reward, row.advantage): row for row in found}
    best, blind = by_name["effect", "mean_centred"], by_name["influence", "mean_centred"]
    assert best.cosine > 0.8 > blind.cosine and best.low < best.cosine < best.high
    # Everybody has the same pass rate: a reward for it credits nothing.
    assert by_name["variance", "dugrpo"].cosine == 0.0


def test_without_effects_there_is_no_true_direction() -> None:
    scores = [score(row.rollout_id) for row in ROWS]
    found = gradient_quality(ROWS, QUESTIONS, scores, {}, np.eye(len(ROWS)), QUALITY, seed=0)
    assert {row.cosine for row in found} == {0.0}


# Every score of the folder from one pass of its own agrees with the engine's probe where the two mean the same


def question(name: str, *, subdomain: str = "") -> Question:
    return Question(question_id=name, text="", choices=[], answer="", verifier="choice", subdomain=subdomain)


def stored(trainer: LocalTrainer, answers: list[Rollout], folder: Path) -> list[InfluenceScore]:
    """The run's own scores, against the gradient of other answers."""
    dev = [train_group(rows, centre([row.reward for row in rows])) for rows in by_group(rollouts("d", seed=3)).values()]
    trainer.forward_backward(dev, UNCAPPED.constants([]), denominator=len(dev))
    norm = trainer.keep_gradient(folder / "dev.safetensors")
    trainer.zero_grad()
    asked = [question(name) for name in by_group(answers)]
    wanted = ScoreSettings(objective=UNCAPPED, mode="preconditioned_cosine", probe=True)
    file = folder / "dev.safetensors"
    return score_influence(
        asked, answers, trainer, wanted, reference=file, reference_norm=norm, workspace=folder, include_carried=True
    ).scores


def values(
    checkpoint: Checkpoint, folder: Path, labels: list[QuestionLabel]
) -> tuple[dict[str, dict[str, float]], list[InfluenceScore]]:
    trainer = local_trainer()
    trainer.load(checkpoint)
    answers = rollouts("q", seed=0)
    own = stored(trainer, answers, folder)
    target = [question("d", subdomain="clock")]
    rows = named_scores(
        questions(),
        own,
        answers,
        target,
        labels,
        trainer,
        checkpoint,
        UNCAPPED,
        reference=folder / "dev.safetensors",
        workspace=folder,
    )
    return values_by_score(rows), own


def test_without_moments_every_frozen_form_is_the_plain_cosine(tmp_path: Path) -> None:
    found, own = values(make_checkpoint(tmp_path), tmp_path, [])
    probed = {row.question_id: pytest.approx(row.raw_cosine, abs=1e-6) for row in own}
    assert found["gradalign"] == probed and found["bergson"] == probed
    # Nobody labelled the questions, and the oracle has nothing to say.
    costly = {"learnalign", "ippo", "cropi_old", "embedding"}
    assert {*found} == {*SCORES.names()} - {"label_oracle"} - costly


def test_moments_of_a_few_steps_set_the_forms_apart_and_the_oracle_speaks_with_labels(tmp_path: Path) -> None:
    trainer = local_trainer()
    trainer.load(make_checkpoint(tmp_path))
    for _ in range(3):
        rows = next(iter(by_group(rollouts("w", seed=5)).values()))
        train = train_group(rows, centre([row.reward for row in rows]))
        trainer.forward_backward([train], UNCAPPED.constants([]), denominator=1)
        trainer.optim_step(settings(1e-3).learning_rate)
        trainer.zero_grad()
    (tmp_path / "warm").mkdir()
    step = trainer.save(tmp_path / "warm")
    warm = Checkpoint(checkpoint_id="warm", role="solver", path=str(tmp_path / "warm"), step=step)
    names = [*by_group(rollouts("q", seed=0))]
    labels = [QuestionLabel(question_id=names[0], topic="clock", key="sound")]
    labels.append(QuestionLabel(question_id=names[1], topic="clock", key="unsound"))
    found, own = values(warm, tmp_path, labels)
    assert [*found["label_oracle"].values()] == [1.0, -1.0]
    for row in own:
        forms = [found[name][row.question_id] for name in ("gradalign", "bergson", "raw_cosine")]
        assert len({round(value, 4) for value in forms}) == 3 and all(-1 <= value <= 1 for value in forms)


def test_ranks_within_cells_forget_what_the_cells_say() -> None:
    assert ranks_within([5.0, 9.0, 1.0, 2.0], ["a", "a", "b", "b"]) == [-0.25, 0.25, -0.25, 0.25]


# The arms of a selection are equally large, best and worst by their rule, and ties fall by a draw of the seed


SELECTION = SelectionSettings(step=None, share=0.25, steps=1, draws=3, samples=1, ranked=True)  # type: ignore[arg-type]


def scores(**values: list[float]) -> list[NamedScore]:
    return [
        NamedScore(question_id=f"q{place}", name=name, value=value, cell="")
        for name, own in values.items()
        for place, value in enumerate(own)
    ]


def by_name(made: list[ArmPlan]) -> dict[str, list[str]]:
    return {f"{each.arm}{each.draw or ''}": list(each.questions) for each in made}


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.integers(0, 5))
def test_arms_have_one_size_and_the_score_orders_them(cosines: list[float], seed: int) -> None:
    made = by_name(select_questions(scores(preconditioned_cosine=cosines), SELECTION, seed=seed))
    assert len({len(names) for names in made.values()}) == 1
    known = {f"q{place}": value for place, value in enumerate(cosines)}
    rest = [known[name] for name in known if name not in made[PAPER]]
    assert min(known[name] for name in made[PAPER]) >= max(rest, default=-2)
    assert max(known[name] for name in made[WORST]) <= min(
        (known[name] for name in known if name not in made[WORST]), default=2
    )
    # Questions keep the order of the scores, so that a step adds up the same numbers in the same order.
    assert all(names == [name for name in known if name in names] for names in made.values())


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.integers(0, 5))
def test_an_arm_that_leaves_its_questions_out_trains_on_all_others(cosines: list[float], seed: int) -> None:
    named = scores(preconditioned_cosine=cosines)
    own = by_name(select_questions(named, SELECTION, seed=seed))
    others = by_name(select_questions(named, replace(SELECTION, leave_out=True), seed=seed))
    everything = [f"q{place}" for place in range(len(cosines))]
    assert others == {arm: [name for name in everything if name not in own[arm]] for arm in own}


def test_ties_depend_on_the_seed_alone() -> None:
    named = scores(preconditioned_cosine=[0.5] * 40)
    first, again, other = (by_name(select_questions(named, SELECTION, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first["random"] != first["random1"] != first["random2"]
    # Equal scores are no reason to be both the best and the first in the list.
    assert first[PAPER] != [f"q{n}" for n in range(10)]


def test_every_score_has_an_arm_of_its_best() -> None:
    up, down = [n / 10 for n in range(8)], [-n / 10 for n in range(8)]
    made = by_name(select_questions(scores(preconditioned_cosine=up, raw_cosine=down), SELECTION, seed=0))
    assert made[PAPER] == ["q6", "q7"] and made[WORST] == made["raw_cosine"] == ["q0", "q1"]


def arm(draw: int, accuracy: float, change: float, questions: list[str]) -> SelectionArm:
    return SelectionArm(
        arm="random", draw=draw, questions=questions, accuracy=accuracy, change=change, change_low=0, change_high=0
    )


def test_random_arms_are_one_line_with_their_lowest_and_highest() -> None:
    (line,) = summary([arm(0, 0.5, -0.1, ["q0"]), arm(1, 0.7, 0.1, ["q0"])])
    assert (line["arms"], line["accuracy"], line["low"], line["high"]) == (2, pytest.approx(0.6), -0.1, 0.1)
    assert np.isclose(line["change"], 0.0)  # type: ignore[arg-type]


def test_the_datamodelling_score_ranks_the_random_arms_alone() -> None:
    named = scores(preconditioned_cosine=[float(n) for n in range(8)], raw_cosine=[-float(n) for n in range(8)])
    rows = [arm(n, 0.1 * n, 0.0, [f"q{n}"]) for n in range(8)]
    alone = select_questions(named, replace(SELECTION, ranked=False), seed=0)
    assert {each.arm for each in alone} == {"random"}
    odd = replace(rows[0], arm="short", accuracy=1.0)
    found = {row.predictor: row.spearman for row in datamodelling([*rows, odd], named)}
    assert found == {PAPER: 1.0, "raw_cosine": -1.0}


class InMemory(list[Reached]):
    """Rows that outlive a killed study."""

    def rows(self) -> list[Reached]:
        return [*self]

    def add(self, rows: Sequence[Reached]) -> None:
        self.extend(rows)


def test_a_killed_selection_trains_no_arm_twice(tmp_path: Path) -> None:
    checkpoint, answers = make_checkpoint(tmp_path), rollouts("q", seed=0)
    names = [*by_group(answers)]
    named = [NamedScore(question_id=each, name=PAPER, value=float(n), cell="") for n, each in enumerate(names)]
    step = replace(SELECTION, step=settings(1e-3), share=1 / len(names), draws=1)
    trainer, asked = local_trainer(), exact_measure([train_group(answers[:1], [0.0])])
    measured: list[int] = []

    def study(kept: InMemory, *, most: int) -> list[SelectionArm]:
        def measure(solver: Trainer) -> np.ndarray:
            if len(measured) == most:
                raise KeyboardInterrupt
            measured.append(len(measured))
            return asked(solver)

        return run_arms(named, answers, trainer, checkpoint, measure, step, seed=1, saved_rows=kept)

    whole = study(InMemory(), most=9)
    count, kept = len(measured), InMemory()
    measured.clear()
    with pytest.raises(KeyboardInterrupt):
        study(kept, most=2)
    assert study(kept, most=9) == whole and len(measured) == count > 2
    assert whole[0].change == 0 != whole[1].change
