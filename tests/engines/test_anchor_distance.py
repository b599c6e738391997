"""The distance to the anchor in an update: its log-probabilities are the anchor's own, and it holds the policy back."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_groups, step, stock_logprobs, stock_model, trainer
from solver_rows import answers, question
from stock_engines import local_trainer

from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import update_solver as phase
from infuser_core.cotrain.phases.training import train_group
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.errors import EngineError
from infuser_core.protocols import TrainGroup
from infuser_core.schemas import Checkpoint

CONFIG = load([shipped.find_data_file("configs/nano.yaml")])


def anchored(groups: list[TrainGroup], values: list[list[list[float]]]) -> list[TrainGroup]:
    return [
        replace(group, rows=[replace(row, anchor_logprobs=each) for row, each in zip(group.rows, rows, strict=True)])
        for group, rows in zip(groups, values, strict=True)
    ]


@pytest.mark.parametrize("budget", [40, 4096])
def test_loss_and_gradient_are_those_of_the_stock_models(anchor: Checkpoint, tmp_path: Path, budget: int) -> None:
    engine, groups = trainer(anchor, dtype="float64", token_budget=budget), make_groups(SHAPES)
    start = engine.logprobs(groups, temperature=OBJECTIVE.temperature)
    for seed in range(3):
        step(engine, make_groups(SHAPES[:4], seed=seed))
    (tmp_path / "moved").mkdir()
    engine.save(tmp_path / "moved")
    given, objective = anchored(groups, start), replace(OBJECTIVE, kl=0.7)
    engine.zero_grad()
    report = engine.forward_backward(given, objective, denominator=3)
    found = engine._flat.gradient.clone()
    bare = gradient(engine, groups, denominator=3)
    models = [
        stock_model(Checkpoint(checkpoint_id="m", role="solver", path=str(p), step=0))
        for p in (tmp_path / "moved", anchor.path)
    ]
    total, divergence, tokens = torch.zeros((), dtype=torch.float64), 0.0, 0
    for group in groups:
        for row in group.rows:
            asked = (group.prompt_token_ids, row.token_ids, OBJECTIVE.temperature)
            current, fixed = stock_logprobs(models[0], *asked), stock_logprobs(models[1], *asked).detach()
            k3 = (fixed - current).exp() - (fixed - current) - 1
            total = total + 0.7 * k3.sum() / (len(group.rows) * OBJECTIVE.length_norm * 3)
            divergence, tokens = divergence + float(k3.sum().detach()), tokens + len(row.token_ids)
    total.backward()
    assert report.means["anchor_kl"] == pytest.approx(divergence / tokens, rel=1e-4)
    expected = {name: each.grad for name, each in models[0].named_parameters()}
    for name, view in engine._flat.views(found - bare).items():
        # Stock norms compute in fp32.
        assert float((view - expected[name]).norm()) <= 1e-4 * float(expected[name].norm()) + 1e-12, name


def test_a_row_without_it_among_others_is_refused(anchor: Checkpoint) -> None:
    engine, groups = trainer(anchor), make_groups(SHAPES[:2])
    given = anchored(groups, engine.logprobs(groups, temperature=0.7))
    given[0] = groups[0]
    with pytest.raises(EngineError, match="lacks anchor_logprobs"):
        engine.forward_backward(given, replace(OBJECTIVE, kl=0.1), denominator=1)


class Watched(LocalTrainer):
    """A trainer that keeps a list of what it loaded."""

    def load(self, checkpoint: Checkpoint) -> None:
        super().load(checkpoint)
        self.__dict__.setdefault("seen", []).append(checkpoint.checkpoint_id)


def distance(engine: LocalTrainer, groups: list[TrainGroup], fixed: list[list[list[float]]]) -> float:
    """Mean k3 of KL(current || anchor)."""
    found = engine.logprobs(groups, temperature=CONFIG.cotrain.sampling.temperature)
    gaps = [b - a for one, two in zip(found, fixed, strict=True) for x, y in zip(one, two, strict=True)
            for a, b in zip(x, y, strict=True)]  # fmt: skip
    return sum(math.exp(gap) - gap - 1 for gap in gaps) / len(gaps)


def test_an_update_loads_the_anchor_only_for_it_and_stays_nearer(anchor: Checkpoint, tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(12)]
    rows = {name: answers(name, ["w5"] * 4, correct=[True, False, True, False]) for name in names}
    first = trainer(anchor)
    groups = [train_group(own, [1.0] * 4) for own in rows.values()]
    fixed = first.logprobs(groups, temperature=CONFIG.cotrain.sampling.temperature)
    for seed in range(3):
        step(first, make_groups(SHAPES[:4], seed=seed))
    (tmp_path / "moved").mkdir()
    first.save(tmp_path / "moved")
    moved = replace(anchor, checkpoint_id="moved", path=str(tmp_path / "moved"))
    after = []
    for kl in (0.0, 50.0):
        settings = phase.settings_of(CONFIG, iteration=0)
        settings = replace(settings, step=replace(settings.step, learning_rate=3e-3, minibatch=1, kl=kl))
        engine, out = local_trainer(Watched), tmp_path / f"out-{kl}"
        engine.load(moved)
        out.mkdir()
        done = phase.update_solver(
            [question(name) for name in names], [row for own in rows.values() for row in own], engine, settings,
            workspace=out, before=moved, anchor=anchor,
        )  # fmt: skip
        assert engine.__dict__["seen"] == ["moved", *(["anchor", "moved"] if kl else [])]
        assert [update.anchor_kl > 0 for update in done.updates] == [kl > 0] * len(names)
        after.append(distance(engine, groups, fixed))
    assert after[1] < 0.5 * min(after[0], distance(first, groups, fixed))
