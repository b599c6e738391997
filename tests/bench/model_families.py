"""Every causal family of transformers, built small: are its log-probabilities right, refused in words, wrong, or a crash?

    python tests/bench/model_families.py [FAMILY ...]

Prints a row for each family and the counts; exits 1 where one is wrong or crashes.
"""

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from engine_tiny import COMMON, LATENT, OBJECTIVE, VOCABULARY, make_groups, save_tokenizer, trainer
from stock_engines import hf_sampler

from infuser_core.engines.hf.causal_lm import multiply_experts, saved_buffers
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.errors import InfuserError
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

SIZES = {
    **LATENT,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "sliding_window": 8,
    "attention_chunk_size": 8,
    "tie_word_embeddings": False,
}
ATTEMPTS = (("num_key_value_heads",), (), ("sliding_window", "attention_chunk_size"))
"""Settings to leave out, until one of the attempts builds a model."""
LARGEST = 5_000_000
"""Weights of a model that is small."""
LIMIT = 1e-2
"""Largest difference of a log-probability that is right, nats."""


def build(family: str, folder: Path) -> str:
    """Write a small model of the family; the reason where none can be built."""
    reason = ""
    for left_out in reversed(ATTEMPTS):
        torch.manual_seed(0)
        try:
            known = AutoConfig.for_model(family)
            sizes = {name: size for name, size in (COMMON | SIZES).items() if hasattr(known, name)}
            config = AutoConfig.for_model(family, **{k: v for k, v in sizes.items() if k not in left_out})
            with torch.device("meta"):
                weights = AutoModelForCausalLM.from_config(config).num_parameters()
            if weights > LARGEST:
                reason = f"{weights:,} weights"
                continue
            model = AutoModelForCausalLM.from_config(config)
            with torch.no_grad():
                for tensor in [*model.parameters(), *saved_buffers(model).values()]:
                    if tensor.dim() == 1:
                        tensor.add_(torch.randn_like(tensor), alpha=0.1)
            model.save_pretrained(folder)
            save_tokenizer(folder)
            return ""
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return reason


def gap(source: Path, anchor: Path) -> float:
    """Largest difference of log-probabilities of sampler and trainer from transformers' own, nats."""
    prepare_anchor(source, anchor)
    plain = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    multiply_experts(plain)

    @torch.no_grad()
    def stock(prompt: Sequence[int], response: Sequence[int]) -> torch.Tensor:
        ids = torch.tensor([[*prompt, *response]])
        logits = plain(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float() / OBJECTIVE.temperature
        return torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None])[:, 0]

    checkpoint = Checkpoint(checkpoint_id="anchor", role="solver", path=str(anchor), step=0)
    groups = make_groups([(3, [5, 24]), (9, [24, 1]), (20, [7, 24])])
    sampler = hf_sampler()
    sampler.load(checkpoint)
    asked = [PromptGroup(group_id=g.group_id, token_ids=g.prompt_token_ids, seeds=[0, 1]) for g in groups]
    drawn = sampler.sample(asked, SamplingParams(temperature=OBJECTIVE.temperature, max_tokens=24))
    pairs = [
        (group.prompt_token_ids, one.token_ids, one.logprobs)
        for group, samples in zip(groups, drawn, strict=True)
        for one in samples
    ]
    scored = trainer(checkpoint).logprobs(groups, temperature=OBJECTIVE.temperature)
    pairs += [
        (group.prompt_token_ids, row.token_ids, own)
        for group, rows in zip(groups, scored, strict=True)
        for row, own in zip(group.rows, rows, strict=True)
    ]
    return max(float((torch.tensor([*own]) - stock(prompt, tokens)).abs().max()) for prompt, tokens, own in pairs)


def judge(family: str) -> tuple[str, str]:
    """The verdict on a family, and a reason or a size."""
    with tempfile.TemporaryDirectory() as folder:
        if reason := build(family, Path(folder) / "source"):
            return "not built", reason
        try:
            found = gap(Path(folder) / "source", Path(folder) / "anchor")
        except InfuserError as error:
            return "refused", error.message.replace(folder, "")
        except Exception as error:
            return "crash", f"{type(error).__name__}: {error}".splitlines()[0]
        return ("right" if found <= LIMIT else "wrong"), f"{found:.1e} nats"


def main(families: Sequence[str]) -> int:
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    assert COMMON["vocab_size"] == VOCABULARY
    counts = Counter[str]()
    for family in families or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        verdict, detail = judge(family)
        counts[verdict] += 1
        print(f"{family:28} {verdict:10} {detail[:160]}", flush=True)
    print(dict(counts))
    return int(counts["wrong"] + counts["crash"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
