"""Who writes the questions: the generator's checkpoint, or a model of its own that is never updated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from infuser_core.anchors import anchor_digest, anchor_folder
from infuser_core.config.corpus import EndpointModel
from infuser_core.engines.protocols import Sampler
from infuser_core.schemas import Checkpoint, Role
from infuser_core.store.recipe import ArtifactRef
from tasks.run import Run, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The model that writes an iteration's questions."""

    name: str
    """What rows of rollouts call it: an artifact's id, or a name of the model."""
    identity: dict[str, Any]
    """What its texts depend on beyond the recipe's inputs; empty for a checkpoint."""
    inputs: dict[str, ArtifactRef]
    """Its artifact, where it is one."""
    open: Callable[[], Sampler]
    """Load it, or connect."""


def writer_of(run: Run, generator: ArtifactRef) -> Writer:
    """The model that the settings name, else the checkpoint. Raises ConfigError when its files cannot be had."""
    source = run.config.cotrain.generator.model
    if source is None:
        return Writer(
            name=generator.id,
            identity={},
            inputs={"generator": generator},
            open=lambda: run.pool.sampler(run.checkpoint(generator, Role.GENERATOR)),
        )
    if isinstance(source, EndpointModel):
        name = f"openai:{source.model}@{source.url.rstrip('/')}"
        return Writer(name=name, identity={"model": name}, inputs={}, open=lambda: _connected(source))
    folder = anchor_folder(source)
    digest = _digest(folder)
    checkpoint = Checkpoint(checkpoint_id=f"model-{digest[:16]}", role=Role.GENERATOR, path=str(folder), step=0)
    return Writer(
        name=checkpoint.checkpoint_id,
        identity={"model": digest, "sampler": run.config.engine.sampler, "dtype": run.config.engine.dtype},
        inputs={},
        open=lambda: run.pool.sampler(checkpoint),
    )


def with_writer(values: Any, writer: Writer) -> Any:
    """A phase's settings, with the identity of a writer that is no artifact."""
    return {**plain(values), "writer": writer.identity} if writer.identity else values


@lru_cache(maxsize=4)
def _digest(folder: Path) -> str:
    """Read once a process: every iteration asks, and the files of a large model take minutes."""
    return anchor_digest(folder)


def _connected(source: EndpointModel) -> Sampler:
    from infuser_core.engines.chat_sampler import ChatSampler
    from infuser_core.engines.endpoint import Address, Endpoint

    address = Address(model=source.model, url=source.url.rstrip("/"))
    return ChatSampler(Endpoint(address, concurrency=source.concurrency).replies)
