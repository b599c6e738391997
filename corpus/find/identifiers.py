"""Canonical forms of identifiers (DOI, ISBN, arXiv, handle, web address), and parsing of web addresses.

Two catalogue entries with the same canonical identifier are the same book.
"""

import posixpath
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

WEB = frozenset({"http", "https"})


def absolute(page: str, link: str) -> str:
    """Absolute address of a link found on the page `page` (an address); empty unless it is a valid web address."""
    try:
        target = urljoin(page, link.strip())
        parts = urlsplit(target)
        is_web = parts.scheme in WEB and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return ""
    return target if is_web else ""


def scheme_of(page: str, link: str) -> str:
    """URL scheme of a link found on the page `page` (an address); empty if the link is not an address."""
    try:
        return urlsplit(urljoin(page, link.strip())).scheme
    except ValueError:
        return ""


def parts_of(address: str) -> SplitResult:
    """Split an address into its parts; all parts are empty if it cannot be parsed."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


DOI = re.compile(r"^10\.\d{4,9}/\S+$")
ARXIV = re.compile(r"^(?:\d{4}\.\d{4,5}|[a-z][a-z-]*(?:\.[a-z]{2})?/\d{7})$")
ARXIV_DOI = re.compile(r"^doi:10\.48550/arxiv\.(.+)$")
HANDLE = re.compile(r"^\d+(?:\.\d+)*/\S+$")
TRACKING = re.compile(r"^(utm_|fbclid$|gclid$|mc_)")
DEFAULT_PORTS = {"http": 80, "https": 443}


def doi(value: str) -> str:
    """Canonical DOI, `doi:10.x/y` in lower case; empty if the value is not a DOI."""
    bare = re.sub(r"^(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", "", unquote(value).strip(), flags=re.IGNORECASE)
    return f"doi:{bare.lower()}" if DOI.match(bare) else ""


def isbns(value: str) -> list[str]:
    """All valid ISBNs of a field, in canonical form; a field may list several, separated by `;`, `,`, `|` or line ends.

    Blanks and hyphens do not separate numbers: `978 0 306 40615 7` is one ISBN.
    """
    names = [isbn(part) for part in re.split(r"[;,|\n]+", value)]
    return list(dict.fromkeys(filter(None, names)))


def isbn(value: str) -> str:
    """Canonical ISBN, `isbn:` and 13 digits; empty if the length or the check digit is wrong."""
    bare = re.sub(r"^(?:urn:)?isbn(?:-1[03])?:?", "", value.strip(), flags=re.IGNORECASE)
    digits = re.sub(r"[\s-]", "", bare).upper()
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
    """Canonical arXiv identifier without its version, `arxiv:ID`, also from an address or an arXiv DOI; else empty."""
    match = ARXIV_DOI.match(doi(value))
    text = match[1] if match else value.strip().lower()
    address = r"^(?:https?://(?:www\.|export\.)?arxiv\.org/(?:abs|pdf)/|(?:oai:)?arxiv(?:\.org)?:\s*)"
    bare = re.sub(r"v\d+$", "", re.sub(address, "", text).removesuffix(".pdf"))
    return f"arxiv:{bare}" if ARXIV.match(bare) else ""


def handle(value: str) -> str:
    """Canonical handle, `hdl:prefix/suffix`, from a Handle System name or the address of its resolver; else empty."""
    bare = re.sub(r"^(?:https?://(?:hdl\.handle\.net|[^/]+/handle)/|hdl:\s*)", "", value.strip(), flags=re.IGNORECASE)
    return f"hdl:{bare.lower()}" if HANDLE.match(bare) else ""


def url(value: str) -> str:
    """Canonical web address: `url:` and the address, without fragments and tracking parameters.

    Left out are scheme, default port, dot segments, fragment and tracking parameters. The path keeps its case:
    servers may distinguish `/A` and `/a`. An address without a host (`local:/x`) is unchanged.
    """
    try:
        parts = urlsplit(value.strip())
        host = (parts.hostname or "").rstrip(".").lower()
        host = host if host.isascii() else host.encode("idna").decode()
        port = f":{parts.port}" if parts.port and parts.port != DEFAULT_PORTS.get(parts.scheme) else ""
    except ValueError:
        # An invalid port or host name: compare the text itself.
        return f"url:{value.strip()}" if value.strip() else ""
    if not host:
        return f"url:{value.strip()}" if value.strip() else ""
    path = quote(unquote(posixpath.normpath(parts.path or "/")), safe="/:@!$&'()*+,;=~-._")
    if parts.path.endswith("/") and path != "/":
        path += "/"
    pairs = sorted(pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not TRACKING.match(pair[0]))
    query = f"?{urlencode(pairs)}" if pairs else ""
    return f"url:{host}{port}{path}{query}"
