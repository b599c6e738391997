"""The study's estimate of an objective's change agrees with the first-order prediction for a small real step."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, make_groups, objective_settings
from safetensors.torch import load_file
from stock_engines import local_trainer

from infuser_core.algorithm.advantage import centre
from infuser_core.config.roles import OptimizerSettings
from infuser_core.cotrain.phases.dev_gradient import DevSettings
from infuser_core.cotrain.phases.training import UpdateSettings, by_group, train_group
from infuser_core.cotrain.studies.effects import reweighted_measure, sample_questions, step_effects
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.errors import EngineError
from infuser_core.schemas import InfluenceScore, Question, Rollout

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
