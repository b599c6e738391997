"""The Hugging Face hub: files and folders from it by an address, and exported folders to it.

An address is `hf://OWNER/NAME` for a model and `hf://datasets/OWNER/NAME` for a data set, with `@REVISION` and `/PATH`
behind where it is to be read from. HF_ENDPOINT names another hub, HF_TOKEN who asks.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Literal

from infuser_core.errors import ConfigError, UsageError

SCHEME = "hf://"
REVISION = "main"
"""Branch that is read unless an address names another revision."""
DATA = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
"""Endings of files with rows, the preferred one first: in small letters, without `.gz`."""
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_ADDRESS = re.compile(
    rf"{SCHEME}(datasets/|models/)?(?!(?:datasets|models|spaces)/)({_NAME}/{_NAME})(?:@([^/@]+))?(?:/(.+))?"
)
_FORMS = f"{SCHEME}OWNER/NAME for a model, {SCHEME}datasets/OWNER/NAME for a data set"

Kind = Literal["model", "dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """A repository of the hub, or a file or folder in it."""

    repo: str
    """`owner/name`."""
    kind: Kind = "model"
    """Model or data set."""
    revision: str = REVISION
    """Branch, tag or commit."""
    path: str = ""
    """File or folder inside; empty for the whole."""


def address(text: str) -> HubAddress:
    """The address that is written `hf://...`. Raises ConfigError for another form."""
    found = _ADDRESS.fullmatch(text)
    if found is None or ".." in text.split("/"):
        raise ConfigError(f"{text!r} is no address on the hub", hint=f"{_FORMS}, with @REVISION and /FILE as needed")
    kind, repo, revision, path = found.groups()
    data = kind == "datasets/"
    return HubAddress(
        repo=repo, kind="dataset" if data else "model", revision=revision or REVISION, path=(path or "").rstrip("/")
    )


def stem_and_suffix(name: str) -> tuple[str, str]:
    """Parts of a file's name without `.gz`; the suffix in small letters."""
    path = PurePath(name[:-3] if name.lower().endswith(".gz") else name)
    return path.stem, path.suffix.lower()


def is_data(name: str) -> bool:
    """Whether a file of this name has rows; hidden ones have not."""
    return stem_and_suffix(name)[1] in DATA and not name.startswith(".")


def find_data(folder: Path, name: str) -> Path | None:
    """The folder, or the file with rows, that is called `name` in a folder; None when there is none."""
    place = folder / name
    if place.exists():
        return place
    suffixes = {path: stem_and_suffix(path.name) for path in sorted(place.parent.glob(f"{place.name}.*"))}
    files = [path for path, (stem, suffix) in suffixes.items() if stem == place.name and suffix in DATA]
    return min(files, key=lambda path: DATA.index(suffixes[path][1]), default=None)


@lru_cache(maxsize=64)
def fetched(given: str) -> Path:
    """The file or folder that is meant: a path of this machine as it is, an address once its files are here.

    A repository with one file of rows stands for that file. Raises ConfigError for what cannot be had. Within a
    process an address keeps the commit that it had first.
    """
    if not given.startswith(SCHEME):
        return Path(given)
    where = address(given)
    patterns = [where.path, f"{where.path}/*"] if where.path else ["*"]
    remedy = "check the name and the network; HF_TOKEN says who asks"
    place = snapshot(where, patterns, what=given, remedy=remedy) / where.path
    if not place.exists():
        raise ConfigError(f"{given}: {where.repo} has no such file", hint=f"its page lists them; {_FORMS}")
    rows = [path for path in place.rglob("*") if is_data(path.name)]
    return rows[0] if len(rows) == 1 and where.kind == "dataset" and place.is_dir() else place


def snapshot(where: HubAddress, patterns: Sequence[str], *, what: str, remedy: str, local: bool = False) -> Path:
    """Folder with a repository's files of these patterns, from the cache or the hub; with `local`, the cache alone.

    Raises ConfigError, opened by `what` the files are for and closed by the `remedy`, when they cannot be had.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RevisionNotFoundError

    try:
        folder = snapshot_download(
            where.repo,
            repo_type=where.kind,
            revision=where.revision,
            allow_patterns=list(patterns),
            local_files_only=local,
        )
    except GatedRepoError as error:
        page = f"https://huggingface.co/{'datasets/' if where.kind == 'dataset' else ''}{where.repo}"
        raise ConfigError(
            f"{what}: {where.repo} is gated, and its terms were not accepted with this token",
            hint=f"accept them at {page} and set HF_TOKEN; {remedy}",
        ) from error
    except RevisionNotFoundError as error:
        raise ConfigError(f"{what}: {where.repo} has no revision {where.revision}", hint=remedy) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(f"{what}: {where.repo} cannot be had: {_first_line(error)}", hint=remedy) from error
    return Path(folder)


def target(text: str, kind: Kind) -> HubAddress:
    """The repository to push to, made where it is missing: private, until its owner opens it.

    Raises UsageError for an address of another kind or of more than a repository, and when the hub refuses.
    """
    where = address(text)
    if where.kind != kind or where.path or where.revision != REVISION:
        raise UsageError(f"--push {text}: no repository for a {kind}", hint=f"{_FORMS}, and nothing behind")
    from huggingface_hub import HfApi

    with _refused(text, hint="`hf auth login`, or set HF_TOKEN to a token that may write"):
        HfApi().create_repo(where.repo, repo_type=kind, private=True, exist_ok=True)
    return where


def push(folder: Path, where: HubAddress, *, message: str) -> str:
    """Put a folder's files into a repository as a commit; returns its address. Raises UsageError when refused."""
    from huggingface_hub import HfApi

    kind = " --type dataset" if where.kind == "dataset" else ""
    with _refused(where.repo, hint=f"{folder} is whole: `hf upload{kind} {where.repo} {folder}` goes on"):
        done = HfApi().upload_folder(
            repo_id=where.repo, repo_type=where.kind, folder_path=folder, commit_message=message
        )
    return str(done.commit_url)


@contextmanager
def _refused(text: str, *, hint: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases: OSError, and the error of the client's HTTP library, whichever that is, for a server that is silent.
    kinds: tuple[type[BaseException], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except kinds as error:
        raise UsageError(f"--push {text}: {_first_line(error)}", hint=hint) from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
