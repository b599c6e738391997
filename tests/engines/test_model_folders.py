"""A model folder that lacks something or contradicts itself is refused by name; quantised weights are unpacked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_tiny import END, VOCABULARY, make_source, save_tokenizer
from safetensors.torch import load_file, save_file
from stock_engines import hf_sampler
from torch import Tensor
from transformers import AutoModelForCausalLM

from infuser_core.config.run import SamplingSettings
from infuser_core.engines.local.hub import prepare_anchor, random_model, write_hub_layout
from infuser_core.engines.training.checkpoint import count_weights
from infuser_core.errors import CheckpointError, InfuserError
from infuser_core.evaluation.anchors import anchor_digest
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

WEIGHT = "model.layers.0.self_attn.q_proj.weight"
E4M3 = torch.float8_e4m3fn
BLOCK = 128


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(folder: Path, **changes: Tensor | None) -> None:
    file = folder / "model.safetensors"
    weights = {**load_file(file), **changes}
    save_file({name: each for name, each in weights.items() if each is not None}, file, metadata={"format": "pt"})


def answer(folder: Path) -> None:
    """Load the folder and sample from it, as an evaluation does."""
    sampler = hf_sampler()
    sampler.load(Checkpoint(checkpoint_id="c", role="solver", path=str(folder), step=0))
    prompt = sampler.tokenizer.render([{"role": "user", "content": f"w5 w{VOCABULARY - 1}"}])
    sampler.sample(
        [PromptGroup(group_id="q", token_ids=prompt, seeds=[0])], SamplingParams(temperature=0.7, max_tokens=2)
    )


def bias(folder: Path) -> None:
    rewrite(folder, **{WEIGHT.replace("weight", "bias"): torch.ones(8)})


def further_layer(folder: Path) -> None:
    rewrite(folder, **{"model.layers.9.mlp.up_proj.weight": torch.ones(8, 8)})


def bytes_for_weights(folder: Path) -> None:
    rewrite(folder, **{WEIGHT: load_file(folder / "model.safetensors")[WEIGHT].mul(100).to(torch.int8)})


def raw_8_bit_floats(folder: Path) -> None:
    rewrite(folder, **{WEIGHT: load_file(folder / "model.safetensors")[WEIGHT].to(E4M3)})


def packed_by(method: str) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", quantization_config={"quant_method": method, "bits": 4})


def fewer_layers(folder: Path) -> None:
    edit(folder / "config.json", num_hidden_layers=2)


def no_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text("")


def end_of_none(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[None])


def no_tokenizer(folder: Path) -> None:
    for path in [*folder.glob("tokenizer*"), *folder.glob("chat_template*")]:
        path.unlink()


def small_embedding(folder: Path) -> None:
    make_source(folder, vocab_size=VOCABULARY - 4)


SHARD = "model-00001-of-00001.safetensors"
INDICES = [
    {},
    [],
    {"metadata": {}, "weight_map": None},
    {"metadata": {}, "weight_map": []},
    {"metadata": {}, "weight_map": {}},
    {"metadata": {}, "weight_map": {WEIGHT: 3}},
    {"weight_map": {WEIGHT: SHARD}},
]

DEFECTS: list[tuple[Callable[[Path], None], str]] = [
    (bias, r"has 1 weights that Qwen3ForCausalLM does not use: .*q_proj\.bias"),
    (further_layer, r"does not use: model\.layers\.9"),
    (bytes_for_weights, rf"{WEIGHT} .* holds I8 numbers without their scales"),
    (raw_8_bit_floats, rf"{WEIGHT} .* holds F8_E4M3 numbers"),
    (packed_by("gptq"), "quantised by gptq"),
    (packed_by("awq"), "quantised by awq"),
    (packed_by("nobody_knows"), "quantised by nobody_knows"),
    (fewer_layers, "num_hidden_layers"),
    (no_generation_config, "generation_config.json cannot be read"),
    (end_of_none, r"eos_token_id is \[None\]"),
    (no_tokenizer, "holds no tokenizer"),
    (small_embedding, f"holds token {VOCABULARY - 1}, and the model's vocab_size is {VOCABULARY - 4}"),
]


@pytest.mark.parametrize(("spoil", "words"), DEFECTS)
def test_a_defect_is_named(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    whole, folder = make_source(tmp_path / "whole"), tmp_path / "spoiled"
    answer(whole)
    shutil.copytree(whole, folder)
    spoil(folder)
    with pytest.raises(InfuserError, match=words):
        answer(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["", "3", "null", "[]", '{"'])
def test_a_file_of_another_form_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = make_source(tmp_path)
    (folder / name).write_text(text)
    with pytest.raises(CheckpointError, match=r"(tokenizer in .*|config\.json) (cannot be read: .|(is|holds) no JSON)"):
        answer(folder)


@pytest.mark.parametrize("change", [{"added_tokens_decoder": {"5": {"content": 3}}}, {"eos_token": 3}])
def test_a_field_of_another_form_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    folder = make_source(tmp_path)
    edit(folder / "tokenizer_config.json", **change)
    with pytest.raises(CheckpointError, match=r"the tokenizer in .* cannot be read: TypeError: .*str"):
        answer(folder)


@pytest.mark.parametrize("read", [answer, anchor_digest, count_weights])
@pytest.mark.parametrize("content", INDICES)
def test_an_index_that_names_no_files_is_refused_by_name(
    tmp_path: Path, read: Callable[[Path], object], content: object
) -> None:
    folder = make_source(tmp_path)
    (folder / "model.safetensors").rename(folder / SHARD)
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json (is no index|holds no JSON)"):
        read(folder)


def quantised(folder: Path) -> Path:
    """A model whose projections are block-wise 8-bit floats."""
    sizes = {"hidden_size": BLOCK, "intermediate_size": BLOCK, "head_dim": 32, "num_hidden_layers": 2}
    make_source(folder, **sizes)
    packed: dict[str, Tensor] = {}
    for name, each in load_file(folder / "model.safetensors").items():
        packed[name] = each
        if "proj" in name and each.dim() == 2:
            scale = each.abs().max() / torch.finfo(E4M3).max
            packed[name] = (each / scale).to(E4M3)
            blocks = [-(-size // BLOCK) for size in each.shape]
            packed[f"{name}_scale_inv"] = scale.expand(*blocks).contiguous()
    save_file(packed, folder / "model.safetensors", metadata={"format": "pt"})
    packing = {
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
    }
    edit(folder / "config.json", quantization_config=packing)
    return folder


def logits(folder: Path) -> Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        found: Tensor = model(torch.tensor([[5, 6, END, 7, 8]])).logits
    return found


def test_a_quantised_model_becomes_plain_floats(tmp_path: Path) -> None:
    source = quantised(tmp_path / "source")
    anchor, out = tmp_path / "anchor", tmp_path / "out"
    prepare_anchor(source, anchor)
    out.mkdir()
    write_hub_layout(anchor, out, dtype="bfloat16", sampling=SamplingSettings(), max_tokens=16)
    assert torch.allclose(logits(anchor), logits(source), atol=1e-4)
    assert float((logits(out) - logits(source)).abs().max() / logits(source).abs().max()) < 0.05
    for folder, dtype in ((anchor, torch.float32), (out, torch.bfloat16)):
        assert {each.dtype for each in load_file(folder / "model.safetensors").values()} == {dtype}
        assert "quantization_config" not in (folder / "config.json").read_text()
    random_model(source, tmp_path / "random", seed=0)
    answer(tmp_path / "random")


def test_scales_that_are_missing_are_missed(tmp_path: Path) -> None:
    source = quantised(tmp_path / "source")
    rewrite(source, **{f"{WEIGHT}_scale_inv": None})
    with pytest.raises(CheckpointError, match="q_proj"):
        prepare_anchor(source, tmp_path / "anchor")


def test_a_tokenizer_with_fewer_words_than_the_model_is_none_of_them(tmp_path: Path) -> None:
    folder = make_source(tmp_path, vocab_size=2 * VOCABULARY)
    save_tokenizer(folder)
    answer(folder)
