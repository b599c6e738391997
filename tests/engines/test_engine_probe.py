"""Scores of questions are those of a plain loop in fp64: one response after the other, one backward per question."""

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
    plain_loss,
    step,
    trainer,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from infuser_core.algorithm.influence import Elementwise, direction
from infuser_core.algorithm.score import cosine
from infuser_core.engines.hf.causal_lm import multiply_experts
from infuser_core.engines.hf.norms import compute_in_own_dtype
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.training.checkpoint import read_reference, write_tensors
from infuser_core.errors import EngineError
from infuser_core.protocols import Similarity, TrainGroup
from infuser_core.schemas import Checkpoint

LIMITS = {"float32": 3e-3, "float64": 1e-9}
"""Distance from the plain loop: sums in fp32 are up to 2e-3 off, on every device, in any order."""
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
        others = {"olmo3": WINDOW, "gpt_neox": TINY, "gemma3_text": TINY | {"head_dim": 8}, "qwen3_moe": TINY | EXPERTS}
        if family in others:
            return make_family(place, family, **others[family])
        return make_checkpoint(place, family=family, tied=tied)

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


def plain_model(engine: LocalTrainer) -> PreTrainedModel:
    """The engine's model as transformers computes it, in fp64."""
    model = AutoModelForCausalLM.from_pretrained(engine._loaded(), dtype=torch.float64)
    compute_in_own_dtype(model)
    multiply_experts(model)
    with torch.no_grad():
        for name, view in engine._flat.views(engine._flat.data).items():
            model.get_parameter(name).copy_(view)
    return model


def plain_scores(engine: LocalTrainer, groups: list[TrainGroup], path: Path) -> list[Similarity]:
    """The similarities by their definition, from the gradients of a plain loop (eq:adamw_moments)."""
    model, ascent = plain_model(engine), load_file(path)
    parameters = dict(model.named_parameters())
    second, steps = engine._flat.views(engine._optimizer.second), engine._optimizer.steps
    found = []
    for group in groups:
        loss = plain_loss(model, [group])
        gradients = torch.autograd.grad(loss, list(parameters.values())) if loss.requires_grad else ()
        pieces = []
        for name, slope in zip(parameters, gradients, strict=bool(gradients)):
            moment = (0.999 * second[name].double() + 0.001 * slope**2) / (1 - 0.999 ** (steps + 1))
            gamma = slope / (moment.sqrt() + 1e-8)
            pieces.append([each.flatten() for each in (ascent[name].double(), -gamma, -slope)])
        reference, gamma, own = (torch.cat(each) for each in zip(*pieces, strict=True))
        found.append(
            Similarity(
                group_id=group.group_id,
                dot=float(reference @ gamma),
                raw_dot=float(reference @ own),
                direction_norm=float(gamma.norm()),
                gradient_norm=float(own.norm()),
                reference_norm=float(reference.norm()),
            )
        )
    return found


def agree(engine: LocalTrainer, groups: list[TrainGroup], path: Path, limit: float) -> None:
    check_scalars(engine.probe(groups, OBJECTIVE, path).similarities, plain_scores(engine, groups, path), limit)


SHAPE = st.tuples(st.integers(1, 12), st.lists(st.integers(1, 8), min_size=1, max_size=4))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(shapes=[(7, [2, 2])], seed=74, budget=30)
@given(shapes=st.lists(SHAPE, min_size=1, max_size=4), seed=st.integers(0, 99), budget=st.sampled_from([30, 60, 512]))
def test_scores_are_those_of_a_plain_loop(
    engine: Engine, folder: Path, dtype: str, tied: bool, shapes: list, seed: int, budget: int
) -> None:
    scorer = engine(tied=tied, dtype=dtype, token_budget=budget)
    path = reference(engine(tied=tied, dtype="float64"), folder / f"qwen3-{tied}")
    groups = make_groups(shapes, seed=seed)
    # The padding token counts as a word of the prompt and has no embedding gradient.
    groups[0] = replace(groups[0], prompt_token_ids=[0, *groups[0].prompt_token_ids[1:]])
    agree(scorer, groups, path, LIMITS[dtype])


