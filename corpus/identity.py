"""Canonical identifiers: two entries are one resource when they share any of them."""

import posixpath
import re
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

DOI = re.compile(r"^10\.\d{4,9}/\S+$")
ARXIV = re.compile(r"^(?:\d{4}\.\d{4,5}|[a-z][a-z.-]*/\d{7})$")
TRACKING = re.compile(r"^(utm_|fbclid$|gclid$|mc_)")
DEFAULT_PORTS = {"http": 80, "https": 443}


def doi(value: str) -> str:
    """`doi:10.x/y` in lower case, or empty when the value is no DOI."""
    bare = re.sub(r"^(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", "", unquote(value).strip(), flags=re.IGNORECASE)
    return f"doi:{bare.lower()}" if DOI.match(bare) else ""


def isbn(value: str) -> str:
    """`isbn:` and 13 digits, or empty when length or check digit are wrong."""
    digits = re.sub(r"^isbn(?:-1[03])?:?|[\s-]", "", value.strip(), flags=re.IGNORECASE).upper()
    if re.fullmatch(r"\d{9}[\dX]", digits):
        values = [10 if d == "X" else int(d) for d in digits]
        if sum(weight * v for weight, v in zip(range(10, 0, -1), values, strict=True)) % 11:
            return ""
        return f"isbn:978{digits[:9]}{_check_digit('978' + digits[:9])}"
    if re.fullmatch(r"97[89]\d{10}", digits) and _check_digit(digits[:12]) == digits[12]:
        return f"isbn:{digits}"
    return ""


def _check_digit(twelve: str) -> str:
    total = sum(int(d) * (3 if place % 2 else 1) for place, d in enumerate(twelve))
    return str(-total % 10)


def arxiv(value: str) -> str:
    """`arxiv:` and the identifier without its version, or empty."""
    bare = re.sub(r"^(?:https?://arxiv\.org/(?:abs|pdf)/|arxiv:\s*)", "", value.strip(), flags=re.IGNORECASE)
    bare = re.sub(r"(?:\.pdf)?$", "", bare.lower())
    bare = re.sub(r"v\d+$", "", bare)
    return f"arxiv:{bare}" if ARXIV.match(bare) else ""


def url(value: str) -> str:
    """`url:` and the address without scheme, default port, dot segments, fragment and tracking parameters.

    The path keeps its case: servers may tell `/A` from `/a`. An address without a host (`local:/x`) stays as it is.
    """
    parts = urlsplit(value.strip())
    if not parts.hostname:
        return f"url:{value.strip()}" if value.strip() else ""
    host = parts.hostname.rstrip(".").encode("idna").decode() if not parts.hostname.isascii() else parts.hostname
    port = f":{parts.port}" if parts.port and parts.port != DEFAULT_PORTS.get(parts.scheme) else ""
    path = quote(unquote(posixpath.normpath(parts.path or "/")), safe="/:@!$&'()*+,;=~-._")
    if parts.path.endswith("/") and path != "/":
        path += "/"
    pairs = sorted(pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not TRACKING.match(pair[0]))
    query = f"?{urlencode(pairs)}" if pairs else ""
    return f"url:{host.lower()}{port}{path}{query}"


def sha256(digest: str) -> str:
    """`sha256:` and the digest, or empty."""
    return f"sha256:{digest.lower()}" if re.fullmatch(r"[0-9a-fA-F]{64}", digest) else ""
