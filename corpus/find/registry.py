"""Source registry: turn the offers of the catalogues into sources, admitted or rejected with a reason."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from corpus.find.catalogue import Offer, subject
from corpus.find.identifiers import parts_of
from corpus.find.search import Ranking, identifiers, refusal_reason
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.schemas import Source, Topic

ADMITTED = "admitted"
REJECTED = "rejected"
_Key = tuple[str, str]
"""Catalogue and offer_id of an entry, or domain and subdomain of a pair."""
_Book = tuple[str, ...]
"""All identifiers of a book, in the order in which they were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """An identifier of an admitted source; a book is not fetched again under any of its identifiers."""

    source_id: str
    identifier: str
    """Canonical identifier, `kind:value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """A source found for a (domain, subdomain) pair, or the fact that none was found."""

    domain: str
    subdomain: str
    source_id: str
    """Admitted source; empty for a pair without any source."""
    rank: int
    """Best rank of the book's entries among the offers for the pair, 1-based; 0 for a pair without any source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The source registry before the download."""

    sources: list[Source]
    """One row per catalogue entry, in the order of the offers."""
    aliases: list[Alias]
    """Every identifier of the admitted sources."""
    coverage: list[Coverage]


def admit_offers(
    offers: Sequence[Offer],
    topics: Sequence[Topic],
    rules: CatalogueSettings,
    rankings: Sequence[Ranking],
) -> Admission:
    """Admit or reject every catalogue entry: one row each, with the reason of a rejection.

    Entries that share an identifier, directly or through another entry, are one book; the best ranked entry represents
    the book and the others are rejected as duplicates. Only admissible entries are grouped: a refused copy must neither
    exclude a copy with an open licence nor join two books. An entry found for several (domain, subdomain) pairs is one
    row, under the first pair that admits it.
    """
    entries: dict[_Key, Offer] = {}
    for offer in offers:
        entries.setdefault(offer.key, offer)
    subjects = {subject(topic.domain, topic.subdomain) for topic in topics}
    reasons = {
        key: f"covers none of the topics: {'; '.join(offer.subjects)}"
        if offer.subjects and subjects.isdisjoint(offer.subjects)
        else refusal_reason(offer, rules)
        for key, offer in entries.items()
    }
    books = _join_entries({key: identifiers(offer) for key, offer in entries.items() if not reasons[key]})
    by_pair = {(topic.domain, topic.subdomain): topic for topic in topics}
    places = [
        _RankedEntry(topic=by_pair[(row.domain, row.subdomain)], key=(row.catalogue, row.offer_id), rank=row.rank)
        for row in sorted((row for row in rankings if row.rank), key=lambda row: row.rank)
    ]
    representatives = _choose_entries(places, books, rules.books_per_topic)
    best = {place.key: place.rank for place in sorted(places, key=lambda place: -place.rank)}
    sources = []
    for key, offer in entries.items():
        first = representatives.get(books.get(key, ()))
        reason = reasons[key] or _rejection_reason(key, first, entries, best.get(key, 0), rules)
        domain = first.topic.domain if first else offer.discipline
        sources.append(_row(offer, identifiers(offer)[0], reason, domain))
    return Admission(
        sources=sources,
        aliases=[
            Alias(source_id=identifiers(entries[first.key])[0], identifier=name)
            for book, first in representatives.items()
            for name in book
        ],
        coverage=_coverage(topics, places, books, representatives, entries),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankedEntry:
    topic: Topic
    """Pair that the entry was found for."""
    key: _Key
    """Catalogue and offer_id of the entry."""
    rank: int
    """Rank among the pair's offers, 1-based."""


def _join_entries(entries: Mapping[_Key, list[str]]) -> dict[_Key, _Book]:
    """Group entries into books: entries that share an identifier, directly or through another entry, are one book."""
    joined: dict[str, set[str]] = {}
    for names in entries.values():
        every = set(names).union(*(joined.get(name, ()) for name in names))
        joined |= dict.fromkeys(every, every)
    place = {name: number for number, name in enumerate(dict.fromkeys(chain(*entries.values())))}
    return {key: tuple(sorted(joined[names[0]], key=place.__getitem__)) for key, names in entries.items()}


def _choose_entries(places: list[_RankedEntry], books: Mapping[_Key, _Book], limit: int) -> dict[_Book, _RankedEntry]:
    """Choose the entry that represents each admitted book.

    Each pair has at most `limit` books (0: no limit), including books that another pair has as well.
    """
    representatives: dict[_Book, _RankedEntry] = {}
    counts: dict[_Key, set[_Book]] = {}
    for place in places:
        book = books.get(place.key)
        if book is None:
            continue
        pair_books = counts.setdefault((place.topic.domain, place.topic.subdomain), set())
        if not limit or book in pair_books or len(pair_books) < limit:
            pair_books.add(book)
            representatives.setdefault(book, place)
    return representatives


def _rejection_reason(
    key: _Key,
    first: _RankedEntry | None,
    entries: Mapping[_Key, Offer],
    rank: int,
    rules: CatalogueSettings,
) -> str:
    """Reason to reject an admissible entry, or empty. `first` represents its book; None if the book is not admitted."""
    if first is None:
        limit = f"{rules.books_per_topic} are taken for a pair"
        return f"ranked {rank} at best: {limit}" if rank else "not ranked for any pair: shares no word with one"
    if first.key == key:
        return ""
    own, theirs = identifiers(entries[key]), identifiers(entries[first.key])
    shared = next((name for name in own if name in theirs), "")
    return f"duplicate of {theirs[0]}: " + (f"same {shared}" if shared else "the same book by way of a third entry")


def _coverage(
    topics: Sequence[Topic],
    places: list[_RankedEntry],
    books: Mapping[_Key, _Book],
    representatives: Mapping[_Book, _RankedEntry],
    entries: Mapping[_Key, Offer],
) -> list[Coverage]:
    """One row for each pair and each admitted book in its ranking; a pair without books has a row without a source."""
    ranks: dict[_Key, dict[str, int]] = {}
    for place in places:
        first = representatives.get(books.get(place.key, ()))
        if first is not None:
            name = identifiers(entries[first.key])[0]
            ranks.setdefault((place.topic.domain, place.topic.subdomain), {}).setdefault(name, place.rank)
    return [
        Coverage(domain=topic.domain, subdomain=topic.subdomain, source_id=name, rank=rank)
        for topic in topics
        for name, rank in ranks.get((topic.domain, topic.subdomain), {"": 0}).items()
    ]


def _row(offer: Offer, source_id: str, reason: str, domain: str) -> Source:
    return Source(
        source_id=source_id,
        title=offer.title,
        author=offer.author,
        discipline=domain or offer.discipline,
        category=offer.category,
        licence=offer.licence,
        licence_evidence=offer.licence_evidence,
        source_url=offer.source_url,
        download_url=offer.download_url,
        filename=posixpath.basename(parts_of(offer.download_url).path),
        description=offer.description,
        sha256="",
        num_bytes=0,
        status=REJECTED if reason else ADMITTED,
        reason=reason,
    )
