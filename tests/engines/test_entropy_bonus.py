"""The entropy bonus of an update: the stock model's entropy, of every row, and a policy that stays broader by it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_groups, stock_model, trainer
from solver_rows import answers, question

from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import update_solver as phase
from infuser_core.schemas import Checkpoint

CONFIG = load([shipped.find_data_file("configs/nano.yaml")])


def stock_entropy(model: torch.nn.Module, prompt: list[int], response: list[int], temperature: float) -> torch.Tensor:
    """Entropy of the distribution that every response token is drawn from, nats, [tokens]."""
    tokens = torch.tensor([[*prompt, *response]])
    logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.distributions.Categorical(logits=logits).entropy()


@pytest.mark.parametrize("budget", [40, 4096])
def test_loss_and_gradient_are_those_of_the_stock_model(anchor: Checkpoint, budget: int) -> None:
    engine, groups = trainer(anchor, dtype="float64", token_budget=budget), make_groups(SHAPES)
    # Rows without credit count too.
    groups[0] = replace(groups[0], rows=[replace(row, advantage=0.0) for row in groups[0].rows])
    bare = engine.forward_backward(groups, OBJECTIVE, denominator=3)
    plain = gradient(engine, groups, denominator=3)
    engine.zero_grad()
    report = engine.forward_backward(groups, replace(OBJECTIVE, entropy=0.3), denominator=3)
    found = engine._flat.gradient.clone()
    model, bonus = stock_model(anchor), torch.zeros((), dtype=torch.float64)
    for group in groups:
        for row in group.rows:
            entropy = stock_entropy(model, list(group.prompt_token_ids), list(row.token_ids), OBJECTIVE.temperature)
            bonus = bonus + 0.3 * entropy.sum() / (len(group.rows) * OBJECTIVE.length_norm * 3)
    (-bonus).backward()
    assert report.loss - bare.loss == pytest.approx(-float(bonus.detach()), rel=1e-4)
    expected = {name: each.grad for name, each in model.named_parameters()}
    # Stock norms compute in fp32.
    for name, view in engine._flat.views(found - plain).items():
        assert float((view - expected[name]).norm()) <= 1e-4 * float(expected[name].norm()) + 1e-12, name


def test_updates_with_a_bonus_leave_a_broader_policy(anchor: Checkpoint, tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(8)]
    rows = {name: answers(name, ["w5"] * 4, correct=[True, False, True, False]) for name in names}
    entropies = []
    for bonus in (0.0, 5.0):
        settings = phase.settings_of(CONFIG, iteration=0)
        settings = replace(settings, step=replace(settings.step, learning_rate=3e-3, minibatch=1, entropy=bonus))
        engine, out = trainer(anchor), tmp_path / f"out-{bonus}"
        out.mkdir()
        phase.update_solver(
            [question(name) for name in names], [row for own in rows.values() for row in own], engine, settings,
            workspace=out, before=anchor,
        )  # fmt: skip
        model = stock_model(replace(anchor, path=str(out)))
        answer = rows[names[0]][0]
        with torch.no_grad():
            found = stock_entropy(model, list(answer.prompt_token_ids), list(answer.token_ids), 1.0)
        entropies.append(float(found.mean()))
    assert entropies[1] > entropies[0] + 0.05
