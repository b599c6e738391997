"""Engines with the defaults of a configuration, on the CPU, or the device that INFUSER_TEST_DEVICE names."""

import os
from typing import Any

from infuser_core.config.engine import EngineSettings
from infuser_core.engines.configured import options_of
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.pool import EnginePool

DEVICE = os.environ.get("INFUSER_TEST_DEVICE", "cpu")


def local_trainer(kind: type[LocalTrainer] = LocalTrainer, **options: Any) -> LocalTrainer:
    """A local trainer, or one of a subclass, with micro-batches of 2,048 tokens."""
    defaults = options_of("local", EngineSettings(device=DEVICE, token_budget=2048))
    return kind(**defaults | {"roles": 1} | options)


def hf_sampler(kind: type[HFSampler] = HFSampler, **options: Any) -> HFSampler:
    """A transformers sampler, or one of a subclass."""
    return kind(**options_of("hf", EngineSettings(device=DEVICE)) | options)


def engine_pool(**options: Any) -> EnginePool:
    """A pool of engines that need no model, unless others are named."""
    names = {"sampler": "fake", "trainer": "fake"}
    names |= {kind: str(options.pop(kind)) for kind in names if kind in options}
    for kind, name in names.items():
        if name in ("hf", "local"):
            own = options.get(f"{kind}_options", {})
            options[f"{kind}_options"] = options_of(name, EngineSettings(device=DEVICE)) | own
    return EnginePool(**{"placement": "split", "max_trainers": 2} | names | options)
