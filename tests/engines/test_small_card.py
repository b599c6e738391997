"""Adapters on a model in 4 bits, and 8-bit moments: their numbers next to the exact ones, and their bytes."""

import random
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_groups, make_source, step, trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.stats import spearmanr
from stock_engines import hf_sampler
from test_adapters import at, saved
from test_engine_probe import check_scalars
from torch import Tensor

from infuser_core.algorithm.influence import direction
from infuser_core.algorithm.score import cosine
from infuser_core.config.roles import AdapterSettings
from infuser_core.config.run import SamplingSettings
from infuser_core.engines.hf.causal_lm import copy_model, load_model
from infuser_core.engines.local.hub import prepare_adapter, prepare_anchor, write_hub_layout
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.service.launch import ServiceOptions, adapter_settings
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.evaluation.answering import render_messages
from infuser_core.memory.shape import read_shape
from infuser_core.nano.lab import anchor_path, draw_questions
from infuser_core.plugins import require_extra
from infuser_core.protocols import PromptGroup, SamplingParams, TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint
from infuser_core.store.adapter_files import WEIGHTS, is_packed

pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="needs the extra `bitsandbytes`: pip install 'infuser[bitsandbytes]'"
)
CPU = torch.device("cpu")
SMOLLM2 = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
"""Layers of SmolLM2-135M."""
PLAIN = SamplingParams(temperature=0.0, max_tokens=12)


def adapted(root: Path, source: Path, *, base: str = "nf4", rank: int = 4) -> Path:
    """A store's folder of new adapters on a copy of the model."""
    plain, out = root / "base" / "base-1", root / base / "anchor-1"
    out.mkdir(parents=True)
    if not plain.exists():
        plain.mkdir(parents=True)
        copy_model(source, plain)
    prepare_adapter(plain, out, adapter=AdapterSettings(rank=rank, alpha=2 * rank, base=base), seed=1)
    return out


def flat_logprobs(engine: LocalTrainer, groups: list[TrainGroup]) -> Tensor:
    rows = engine.logprobs(groups, temperature=1.0)
    return torch.tensor([value for group in rows for row in group for value in row], dtype=torch.float64)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapters after three steps on a 4-bit model with layers of SmolLM2's size."""
    root = tmp_path_factory.mktemp("smollm2")
    source = make_source(root / "source", "llama", tied=True, num_hidden_layers=2, initializer_range=0.04, **SMOLLM2)
    anchor = adapted(root, source)
    engine = trainer(at(anchor))
    for seed in range(3):
        step(engine, make_groups(SHAPES[:4], seed=seed))
    return saved(engine, root)


