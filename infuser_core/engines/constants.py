"""AdamW's constants belong to a run: a trainer refuses a checkpoint of others."""

import math
from pathlib import Path

from infuser_core.engines.adamw import AdamWOptions
from infuser_core.engines.trainer_files import TrainerState
from infuser_core.errors import CheckpointError


def refuse_other_constants(options: AdamWOptions, state: TrainerState, folder: Path) -> None:
    """Moments of other decay rates mean something else; before the first step there are none.

    Raises CheckpointError.
    """
    for key in ("beta1", "beta2", "eps"):
        mine, stored = options.to_json()[key], state.optimizer.get(key)
        if state.step and (stored is None or not math.isclose(mine, stored)):
            raise CheckpointError(
                f"{folder} was trained with {key} {stored}, and the trainer is set to {mine}",
                hint="keep the optimizer's constants for a whole run",
            )
