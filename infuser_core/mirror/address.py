"""The address of a mirror, and how it is shown: without the passwords and tokens that it, or the environment, holds."""

import os
import re
from urllib.parse import unquote, urlsplit

from infuser_core.errors import UsageError

_HIDDEN = "***"
_SECRET_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIAL|SAS)", re.IGNORECASE)
# Shorter values (a "1", a user's name) stand in innocent words too.
_SHORTEST = 8
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=://)", re.IGNORECASE)


def check(url: str) -> str:
    """The address as given. Raises UsageError where it names no place."""
    if not _SCHEME.match(url):
        raise UsageError(
            f"{redact(url)!r} is no address of a mirror",
            hint="e.g. s3://bucket/folder, gs://bucket/folder or file:///mnt/backup/infuser",
        )
    return url.rstrip("/")


def redact(url: str) -> str:
    """An address for people: no user, no password, no query."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return f"{_HIDDEN}@{url.rpartition('@')[2]}" if "@" in url else url
    place, question, _ = rest.partition("?")
    host, slash, path = place.partition("/")
    # A password may hold a slash that nobody escaped: everything up to the last @ goes.
    if "@" in place:
        host, slash, path = place.rpartition("@")[2].partition("/")
        host = f"{_HIDDEN}@{host}"
    return f"{scheme}{mark}{host}{slash}{path}{question}{_HIDDEN if question else ''}"


def scrub(text: str, url: str) -> str:
    """Foreign text, e.g. another library's error, without the address's and the environment's secrets."""
    for secret in sorted({url, *_of_url(url), *_of_environment()}, key=len, reverse=True):
        text = text.replace(secret, redact(url) if secret == url else _HIDDEN)
    return " ".join(text.split())


def _of_url(url: str) -> list[str]:
    rest = url.partition("://")[2]
    account, at, _ = rest.partition("?")[0].rpartition("@")
    password = account.partition(":")[2]
    found = [account, password, unquote(password)] if at else []
    found += [pair.partition("=")[2] for pair in urlsplit(url).query.split("&")]
    return [value for value in found if value]


def _of_environment() -> list[str]:
    return [value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= _SHORTEST]