def test_a_layer_multiplies_by_the_values_of_its_numbers_forward_and_backward() -> None:
    from bitsandbytes.functional import dequantize_4bit

    from infuser_core.engines.hf.four_bit import FourBitLinear, pack_layers, round_layers

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = torch.nn.Linear(576, 192), torch.nn.Linear(192, 5)

        def get_output_embeddings(self) -> torch.nn.Module:
            return self.head

    torch.manual_seed(0)
    packed, rounded = Two(), Two()
    packed.load_state_dict(rounded.state_dict())
    exact = rounded.inner.weight.detach().clone()
    pack_layers(packed, CPU)  # type: ignore[arg-type]
    round_layers(rounded)  # type: ignore[arg-type]
    assert type(packed.inner) is FourBitLinear and type(packed.head) is torch.nn.Linear
    value = dequantize_4bit(packed.inner.weight.data, packed.inner.weight.quant_state)
    assert torch.equal(value, rounded.inner.weight)
    # Weights of such a layer are uniform; NF4 is made for normal ones, whose error is .09.
    assert 0.01 < float((value - exact).norm() / exact.norm()) < 0.12
    found, wanted = (torch.randn(7, 576, requires_grad=True, generator=torch.Generator().manual_seed(1)) for _ in "ab")
    outputs = packed.inner(found), rounded.inner(wanted)
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(found.grad, wanted.grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert packed.inner(found).dtype == torch.bfloat16


def test_trainer_sampler_and_export_compute_one_model(small: Path, tmp_path: Path) -> None:
    assert is_packed(small) and not is_packed(small.parents[1] / "base" / "base-1")
    sampler = hf_sampler()
    sampler.load(at(small))
    prompts = [[5, 9, 11], [7, 7, 30, 41]]
    groups = [PromptGroup(group_id=str(n), token_ids=ids, seeds=[n]) for n, ids in enumerate(prompts)]
    completions = [each for (each,) in sampler.sample(groups, PLAIN)]
    rows = [
        TrainRow(token_ids=list(c.token_ids), advantage=0.0, sampler_logprobs=list(c.logprobs)) for c in completions
    ]
    trained = [
        TrainGroup(group_id=g.group_id, prompt_token_ids=g.token_ids, rows=[row])
        for g, row in zip(groups, rows, strict=True)
    ]
    engine = trainer(at(small))
    packed = {type(each).__name__ for each in engine._policy.model.modules()}
    assert "FourBitLinear" in packed and any(each.dtype == torch.uint8 for each in sampler.weights().values())
    forced = flat_logprobs(engine, trained)
    merged = tmp_path / "merged"
    merged.mkdir()
    write_hub_layout(small, merged, dtype="float32", sampling=SamplingSettings(), max_tokens=8)
    assert not is_packed(merged) and "quantization" not in (merged / "config.json").read_text()
    whole = tmp_path / "anchor"
    prepare_anchor(merged, whole)
    torch.testing.assert_close(flat_logprobs(trainer(at(whole)), trained), forced, rtol=0, atol=2e-4)
    scored = [
        sampler.score(g.token_ids, list(c.token_ids), temperature=1.0) for g, c in zip(groups, completions, strict=True)
    ]
    torch.testing.assert_close(torch.tensor([x for each in scored for x in each]).double(), forced, rtol=0, atol=2e-4)
    # The export's base has the values of the 4-bit numbers, not the original ones.
    name = "model.layers.0.mlp.down_proj.weight"
    original = load_file(small.parents[1] / "base" / "base-1" / "model.safetensors")[name]
    rounded = load_file(merged / "model.safetensors")[name]
    assert 0.05 < float((rounded - original).norm() / original.norm()) < 0.15


def test_a_sampler_takes_new_adapters_without_reading_the_model_again(small: Path, tmp_path: Path) -> None:
    root = small.parents[1]
    sampler, fresh = hf_sampler(), hf_sampler()
    sampler.load(at(root / "nf4" / "anchor-1"))
    first = sampler._model
    group = [PromptGroup(group_id="0", token_ids=[5, 9, 11], seeds=[1])]
    before = sampler.sample(group, PLAIN)
    sampler.load(at(small))
    assert sampler._model is first
    fresh.load(at(small))
    after, wanted = sampler.sample(group, PLAIN), fresh.sample(group, PLAIN)
    assert list(after[0][0].logprobs) == list(wanted[0][0].logprobs) != list(before[0][0].logprobs)
    other = adapted(tmp_path, root / "base" / "base-1", rank=5)
    sampler.load(at(other))
    assert sampler._model is not first


def test_bytes_are_those_of_the_formula(small: Path) -> None:
    base = small.parents[1] / "base" / "base-1"
    for dtype in (torch.float32, torch.bfloat16):
        model = load_model(small, dtype=dtype, device=CPU, attached=True)
        adapters = sum(each.nbytes for each in model.parameters() if each.requires_grad)
        tensors = list(model.parameters())
        for module in model.modules():
            if type(module).__name__ == "FourBitLinear":
                state = module.weight.quant_state
                tensors += [state.absmax, state.offset, state.state2.absmax]
        counted = sum(each.nbytes for each in tensors) - adapters
        shape = replace(read_shape(base), four_bit=True)
        assert counted == pytest.approx(shape.weight_bytes(dtype.itemsize), rel=0.002)


def test_memory_for_training_is_asked_for_before_a_weight_is_read(small: Path) -> None:
    shape = replace(read_shape(small.parents[1] / "base" / "base-1"), four_bit=True)
    adapters = sum(each.numel() for each in load_file(small / WEIGHTS).values())
    needed = shape.weight_bytes(4) + 16 * adapters
    trainer(at(small), free=lambda _: int(1.001 * needed))
    with pytest.raises(EngineError, match="training it takes"):
        trainer(at(small), free=lambda _: int(0.999 * needed))


@pytest.mark.parametrize("options", [{"token_budget": 40}, {"gradient_checkpointing": True}])
def test_scores_of_adapters_on_4_bits_do_not_depend_on_micro_batches(
    small: Path, tmp_path: Path, options: dict
) -> None:
    fast = trainer(at(small), dtype="float64", **options)
    slow = trainer(at(small), dtype="float64")
    gradient(fast, make_groups(SHAPES[:4], seed=9), denominator=4)
    fast.keep_gradient(tmp_path / "reference.safetensors")
    found = [
        engine.probe(make_groups(SHAPES), OBJECTIVE, tmp_path / "reference.safetensors").similarities
        for engine in (fast, slow)
    ]
    check_scalars(*found, 1e-9)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    """One pre-trained nano model, as the first checkpoint of exact and of 8-bit AdamW."""
    root = tmp_path_factory.mktemp("moments")
    for name in ("adamw", "adamw8bit"):
        prepare_anchor(anchor_path("hard"), root / name, optimizer={"name": name})
    return {name: at(root / name) for name in ("adamw", "adamw8bit")}


@pytest.fixture(scope="module")
def answers(pair: dict[str, Checkpoint]) -> list[TrainGroup]:
    """Answers of a pre-trained nano model to its questions, with random advantages."""
    sampler = hf_sampler()
    sampler.load(pair["adamw"])
    questions = draw_questions("target", "train", 48, 5, "hard")
    prompts = [
        PromptGroup(
            group_id=str(n),
            token_ids=sampler.tokenizer.render(render_messages(question, prompts="nano")),
            seeds=[4 * n + i for i in range(4)],
        )
        for n, question in enumerate(questions)
    ]
    draw, groups = random.Random(0), []
    for prompt, answers in zip(
        prompts, sampler.sample(prompts, SamplingParams(temperature=1.0, max_tokens=24)), strict=True
    ):
        rewards = [draw.gauss(0, 1) for _ in answers]
        rows = [
            TrainRow(token_ids=list(a.token_ids), advantage=r - sum(rewards) / 4, sampler_logprobs=list(a.logprobs))
            for a, r in zip(answers, rewards, strict=True)
        ]
        groups.append(TrainGroup(group_id=prompt.group_id, prompt_token_ids=prompt.token_ids, rows=rows))
    return groups


def test_a_trained_model_in_4_bits_says_ranks_and_learns_nearly_the_same(
    answers: list[TrainGroup], tmp_path: Path
) -> None:
    folders = {base: adapted(tmp_path, anchor_path("hard"), base=base, rank=16) for base in ("full", "nf4")}
    engines = {base: trainer(at(folder)) for base, folder in folders.items()}
    exact, rounded = (flat_logprobs(engine, answers) for engine in engines.values())
    # Measured: .036.
    assert 0.001 < float((exact - rounded).abs().mean()) < 0.06
    dev, asked = answers[:12], answers[12:]
    scores = []
    for base, engine in engines.items():
        for seed in (0, 8):
            step(engine, answers[seed : seed + 8], rate=1e-4)
        gradient(engine, dev)
        engine.keep_gradient(tmp_path / f"{base}.safetensors")
        engine.zero_grad()
        probed = engine.probe(asked, OBJECTIVE, tmp_path / f"{base}.safetensors").similarities
        scores.append([cosine(each.dot, each.direction_norm, each.reference_norm) for each in probed])
    # Measured: .97.
    assert spearmanr(*scores).statistic > 0.93
    engine = engines["nf4"]
    good = [replace(group, rows=[row for row in group.rows if row.advantage > 0]) for group in dev]
    before = float(flat_logprobs(engine, good).mean())
    for _ in range(6):
        step(engine, good, rate=3e-4)
    assert float(flat_logprobs(engine, good).mean()) > before + 0.005


def test_a_trainer_that_slept_computes_with_the_same_4_bits(small: Path) -> None:
    engine, groups = trainer(at(small)), make_groups(SHAPES)
    before = flat_logprobs(engine, groups)
    engine.sleep()
    assert torch.equal(flat_logprobs(engine, groups), before)


def test_a_missing_package_is_named() -> None:
    with pytest.raises(EngineError, match="the trainer needs the package no_such_package") as refused:
        require_extra("the trainer", "no_such_package")
    assert refused.value.hint == "pip install 'infuser[no_such_package]'"


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 2000), seed=st.integers(0, 99), is_root=st.booleans(), data=st.data())
def test_spans_of_a_moment_are_those_of_the_whole(size: int, seed: int, is_root: bool, data: st.DataObject) -> None:
    from infuser_core.engines.training.optimizers.adamw8bit import BLOCK, Moment

    values = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    values, everything = values**2 if is_root else values, slice(0, size)
    moment = Moment(values, is_root=is_root)
    assert not moment.read(everything).any()
    moment.write(everything, values)
    whole = moment.read(everything)
    assert whole.shape == values.shape and (whole - values).abs().max() <= 0.03 * values.abs().max()
    start = BLOCK * data.draw(st.integers(0, (size - 1) // BLOCK))
    span = slice(start, data.draw(st.integers(start + 1, size)))
    assert torch.equal(moment.read(span), whole[span])


def engine_of(pair: dict[str, Checkpoint], name: str, **options: object) -> LocalTrainer:
    return trainer(pair[name], optimizer={"name": name}, **options)


def test_steps_and_directions_of_8_bit_moments_are_nearly_the_exact_ones(
    pair: dict[str, Checkpoint], answers: list[TrainGroup]
) -> None:
    exact, small = (engine_of(pair, name) for name in pair)
    start = exact._flat.data.clone()
    curves = []
    for engine in (exact, small):
        curve = []
        for turn in range(10):
            step(engine, answers[8 * (turn % 4) : 8 * (turn % 4) + 8], rate=1e-4)
            curve.append(float(flat_logprobs(engine, answers[:8]).mean()))
        curves.append(torch.tensor(curve))
    path = float((exact._flat.data - start).norm())
    # Measured: .07 of the way, and less than 1e-4 nats.
    assert 1e-4 < float((exact._flat.data - small._flat.data).norm()) / path < 0.12
    assert float((curves[0] - curves[1]).abs().max()) < 0.01
    fresh = gradient(exact, answers[32:])
    second, form = exact._flat.views(exact._optimizer.second), exact._optimizer.form
    pairs = []
    for name, own in exact._flat.views(fresh).items():
        moment = small._optimizer._second[name].read(slice(0, own.numel())).view_as(own)
        pairs.append((direction(own, second[name], form), direction(own, moment, form)))
    gammas = [torch.cat([each[side].flatten() for each in pairs]).double() for side in (0, 1)]
    # Measured: .9999; .9994 after 30 steps.
    assert 0.999 < float(torch.nn.functional.cosine_similarity(*gammas, dim=0)) < 1
    assert small.below_epsilon() == pytest.approx(exact.below_epsilon(), abs=0.02)


def test_a_checkpoint_of_8_bit_moments_continues_bit_for_bit(pair: dict[str, Checkpoint], tmp_path: Path) -> None:
    whole = engine_of(pair, "adamw8bit")
    step(whole, make_groups(SHAPES[:4]))
    half = saved(whole, tmp_path, "half")
    resumed = trainer(at(half), optimizer={"name": "adamw8bit"})
    folders = []
    for engine, name in ((whole, "whole"), (resumed, "resumed")):
        step(engine, make_groups(SHAPES[:4], seed=5))
        folders.append(saved(engine, tmp_path, name))
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name
    weights, moments = (
        sum(each.nbytes for each in load_file(half / f"{name}.safetensors").values()) for name in ("model", "optimizer")
    )
    shape = read_shape(half)
    assert moments == pytest.approx(shape.moment_bytes("adamw8bit"), rel=0.01)
    assert moments == pytest.approx(0.508 * weights, rel=0.01)
    with pytest.raises(CheckpointError, match="was trained with adamw8bit"):
        trainer(at(half))


def test_vllm_gets_adapters_on_4_bits_merged(small: Path) -> None:
    assert is_packed(small)
    options = ServiceOptions(dtype="bfloat16", device="cuda", threads=1)
    assert adapter_settings(options, small) == {}
    plain = adapted(small.parents[1], small.parents[1] / "source", base="full")
    assert adapter_settings(options, plain)["enable_lora"]