EXPERTS = {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
FAMILIES = ["qwen2", "llama", "olmo2", "olmo3", "phi3", "granite", "gpt_neox", "gemma3_text", "qwen3_moe"]


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen3", {"gradient_checkpointing": True}),
        ("qwen3", {"gradient_checkpointing": True, "token_budget": 30}),
        ("qwen3", {"gradient_checkpointing": 20, "token_budget": 30}),
        *[(family, {}) for family in FAMILIES],
    ],
)
def test_layers_of_any_kind_are_scored_as_by_a_plain_loop(
    engine: Engine, folder: Path, family: str, options: dict
) -> None:
    # Their norms compute in fp32 whatever the model's dtype.
    limit = 1e-5 if family in ("olmo3", "gemma3_text") else 1e-9
    path = reference(engine(family, False, dtype="float64"), folder / f"{family}-False")
    agree(engine(family, False, dtype="float64", **options), make_groups(SHAPES), path, limit)


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
    engine = trainer(checkpoint, dtype="float64")
    assert "lm_head.bias" in engine.shapes()
    agree(engine, make_groups(SHAPES), reference(engine, tmp_path), 1e-9)


def test_budgets_leave_the_scores_alone(engine: Engine, folder: Path) -> None:
    groups, whole = make_groups(SHAPES), engine(dtype="float64")
    path = reference(whole, folder / "qwen3-True")
    expected = whole.probe(groups, OBJECTIVE, path).similarities
    for budget in (28, 33, 48, 64):
        scorer = engine(dtype="float64", token_budget=budget)
        check_scalars(scorer.probe(groups, OBJECTIVE, path).similarities, expected, 1e-9)
    with pytest.raises(EngineError, match=r"'g3'.*28 tokens.*24"):
        engine(dtype="float64", token_budget=24).probe(groups, OBJECTIVE, path)


def test_bfloat16_scores_are_close(engine: Engine, folder: Path) -> None:
    groups, exact = make_groups(SHAPES, seed=4), engine(dtype="float32")
    path = reference(exact, folder / "qwen3-True")
    pairs = [each.probe(groups, OBJECTIVE, path).similarities for each in (engine(dtype="bfloat16"), exact)]
    for one, expected in zip(*pairs, strict=True):
        assert cosines(one)[0] == pytest.approx(cosines(expected)[0], abs=0.03)


@pytest.mark.parametrize("options", [{}, {"token_budget": 30}])
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
    groups, path = make_groups(SHAPES[1:2], seed=5), folder / "one-parameter.safetensors"
    scorer = engine(family, tied, dtype="float64", token_budget=60)
    torch.manual_seed(1)
    noise = {name: torch.randn(shape) for name, shape in scorer.shapes().items()}
    for name in noise:
        write_tensors({other: values * (other == name) for other, values in noise.items()}, path)
        one, other = scorer.probe(groups, OBJECTIVE, path).similarities, plain_scores(scorer, groups, path)
        assert any(each.raw_dot for each in other), name
        for found, expected in zip(one, other, strict=True):
            # A small gradient has the rounding of the sums that it is the rest of.
            floor = 1e-12 * expected.reference_norm
            assert found.raw_dot == pytest.approx(expected.raw_dot, rel=1e-9, abs=floor * expected.gradient_norm), name
            assert found.dot == pytest.approx(expected.dot, rel=1e-9, abs=floor * expected.direction_norm), name


@pytest.mark.parametrize("steps", [0, 3])
def test_a_score_is_its_definition_and_the_state_stays_as_it_was(
    anchor: Checkpoint, tmp_path: Path, steps: int
) -> None:
    engine, groups = trainer(anchor, dtype="float64", token_budget=40), make_groups(SHAPES)
    for seed in range(steps):
        step(engine, make_groups(SHAPES[:4], seed=seed))
    gradient(engine, make_groups(SHAPES[:4], seed=9))
    engine.keep_gradient(tmp_path / "g.safetensors")
    state = [engine._flat.data, engine._optimizer.first, engine._optimizer.second]
    before = [each.clone() for each in state]
    found = engine.probe(groups, OBJECTIVE, tmp_path / "g.safetensors").similarities
    assert all(torch.equal(one, other) for one, other in zip(state, before, strict=True))
    assert engine._optimizer.steps == steps and not engine._flat.gradient.any()
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
