"""Where an anchor's files are: shipped, in a folder, or on the Hugging Face hub."""

import hashlib
from pathlib import Path

from infuser_core.config.sources import FolderAnchor, HubAnchor, NanoAnchor
from infuser_core.errors import ConfigError
from infuser_core.nano.lab import NOTES, anchor_path

_ENTERS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")


def anchor_folder(anchor: NanoAnchor | FolderAnchor | HubAnchor) -> Path:
    """The model's folder in Hugging Face layout. Raises ConfigError when it cannot be had."""
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
    """Sentences about the anchor that a reader of a run's numbers has to know."""
    return NOTES if isinstance(anchor, NanoAnchor) else ()


def anchor_digest(folder: Path) -> str:
    """sha256 over names and contents of the files that make the model."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in _ENTERS for path in folder.glob(pattern)}):
        with path.open("rb") as handle:
            total.update(path.name.encode() + hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()


def _download(anchor: HubAnchor) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(anchor.repo, revision=anchor.revision, allow_patterns=list(_ENTERS)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"anchor {anchor.repo}@{anchor.revision} cannot be had: {str(error).splitlines()[0]}",
            hint="check the name and the network, or download it and use `anchor: {type: folder, path: ...}`",
        ) from error
