"""Engines with the defaults of a configuration, on the CPU."""

from typing import Any

from infuser_core.config.engine import EngineSettings
from infuser_core.engines.configured import options_of
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.pool import EnginePool


def local_trainer(kind: type[LocalTrainer] = LocalTrainer, **options: Any) -> LocalTrainer:
    """A local trainer, or one of a subclass, with micro-batches of 2,048 tokens."""
    defaults = options_of("local", EngineSettings(device="cpu", token_budget=2048))
    return kind(**defaults | {"roles": 1} | options)


def hf_sampler(**options: Any) -> HFSampler:
    """A transformers sampler."""
    return HFSampler(**options_of("hf", EngineSettings(device="cpu")) | options)


def engine_pool(**options: Any) -> EnginePool:
    """A pool of engines that need no model, unless others are named."""
    names = {"sampler": "fake", "trainer": "fake"}
    names |= {kind: str(options.pop(kind)) for kind in names if kind in options}
    for kind, name in names.items():
        if name in ("hf", "local"):
            own = options.get(f"{kind}_options", {})
            options[f"{kind}_options"] = options_of(name, EngineSettings(device="cpu")) | own
    return EnginePool(**{"placement": "split", "max_trainers": 2} | names | options)
