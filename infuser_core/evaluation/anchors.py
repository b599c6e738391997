"""Find and load the models that settings name, such as the anchor (a run's base model): folder, digest, notes."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infuser_core.config.corpus import EndpointModel
from infuser_core.config.engine import EngineSettings
from infuser_core.config.shipped import read_yaml
from infuser_core.config.sources import FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.engines.model_files import read_json, shard_names, weight_files, weight_heads
from infuser_core.engines.pool import EnginePool
from infuser_core.errors import ConfigError
from infuser_core.nano.lab import NOTES, anchor_path
from infuser_core.protocols import ChatModel, Sampler
from infuser_core.schemas import Checkpoint, Role
from infuser_core.store import verify
from infuser_core.store.adapter_files import base_folder
from infuser_core.system.hub import HubAddress, download_snapshot

if TYPE_CHECKING:
    from infuser_core.engines.endpoint import Endpoint

ORIGIN = "origin.yaml"
"""Record of an imported anchor: the file that it was converted from. Not part of the model's digest."""
PLAIN_TURNS = "The anchor has no chat template: prompts are put as plain turns, `User:` and `Assistant:`."
"""Note on a model without a chat template."""
_COMPANIONS = ("*.json", "*.txt", "*.model", "*.jinja", "additional_chat_templates/*.jinja")
"""Files besides the weights that loading a model may read, fetched from the hub before them."""
_DIGESTED = (*_COMPANIONS, "*.safetensors")
"""Files that enter the digest in addition to the weights that transformers reads: adapters, optimizer state."""


def anchor_folder(anchor: NanoAnchor | FolderAnchor | HubAnchor) -> Path:
    """Folder of the anchor in Hugging Face layout, downloaded if needed. Raises ConfigError if it is not available."""
    if isinstance(anchor, NanoAnchor):
        return anchor_path(anchor.world)
    if isinstance(anchor, HubAnchor):
        return _download(anchor)
    folder = Path(anchor.path)
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"anchor.path = {anchor.path!r}: no config.json there", hint="name a model folder in Hugging Face layout"
        )
    return folder


def anchor_notes(anchor: NanoAnchor | FolderAnchor | HubAnchor) -> tuple[str, ...]:
    """Caveats about the anchor for readers of a run's numbers."""
    if isinstance(anchor, NanoAnchor):
        return NOTES
    if not isinstance(anchor, FolderAnchor):
        return ()
    folder = Path(anchor.path)
    if origin := origin_of(folder):
        facts = "; ".join(f"{key} {origin.get(key)}" for key in ("quantisation", "licence"))
        remarks = tuple(f"The anchor: {remark}." for remark in origin.get("remarks") or ())
        return (f"The anchor was imported from {origin.get('file')} ({facts}).", *remarks)
    return (PLAIN_TURNS,) if folder.is_dir() and not has_template(folder) else ()


def origin_of(folder: Path) -> dict[str, Any]:
    """Read the origin record of an imported model; empty for others."""
    origin = read_yaml(folder / ORIGIN, hint="import the model again") if (folder / ORIGIN).is_file() else None
    return origin if isinstance(origin, dict) else {}


def has_template(folder: Path) -> bool:
    """Whether a model folder's tokenizer has a chat template."""
    if any(folder.glob("chat_template*")):
        return True
    # Older tokenizers have it in their configuration.
    return read_json(folder / "tokenizer_config.json").get("chat_template") is not None


def template_status(folder: Path) -> dict[str, str]:
    """Summary entry of an artifact for a model without a chat template; empty for others."""
    return {} if has_template(folder) else {"status": "no chat template: prompts are plain turns"}


def anchor_digest(folder: Path) -> str:
    """sha256 over names and contents of all files that loading the model reads, including an adapter's base.

    Raises CheckpointError for an adapter without its base.
    """
    base = base_folder(folder)
    files = sorted({*weight_files(folder), *(path for pattern in _DIGESTED for path in folder.glob(pattern))})
    total = hashlib.sha256()
    for path, digest in zip(files, verify.digests_of_files(files), strict=True):
        total.update(path.relative_to(folder).as_posix().encode() + bytes.fromhex(digest))
    if base is not None:
        total.update(bytes.fromhex(anchor_digest(base)))
    return total.hexdigest()


_DIGEST_ONCE = lru_cache(maxsize=4)(anchor_digest)
"""Every iteration needs the digest of a model, and that of a large one takes minutes."""


def anchor_bytes(folder: Path, *, each: int = 12) -> int:
    """Bytes of the anchor's checkpoint with fp32 weights and both moments, `each` per weight; 0 if unknown."""
    from infuser_core.engines.training.checkpoint import count_weights

    return each * (count_weights(folder) or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model that is not trained, such as a judge; its identity is known before it is loaded."""

    name: str
    """Name in tables."""
    identity: dict[str, Any]
    """Data that its replies depend on, for keys: weights, sampler and dtype, or the address."""
    chat: Callable[[], ChatModel]
    """Load it as a greedy chat model, or connect."""
    sampler: Callable[[], Sampler]
    """Load it as a sampler, or connect."""


def named_model(
    source: NanoAnchor | FolderAnchor | HubAnchor | EndpointModel,
    engine: EngineSettings,
    pool: EnginePool,
    *,
    label: str,
    role: Role = Role.JUDGE,
) -> NamedModel:
    """Find the model that the settings name, without loading it. Raises ConfigError if its files are not available."""
    if isinstance(source, EndpointModel):
        from infuser_core.engines.endpoint import ChatSampler

        name = f"{source.model}@{source.url.rstrip('/')}"
        return NamedModel(
            name=name,
            identity={"model": f"openai:{name}"},
            chat=lambda: _connect(source),
            sampler=lambda: ChatSampler(_connect(source).replies),
        )
    folder = anchor_folder(source)
    digest = _DIGEST_ONCE(folder)
    checkpoint = Checkpoint(checkpoint_id=f"{label}-{digest[:16]}", role=role, path=str(folder), step=0)
    return NamedModel(
        name=checkpoint.checkpoint_id,
        identity={"model": digest, "sampler": engine.sampler_key, "dtype": engine.dtype},
        chat=partial(pool.chat, checkpoint),
        sampler=partial(pool.sampler, checkpoint),
    )


def _connect(source: EndpointModel) -> "Endpoint":
    from infuser_core.engines.endpoint import Address, Endpoint

    return Endpoint(Address(model=source.model, url=source.url.rstrip("/")), concurrency=source.concurrency)


def _download(anchor: HubAnchor) -> Path:
    """Download the files that loading the model reads: of several weight formats, the one that transformers takes."""
    address = HubAddress(repo=anchor.repo, revision=anchor.revision)
    remedy = "check the name and the network, or download it and use `anchor: {type: folder, path: ...}`"
    fetch = partial(download_snapshot, what=f"anchor {anchor.repo}@{anchor.revision}", remedy=remedy)
    folder = fetch(address, _COMPANIONS)
    # A branch may move during the download: the folder's name is the commit.
    address = replace(address, revision=folder.name)
    for name in weight_heads(folder):
        fetch(address, [name])
        if (folder / name).is_file():
            if shards := shard_names(folder / name):
                fetch(address, shards)
            break
    return folder


@lru_cache(maxsize=1)
def token_counter(folder: Path) -> Callable[[str], int]:
    """Function that counts a text's tokens with the model's tokenizer, which is loaded once per process."""
    from infuser_core.engines.hf.renderer import Renderer

    encode = Renderer(folder).encode
    return lambda text: len(encode(text))
