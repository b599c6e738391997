"""What the fast probe cannot handle it says, and names the parameter; the plain probe takes it."""

from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, make_groups
from torch import Tensor, nn

from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.probe.recorder import Recorder
from infuser_core.engines.protocols import Objective
from infuser_core.engines.training.packing import MicroBatch
from infuser_core.errors import EngineError

OBJECTIVE = Objective(length_norm=16.0, temperature=0.7)
GROUPS = make_groups([(5, [4, 7, 1]), (9, [3, 3])])


class Stub(nn.Module):
    """The parts of a language model that a Recorder looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, 6, bias=False)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def record(model: Stub) -> Recorder:
    return Recorder(model, compute_dtype=torch.float32)  # type: ignore[arg-type]


def test_linear_layers_and_a_tied_head_are_known() -> None:
    model = Stub()
    assert not record(model).head.tied
    model.head.weight = model.embed.weight
    assert (record(model).head.weight, record(model).head.tied) == ("embed.weight", True)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.LayerNorm(4), r"second \(LayerNorm with weight, bias\)"),
        (nn.Conv1d(4, 4, 1), r"second \(Conv1d with weight, bias\)"),
        (nn.Bilinear(4, 4, 4), r"second \(Bilinear with weight, bias\)"),
        (nn.Embedding(6, 4, max_norm=1.0), r"second \(Embedding with weight\)"),
    ],
)
def test_an_unknown_kind_is_named(layer: nn.Module, message: str) -> None:
    model = Stub()
    model.second = layer  # type: ignore[assignment]
    with pytest.raises(EngineError, match=message):
        record(model)


def test_a_parameter_outside_of_layers_is_named() -> None:
    model = Stub()
    model.gate = nn.Parameter(torch.ones(4))
    with pytest.raises(EngineError, match=r"\(Stub with gate\)"):
        record(model)


def test_a_weight_of_two_layers_is_named_with_both() -> None:
    model = Stub()
    model.second.weight = model.first.weight
    with pytest.raises(EngineError, match=r"first\.weight, shared by first and second"):
        record(model)


def test_another_output_layer_is_refused() -> None:
    model = Stub()
    model.head = nn.Sequential(model.head)  # type: ignore[assignment]
    with pytest.raises(EngineError, match="the output layer Sequential"):
        record(model)


def test_a_replaced_forward_is_refused() -> None:
    model = Stub()
    model.first.forward = lambda states: states  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="first, whose forward method"):
        record(model)


def test_a_model_of_an_unknown_kind_loads_with_the_plain_probe(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, family="gemma")
    with pytest.raises(EngineError, match=r"model\.embed_tokens .*ScaledWordEmbedding with weight.*reference"):
        LocalTrainer(device="cpu").load(checkpoint)
    engine = LocalTrainer(device="cpu", probe="reference")
    engine.load(checkpoint)
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=1)
    engine.keep_gradient(tmp_path / "g.safetensors")
    assert all(each.direction_norm > 0 for each in engine.probe(GROUPS, OBJECTIVE, tmp_path / "g.safetensors"))
    with pytest.raises(EngineError, match="choose one of fast, reference"):
        LocalTrainer(device="cpu", probe="quick")


def test_what_only_a_pass_shows_is_refused_and_leaves_the_trainer_whole(tmp_path: Path) -> None:
    engine = LocalTrainer(device="cpu")
    engine.load(make_checkpoint(tmp_path))
    path = tmp_path / "g.safetensors"
    engine.forward_backward(GROUPS, OBJECTIVE, denominator=1)
    engine.keep_gradient(path)
    gradient = engine._flat.gradient.clone()
    expected = engine.probe(GROUPS, OBJECTIVE, path)
    policy = engine._policy
    layers, predictors = policy.model.model.layers, policy.predictors

    def leaking(batch: MicroBatch) -> Tensor:
        return predictors(batch) + 0.0 * layers[1].mlp.down_proj.weight.sum()

    policy.predictors = leaking  # type: ignore[method-assign]
    with pytest.raises(EngineError, match=r"layers\.1\.mlp\.down_proj\.weight, which is used outside"):
        engine.probe(GROUPS, OBJECTIVE, path)
    policy.predictors = predictors  # type: ignore[method-assign]
    own, layers[1].mlp.up_proj = layers[1].mlp.up_proj, layers[0].mlp.up_proj
    with pytest.raises(EngineError, match=r"layers\.0\.mlp\.up_proj\.weight, which is used more than once"):
        engine.probe(GROUPS, OBJECTIVE, path)
    layers[1].mlp.up_proj = own
    assert engine.probe(GROUPS, OBJECTIVE, path) == expected
    assert torch.equal(engine._flat.gradient, gradient)
    assert engine._flat.bound() == list(engine._flat.views(gradient))
