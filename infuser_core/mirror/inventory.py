"""What a mirror holds: artifacts by key, their commit records, and what must not be believed of them."""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from infuser_core.errors import DamagedArtifactError
from infuser_core.mirror.remote import Remote
from infuser_core.store import pruned, verify
from infuser_core.store.store import MANIFEST, Manifest

ARTIFACTS = "artifacts"
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """An artifact's folder in a mirror."""

    kind: str
    """Phase that made it."""
    key: str
    """Its key."""
    sizes: Mapping[str, int]
    """File name to size, bytes."""

    @property
    def complete(self) -> bool:
        """Whether its commit record is there, which is written last."""
        return MANIFEST in self.sizes

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(self.sizes.values())

    def path(self, name: str) -> str:
        """A file of it, relative to the mirror."""
        return f"{ARTIFACTS}/{self.kind}/{self.key}/{name}"


def there(remote: Remote) -> dict[str, There]:
    """Everything in the mirror by key, half-copied folders too; drafts of killed writers are passed over."""
    folders: dict[tuple[str, str], dict[str, int]] = {}
    for path, size in remote.sizes(ARTIFACTS).items():
        parts = path.split("/", 3)
        if len(parts) == 4 and all(_WORD.fullmatch(part) for part in parts[1:3]) and not _is_draft(parts[3]):
            folders.setdefault((parts[1], parts[2]), {})[parts[3]] = size
    return {key: There(kind=kind, key=key, sizes=sizes) for (kind, key), sizes in sorted(folders.items())}


def commit_record(remote: Remote, copy: There) -> tuple[Manifest, bytes] | None:
    """A mirrored artifact's commit record and its text; None where there is none yet, or a torn one.

    Raises DamagedArtifactError where it is whole but contradicts itself, or names files outside its folder.
    """
    text = remote.read(copy.path(MANIFEST)) if copy.complete else None
    if text is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / copy.key
        folder.mkdir()
        (folder / MANIFEST).write_bytes(text)
        manifest = verify.recorded(folder)
    if manifest is None or manifest.ref.kind != copy.kind or not all(map(is_safe, manifest.files)):
        raise DamagedArtifactError(
            f"the mirror's commit record {copy.path(MANIFEST)} is damaged",
            hint="move that folder of the mirror aside; `infuser mirror push` from a store that has it writes it anew",
        )
    return manifest, text


def removed(remote: Remote, copy: There) -> dict[str, pruned.Removed]:
    """Files that the mirrored artifact lacks on purpose. Raises DamagedArtifactError for an unreadable record."""
    text = remote.read(copy.path(pruned.FILE)) if pruned.FILE in copy.sizes else None
    if text is None:
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / pruned.FILE).write_bytes(text)
        found = pruned.read(Path(scratch))
    return {name: entry for name, entry in found.items() if name not in copy.sizes}


def is_safe(name: str) -> bool:
    """Whether a name from a mirror stays in its folder, and is not that of a record."""
    path = PurePosixPath(name)
    plain = not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name
    return bool(path.parts) and plain and name not in (MANIFEST, pruned.FILE)


def _is_draft(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(".tmp")
