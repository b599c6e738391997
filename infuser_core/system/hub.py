"""Hugging Face hub: download models and data sets by `hf://` address, and upload exported folders.

An address is `hf://OWNER/NAME` for a model and `hf://datasets/OWNER/NAME` for a data set; to read from it, `@REVISION`
and `/PATH` may follow. The variable HF_ENDPOINT selects another hub, HF_TOKEN the account.
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
"""Default branch, used unless an address names another revision."""
DATA = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
"""Suffixes of data files (files with rows), most preferred first: lower case, without `.gz`."""
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_ADDRESS = re.compile(
    rf"{SCHEME}(datasets/|models/)?(?!(?:datasets|models|spaces)/)({_NAME}/{_NAME})(?:@([^/@]+))?(?:/(.+))?"
)
_FORMS = f"{SCHEME}OWNER/NAME for a model, {SCHEME}datasets/OWNER/NAME for a data set"

Kind = Literal["model", "dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """Parsed address of a repository on the hub, or of a file or folder in a repository."""

    repo: str
    """`owner/name`."""
    kind: Kind = "model"
    """Kind of the repository: model or data set."""
    revision: str = REVISION
    """Branch, tag or commit."""
    path: str = ""
    """File or folder in the repository; empty for the entire repository."""


def parse_address(text: str) -> HubAddress:
    """Parse an address `hf://...`. Raises ConfigError for a malformed address."""
    match = _ADDRESS.fullmatch(text)
    if match is None or ".." in text.split("/"):
        raise ConfigError(f"{text!r} is no address on the hub", hint=f"{_FORMS}, with @REVISION and /FILE as needed")
    prefix, repo, revision, path = match.groups()
    kind: Kind = "dataset" if prefix == "datasets/" else "model"
    return HubAddress(repo=repo, kind=kind, revision=revision or REVISION, path=(path or "").rstrip("/"))


def stem_and_suffix(name: str) -> tuple[str, str]:
    """Split a file name, without `.gz`, into its stem and its lower-case suffix."""
    path = PurePath(name[:-3] if name.lower().endswith(".gz") else name)
    return path.stem, path.suffix.lower()


def is_data(name: str) -> bool:
    """Whether this is the name of a data file by its suffix; hidden files do not count."""
    return stem_and_suffix(name)[1] in DATA and not name.startswith(".")


def find_data(folder: Path, name: str) -> Path | None:
    """Find the file or folder `name` in a folder, or else the data file with the stem `name`; None without either."""
    place = folder / name
    if place.exists():
        return place
    suffixes = {path: stem_and_suffix(path.name) for path in sorted(place.parent.glob(f"{place.name}.*"))}
    files = [path for path, (stem, suffix) in suffixes.items() if stem == place.name and suffix in DATA]
    return min(files, key=lambda path: DATA.index(suffixes[path][1]), default=None)


@lru_cache(maxsize=64)
def fetch_address(address: str) -> Path:
    """Download the files of a hub address and return their local path; a local path is returned unchanged.

    For a data set with a single data file, the path is that of the file. Raises ConfigError if the download fails.
    Within a process, an address refers to the commit of its first download.
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
    """Download a repository's files that match these patterns, unless cached; returns the folder.

    With `local`, only the cache is used. Raises ConfigError if the files cannot be downloaded: its message begins with
    `what`, the purpose of the files, and its hint is `remedy`.
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
    """Create a private repository for an upload, unless it exists; returns its address.

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
    """Upload a folder as one commit; returns the commit's URL. Raises UsageError if the hub refuses."""
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

    # The base classes are OSError and the HTTP library's error, which is raised if the server does not respond.
    kinds: tuple[type[BaseException], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except kinds as error:
        raise UsageError(f"--push {text}: {_first_line(error)}", hint=hint) from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
