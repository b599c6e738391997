"""Tiny random models of any architecture with a word tokenizer, and groups of random responses for engine tests."""

import random
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch
from objectives import objective
from safetensors.torch import load_file, save_file
from stock_engines import local_trainer
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from infuser_core.algorithm.objective import clipped_objective
from infuser_core.algorithm.preset import Preset
from infuser_core.config.loss import LossSettings
from infuser_core.cotrain.phases.training import ObjectiveSettings
from infuser_core.engines.hf.causal_lm import multiply_experts, saved_buffers
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.protocols import TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint

VOCABULARY = 64
END, TURN = 1, 4
TEMPLATE = "{% for m in messages %}w2 {{ m['content'] }} w4 {% endfor %}{% if add_generation_prompt %}w3{% endif %}"
OBJECTIVE = objective(length_norm=16.0, temperature=0.7)
SHAPES = [(5, [4, 7, 1]), (9, [3, 3]), (5, [6, 2, 2, 5]), (17, [11, 4, 8]), (3, [1, 1])]
"""Prompt length and response lengths of groups of unlike shapes."""


def objective_settings(**changes: object) -> ObjectiveSettings:
    """The paper's loss for responses of at most eight tokens at temperature 1."""
    names = {field.name for field in fields(ObjectiveSettings)} & LossSettings.model_fields.keys()
    stock = {"options": Preset(), "max_tokens": 8, **{name: getattr(LossSettings(), name) for name in names}}
    return ObjectiveSettings(**stock | {"temperature": 1.0} | changes)  # type: ignore[arg-type]


