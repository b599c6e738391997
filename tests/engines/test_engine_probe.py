"""The fast probe is the plain one up to rounding, the plain one is the definition, what cannot be probed is named."""

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from engine_tiny import (
    OBJECTIVE,
    SHAPES,
    TINY,
    WINDOW,
    gradient,
    make_checkpoint,
    make_family,
    make_groups,
    step,
    trainer,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stock_engines import local_trainer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from infuser_core.algorithm.influence import Elementwise, direction
from infuser_core.algorithm.score import cosine
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.probe.fast import FastProbe
from infuser_core.engines.probe.recorder import Recorder
from infuser_core.engines.probe.sums import Workspace
from infuser_core.engines.training.checkpoint import read_reference, write_tensors
from infuser_core.engines.training.packing import MicroBatch
from infuser_core.errors import EngineError, EngineWarning
from infuser_core.protocols import Similarity, TrainGroup
from infuser_core.schemas import Checkpoint

# Distance from the plain probe in fp64. In fp32 either form is up to 2e-3 off, on every device: how far the two are
# from each other depends on the order of the device's sums, and says nothing about which is right.
LIMITS = {"float32": 3e-3, "float64": 1e-9}
Engine = Callable[..., LocalTrainer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probe")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    """Trainers with two steps behind them and a reference gradient, by model and options; made once each."""

    @cache
    def checkpoint(family: str, tied: bool) -> Checkpoint:
        place = folder / f"{family}-{tied}"
        return (
            make_family(place, family, **WINDOW)
            if family == "olmo3"
            else make_checkpoint(place, family=family, tied=tied)
        )

    @cache
    def made(family: str = "qwen3", tied: bool = True, **options: object) -> LocalTrainer:
        found = trainer(checkpoint(family, tied), **options)
        for seed in range(2):
            step(found, make_groups(SHAPES[:4], seed=seed))
        return found

    return made


def reference(engine: LocalTrainer, folder: Path) -> Path:
    path = folder / "reference.safetensors"
    if not path.is_file():
        gradient(engine, make_groups(SHAPES[:4], seed=9), denominator=4)
        engine.keep_gradient(path)
        engine.zero_grad()
    return path


def cosines(each: Similarity) -> list[float]:
    pairs = ((each.dot, each.direction_norm), (each.raw_dot, each.gradient_norm))
    return [cosine(dot, length, each.reference_norm) for dot, length in pairs]


def check_scalars(found: list[Similarity], expected: list[Similarity], limit: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.group_id == other.group_id
        assert one.reference_norm == pytest.approx(other.reference_norm, rel=1e-6)
        assert one.direction_norm == pytest.approx(other.direction_norm, rel=limit, abs=1e-30)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=limit, abs=1e-30)
        assert cosines(one) == pytest.approx(cosines(other), abs=limit)


def agree(fast: LocalTrainer, plain: LocalTrainer, groups: list[TrainGroup], path: Path, limit: float) -> None:
    check_scalars(*(engine.probe(groups, OBJECTIVE, path).similarities for engine in (fast, plain)), limit)


SHAPE = st.tuples(st.integers(1, 12), st.lists(st.integers(1, 8), min_size=1, max_size=4))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(shapes=[(7, [2, 2])], seed=74, budget=30)
@given(shapes=st.lists(SHAPE, min_size=1, max_size=6), seed=st.integers(0, 99), budget=st.sampled_from([30, 60, 512]))
def test_fast_is_plain(
    engine: Engine, folder: Path, dtype: str, tied: bool, shapes: list, seed: int, budget: int
) -> None:
    fast = engine(tied=tied, dtype=dtype, token_budget=budget, probe="fast")
    plain = engine(tied=tied, dtype="float64", probe="reference")
    groups = make_groups(shapes, seed=seed)
    # The padding token counts as a word of the prompt and has no embedding gradient.
    groups[0] = replace(groups[0], prompt_token_ids=[0, *groups[0].prompt_token_ids[1:]])
    agree(fast, plain, groups, reference(plain, folder / f"qwen3-{tied}"), LIMITS[dtype])


@pytest.mark.parametrize(
    ("family", "tied", "options"),
    [
        *[("qwen3", tied, {"gradient_checkpointing": True}) for tied in (True, False)],
        ("qwen3", True, {"gradient_checkpointing": True, "token_budget": 30}),
        ("qwen3", True, {"gradient_checkpointing": 20, "token_budget": 30}),
        *[(family, tied, {}) for family in ("qwen2", "llama", "olmo2", "phi3", "granite") for tied in (True, False)],
        ("olmo3", False, {}),
    ],
)
def test_fast_is_plain_for(engine: Engine, folder: Path, family: str, tied: bool, options: dict) -> None:
    # Four layers of 128 wide heads and sums of thousands: fp32 alone is off by more than the limit there.
    for dtype, limit in LIMITS.items() if family != "olmo3" else [("float64", 1e-6)]:
        fast = engine(family, tied, dtype=dtype, probe="fast", **options)
        plain = engine(family, tied, dtype="float64", probe="reference")
        agree(fast, plain, make_groups(SHAPES), reference(plain, folder / f"{family}-{tied}"), limit)


@pytest.mark.parametrize("kept_cells", [0, 1 << 20])
@pytest.mark.parametrize("tied", [True, False])
def test_small_pieces_change_nothing(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, tied: bool, kept_cells: int
) -> None:
    sizes: list[int] = []
    room = Workspace._buffer

    def spy(self: Workspace, which: int, shape: tuple[int, ...]) -> Tensor:
        found = room(self, which, shape)
        sizes.append(self._buffers[which].numel())
        return found

    monkeypatch.setattr("infuser_core.engines.probe.sums.CPU_PIECE", 300)
    monkeypatch.setattr("infuser_core.engines.probe.sums.NORMS", 2)
    monkeypatch.setattr("infuser_core.engines.probe.fast.CPU_ROWS", 3)
    monkeypatch.setattr(Workspace, "_buffer", spy)
    fast, plain = engine(tied=tied, dtype="float64"), engine(tied=tied, dtype="float64", probe="reference")
    probe = fast._probe()
    assert isinstance(probe, FastProbe) and probe is fast._probe()
    smaller = replace(probe._output, cells=40, kept_cells=kept_cells)
    monkeypatch.setattr(probe, "_output", smaller)
    monkeypatch.setattr(fast._policy, "output", smaller)
    agree(fast, plain, make_groups(SHAPES), reference(plain, folder / f"qwen3-{tied}"), 1e-9)
    # 8 groups of 32 elements are more than a piece holds; no buffer outgrows the largest of a piece and a norm.
    assert max(sizes) == 300


class BiasedConfig(Qwen3Config):
    model_type = "biased_qwen3"


class Biased(Qwen3ForCausalLM):
    """A Qwen3 whose output layer has a bias, as Phi's has."""

    config_class = BiasedConfig

    def __init__(self, config: BiasedConfig) -> None:
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=True)
        self.post_init()


AutoConfig.register(BiasedConfig.model_type, BiasedConfig)
AutoModelForCausalLM.register(BiasedConfig, Biased)


@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_with_bias(tmp_path: Path, tied: bool) -> None:
    checkpoint = make_family(tmp_path, BiasedConfig.model_type, tied=tied, **TINY, head_dim=8)
    fast, plain = (trainer(checkpoint, dtype="float64", probe=name) for name in ("fast", "reference"))
    assert "lm_head.bias" in fast.shapes()
    agree(fast, plain, make_groups(SHAPES), reference(plain, tmp_path), 1e-9)


def test_budgets_leave_the_scores_alone(engine: Engine, folder: Path) -> None:
    groups, plain = make_groups(SHAPES), engine(dtype="float64", probe="reference")
    path = reference(plain, folder / "qwen3-True")
    expected = plain.probe(groups, OBJECTIVE, path).similarities
    for budget in (28, 33, 48, 64, 4096):
        check_scalars(
            engine(dtype="float64", token_budget=budget).probe(groups, OBJECTIVE, path).similarities, expected, 1e-9
        )
    with pytest.raises(EngineError, match=r"'g3'.*28 tokens.*24"):
        engine(dtype="float64", token_budget=24).probe(groups, OBJECTIVE, path)


def test_bfloat16_scores_are_close(engine: Engine, folder: Path) -> None:
    groups, exact = make_groups(SHAPES, seed=4), engine(dtype="float32")
    path = reference(exact, folder / "qwen3-True")
    others = (exact, engine(dtype="bfloat16", probe="reference"))
    for other in others:
        pairs = zip(
            *(each.probe(groups, OBJECTIVE, path).similarities for each in (engine(dtype="bfloat16"), other)),
            strict=True,
        )
        for one, expected in pairs:
            assert cosines(one)[0] == pytest.approx(cosines(expected)[0], abs=0.03)


@pytest.mark.parametrize("options", [{}, {"token_budget": 30}, {"probe": "reference"}])
def test_one_pass_yields_the_log_probabilities(engine: Engine, folder: Path, options: dict) -> None:
    groups = make_groups(SHAPES)
    groups[1] = replace(groups[1], rows=[replace(row, advantage=0.0) for row in groups[1].rows])
    groups[2] = replace(groups[2], rows=[replace(groups[2].rows[0], advantage=0.0), *groups[2].rows[1:]])
    found = engine(**options)
    seen: list[tuple[int, int, int]] = []
    path = reference(found, folder / "qwen3-True")
    probed = found.probe(groups, OBJECTIVE, path, progress=lambda *numbers: seen.append(numbers))
    expected = found.logprobs(groups, temperature=OBJECTIVE.temperature)
    for group, rows, plain in zip(groups, probed.logprobs, expected, strict=True):
        for row, values, wanted in zip(group.rows, rows, plain, strict=True):
            assert values == (pytest.approx(wanted, abs=1e-5) if row.advantage else [])
    assert (probed.similarities[1].dot, probed.similarities[1].direction_norm) == (0.0, 0.0)
    assert seen[-1][:2] == (5, 5) and [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


@pytest.mark.parametrize(("family", "tied"), [("qwen3", False), ("qwen2", True)])
def test_every_parameter_is_scored(engine: Engine, folder: Path, family: str, tied: bool) -> None:
    """Against references that are zero but for one parameter: a small one cannot hide behind the large ones."""
    groups, path = make_groups(SHAPES[:3], seed=5), folder / "one-parameter.safetensors"
    fast, plain = (engine(family, tied, dtype="float64", token_budget=60, probe=name) for name in ("fast", "reference"))
    torch.manual_seed(1)
    noise = {name: torch.randn(shape) for name, shape in plain.shapes().items()}
    for name in noise:
        write_tensors({other: values * (other == name) for other, values in noise.items()}, path)
        one, other = (each.probe(groups, OBJECTIVE, path).similarities for each in (fast, plain))
        assert any(each.raw_dot for each in other), name
        for found, expected in zip(one, other, strict=True):
            # A small gradient has the rounding of the sums that it is the rest of.
            floor = 1e-12 * expected.reference_norm
            assert found.raw_dot == pytest.approx(expected.raw_dot, rel=1e-9, abs=floor * expected.gradient_norm), name
            assert found.dot == pytest.approx(expected.dot, rel=1e-9, abs=floor * expected.direction_norm), name


@pytest.mark.parametrize("steps", [0, 3])
def test_a_score_is_its_definition_and_the_trainer_stays_as_it_was(
    anchor: Checkpoint, tmp_path: Path, steps: int
) -> None:
    engine, groups = trainer(anchor, dtype="float64", token_budget=40), make_groups(SHAPES)
    for seed in range(steps):
        step(engine, make_groups(SHAPES[:4], seed=seed))
    gradient(engine, make_groups(SHAPES[:4], seed=9))
    engine.keep_gradient(tmp_path / "g.safetensors")
    state = [engine._flat.data, engine._flat.gradient, engine._optimizer.second]
    before = [each.clone() for each in state]
    found = engine.probe(groups, OBJECTIVE, tmp_path / "g.safetensors").similarities
    assert all(torch.equal(one, other) for one, other in zip(state, before, strict=True))
    kept = torch.zeros_like(engine._flat.data)
    read_reference(tmp_path / "g.safetensors", engine._flat.views(kept))
    for group, each in zip(groups, found, strict=True):
        ascent = -gradient(engine, [group])
        form = Elementwise.of_adamw(step=steps, beta2=0.999, eps=1e-8)
        gamma = direction(ascent, engine._optimizer.second, form)
        assert each.group_id == group.group_id
        assert each.dot == pytest.approx(float(kept @ gamma), rel=1e-9, abs=1e-12)
        assert each.raw_dot == pytest.approx(float(kept @ ascent), rel=1e-9, abs=1e-12)
        assert each.direction_norm == pytest.approx(float(gamma.norm()), rel=1e-9)
        assert each.gradient_norm == pytest.approx(float(ascent.norm()), rel=1e-9)
        assert each.reference_norm == pytest.approx(float(kept.norm()), rel=1e-6)


def test_the_score_predicts_the_change_of_the_dev_objective(anchor: Checkpoint, tmp_path: Path) -> None:
    """(J(theta + h d) - J(theta - h d)) / 2h = <g_dev, d> for the direction d an AdamW step would take."""
    dev, (question,) = make_groups([(7, [5, 4, 6]), (4, [6, 3])], seed=6), make_groups([(6, [4, 5, 3])], seed=7)
    engine = trainer(anchor, dtype="float64")
    ascent = -gradient(engine, dev, denominator=2)
    engine.keep_gradient(tmp_path / "dev.safetensors")
    (found,) = engine.probe([question], OBJECTIVE, tmp_path / "dev.safetensors").similarities
    own = gradient(engine, [question])
    move = -own / (own.abs() + 1e-8)
    assert found.dot == pytest.approx(float(ascent @ move), rel=1e-6)
    old = engine.logprobs(dev, temperature=OBJECTIVE.temperature)
    fixed = [
        replace(group, rows=[replace(row, old_logprobs=values) for row, values in zip(group.rows, rows, strict=True)])
        for group, rows in zip(dev, old, strict=True)
    ]
    start, small = engine._flat.data.clone(), 1e-6
    losses = []
    for sign in (1.0, -1.0):
        engine._flat.data.copy_(start + sign * small * move)
        losses.append(engine.forward_backward(fixed, OBJECTIVE, denominator=2).loss)
    assert (losses[1] - losses[0]) / (2 * small) == pytest.approx(found.dot, rel=1e-5)


class Stub(nn.Module):
    """The parts of a language model that a Recorder looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.first = nn.Linear(4, 4)
        self.second: nn.Module = nn.Linear(4, 4, bias=False)
        self.head: nn.Module = nn.Linear(4, 6, bias=False)

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


def other_layer(layer: nn.Module) -> Callable[[Stub], None]:
    return lambda model: setattr(model, "second", layer)


REFUSED: dict[str, Callable[[Stub], object]] = {
    r"second \(LayerNorm with weight, bias\)": other_layer(nn.LayerNorm(4)),
    r"second \(Conv1d with weight, bias\)": other_layer(nn.Conv1d(4, 4, 1)),
    r"second \(Bilinear with weight, bias\)": other_layer(nn.Bilinear(4, 4, 4)),
    r"second \(Embedding with weight\)": other_layer(nn.Embedding(6, 4, max_norm=1.0)),
    r"\(Stub with gate\)": lambda model: setattr(model, "gate", nn.Parameter(torch.ones(4))),
    r"first\.weight, shared by first and second": lambda model: setattr(model.second, "weight", model.first.weight),
    "the output layer Sequential": lambda model: setattr(model, "head", nn.Sequential(model.head)),
    "first, whose forward method": lambda model: setattr(model.first, "forward", lambda states: states),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_the_recorder_does_not_know_is_named(message: str) -> None:
    model = Stub()
    REFUSED[message](model)
    with pytest.raises(EngineError, match=message):
        record(model)


def test_several_unknown_kinds_are_named_once_each() -> None:
    model = Stub()
    model.first, model.second, model.third = nn.LayerNorm(4), nn.LayerNorm(4), nn.Conv1d(4, 4, 1)  # type: ignore
    with pytest.raises(EngineError, match=r"first \(LayerNorm .*\) and third \(Conv1d .*\) \(set engine\.probe to"):
        record(model)


EXPERTS = {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 1}
OTHERS: list[tuple[str, str, dict]] = [
    (r"model\.embed_tokens \(\w+ScaledWordEmbedding with weight\)", "gemma3_text", {"head_dim": 8}),
    (r"input_layernorm \(LayerNorm with weight, bias\)", "gpt_neox", {}),
    (r"gate \(\w+ with weight\)", "qwen3_moe", EXPERTS | {"moe_intermediate_size": 16}),
]


@pytest.mark.parametrize(("kind", "family", "changes"), OTHERS)
def test_other_layers_are_scored_by_the_plain_probe(tmp_path: Path, kind: str, family: str, changes: dict) -> None:
    checkpoint, groups = make_family(tmp_path, family, **(TINY | changes)), make_groups(SHAPES[:2])
    plain = trainer(checkpoint, probe="reference")
    path = reference(plain, tmp_path)
    expected = plain.probe(groups, OBJECTIVE, path).similarities
    assert all(each.direction_norm > 0 for each in expected)
    # Nothing is said before a question is scored, and then once.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            engine = trainer(checkpoint)
            before = gradient(engine, groups)
            assert engine.facts().get("probe") is None
            assert engine.probe(groups, OBJECTIVE, path).similarities == expected
            assert torch.equal(engine._flat.gradient, before)
            assert engine.facts()["probe"] == "reference"
    (said,) = [each.message for each in caught if each.category is EngineWarning]
    assert re.search(rf"{kind}.*one backward pass each.*1\.7 times", str(said))
    with pytest.raises(EngineError, match=rf"{kind}.*engine\.probe to auto or reference"):
        trainer(checkpoint, probe="fast").probe(groups, OBJECTIVE, path)


@pytest.mark.parametrize(("dtype", "width"), [("float64", 16), ("float32", 9)])
def test_experts_of_any_width_and_dtype_are_scored(tmp_path: Path, dtype: str, width: int) -> None:
    changes = TINY | EXPERTS | {"moe_intermediate_size": width}
    engine, groups = trainer(make_family(tmp_path, "qwen3_moe", **changes), dtype=dtype), make_groups(SHAPES[:1])
    # Four experts, one for each token: some get no token, and no gradient.
    (found,) = engine.probe(groups, OBJECTIVE, reference(engine, tmp_path)).similarities
    assert found.gradient_norm == pytest.approx(float(gradient(engine, groups).norm()), rel=1e-5)


@pytest.mark.parametrize("family", ["bloom", "mamba"])
def test_models_whose_packed_responses_would_see_each_other_are_refused(tmp_path: Path, family: str) -> None:
    with pytest.raises(
        EngineError, match=r"mixes tokens in layers that the engines cannot replace.*choose an architecture"
    ):
        make_family(tmp_path, family, **TINY)


def test_a_probe_of_no_known_name_is_refused() -> None:
    with pytest.raises(EngineError, match="choose one of auto, fast, reference"):
        local_trainer(probe="quick")


def test_a_pass_that_only_the_plain_probe_can_score_starts_again_with_it(anchor: Checkpoint, tmp_path: Path) -> None:
    engine, groups = trainer(anchor, token_budget=30), make_groups(SHAPES)
    path = reference(engine, tmp_path)
    expected = trainer(anchor, token_budget=30, probe="reference").probe(groups, OBJECTIVE, path)
    before = gradient(engine, groups)
    layers = engine._policy.model.model.layers  # type: ignore[attr-defined]
    predictors = engine._policy.predictors  # type: ignore[attr-defined]
    passes: list[int] = []

    def leaking(batch: MicroBatch) -> Tensor:
        passes.append(1)
        # The second micro-batch finds out, when the first has its scores already.
        leak = 0.0 * layers[1].mlp.down_proj.weight.sum() if len(passes) > 1 else 0.0
        return predictors(batch) + leak

    engine._policy.predictors = leaking  # type: ignore[attr-defined]
    with pytest.warns(EngineWarning, match="used outside of its layer"):
        found = engine.probe(groups, OBJECTIVE, path)
    assert (found.similarities, found.logprobs) == (expected.similarities, expected.logprobs)
    assert torch.equal(engine._flat.gradient, before)


def test_what_only_a_pass_shows_is_refused_and_leaves_the_trainer_whole(anchor: Checkpoint, tmp_path: Path) -> None:
    engine, groups = trainer(anchor, probe="fast"), make_groups(SHAPES[:2])
    path = reference(engine, tmp_path)
    before = gradient(engine, groups)
    expected = engine.probe(groups, OBJECTIVE, path).similarities
    policy = engine._policy
    layers, predictors = policy.model.model.layers, policy.predictors  # type: ignore[attr-defined]

    def leaking(batch: MicroBatch) -> Tensor:
        return predictors(batch) + 0.0 * layers[1].mlp.down_proj.weight.sum()

    policy.predictors = leaking  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match=r"layers\.1\.mlp\.down_proj\.weight, which is used outside"):
        engine.probe(groups, OBJECTIVE, path)
    policy.predictors = predictors  # type: ignore[attr-defined]
    own, layers[1].mlp.up_proj = layers[1].mlp.up_proj, layers[0].mlp.up_proj
    with pytest.raises(EngineError, match=r"layers\.0\.mlp\.up_proj\.weight, which is used more than once"):
        engine.probe(groups, OBJECTIVE, path)
    layers[1].mlp.up_proj = own
    assert engine.probe(groups, OBJECTIVE, path).similarities == expected
    assert torch.equal(engine._flat.gradient, before)
    assert engine._flat.bound_names() == list(engine._flat.views(before))
