"""A model that sampler or trainer would compute otherwise than transformers does is refused when it is first loaded."""

from pathlib import Path

import pytest
import torch
from engine_tiny import LATENT, ROUTED, WINDOW, make_checkpoint, make_family, make_groups, make_source, trainer
from safetensors.torch import load_file, save_file
from stock_engines import hf_sampler
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from infuser_core.config.engine import EngineSettings
from infuser_core.engines.hf.causal_lm import IMPLEMENTATION, load_model, read_config
from infuser_core.engines.hf.limits import most_positions
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.training.self_test import require_same
from infuser_core.errors import EngineError
from infuser_core.evaluation.models import find_model
from infuser_core.evaluation.settings import EvaluationSettings, pool_of
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

CONVOLUTIONS = {"layer_types": ["conv", "full_attention", "conv", "full_attention"]}
BOUND = 32
LONG = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 16,
        "long_factor": [1.0 + place for place in range(16)],
        "original_max_position_embeddings": BOUND,
    },
    "original_max_position_embeddings": BOUND,
}


def plain(folder: Path) -> Checkpoint:
    return Checkpoint(checkpoint_id="plain", role="solver", path=str(folder), step=0)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("qwen3", {}), ("olmo3", WINDOW), ("youtu", LATENT), ("glm4_moe", ROUTED), ("gpt_neox", {}), ("phi3", LONG)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_models_of_attention_pass_in_every_dtype(
    tmp_path: Path, family: str, changes: dict, dtype: torch.dtype
) -> None:
    require_same(load_model(make_source(tmp_path, family, **changes), dtype=dtype, device=torch.device("cpu")))


def test_convolutions_are_refused_by_import_and_by_the_sampler(tmp_path: Path) -> None:
    folder = make_source(tmp_path / "source", "lfm2", **CONVOLUTIONS)
    with pytest.raises(EngineError, match=r"Lfm2ForCausalLM.* differ from those of transformers by \d"):
        prepare_anchor(folder, tmp_path / "anchor")
    assert not (tmp_path / "anchor").exists()
    with pytest.raises(EngineError, match="Lfm2ForCausalLM"):
        hf_sampler().load(plain(folder))


def test_an_evaluated_folder_is_tested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    folder, seals = make_source(tmp_path / "source"), tmp_path / "store/tested"
    first = find_model(tmp_path / "store", str(folder)).checkpoint()

    def load(checkpoint: Checkpoint, **engine: str) -> None:
        pool = pool_of(EvaluationSettings(engine=EngineSettings(sampler="hf", device="cpu", **engine)))
        assert pool.sampler(checkpoint).tokenizer

    load(first)
    assert len(list(seals.iterdir())) == 1
    load(first, dtype="bfloat16")
    assert len(list(seals.iterdir())) == 2
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # Only the seal says that these weights passed.
    load(first)
    with pytest.raises(EngineError, match=r"model\.norm\.weight holds 1 values"):
        load(find_model(tmp_path / "store", str(folder)).checkpoint())
    assert len(list(seals.iterdir())) == 2


class Scaled(LlamaForCausalLM):
    """A model that does more with its logits than its configuration says."""

    def forward(self, *operands: Tensor, **options: object) -> CausalLMOutputWithPast:
        output = super().forward(*operands, **options)
        output.logits = 0.5 * output.logits
        return output


class Sensitive(LlamaForCausalLM):
    """A model that cannot be computed on rows of unlike lengths."""

    def get_output_embeddings(self) -> None:
        return None


@pytest.mark.parametrize(("kind", "words"), [(Scaled, "differ from those of"), (Sensitive, "cannot be computed by")])
def test_an_unknown_model_is_judged_by_its_numbers(kind: type[LlamaForCausalLM], words: str) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        initializer_range=0.2, attn_implementation=IMPLEMENTATION,
    )  # fmt: skip
    require_same(LlamaForCausalLM(config).eval())
    with pytest.raises(EngineError, match=f"{kind.__name__}.* {words}"):
        require_same(kind(config).eval())


def test_rows_past_the_bound_of_longrope_are_refused_and_shorter_ones_computed(tmp_path: Path) -> None:
    anchor = make_family(tmp_path, "phi3", **LONG)
    assert most_positions(read_config(Path(anchor.path))) == BOUND
    sampler = hf_sampler()
    sampler.load(anchor)
    group = PromptGroup(group_id="g", token_ids=[5] * 10, seeds=[0])
    assert sampler.sample([group], SamplingParams(temperature=0.7, max_tokens=BOUND - 10))
    with pytest.raises(EngineError, match=f"the {BOUND} positions"):
        sampler.sample([group], SamplingParams(temperature=0.7, max_tokens=BOUND - 9))
    engine = trainer(anchor)
    assert engine.logprobs(make_groups([(10, [BOUND - 10, 2])]), temperature=1.0)
    with pytest.raises(EngineError, match=f"a row of {BOUND + 1} tokens"):
        engine.logprobs(make_groups([(10, [BOUND - 9, 2])]), temperature=1.0)


def test_a_weight_that_is_no_number_is_named(tmp_path: Path) -> None:
    anchor = make_checkpoint(tmp_path)
    name = "model.layers.1.mlp.down_proj.weight"
    for folder in (tmp_path / "source", Path(anchor.path)):
        weights = load_file(folder / "model.safetensors")
        weights[name][3, 3] = torch.nan
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError, match=f"^the model's {name} holds 1 values that are not finite"):
        prepare_anchor(tmp_path / "source", tmp_path / "again")
    sampler = hf_sampler()
    sampler.load(anchor)
    with pytest.raises(EngineError, match=f"{name} holds 1 values"):
        sampler.sample(
            [PromptGroup(group_id="g", token_ids=[5], seeds=[0])], SamplingParams(temperature=0.7, max_tokens=4)
        )
