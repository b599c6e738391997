"""The Hugging Face hub: download of files and folders by address, and upload of exported folders.

An address is `hf://OWNER/NAME` for a model and `hf://datasets/OWNER/NAME` for a data set; to read from it, `@REVISION`
and `/PATH` may follow. HF_ENDPOINT sets another hub, HF_TOKEN the account.
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
"""Suffixes of files with rows, the preferred one first: lower case, without `.gz`."""
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
    """File or folder inside; empty for the whole repository."""


def parse_address(text: str) -> HubAddress:
    """Parse `hf://...`. Raises ConfigError for another form."""
    match = _ADDRESS.fullmatch(text)
    if match is None or ".." in text.split("/"):
        raise ConfigError(f"{text!r} is no address on the hub", hint=f"{_FORMS}, with @REVISION and /FILE as needed")
    prefix, repo, revision, path = match.groups()
    kind: Kind = "dataset" if prefix == "datasets/" else "model"
    return HubAddress(repo=repo, kind=kind, revision=revision or REVISION, path=(path or "").rstrip("/"))


def stem_and_suffix(name: str) -> tuple[str, str]:
    """Stem and lower-case suffix of a file's name without `.gz`."""
    path = PurePath(name[:-3] if name.lower().endswith(".gz") else name)
    return path.stem, path.suffix.lower()


def is_data(name: str) -> bool:
    """Whether a file of this name has rows; hidden files do not count."""
    return stem_and_suffix(name)[1] in DATA and not name.startswith(".")


def find_data(folder: Path, name: str) -> Path | None:
    """The folder or the file with rows called `name` in a folder; None if there is none."""
    place = folder / name
    if place.exists():
        return place
    suffixes = {path: stem_and_suffix(path.name) for path in sorted(place.parent.glob(f"{place.name}.*"))}
    files = [path for path, (stem, suffix) in suffixes.items() if stem == place.name and suffix in DATA]
    return min(files, key=lambda path: DATA.index(suffixes[path][1]), default=None)


@lru_cache(maxsize=64)
def fetch_address(address: str) -> Path:
    """Local path of a hub address, whose files are downloaded; a local path is returned unchanged.

    A repository with one file of rows gives that file. Raises ConfigError if a download fails. Within a process an
    address keeps the commit of its first download.
    """
    if not address.startswith(SCHEME):
        return Path(address)
    where = parse_address(address)
    patterns = [where.path, f"{where.path}/*"] if where.path else ["*"]
    remedy = "check the name and the network; HF_TOKEN says who asks"
    place = download_snapshot(where, patterns, what=address, remedy=remedy) / where.path
    if not place.exists():
        raise ConfigError(f"{address}: {where.repo} has no such file", hint=f"its page lists them; {_FORMS}")
    rows = [path for path in place.rglob("*") if is_data(path.name)]
    return rows[0] if len(rows) == 1 and where.kind == "dataset" and place.is_dir() else place


def download_snapshot(
    where: HubAddress, patterns: Sequence[str], *, what: str, remedy: str, local: bool = False
) -> Path:
    """Folder with a repository's files of these patterns, from the cache or the hub; with `local`, only from the cache.

    Raises ConfigError if they cannot be downloaded; `what` they are for begins its message, `remedy` is its hint.
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


def create_repository(text: str, kind: Kind) -> HubAddress:
    """Create the private repository to push to unless it exists.

    Raises UsageError for an address of another kind or with a revision or path, and if the hub refuses.
    """
    where = parse_address(text)
    if where.kind != kind or where.path or where.revision != REVISION:
        raise UsageError(f"--push {text}: no repository for a {kind}", hint=f"{_FORMS}, without @REVISION or /PATH")
    from huggingface_hub import HfApi

    with _push_errors(text, hint="`hf auth login`, or set HF_TOKEN to a token that may write"):
        HfApi().create_repo(where.repo, repo_type=kind, private=True, exist_ok=True)
    return where


def push_folder(folder: Path, where: HubAddress, *, message: str) -> str:
    """Upload a folder as one commit; returns the commit's address. Raises UsageError if the hub refuses."""
    from huggingface_hub import HfApi

    kind = " --type dataset" if where.kind == "dataset" else ""
    with _push_errors(where.repo, hint=f"{folder} is whole: `hf upload{kind} {where.repo} {folder}` continues"):
        commit = HfApi().upload_folder(
            repo_id=where.repo, repo_type=where.kind, folder_path=folder, commit_message=message
        )
    return str(commit.commit_url)


@contextmanager
def _push_errors(text: str, *, hint: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases: OSError, and for a server that does not answer the error of the client's HTTP library.
    kinds: tuple[type[BaseException], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except kinds as error:
        raise UsageError(f"--push {text}: {_first_line(error)}", hint=hint) from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
