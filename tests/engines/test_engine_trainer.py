from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, make_groups
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from infuser_core.algorithm.influence import direction
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import Objective, TrainGroup
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.schemas import Checkpoint

SHAPES = [(5, [4, 7, 1]), (9, [3, 3]), (5, [6, 2, 2, 5]), (17, [11, 4, 8]), (3, [1])]
OBJECTIVE = Objective(length_norm=16.0, temperature=0.7)
LAST = SHAPES[:4]


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


def trainer(anchor: Checkpoint, **options: object) -> LocalTrainer:
    engine = LocalTrainer(device="cpu", **options)  # type: ignore[arg-type]
    engine.load(anchor)
    return engine


def gradient(engine: LocalTrainer, groups: list[TrainGroup], folder: Path, *, denominator: int = 1) -> Tensor:
    """The accumulated ascent direction, flat."""
    engine.zero_grad()
    engine.forward_backward(groups, OBJECTIVE, denominator=denominator)
    engine.keep_gradient(folder / "g.safetensors")
    return torch.cat([each.double().reshape(-1) for _, each in sorted(load_file(folder / "g.safetensors").items())])


def plain_gradient(anchor: Checkpoint, groups: list[TrainGroup], denominator: int) -> Tensor:
    """eq:unified_obj written down once more: one response after the other, the stock model, no packing."""
    model = AutoModelForCausalLM.from_pretrained(anchor.path, dtype=torch.float64)
    total = torch.zeros(())
    for group in groups:
        for row in group.rows:
            start, ids = len(group.prompt_token_ids), torch.tensor([group.prompt_token_ids + row.token_ids])
            logits = model(ids).logits[0, start - 1 : -1] / OBJECTIVE.temperature
            current = torch.log_softmax(logits, -1).gather(1, torch.tensor(row.token_ids)[:, None])[:, 0]
            old = current.detach() if row.old_logprobs is None else torch.tensor(row.old_logprobs, dtype=torch.float64)
            ratio = (current - old).exp()
            weight = (old - torch.tensor(row.sampler_logprobs, dtype=torch.float64)).exp().clamp(max=2.0)
            worth = torch.minimum(ratio * row.advantage, ratio.clamp(0.8, 1.2) * row.advantage)
            total = total + (weight * worth).sum() / (len(group.rows) * OBJECTIVE.length_norm * denominator)
    total.backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return torch.cat([each.reshape(-1) for _, each in sorted(named.items())])


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_gradient_is_that_of_the_stock_model(tmp_path: Path, old: bool, tied: bool) -> None:
    checkpoint = make_checkpoint(tmp_path, tied=tied)
    groups = make_groups(SHAPES, old=old)
    engine = trainer(checkpoint, dtype="float64")
    # Kept gradients are fp32, so agreement ends there.
    assert distance(gradient(engine, groups, tmp_path, denominator=3), plain_gradient(checkpoint, groups, 3)) < 1e-6


def accumulated(engine: LocalTrainer, groups: list[TrainGroup]) -> Tensor:
    engine.zero_grad()
    engine.forward_backward(groups, OBJECTIVE, denominator=1)
    return engine._flat.gradient.clone()


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 2e-6), ("float64", 1e-12)])
def test_sharing_prompts_and_budgets_leave_the_gradient_alone(anchor: Checkpoint, dtype: str, limit: float) -> None:
    groups = make_groups(SHAPES, old=True)
    engines = [trainer(anchor, dtype=dtype, token_budget=budget) for budget in (28, 40, 64, 4096)]
    expected = accumulated(trainer(anchor, dtype=dtype), groups)
    for engine in engines:
        assert distance(accumulated(engine, groups), expected) < limit


def test_checkpointing_and_chunked_logits_leave_the_gradient_alone(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = make_groups(SHAPES)
    plain = accumulated(trainer(anchor, dtype="float64"), groups)
    assert distance(accumulated(trainer(anchor, dtype="float64", gradient_checkpointing=True), groups), plain) < 1e-12
    monkeypatch.setattr("infuser_core.engines.training.policy.LOGIT_CELLS", 64 * 7)
    assert distance(accumulated(trainer(anchor, dtype="float64"), groups), plain) < 1e-12


def test_bfloat16_points_the_same_way(anchor: Checkpoint) -> None:
    groups = make_groups(SHAPES)
    exact = accumulated(trainer(anchor), groups)
    rough = accumulated(trainer(anchor, dtype="bfloat16"), groups)
    assert rough.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(rough, exact, dim=0) > 0.99


def test_flat_rows_cost_nothing_and_keep_their_place_in_the_group(anchor: Checkpoint) -> None:
    (group,) = make_groups([(5, [4, 3, 6])])
    silent = replace(group, rows=[*group.rows, replace(group.rows[0], advantage=0.0)])
    engine = trainer(anchor, dtype="float64")
    assert distance(accumulated(engine, [silent]) * 4 / 3, accumulated(engine, [group])) < 1e-6
    flat = replace(group, rows=[replace(row, advantage=0.0) for row in group.rows])
    seen: list[tuple[int, int, int]] = []
    engine.forward_backward([flat], OBJECTIVE, denominator=1, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(3, 3, 0)]


def test_a_response_over_the_budget_names_its_group(anchor: Checkpoint) -> None:
    with pytest.raises(EngineError, match=r"'g0'.*25 tokens.*24"):
        trainer(anchor, token_budget=24).forward_backward(make_groups([(5, [20, 2])]), OBJECTIVE, denominator=1)


def test_logprobs_come_back_in_place(anchor: Checkpoint) -> None:
    groups = make_groups(SHAPES)
    model = AutoModelForCausalLM.from_pretrained(anchor.path)
    for budget in (28, 4096):
        found = trainer(anchor, token_budget=budget).logprobs(groups, temperature=0.7)
        for group, rows in zip(groups, found, strict=True):
            for row, values in zip(group.rows, rows, strict=True):
                ids = torch.tensor([group.prompt_token_ids + row.token_ids])
                logits = model(ids).logits[0, len(group.prompt_token_ids) - 1 : -1] / 0.7
                expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(row.token_ids)[:, None])[:, 0]
                assert values == pytest.approx(expected.tolist(), abs=1e-4)


