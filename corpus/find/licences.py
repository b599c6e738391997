"""Licences as catalogues spell them, read as SPDX identifiers together with the evidence.

What is not recognised stays empty: downloadable is not openly licensed, so an unknown licence admits nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN = ""
ARXIV = "LicenseRef-arXiv-nonexclusive-distrib-1.0"
RESERVED = "LicenseRef-all-rights-reserved"
PUBLIC_DOMAIN = "LicenseRef-public-domain"
EVIDENCE_CHARS = 200

# A family without a version (CC-BY) is no SPDX identifier; catalogues that name no version get it, and an entry of the
# allow-list that names none covers every version.
_CC = re.compile(r"(CC-BY(?:-NC)?(?:-ND|-SA)?)(?:-(\d\.\d))?(?:-([A-Z]{2,3}))?")
_ELEMENTS = ("BY", "BY-SA", "BY-ND", "BY-NC", "BY-NC-SA", "BY-NC-ND")
_VERSIONS = ("1.0", "2.0", "2.1", "2.5", "3.0", "4.0")
# Jurisdiction ports for which SPDX has an identifier of its own; other ports are read as the unported licence.
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
    """Licence statement of a metadata field."""

    spdx: str
    """SPDX identifier, a family without version such as `CC-BY`, a `LicenseRef-`, or empty when not recognised."""
    evidence: str
    """Field and value from which it was read."""


def read(field: str, value: object) -> Licence:
    """The licence that one metadata field names."""
    text = value if isinstance(value, str) else "" if value is None else repr(value)
    shown = " ".join(repr(value).split()) if not isinstance(value, str) else " ".join(value.split())
    return Licence(spdx=spdx_of(text), evidence=f"{field}={shown[:EVIDENCE_CHARS]}")


def agree(found: Sequence[Licence]) -> Licence:
    """One licence out of several fields: the named one, the most precise where one is a version of the other.

    Fields that name none count only where no field names one. Fields that contradict each other give an unknown
    licence with all of them as evidence.
    """
    found = [licence for licence in found if licence.spdx] or found
    evidence = "; ".join(dict.fromkeys(licence.evidence for licence in found)) or "no licence field"
    named = list(dict.fromkeys(licence.spdx for licence in found if licence.spdx))
    if not named:
        return Licence(spdx=UNKNOWN, evidence=evidence)
    precise = max(named, key=len)
    if all(covers(name, precise) for name in named):
        return Licence(spdx=precise, evidence=evidence)
    return Licence(spdx=UNKNOWN, evidence=f"contradicting fields: {evidence}")


def covers(entry: str, spdx: str) -> bool:
    """Whether an entry of the allow-list covers a licence: the same, its ported form, or a version of its family."""
    wanted, had = entry.strip().upper(), spdx.upper()
    if wanted == had:
        return True
    parts = _CC.fullmatch(had)
    if parts is None:
        return wanted == "GFDL" and _GFDL.fullmatch(had) is not None
    family, version = parts[1], parts[2]
    return wanted == family or (version is not None and wanted == f"{family}-{version}")


def allowed(spdx: str, entries: Sequence[str]) -> bool:
    """Whether any entry of the allow-list covers the licence."""
    return bool(spdx) and any(covers(entry, spdx) for entry in entries)


def spdx_of(text: str) -> str:
    """The SPDX identifier of an address, an identifier or a name; empty when it is none of them.

    >>> spdx_of("http://creativecommons.org/licenses/by-nc-sa/3.0/us/deed.en")
    'CC-BY-NC-SA-3.0'
    """
    text = text.strip()
    if re.match(r"(?:https?:)?//|www\.|creativecommons\.org", text, re.IGNORECASE):
        return _of_address(text)
    inside = re.search(r"https?://[^\s\"'<>)]+", text)
    if inside:
        return _of_address(inside[0])
    return _of_name(text)


def _of_address(address: str) -> str:
    bare = re.sub(r"^(?:https?:)?//", "", address.strip().lower()).removeprefix("www.")
    host, _, path = bare.partition("/")
    parts = [part for part in re.split(r"[?#]", path)[0].split("/") if part]
    if host == "creativecommons.org":
        return _of_creative_commons(parts)
    if host == "arxiv.org" and parts[:2] == ["licenses", "nonexclusive-distrib"]:
        return ARXIV
    if host in ("gnu.org", "fsf.org") and any(part.startswith("fdl") for part in parts):
        found = re.search(r"fdl-(1\.[123])", "/".join(parts))
        return f"GFDL-{found[1]}-or-later" if found else "GFDL"
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
    """The identifier of sorted elements; empty for a combination or a version that does not exist."""
    chosen = set(elements.split("-"))
    ordered = "-".join(part for part in ("BY", "NC", "ND", "SA") if part in chosen)
    if ordered not in _ELEMENTS or chosen - {"BY", "NC", "ND", "SA"} or (version and version not in _VERSIONS):
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
    return _of_elements(key)


def _of_elements(key: str) -> str:
    """Codes such as `CC-BY-NC-4.0`, `BY-SA`, `CCBYNCSA` and spelled names reduced to them."""
    glued = re.fullmatch(r"CC-?BY((?:NC|ND|SA)*)(?:-?(\d\.\d))?", key)
    if glued:
        key = "-".join(["CC", "BY", *re.findall("NC|ND|SA", glued[1]), *([glued[2]] if glued[2] else [])])
    found = re.fullmatch(r"(?:CC-)*(BY(?:-(?:NC|ND|SA))*)(?:-(?:CC-)?(\d(?:\.\d)?))?(?:-([A-Z]{2,3}))?", key)
    if found is None:
        return UNKNOWN
    version = found[2] or ""
    return _creative_commons(found[1], version if "." in version or not version else f"{version}.0", found[3] or "")
