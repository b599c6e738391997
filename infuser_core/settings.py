"""Settings from environment variables (`INFUSER_*`): store and data folders, external commands, time limits."""

import os
import re
import uuid
from pathlib import Path

from infuser_core.errors import NUMBER, ConfigError, UnwritableStoreError


def store_root(folder: str | Path | None = None) -> Path:
    """The store's folder as an absolute path: `folder`, else `INFUSER_STORE`, or `.infuser` in the working folder."""
    return Path(folder or os.environ.get("INFUSER_STORE") or ".infuser").absolute()


def writable_store_root() -> Path:
    """The store's folder, created if missing. Raises UnwritableStoreError if it cannot be written."""
    root = store_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        # A unique file name: several processes may check at the same time.
        probe = root / f".writable.{uuid.uuid4().hex}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UnwritableStoreError(
            f"cannot write the store at {root}: {error.strerror}", hint="set INFUSER_STORE to a folder you may write"
        ) from error
    return root


def marker_command() -> str:
    """Command line of the external PDF converter, `INFUSER_MARKER`."""
    return os.environ.get("INFUSER_MARKER", "marker_single")


def docling_command() -> str:
    """Command line of docling, `INFUSER_DOCLING`."""
    return os.environ.get("INFUSER_DOCLING", "docling")


def web_search_command() -> str:
    """Command line of a web search program, `INFUSER_WEB_SEARCH`; empty for none."""
    return os.environ.get("INFUSER_WEB_SEARCH", "")


def contact() -> str:
    """Contact address in the User-Agent of requests to catalogues, `INFUSER_CONTACT`; empty for none."""
    return os.environ.get("INFUSER_CONTACT", "")


def data_root() -> Path:
    """Folder with downloaded data sets as an absolute path: `INFUSER_DATA`, or `data` in the working folder."""
    return Path(os.environ.get("INFUSER_DATA") or "data").absolute()


def track_seconds() -> float:
    """Seconds that trackers may run on after a run ends before they are killed, `INFUSER_TRACK_SECONDS`."""
    text = os.environ.get("INFUSER_TRACK_SECONDS") or "10"
    if not re.fullmatch(NUMBER, text):
        raise ConfigError(f"INFUSER_TRACK_SECONDS = {text!r}", hint="whole seconds, e.g. 10; 0 does not wait")
    return float(text)


def serve_hosts() -> list[str]:
    """Additional host names under which `infuser serve` is reached, such as a reverse proxy's: `INFUSER_SERVE_HOSTS`.

    Raises ConfigError for a malformed name.
    """
    names = [name.strip().lower() for name in os.environ.get("INFUSER_SERVE_HOSTS", "").split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[a-z0-9.-]+", name):
            raise ConfigError(
                f"INFUSER_SERVE_HOSTS: {name!r} is no host's name", hint="names without a port, e.g. infuser.example"
            )
    return names


def sandbox_mode() -> str:
    """Sandbox for running code that a model wrote, `INFUSER_SANDBOX`: `bwrap` (default) or `unsafe`.

    Raises ConfigError for any other value.
    """
    mode = os.environ.get("INFUSER_SANDBOX") or "bwrap"
    if mode not in ("bwrap", "unsafe"):
        raise ConfigError(f"INFUSER_SANDBOX = {mode!r}", hint="bwrap (needs bubblewrap), or unsafe (limits alone)")
    return mode


VARIABLE = "INFUSER_PHASE_SECONDS"
DEFAULT = 86_400.0
"""Default time limit, seconds. No phase of the paper's largest run takes an hour."""


def phase_seconds(phase: str) -> float | None:
    """A phase's time limit in seconds from `INFUSER_PHASE_SECONDS`; None for no limit (0 in the variable).

    Raises ConfigError for a malformed variable.
    """
    text = os.environ.get(VARIABLE, "")
    limits: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, seconds = part.rpartition("=")
        try:
            limits[name.strip()] = float(seconds)
        except ValueError:
            limits[name.strip()] = -1.0
        if not 0 <= limits[name.strip()] < float("inf"):
            raise ConfigError(f"{VARIABLE} = {text!r}", hint="seconds, 0 for no limit, e.g. 3600 or 3600,judge=600")
    return limits.get(phase, limits.get("", DEFAULT)) or None
