"""A model that every rank builds without its values: the weights come from the checkpoint's files, part by part.

Memory that nothing has written takes no room on the host, so that a rank holds its shard and the parameter at hand.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from infuser_core.engines.attention import IMPLEMENTATION
from infuser_core.engines.causal_lm import read_config, refuse_logit_changes, without_dropout


def empty_model(folder: Path) -> PreTrainedModel:
    """The architecture of a folder on the CPU, fp32, as `load_model` gives it but for what the parameters hold."""
    config = read_config(folder)
    refuse_logit_changes(config)
    with no_init_weights():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=IMPLEMENTATION, trust_remote_code=False
        )
    # A part of what was left out above.
    model.tie_weights()
    return without_dropout(model).eval()
