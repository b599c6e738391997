"""Models that settings name and nobody trains: judges, librarians, writers; their identity is known before loading."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from infuser_core.anchors import anchor_digest, anchor_folder
from infuser_core.config.corpus import EndpointModel
from infuser_core.config.run import EngineSettings
from infuser_core.config.sources import FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import ChatModel, Sampler
from infuser_core.errors import ConfigError
from infuser_core.prompts.load import Template, load
from infuser_core.schemas import Checkpoint, Role
from infuser_core.store.recipe import ArtifactRef

Source = NanoAnchor | FolderAnchor | HubAnchor | EndpointModel


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model that can be asked."""

    name: str
    """What tables call it."""
    identity: dict[str, Any]
    """What its replies depend on, for keys: weights and machinery, or the address."""
    open: Callable[[], ChatModel]
    """Load it, or connect."""


def chat_model_of(source: Source, engine: EngineSettings, pool: EnginePool, *, label: str) -> NamedModel:
    """The model that the settings name. Raises ConfigError when its files cannot be had."""
    if isinstance(source, EndpointModel):
        name = f"{source.model}@{source.url.rstrip('/')}"
        return NamedModel(name=name, identity={"model": f"openai:{name}"}, open=lambda: _connected(source))
    folder = anchor_folder(source)
    digest = anchor_digest(folder)
    checkpoint = Checkpoint(checkpoint_id=f"{label}-{digest[:16]}", role=Role.JUDGE, path=str(folder), step=0)
    return NamedModel(
        name=checkpoint.checkpoint_id,
        identity={"model": digest, "sampler": engine.sampler, "dtype": engine.dtype},
        open=lambda: pool.chat(checkpoint),
    )


def _connected(source: EndpointModel) -> ChatModel:
    from infuser_core.engines.endpoint import Address, Endpoint

    address = Address(model=source.model, url=source.url.rstrip("/"))
    return Endpoint(address, concurrency=source.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The model that writes an iteration's questions."""

    name: str
    """Name in rows of rollouts: an artifact's id, or a name of the model."""
    identity: dict[str, str]
    """What its texts depend on beyond the recipe's inputs; empty for a checkpoint."""
    inputs: dict[str, ArtifactRef]
    """Its artifact, where it is one."""
    open: Callable[[], Sampler]
    """Load it, or connect."""


def writer_of(source: Source, engine: EngineSettings, pool: EnginePool, *, label: str = "model") -> Writer:
    """The writer that the settings name. Raises ConfigError when its files cannot be had."""
    if isinstance(source, EndpointModel):
        name = f"openai:{source.model}@{source.url.rstrip('/')}"
        return Writer(name=name, identity={"model": name}, inputs={}, open=lambda: _sampling(source))
    folder = anchor_folder(source)
    digest = _digest(folder)
    checkpoint = Checkpoint(checkpoint_id=f"{label}-{digest[:16]}", role=Role.GENERATOR, path=str(folder), step=0)
    return Writer(
        name=checkpoint.checkpoint_id,
        identity={"model": digest, "sampler": engine.sampler, "dtype": engine.dtype},
        inputs={},
        open=lambda: pool.sampler(checkpoint),
    )


@lru_cache(maxsize=4)
def _digest(folder: Path) -> str:
    """Read once a process: every iteration asks, and the files of a large model take minutes."""
    return anchor_digest(folder)


def _sampling(source: EndpointModel) -> Sampler:
    from infuser_core.engines.chat_sampler import ChatSampler
    from infuser_core.engines.endpoint import Address, Endpoint

    address = Address(model=source.model, url=source.url.rstrip("/"))
    return ChatSampler(Endpoint(address, concurrency=source.concurrency).replies)


def prompt_of(name: str, profile: str) -> Template:
    """The profile's text, or the shipped one where the profile has none of that name."""
    try:
        return load(name, profile=profile)
    except ConfigError:
        return load(name, profile="paper")
