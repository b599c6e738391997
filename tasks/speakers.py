"""Models that only answer prompts, as settings name them: known by what enters a key before anything is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infuser_core.anchors import anchor_digest, anchor_folder
from infuser_core.config.corpus import EndpointModel
from infuser_core.config.run import EngineSettings
from infuser_core.config.sources import FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import ChatModel
from infuser_core.errors import ConfigError
from infuser_core.prompts.load import Template, load
from infuser_core.schemas import Checkpoint, Role

Source = NanoAnchor | FolderAnchor | HubAnchor | EndpointModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """A model that can be asked."""

    name: str
    """What tables call it."""
    identity: dict[str, Any]
    """What its replies depend on, for keys: weights and machinery, or the address."""
    open: Callable[[], ChatModel]
    """Load it, or connect."""


def speaker_of(source: Source, engine: EngineSettings, pool: EnginePool, *, label: str) -> Speaker:
    """The model that the settings name. Raises ConfigError when its files cannot be had."""
    if isinstance(source, EndpointModel):
        name = f"{source.model}@{source.url.rstrip('/')}"
        return Speaker(name=name, identity={"model": f"openai:{name}"}, open=lambda: _connected(source))
    folder = anchor_folder(source)
    digest = anchor_digest(folder)
    checkpoint = Checkpoint(checkpoint_id=f"{label}-{digest[:16]}", role=Role.JUDGE, path=str(folder), step=0)
    return Speaker(
        name=checkpoint.checkpoint_id,
        identity={"model": digest, "sampler": engine.sampler, "dtype": engine.dtype},
        open=lambda: pool.chat(checkpoint),
    )


def _connected(source: EndpointModel) -> ChatModel:
    from infuser_core.engines.endpoint import Address, Endpoint

    address = Address(model=source.model, url=source.url.rstrip("/"))
    return Endpoint(address, concurrency=source.concurrency)


def prompt_of(name: str, profile: str) -> Template:
    """The profile's text, or the shipped one where the profile has none of that name."""
    try:
        return load(name, profile=profile)
    except ConfigError:
        return load(name, profile="paper")
