"""Adapters are trained, scored, sampled and stored as plain peft has them, beside a base model that stays as it is."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from engine_tiny import OBJECTIVE, SHAPES, gradient, make_groups, make_source, step, stock_logprobs, trainer
from peft import PeftModel
from safetensors.torch import load_file
from stock_engines import hf_sampler
from torch import Tensor
from transformers import AutoModelForCausalLM

from infuser_core.algorithm.influence import Elementwise, direction
from infuser_core.config.roles import AdapterSettings
from infuser_core.engines.hf.causal_lm import copy_model, load_model
from infuser_core.engines.hf.norms import compute_in_own_dtype
from infuser_core.engines.local.hub import prepare_adapter
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.errors import CheckpointError, ConfigError, EngineError
from infuser_core.protocols import PromptGroup, SamplingParams, TrainGroup
from infuser_core.schemas import Checkpoint
from infuser_core.store.adapter_files import CONFIG, WEIGHTS, base_folder, base_pointer

LORA = AdapterSettings(rank=3, alpha=6)
FAMILIES = ["qwen3", "qwen2", "llama", "gemma3_text", "phi3", "gpt_neox", "olmo2", "granite", "qwen3_moe"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


def at(folder: Path) -> Checkpoint:
    return Checkpoint(checkpoint_id=folder.name, role="solver", path=str(folder), step=0)


def adapted(root: Path, family: str = "qwen3", *, adapter: AdapterSettings = LORA, seed: int = 1) -> Path:
    """A store's folders of a tiny base model and of the adapters that a run starts from."""
    base, anchor = root / "base" / "base-1", root / "anchor" / "anchor-1"
    for folder in (base, anchor):
        folder.mkdir(parents=True)
    # A stock model has 128 experts, which changes nothing but the seconds.
    experts = {"num_experts": 8} if family == "qwen3_moe" else {}
    copy_model(make_source(root / "source", family, **experts), base)
    prepare_adapter(base, anchor, adapter=adapter, seed=seed)
    return anchor


def saved(engine: LocalTrainer, root: Path, name: str = "after") -> Path:
    out = root / "update_solver" / name
    out.mkdir(parents=True)
    engine.save(out)
    return out


def moved(anchor: Path, root: Path, **options: object) -> tuple[LocalTrainer, Path]:
    """A trainer after a few steps from those adapters, B no longer zero, and its checkpoint."""
    engine = trainer(at(anchor), **options)
    for seed in range(3):
        step(engine, make_groups(SHAPES[:4], seed=seed))
    return engine, saved(engine, root)


def plain(folder: Path, dtype: torch.dtype = torch.float64, **options: object) -> PeftModel:
    """The checkpoint as peft itself loads it."""
    base = AutoModelForCausalLM.from_pretrained(base_folder(folder), dtype=dtype, attn_implementation="sdpa")
    if dtype == torch.float64:
        compute_in_own_dtype(base)
    return PeftModel.from_pretrained(base, folder, autocast_adapter_dtype=False, **options)