def train(engine: LocalTrainer, steps: range) -> None:
    for step in steps:
        engine.zero_grad()
        engine.forward_backward(make_groups(LAST, seed=step), OBJECTIVE, denominator=4)
        engine.optim_step(1e-2)


def test_a_loaded_checkpoint_continues_bit_for_bit(anchor: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "resumed").mkdir()
    whole = trainer(anchor)
    train(whole, range(4))
    assert whole.save(tmp_path / "whole") == 4
    first = trainer(anchor)
    train(first, range(2))
    assert first.save(tmp_path / "half") == 2
    second = trainer(Checkpoint(checkpoint_id="h", role="solver", path=str(tmp_path / "half"), step=2))
    train(second, range(2, 4))
    second.save(tmp_path / "resumed")
    names = sorted(each.name for each in (tmp_path / "whole").iterdir())
    assert names == sorted(each.name for each in (tmp_path / "resumed").iterdir())
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes(), name


def test_saved_weights_are_what_transformers_loads(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    train(engine, range(1))
    engine.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(parameter, stored[name]) for name, parameter in model.named_parameters())
    assert not torch.equal(stored["model.norm.weight"], torch.ones(32))


def test_steps_are_those_of_torch_adamw(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    model = AutoModelForCausalLM.from_pretrained(anchor.path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, foreach=False)
    for step in range(3):
        engine.zero_grad()
        engine.forward_backward(make_groups(LAST, seed=step), Objective(length_norm=0.1), denominator=1)
        for name, view in engine._flat.views(engine._flat.gradient).items():
            model.get_parameter(name).grad = view.clone()
        norm = engine.optim_step(1e-2)
        assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)), rel=1e-5)
        assert norm > 1.0
        optimizer.step()
    for name, view in engine._flat.views(engine._flat.data).items():
        torch.testing.assert_close(view, model.get_parameter(name).data, rtol=1e-5, atol=1e-6)


def test_a_non_finite_gradient_skips_the_step(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    before = engine._flat.data.clone()
    (group,) = make_groups([(5, [4, 3])])
    broken = replace(group, rows=[replace(group.rows[0], advantage=float("inf")), group.rows[1]])
    engine.forward_backward([broken], OBJECTIVE, denominator=1)
    assert not torch.isfinite(torch.tensor(engine.optim_step(1e-2)))
    assert torch.equal(engine._flat.data, before)
    assert engine.save(tmp_path) == 0


@pytest.mark.parametrize("steps", [0, 3])
def test_probe_measures_each_group_alone_and_changes_nothing(anchor: Checkpoint, tmp_path: Path, steps: int) -> None:
    engine = trainer(anchor, dtype="float64", token_budget=40)
    train(engine, range(steps))
    reference = gradient(engine, make_groups(LAST, seed=9), tmp_path)
    path = tmp_path / "g.safetensors"
    groups = make_groups(SHAPES)
    state = [each.clone() for each in (engine._flat.data, engine._flat.gradient, engine._adamw.second)]
    found = engine.probe(groups, OBJECTIVE, path)
    for before, after in zip(state, (engine._flat.data, engine._flat.gradient, engine._adamw.second), strict=True):
        assert torch.equal(before, after)
    stored = load_file(path)
    kept = torch.zeros_like(engine._flat.data)
    for name, view in engine._flat.views(kept).items():
        view.copy_(stored[name])
    for group, each in zip(groups, found, strict=True):
        ascent = -accumulated(engine, [group])
        gamma = direction(ascent, engine._adamw.second, step=steps, beta2=0.999, eps=1e-8)
        assert each.group_id == group.group_id
        assert each.dot == pytest.approx(float(kept @ gamma), rel=1e-9, abs=1e-12)
        assert each.raw_dot == pytest.approx(float(kept @ ascent), rel=1e-9, abs=1e-12)
        assert each.direction_norm == pytest.approx(float(gamma.norm()), rel=1e-9)
        assert each.gradient_norm == pytest.approx(float(ascent.norm()), rel=1e-9)
        assert each.reference_norm == pytest.approx(float(reference.norm()), rel=1e-6)


def test_a_folder_without_optimizer_state_is_refused(anchor: Checkpoint) -> None:
    source = str(Path(anchor.path).parent / "source")
    with pytest.raises(CheckpointError, match="no optimizer state"):
        LocalTrainer(device="cpu").load(replace(anchor, path=source))


def test_other_decay_rates_are_refused_after_the_first_step(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    train(engine, range(1))
    engine.save(tmp_path)
    other = LocalTrainer(device="cpu", optimizer={"beta2": 0.95})
    other.load(anchor)
    with pytest.raises(CheckpointError, match="beta2"):
        other.load(replace(anchor, path=str(tmp_path)))


def test_an_engine_without_checkpoint_says_so() -> None:
    with pytest.raises(EngineError, match="no checkpoint"):
        LocalTrainer(device="cpu").zero_grad()
