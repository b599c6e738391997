"""Convert licence statements of catalogues to SPDX identifiers, and check them against the list of allowed licences.

A licence that is not recognised becomes an empty identifier, which is never allowed: a file that can be downloaded need
not be openly licensed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN = ""
ARXIV = "LicenseRef-arXiv-nonexclusive-distrib-1.0"
RESERVED = "LicenseRef-all-rights-reserved"
PUBLIC_DOMAIN = "LicenseRef-public-domain"
EVIDENCE_CHARS = 200

# A family without a version (CC-BY) is not an SPDX identifier: it is used if a catalogue names no version, and as an
# entry of the allow-list it covers every version.
_CC = re.compile(r"(CC-BY(?:-NC)?(?:-ND|-SA)?)(?:-(\d\.\d))?(?:-([A-Z]{2,3}))?")
_ELEMENTS = ("BY", "BY-SA", "BY-ND", "BY-NC", "BY-NC-SA", "BY-NC-ND")
_VERSIONS = ("1.0", "2.0", "2.1", "2.5", "3.0", "4.0")
# Jurisdiction ports with a separate SPDX identifier; other ports are read as the unported licence.
_PORTED = frozenset({
    "CC-BY-2.5-AU", "CC-BY-3.0-AT", "CC-BY-3.0-AU", "CC-BY-3.0-DE", "CC-BY-3.0-IGO",
    "CC-BY-3.0-NL", "CC-BY-3.0-US", "CC-BY-NC-3.0-DE", "CC-BY-NC-ND-3.0-DE", "CC-BY-NC-ND-3.0-IGO",
    "CC-BY-NC-SA-2.0-DE", "CC-BY-NC-SA-2.0-FR", "CC-BY-NC-SA-2.0-UK", "CC-BY-NC-SA-3.0-DE", "CC-BY-NC-SA-3.0-IGO",
    "CC-BY-ND-3.0-DE", "CC-BY-SA-2.0-UK", "CC-BY-SA-2.1-JP", "CC-BY-SA-3.0-AT", "CC-BY-SA-3.0-DE",
    "CC-BY-SA-3.0-IGO",
})  # fmt: skip
_OTHER = {
    "CC0": "CC0-1.0", "CC0-1.0": "CC0-1.0", "CC-ZERO": "CC0-1.0", "CREATIVE-COMMONS-ZERO": "CC0-1.0",
    "PDDL": "PDDL-1.0", "PDDL-1.0": "PDDL-1.0", "CC-PDM": "CC-PDM-1.0", "CC-PDM-1.0": "CC-PDM-1.0",
    "PUBLIC-DOMAIN-MARK": "CC-PDM-1.0", "PUBLIC-DOMAIN-MARK-1.0": "CC-PDM-1.0", "CC-PDDC": "CC-PDDC",
    "PUBLIC-DOMAIN": PUBLIC_DOMAIN, "PUBLICDOMAIN": PUBLIC_DOMAIN, "NO-RIGHTS-RESERVED": PUBLIC_DOMAIN,
    "ALL-RIGHTS-RESERVED": RESERVED, "ARR": RESERVED, "COPYRIGHT": RESERVED,
    "FREE-DOCUMENTATION-LICENSE-GNU": "GFDL", "GNU-FREE-DOCUMENTATION-LICENSE": "GFDL", "GNUFDL": "GFDL",
    "GFDL": "GFDL", "FREE-DOCUMENTATION-LICENSE": "GFDL",
    "LICENSEREF-PUBLIC-DOMAIN": PUBLIC_DOMAIN, "LICENSEREF-ALL-RIGHTS-RESERVED": RESERVED,
}  # fmt: skip
_GFDL = re.compile(r"GFDL-1\.[123](?:-(?:NO-)?INVARIANTS)?(?:-(?:ONLY|OR-LATER))?")
_WORDS = (
    (r"\b(?:CREATIVE[ -]COMMONS|CC)\b", "CC"),
    (r"\bNON-?[ ]?COMMERCIAL\b", "NC"),
    (r"\bSHARE-?[ ]?ALIKE\b", "SA"),
    (r"\bNO-?[ ]?DERIV(?:ATIVE)?S?(?:[ -]WORKS)?\b", "ND"),
    (r"\bATTRIBUTION\b", "BY"),
)
_FILLER = re.compile(
    r"\b(?:LICEN[CS]ED?|PUBLIC LICENSE|INTERNATIONAL|UNPORTED|GENERIC|UNIVERSAL|VERSION|UNDER|THE|A|V)\b|[()]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """A licence, and the metadata from which it was read."""

    spdx: str
    """SPDX identifier, a family without version such as `CC-BY`, a `LicenseRef-`, or empty if not recognised."""
    evidence: str
    """Field and value from which it was read."""


def read(field: str, value: object) -> Licence:
    """Read the licence in the value of one metadata field."""
    text = value if isinstance(value, str) else repr(value)
    evidence = " ".join(text.split())[:EVIDENCE_CHARS]
    return Licence(spdx=UNKNOWN if value is None else spdx_of(text), evidence=f"{field}={evidence}")


def agree(statements: Sequence[Licence]) -> Licence:
    """Combine the licences of several fields: the most precise one, if all others cover it.

    Fields without a licence are ignored unless no field has one. Contradicting fields give an unknown licence, with all
    of them as evidence.
    """
    statements = [licence for licence in statements if licence.spdx] or statements
    evidence = "; ".join(dict.fromkeys(licence.evidence for licence in statements)) or "no licence field"
    names = list(dict.fromkeys(licence.spdx for licence in statements if licence.spdx))
    if not names:
        return Licence(spdx=UNKNOWN, evidence=evidence)
    precise = max(names, key=len)
    if all(covers(name, precise) for name in names):
        return Licence(spdx=precise, evidence=evidence)
    return Licence(spdx=UNKNOWN, evidence=f"contradicting fields: {evidence}")


def covers(entry: str, spdx: str) -> bool:
    """Whether an entry of the allow-list covers a licence: the same, a ported form, or a version of the family."""
    allowed, licence = entry.strip().upper(), spdx.upper()
    if allowed == licence:
        return True
    parts = _CC.fullmatch(licence)
    if parts is None:
        return allowed == "GFDL" and _GFDL.fullmatch(licence) is not None
    family, version = parts[1], parts[2]
    return allowed == family or (version is not None and allowed == f"{family}-{version}")


def is_allowed(spdx: str, entries: Sequence[str]) -> bool:
    """Whether any entry of the allow-list covers the licence."""
    return bool(spdx) and any(covers(entry, spdx) for entry in entries)


def spdx_of(text: str) -> str:
    """The SPDX identifier of a licence's address, identifier or name; empty if it is not recognised.

    >>> spdx_of("http://creativecommons.org/licenses/by-nc-sa/3.0/us/deed.en")
    'CC-BY-NC-SA-3.0'
    """
    text = text.strip()
    if re.match(r"(?:https?:)?//|www\.|creativecommons\.org", text, re.IGNORECASE):
        return _of_address(text)
    address = re.search(r"https?://[^\s\"'<>)]+", text)
    return _of_address(address[0]) if address else _of_name(text)


def _of_address(address: str) -> str:
    bare = re.sub(r"^(?:https?:)?//", "", address.strip().lower()).removeprefix("www.")
    host, _, path = bare.partition("/")
    parts = [part for part in re.split(r"[?#]", path)[0].split("/") if part]
    if host == "creativecommons.org":
        return _of_creative_commons(parts)
    if host == "arxiv.org" and parts[:2] == ["licenses", "nonexclusive-distrib"]:
        return ARXIV
    if host in ("gnu.org", "fsf.org") and any(part.startswith("fdl") for part in parts):
        version = re.search(r"fdl-(1\.[123])", "/".join(parts))
        return f"GFDL-{version[1]}-or-later" if version else "GFDL"
    if host in ("opendatacommons.org", "spdx.org"):
        return _of_name(parts[-1].removesuffix(".html")) if parts else UNKNOWN
    return UNKNOWN


def _of_creative_commons(parts: list[str]) -> str:
    if parts[:2] == ["publicdomain", "zero"]:
        return "CC0-1.0"
    if parts[:2] == ["publicdomain", "mark"]:
        return "CC-PDM-1.0"
    if parts[:2] == ["licenses", "publicdomain"]:
        return "CC-PDDC"
    if len(parts) < 2 or parts[0] != "licenses":
        return UNKNOWN
    version = parts[2] if len(parts) > 2 and re.fullmatch(r"\d\.\d", parts[2]) else ""
    port = parts[3] if version and len(parts) > 3 and re.fullmatch(r"[a-z]{2,3}", parts[3]) else ""
    return _creative_commons(parts[1].upper(), version, port.upper())


def _creative_commons(elements: str, version: str, port: str) -> str:
    """SPDX identifier of a Creative Commons licence; empty if the combination or the version does not exist."""
    codes = set(elements.split("-"))
    ordered = "-".join(code for code in ("BY", "NC", "ND", "SA") if code in codes)
    if ordered not in _ELEMENTS or codes - {"BY", "NC", "ND", "SA"} or (version and version not in _VERSIONS):
        return UNKNOWN
    base = f"CC-{ordered}" + (f"-{version}" if version else "")
    return f"{base}-{port}" if f"{base}-{port}" in _PORTED else base


def _of_name(text: str) -> str:
    name = " ".join(text.upper().replace("_", "-").split())
    for pattern, short in _WORDS:
        name = re.sub(pattern, short, name)
    name = " ".join(_FILLER.sub(" ", name).split())
    key = re.sub(r"[\s,/:;-]+", "-", name).strip("-.")
    raw = re.sub(r"[\s,/:;()_-]+", "-", text.upper()).strip("-.")
    for candidate in (raw, key):
        if candidate in _OTHER:
            return _OTHER[candidate]
        if _GFDL.fullmatch(candidate):
            return "GFDL" + candidate.removeprefix("GFDL").lower()
    # Codes such as `CC-BY-NC-4.0`, `BY-SA`, `CCBYNCSA`, and names that were reduced to them.
    glued = re.fullmatch(r"CC-?BY((?:NC|ND|SA)*)(?:-?(\d\.\d))?", key)
    if glued:
        key = "-".join(["CC", "BY", *re.findall("NC|ND|SA", glued[1]), *([glued[2]] if glued[2] else [])])
    code = re.fullmatch(r"(?:CC-)*(BY(?:-(?:NC|ND|SA))*)(?:-(?:CC-)?(\d(?:\.\d)?))?(?:-([A-Z]{2,3}))?", key)
    if code is None:
        return UNKNOWN
    version = code[2] or ""
    return _creative_commons(code[1], version if "." in version or not version else f"{version}.0", code[3] or "")
