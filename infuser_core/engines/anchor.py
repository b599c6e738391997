"""The first checkpoint of a run: a model folder with AdamW state at zero."""

from pathlib import Path

import torch

from infuser_core.engines.adamw import AdamWOptions
from infuser_core.engines.causal_lm import copy_companions, load_model
from infuser_core.engines.trainer_files import WEIGHTS, TrainerState, flush, write_moments, write_state, write_tensors


def prepare_anchor(source: Path, out: Path, *, options: AdamWOptions | None = None) -> None:
    """Write a trainable checkpoint of the model in `source` into the folder `out`: fp32 weights, zero state, step 0.

    Raises CheckpointError where `source` is no model folder.
    """
    model = load_model(source, dtype=torch.float32, device=torch.device("cpu"))
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    write_tensors(weights, out / WEIGHTS)
    zeros = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    write_moments(zeros, {name: torch.zeros_like(weight) for name, weight in weights.items()}, out)
    write_state(TrainerState(step=0, optimizer=(options or AdamWOptions()).to_json()), out)
    for copied in copy_companions(source, out):
        flush(copied)
