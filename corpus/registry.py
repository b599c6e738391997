"""The source registry: which offers are admitted, under which identifier, and why the others are not."""

import posixpath
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from corpus import identity
from corpus.catalogues.protocol import Offer, subject
from infuser_core.schemas import Source, Topic

ADMITTED = "admitted"
REJECTED = "rejected"
OPEN_LICENCES = (
    "CC0-1.0",
    "PDDL-1.0",
    "CC-BY-3.0",
    "CC-BY-4.0",
    "CC-BY-SA-3.0",
    "CC-BY-SA-4.0",
    "GFDL-1.2-or-later",
    "GFDL-1.3-or-later",
)
"""Licences that allow reuse of an adaptation; NC and ND variants are for a user's own configuration to add."""


def file_of(folder: Path, sha256: str) -> Path:
    """Where the bytes with this digest lie."""
    return folder / f"{sha256}.pdf"


def identifiers(offer: Offer) -> list[str]:
    """Every canonical identifier of an offer, the most reliable kind first; never empty."""
    found = [
        identity.doi(offer.doi),
        identity.isbn(offer.isbn),
        identity.arxiv(offer.arxiv),
        identity.url(offer.download_url),
        identity.url(offer.source_url),
        f"url:{offer.catalogue}:{offer.offer_id}",
    ]
    return list(dict.fromkeys(name for name in found if name))


def select(
    offers: Sequence[Offer],
    topics: Sequence[Topic],
    allowed_licences: Sequence[str] = OPEN_LICENCES,
    *,
    known: Sequence[Source] = (),
) -> list[Source]:
    """One row per catalogue entry, admitted or rejected with its reason, in the order of the offers.

    The same entry found for several topics is one row, under the first topic's domain. `known` are admitted sources
    of earlier runs. Only admitted rows claim identifiers: a rejected copy must not keep a well-licensed one out.
    """
    wanted = {subject(topic.domain, topic.subdomain) for topic in topics}
    claimed = {name: source.source_id for source in known for name in _claims_of(source)}
    first: dict[tuple[str, str], Offer] = {}
    for offer in offers:
        first.setdefault((offer.catalogue, offer.offer_id), offer)
    rows: list[Source] = []
    for entry in first.values():
        names = identifiers(entry)
        reason = _reason(entry, names, wanted=wanted, allowed=allowed_licences, claimed=claimed)
        if not reason:
            claimed.update(dict.fromkeys(names, names[0]))
        rows.append(_row(entry, names[0], reason))
    return rows


def _claims_of(source: Source) -> list[str]:
    names = [source.source_id, identity.url(source.download_url), identity.url(source.source_url)]
    return [name for name in [*names, identity.sha256(source.sha256)] if name]


def _reason(
    offer: Offer, names: list[str], *, wanted: set[str], allowed: Sequence[str], claimed: dict[str, str]
) -> str:
    if offer.subjects and wanted.isdisjoint(offer.subjects):
        return f"covers none of the topics: {'; '.join(offer.subjects)}"
    if not offer.licence:
        return f"no licence: {offer.licence_evidence}"
    if offer.licence not in allowed:
        return f"licence not allowed: {offer.licence}"
    twin = next((name for name in names if name in claimed), "")
    return f"duplicate of {claimed[twin]}: same {twin}" if twin else ""


def _row(offer: Offer, source_id: str, reason: str) -> Source:
    return Source(
        source_id=source_id,
        title=offer.title,
        author=offer.author,
        discipline=offer.discipline,
        category=offer.category,
        licence=offer.licence,
        licence_evidence=offer.licence_evidence,
        source_url=offer.source_url,
        download_url=offer.download_url,
        filename=posixpath.basename(urlsplit(offer.download_url).path),
        description=offer.description,
        sha256="",
        num_bytes=0,
        status=REJECTED if reason else ADMITTED,
        reason=reason,
    )