COMMON = {
    "vocab_size": VOCABULARY,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": END,
    "bos_token_id": None,
    "pad_token_id": 0,
    # Wide initial weights, so that the next token depends visibly on the context.
    "initializer_range": 0.2,
}
TINY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL = {"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 4}
WINDOW = {"sliding_window": 8}
"""Three layers of four look back on eight tokens, one on everything."""
LATENT = {
    "hidden_size": 32,
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 6,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "head_dim": 8,
}
"""Attention of latent keys and values, whose heads differ in size."""
ROUTED = {
    "hidden_size": 32,
    "head_dim": 8,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
"""Experts chosen by a router whose bias is a buffer."""


def make_source(folder: Path, family: str = "qwen3", *, seed: int = 0, tied: bool = False, **changes: object) -> Path:
    """A model folder as a hub would give it; `family` is a model type of transformers, `changes` are keys of its
    config. Biases and norm scales, which start at zero and one, have values of their own."""
    torch.manual_seed(seed)
    sizes = SMALL | ({"head_dim": 32, "hidden_size": 64} if family == "qwen3" else {})
    config = AutoConfig.for_model(family, **(COMMON | sizes | {"tie_word_embeddings": tied} | changes))
    model = AutoModelForCausalLM.from_config(config)
    _disturb(model)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path, *, template: str | None = TEMPLATE, end: str = "w1") -> None:
    """A tokenizer of the words w0 to w63."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=end, pad_token="w0")
    made.chat_template = template
    made.save_pretrained(folder)


@torch.no_grad()
def _disturb(model: PreTrainedModel) -> None:
    for tensor in [*model.parameters(), *saved_buffers(model).values()]:
        if tensor.dim() == 1:
            tensor.add_(torch.randn_like(tensor), alpha=0.1)


def make_family(folder: Path, family: str, *, seed: int = 0, tied: bool = False, **changes: object) -> Checkpoint:
    """An anchor of such a model."""
    return anchored(make_source(folder / "source", family, seed=seed, tied=tied, **changes), f"{family}-{seed}")


def make_checkpoint(folder: Path, *, seed: int = 0, tied: bool = True, family: str = "qwen3") -> Checkpoint:
    """An anchor of a two-layer model."""
    torch.manual_seed(seed)
    sizes = TINY | ({} if family == "olmo2" else {"head_dim": 8})
    config = AutoConfig.for_model(family, **(COMMON | sizes | {"tie_word_embeddings": tied}))
    model = AutoModelForCausalLM.from_config(config)
    if family != "qwen3":
        _disturb(model)
    model.save_pretrained(folder / "source")
    save_tokenizer(folder / "source")
    return anchored(folder / "source")


def anchored(source: Path, name: str = "anchor") -> Checkpoint:
    """The anchor of a model folder, beside it."""
    prepare_anchor(source, source.parent / "anchor")
    return Checkpoint(checkpoint_id=name, role="solver", path=str(source.parent / "anchor"), step=0)


def uniform(folder: Path) -> Checkpoint:
    """A checkpoint that gives every token the same probability: its last norm's scale is zero."""
    checkpoint = make_checkpoint(folder)
    weights = load_file(f"{checkpoint.path}/model.safetensors")
    weights["model.norm.weight"] = torch.zeros_like(weights["model.norm.weight"])
    save_file(weights, f"{checkpoint.path}/model.safetensors", metadata={"format": "pt"})
    return checkpoint


def trainer(anchor: Checkpoint, **options: object) -> LocalTrainer:
    """A local trainer at the anchor."""
    engine = local_trainer(**options)
    engine.load(anchor)
    return engine


def step(engine: LocalTrainer, groups: list[TrainGroup], *, rate: float = 1e-2) -> float:
    """One AdamW step on the groups; the gradient's norm before clipping."""
    engine.zero_grad()
    engine.forward_backward(groups, OBJECTIVE, denominator=4)
    norm = engine.optim_step(rate)
    engine.zero_grad()
    return norm


def gradient(engine: LocalTrainer, groups: list[TrainGroup], *, denominator: int = 1) -> Tensor:
    """The gradient of -J of the groups alone, flat."""
    engine.zero_grad()
    engine.forward_backward(groups, OBJECTIVE, denominator=denominator)
    return engine._flat.gradient.clone()


def stock_model(checkpoint: Checkpoint, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """The checkpoint's model as transformers itself computes it."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=dtype, attn_implementation="eager")
    multiply_experts(model)
    return model


def stock_logprobs(model: PreTrainedModel, prompt: list[int], response: list[int], temperature: float) -> Tensor:
    """log pi of every response token under a stock model, one response after the other."""
    logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0]


def plain_loss(model: PreTrainedModel, groups: Sequence[TrainGroup]) -> Tensor:
    """-J of some groups (eq:unified_obj), one response after the other."""
    loss = torch.zeros((), dtype=torch.float64)
    for group in groups:
        for row in group.rows:
            logprobs_S = stock_logprobs(model, group.prompt_token_ids, row.token_ids, OBJECTIVE.temperature)
            weight = 1 / (len(group.rows) * OBJECTIVE.length_norm * len(groups))
            loss = (
                loss
                + clipped_objective(
                    logprobs_S,
                    advantages_S=torch.full_like(logprobs_S, row.advantage),
                    weights_S=torch.full_like(logprobs_S, weight),
                    sampler_logprobs_S=torch.tensor(row.sampler_logprobs, dtype=torch.float64),
                    objective=OBJECTIVE,
                ).loss
            )
    return loss


def make_groups(shapes: Sequence[tuple[int, Sequence[int]]], *, seed: int = 0, old: bool = False) -> list[TrainGroup]:
    """Random groups of (prompt length, response lengths); advantages are centred within each group."""
    draw = random.Random(seed)

    def tokens(length: int) -> list[int]:
        return [draw.randrange(2, VOCABULARY) for _ in range(length)]

    groups = []
    for place, (prompt, lengths) in enumerate(shapes):
        advantages = [draw.uniform(-1, 1) for _ in lengths]
        mean = sum(advantages) / len(advantages)
        rows = [
            TrainRow(
                token_ids=tokens(length),
                advantage=advantage - mean,
                sampler_logprobs=[draw.uniform(-5, -3) for _ in range(length)],
                old_logprobs=[draw.uniform(-5, -3) for _ in range(length)] if old else None,
            )
            for advantage, length in zip(advantages, lengths, strict=True)
        ]
        groups.append(TrainGroup(group_id=f"g{place}", prompt_token_ids=tokens(prompt), rows=rows))
    return groups