def plain_loss(model: PeftModel, groups: list[TrainGroup], denominator: int) -> Tensor:
    """Minus eq:unified_obj at ratio 1, one response after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for group in groups:
        for row in group.rows:
            current = stock_logprobs(model, group.prompt_token_ids, row.token_ids, OBJECTIVE.temperature)
            sampled = torch.tensor(row.sampler_logprobs, dtype=torch.float64)
            weight = (current.detach() - sampled).exp().clamp(max=2.0)
            share = len(group.rows) * OBJECTIVE.length_norm * denominator
            total = total - (weight * (current - current.detach()).exp() * row.advantage).sum() / share
    return total


def test_steps_are_those_of_peft_and_torchs_adamw(tmp_path: Path) -> None:
    anchor = adapted(tmp_path)
    engine, folder = moved(anchor, tmp_path, dtype="float64")
    model = plain(anchor, is_trainable=True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.01)
    for seed in range(3):
        optimizer.zero_grad()
        plain_loss(model, make_groups(SHAPES[:4], seed=seed), 4).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    expected = {name.replace(".default", ""): each for name, each in model.named_parameters() if each.requires_grad}
    found = load_file(folder / WEIGHTS)
    assert found.keys() == expected.keys() and len(found) == 2 * 7 * 4
    for name, wanted in expected.items():
        torch.testing.assert_close(found[name], wanted.detach(), rtol=1e-8, atol=1e-10, msg=name)
    assert engine._flat.data.dtype == torch.float64


@pytest.mark.parametrize("options", [{"token_budget": 40}, {"gradient_checkpointing": True}])
@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=[] if each == "qwen3" else [pytest.mark.long]) for each in FAMILIES]
)
def test_scores_in_adapter_space_are_their_definition(tmp_path: Path, family: str, options: dict) -> None:
    engine, _ = moved(adapted(tmp_path, family), tmp_path, dtype="float64", **options)
    ascent = -gradient(engine, make_groups(SHAPES[:4], seed=9), denominator=4)
    engine.keep_gradient(tmp_path / "reference.safetensors")
    groups = make_groups(SHAPES)
    form = Elementwise.of_adamw(step=engine._optimizer.steps, beta2=0.999, eps=1e-8)
    for group, each in zip(
        groups, engine.probe(groups, OBJECTIVE, tmp_path / "reference.safetensors").similarities, strict=True
    ):
        own = -gradient(engine, [group])
        gamma = direction(own, engine._optimizer.second, form)
        # The file holds the reference in fp32.
        assert each.dot == pytest.approx(float(ascent @ gamma), rel=1e-5, abs=1e-9)
        assert each.direction_norm == pytest.approx(float(gamma.norm()), rel=1e-9)
        assert each.gradient_norm == pytest.approx(float(own.norm()), rel=1e-9)


@pytest.mark.parametrize("family", ["qwen3", "gpt_neox"])
def test_merged_they_say_what_peft_says(tmp_path: Path, family: str) -> None:
    _, folder = moved(adapted(tmp_path, family), tmp_path)
    model, prompts = plain(folder, torch.float32), [[5, 9, 11], [7, 7, 30, 41], [2, 60]]
    sampler = hf_sampler()
    sampler.load(at(folder))
    groups = [PromptGroup(group_id=str(n), token_ids=ids, seeds=[n]) for n, ids in enumerate(prompts)]
    for ids, (completion,) in zip(prompts, sampler.sample(groups, GREEDY), strict=True):
        tokens = torch.tensor([ids])
        out = model.generate(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=24
        )
        assert out[0, len(ids) :].tolist() == completion.token_ids
    before = load_model(tmp_path / "base" / "base-1", dtype=torch.float32, device=torch.device("cpu"))
    assert any(not torch.equal(*pair) for pair in zip(before.parameters(), sampler._model.parameters(), strict=True))


def test_a_bfloat16_merge_rounds_once(tmp_path: Path) -> None:
    _, folder = moved(adapted(tmp_path), tmp_path)
    exact = load_model(folder, dtype=torch.float64, device=torch.device("cpu"))
    base = load_model(tmp_path / "base" / "base-1", dtype=torch.bfloat16, device=torch.device("cpu"))
    rounded = load_model(folder, dtype=torch.bfloat16, device=torch.device("cpu"))
    stored = load_file(tmp_path / "base" / "base-1" / "model.safetensors")
    parameters = zip(rounded.named_parameters(), base.parameters(), exact.parameters(), strict=True)
    for (name, found), own, wanted in parameters:
        assert torch.equal(found, (own.double() + (wanted - stored[name].double())).bfloat16()), name


def test_a_checkpoint_holds_adapters_alone_and_continues_bit_for_bit(tmp_path: Path) -> None:
    anchor = adapted(tmp_path)
    whole, half = moved(anchor, tmp_path)
    resumed = trainer(at(half))
    for engine in (whole, resumed):
        step(engine, make_groups(SHAPES[:4], seed=8))
    folders = [saved(engine, tmp_path, name) for engine, name in ((whole, "whole"), (resumed, "resumed"))]
    names = {path.name for path in folders[0].iterdir()}
    assert {CONFIG, WEIGHTS, "optimizer.safetensors", "trainer.json"} <= names
    assert not any(name.startswith("model") for name in names)
    for name in sorted(names):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    assert all("lora" in name for name in load_file(half / "optimizer.safetensors"))


def test_first_weights_follow_from_the_seed_and_leave_the_model_as_it_is(tmp_path: Path) -> None:
    first, again, other = (adapted(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert (first / WEIGHTS).read_bytes() == (again / WEIGHTS).read_bytes() != (other / WEIGHTS).read_bytes()
    for name, tensor in load_file(first / WEIGHTS).items():
        bound = tensor.shape[1] ** -0.5
        assert not tensor.any() if "lora_B" in name else 0.5 * bound < float(tensor.abs().max()) <= bound
    base, model = (
        load_model(folder, dtype=torch.float32, device=torch.device("cpu")) for folder in (base_folder(first), first)
    )
    assert all(torch.equal(*pair) for pair in zip(base.parameters(), model.parameters(), strict=True))


def test_a_bfloat16_base_has_fp32_adapters(tmp_path: Path) -> None:
    engine, _ = moved(adapted(tmp_path), tmp_path, dtype="bfloat16")
    held = {str(each.dtype) for each in engine._policy.model.parameters() if not each.requires_grad}
    assert (held, engine._flat.data.dtype) == ({"torch.bfloat16"}, torch.float32)
    exact, _ = moved(tmp_path / "anchor" / "anchor-1", tmp_path / "exact")
    groups = make_groups(SHAPES)
    found = [gradient(each, groups) for each in (engine, exact)]
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.98


def test_targets_that_the_model_has_not_are_named(tmp_path: Path) -> None:
    for targets, said in ((["q_proj", "nope"], "nope"), (["lm_head"], "lm_head"), (["embed_tokens"], "embed_tokens")):
        with pytest.raises(ConfigError, match=rf"no linear layer {said}") as refused:
            adapted(tmp_path / said, adapter=AdapterSettings(targets=targets))
        assert "q_proj" in refused.value.hint and "lm_head" not in refused.value.hint
    some = adapted(tmp_path / "some", adapter=AdapterSettings(targets=["v_proj", "q_proj"]))
    assert json.loads((some / CONFIG).read_text())["target_modules"] == ["q_proj", "v_proj"]


def test_a_base_that_is_gone_and_weights_of_other_shapes_are_refused(tmp_path: Path) -> None:
    anchor = adapted(tmp_path)
    other = adapted(tmp_path / "other", adapter=AdapterSettings(rank=5))
    shutil.copyfile(other / WEIGHTS, anchor / WEIGHTS)
    with pytest.raises(CheckpointError, match="has shape"):
        trainer(at(anchor))
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(CheckpointError, match=r"its base model \.\./\.\./base/base-1 is not there"):
        trainer(at(anchor))
    with pytest.raises(CheckpointError, match="holds an adapter"):
        copy_model(other, tmp_path)


def test_memory_is_that_of_the_base_once_and_of_the_adapters_state(tmp_path: Path) -> None:
    anchor = adapted(tmp_path)
    base = sum(each.numel() for each in load_file(tmp_path / "base" / "base-1" / "model.safetensors").values())
    needed = 4 * base + 16 * sum(each.numel() for each in load_file(anchor / WEIGHTS).values())
    trainer(at(anchor), free=lambda _: needed)
    with pytest.raises(EngineError, match="training it takes"):
        trainer(at(anchor), free=lambda _: needed - 1)


def test_a_pointer_leads_from_any_checkpoint_to_the_base(tmp_path: Path) -> None:
    anchor = adapted(tmp_path)
    assert base_folder(anchor) == tmp_path / "base" / "base-1"
    assert base_pointer(tmp_path / "base" / "base-1") == "../../base/base-1"
    assert base_folder(tmp_path / "base" / "base-1") is None
