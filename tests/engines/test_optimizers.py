"""Every optimizer steps as torch's own does, and its direction of one gradient is its step on that gradient alone."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_groups, make_source, step, trainer
from torch import Tensor, nn

from infuser_core.config.optimizers import options_of
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.optimizer import Optimizer, build_optimizer, first_moments
from infuser_core.engines.training.optimizers.muon import orthogonalise, scale_orthogonal
from infuser_core.errors import CheckpointError
from infuser_core.schemas import Checkpoint

NAMES = ["adamw", "sgd", "muon"]
SIZES = {"embed": (9, 6), "tall": (7, 3), "wide": (3, 11), "square": (5, 5), "norm": (6,)}
RATE = 3e-3


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    draw = torch.Generator().manual_seed(seed)
    return {name: nn.Parameter(torch.randn(size, generator=draw, dtype=torch.float64)) for name, size in SIZES.items()}


def made(name: str, **options: Any) -> tuple[FlatParameters, Optimizer]:
    flat = FlatParameters(parameters(), outer=["embed"])
    return flat, build_optimizer(flat, options_of({"name": name, **options}))


def gradients(number: int) -> list[dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(7)
    return [
        {name: torch.randn(size, generator=draw, dtype=torch.float64) for name, size in SIZES.items()}
        for _ in range(number)
    ]


def walked(name: str, steps: list[dict[str, Tensor]], **options: Any) -> tuple[FlatParameters, Optimizer]:
    flat, optimizer = made(name, **options)
    for given in steps:
        for key, view in flat.views(flat.gradient).items():
            view.copy_(given[key])
        optimizer.step(RATE)
    return flat, optimizer


def torchs(name: str, own: dict[str, nn.Parameter], **options: Any) -> list[torch.optim.Optimizer]:
    hidden = [own[key] for key in ("tall", "wide", "square")]
    rest = [own[key] for key in ("embed", "norm")]
    if name == "adamw":
        return [torch.optim.AdamW(own.values(), lr=RATE, weight_decay=0.01)]
    if name == "sgd":
        return [torch.optim.SGD(own.values(), lr=RATE, momentum=0.9, **options)]
    scale = {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.01}
    return [torch.optim.Muon(hidden, lr=RATE, **scale, **options), torch.optim.AdamW(rest, lr=RATE, weight_decay=0.01)]


@pytest.mark.parametrize("clip", [1.0, 1e9])
@pytest.mark.parametrize(("name", "nesterov"), [("adamw", None), ("sgd", False), ("sgd", True), ("muon", True)])
def test_steps_are_those_of_torch(name: str, nesterov: bool | None, clip: float) -> None:
    options = {} if nesterov is None else {"nesterov": nesterov}
    steps, own = gradients(5), parameters()
    plain = torchs(name, own, **options)
    for given in steps:
        for key, each in own.items():
            each.grad = given[key].clone()
        torch.nn.utils.clip_grad_norm_(own.values(), clip)
        if name == "sgd":
            # Torch couples weight decay with the gradient.
            for each in own.values():
                each.data.mul_(1 - RATE * 0.01)
        for each in plain:
            each.step()
    flat, _ = walked(name, steps, max_grad_norm=clip, **options)
    start = parameters()
    for key, view in flat.views(flat.data).items():
        if name == "muon" and key in flat.hidden:
            # Torch orthogonalises in bfloat16.
            moved, wanted = view - start[key].data, own[key].data - start[key].data
            assert float((moved - wanted).norm() / wanted.norm()) < 0.02
        else:
            torch.testing.assert_close(view, own[key].data, rtol=1e-10, atol=1e-12, msg=key)


@pytest.mark.parametrize("shape", [(4, 4), (3, 12), (17, 40)])
def test_newton_schulz_brings_singular_values_near_one_and_keeps_their_vectors(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.T @ orthogonalise(matrix) @ right.T
    large = values > 0.1 * values.max()
    assert 0.65 < float(found.diagonal()[large].min()) <= float(found.diagonal().max()) < 1.25
    assert float((found - found.diagonal().diag()).abs().max()) < 1e-9
    torch.testing.assert_close(scale_orthogonal(matrix.T), scale_orthogonal(matrix).T)
    torch.testing.assert_close(orthogonalise(1e3 * matrix), orthogonalise(matrix), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("taken", [0, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_direction_is_the_step_on_one_gradient_without_momentum_decay_and_clipping(name: str, taken: int) -> None:
    flat, optimizer = walked(name, gradients(taken), max_grad_norm=1e9)
    (question,) = gradients(1)
    reference, alone = torch.zeros_like(flat.data), torch.zeros_like(flat.data)
    for key, view in flat.views(alone).items():
        view.copy_(3e-2 * question[key])
    for view in flat.views(reference).values():
        view.normal_(generator=torch.Generator().manual_seed(3))
    options = {"adamw": {"beta1": 0.0}, "sgd": {"momentum": 0.0}, "muon": {"beta1": 0.0, "momentum": 0.0}}[name]
    bare, other = made(name, weight_decay=0.0, max_grad_norm=1e9, **options)
    bare.data.copy_(flat.data)
    other.steps = optimizer.steps
    for key, tensor in other.state().items():
        if key.startswith("v."):
            tensor.copy_(optimizer.state()[key])
    bare.gradient.copy_(alone)
    other.step(RATE)
    gamma = (flat.data - bare.data) / RATE
    before = {key: tensor.clone() for key, tensor in optimizer.state().items()}
    found = optimizer.sums(alone, reference).tolist()
    expected = [reference @ gamma, reference @ alone, gamma @ gamma, alone @ alone]
    assert found == pytest.approx([float(each) for each in expected], rel=1e-9)
    assert all(torch.equal(tensor, before[key]) for key, tensor in optimizer.state().items())


@pytest.fixture(scope="module")
def anchors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    """Anchors of one model for every optimizer."""
    root = tmp_path_factory.mktemp("optimizers")
    source = make_source(root / "source")
    for name in NAMES:
        prepare_anchor(source, root / name, optimizer={"name": name})
    return {name: Checkpoint(checkpoint_id=name, role="solver", path=str(root / name), step=0) for name in NAMES}


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_each_is_scored_by_its_own_direction(anchors: dict[str, Checkpoint], tmp_path: Path, name: str) -> None:
    engine = trainer(anchors[name], dtype="float64", token_budget=40, optimizer={"name": name})
    step(engine, make_groups(SHAPES[:4]))
    ascent = -gradient(engine, make_groups(SHAPES[:4], seed=9))
    engine.keep_gradient(tmp_path / "reference.safetensors")
    groups = make_groups(SHAPES)
    found = engine.probe(groups, OBJECTIVE, tmp_path / "reference.safetensors").similarities
    for group, each in zip(groups, found, strict=True):
        own = -gradient(engine, [group])
        assert each.raw_dot == pytest.approx(float(ascent @ own), rel=1e-5, abs=1e-9)
        assert each.gradient_norm == pytest.approx(float(own.norm()), rel=1e-9)
        if name == "sgd":
            assert (each.dot, each.direction_norm) == pytest.approx((each.raw_dot, each.gradient_norm), rel=1e-9)
        else:
            # Of a hidden matrix every singular value counts the same: the direction is none of the gradient.
            assert abs(each.direction_norm - each.gradient_norm) > 0.1


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_a_loaded_checkpoint_continues_bit_for_bit(anchors: dict[str, Checkpoint], tmp_path: Path, name: str) -> None:
    options = {"name": name, "momentum": 0.8}
    whole = trainer(anchors[name], optimizer=options)
    for seed in range(2):
        step(whole, make_groups(SHAPES[:4], seed=seed))
    folders = [tmp_path / each for each in ("half", "whole", "resumed")]
    for folder in folders:
        folder.mkdir()
    whole.save(folders[0])
    half = replace(anchors[name], path=str(folders[0]))
    resumed = trainer(half, optimizer=options)
    for engine, folder in ((whole, folders[1]), (resumed, folders[2])):
        step(engine, make_groups(SHAPES[:4], seed=5))
        engine.save(folder)
    for path in folders[1].iterdir():
        assert path.read_bytes() == (folders[2] / path.name).read_bytes(), path.name
    with pytest.raises(CheckpointError, match=f"trained with {name}, and the trainer is set to adamw"):
        trainer(half)
    with pytest.raises(CheckpointError, match=r"trained with momentum 0\.8, and the trainer is set to 0\.7"):
        trainer(half, optimizer=options | {"momentum": 0.7})


def test_moments_are_those_that_each_optimizer_needs() -> None:
    weights = {name: each.data for name, each in parameters().items()}
    kept = {name: first_moments(options_of({"name": name}), weights, ["embed"]) for name in NAMES}
    assert list(kept["adamw"]) == [f"{letter}.{name}" for letter in "mv" for name in SIZES]
    assert list(kept["sgd"]) == [f"m.{name}" for name in SIZES]
    assert list(kept["muon"]) == [*kept["sgd"], "v.embed", "v.norm"]
    for name in NAMES:
        _, optimizer = made(name)
        assert list(optimizer.state()) == list(kept[name])


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    for name in NAMES:
        flat, optimizer = walked(name, gradients(2))
        before = [flat.data.clone(), copy.deepcopy(optimizer.state()), optimizer.steps]
        flat.gradient[3] = float("nan")
        assert optimizer.step(RATE) != optimizer.step(RATE)
        assert torch.equal(flat.data, before[0]) and optimizer.steps == before[2]
        assert all(torch.equal(tensor, before[1][key]) for key, tensor in optimizer.state().items())


def test_the_share_below_epsilon_is_counted_over_parameters_and_not_over_padding() -> None:
    steps = gradients(3)
    for each in steps:
        each["wide"].zero_()
        each["norm"].mul_(1e-9)
    flat, optimizer = walked("adamw", steps)
    second = flat.views(optimizer.second)  # type: ignore[attr-defined]
    roots = {name: (v / (1 - 0.999**3)).sqrt() for name, v in second.items()}
    total = sum(v.numel() for v in roots.values())
    expected = sum(int((root < 1e-8).sum()) for root in roots.values()) / total
    assert optimizer.below_epsilon() == expected == (33 + 6) / total
    assert walked("sgd", steps)[1].below_epsilon() == 0.0
