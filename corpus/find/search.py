"""Search all catalogues for the books of one topic, refuse those that the settings exclude, and rank the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.find import identifiers as identity
from corpus.find import licences
from corpus.find.catalogue import Offer, Site, subject
from corpus.find.queries import BY_RULE, Librarian, Query, phrase_queries, words
from corpus.model_reply import ModelCall, ReplyProblem
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

OFFERS_PER_CATALOGUE = 20
"""Number of offers of one catalogue for one (domain, subdomain) pair after which no further query is sent to it."""
MAX_LISTED = 40
"""Number of offers in the ranking model's prompt: the best by rule."""
LISTED_CHARS = 300
# Weights of `relevance`: a word in the title counts more than one in the description.
TITLE, KEYWORDS, DESCRIPTION, DOMAIN, STATED, TEXTBOOK = 3.0, 2.0, 1.0, 0.5, 3.0, 0.25
_LANGUAGES = {
    "eng": "en", "english": "en", "ger": "de", "deu": "de", "german": "de", "fre": "fr", "fra": "fr", "french": "fr",
    "spa": "es", "spanish": "es", "ita": "it", "italian": "it", "por": "pt", "portuguese": "pt", "dut": "nl",
    "nld": "nl", "dutch": "nl", "rus": "ru", "russian": "ru", "pol": "pl", "polish": "pl", "chi": "zh", "zho": "zh",
    "chinese": "zh", "jpn": "ja", "japanese": "ja", "kor": "ko", "korean": "ko", "ara": "ar", "arabic": "ar",
}  # fmt: skip


def identifiers(offer: Offer) -> list[str]:
    """All canonical identifiers of an offer, the most reliable kind first; there is always at least one."""
    names = [
        identity.doi(offer.doi),
        *identity.isbns(offer.isbn),
        identity.arxiv(offer.arxiv) or identity.arxiv(offer.doi),
        *offer.other_ids,
        identity.url(offer.download_url),
        identity.url(offer.source_url),
        f"url:{offer.catalogue}:{offer.offer_id}",
    ]
    return list(dict.fromkeys(name for name in names if name))


def refusal_reason(offer: Offer, rules: CatalogueSettings) -> str:
    """Reason to refuse an offer for its licence, file or language; empty if it is admissible."""
    if not offer.licence:
        return f"no licence: {offer.licence_evidence}"
    if not licences.is_allowed(offer.licence, rules.licences):
        return f"licence not allowed: {offer.licence}"
    if not offer.download_url:
        return "no file: the catalogue names none that can be downloaded"
    name = offer.language.strip().lower().replace("_", "-").split("-")[0]
    language = _LANGUAGES.get(name, name)
    if rules.languages and language and language not in rules.languages:
        return f"language {offer.language}, not among {', '.join(rules.languages)}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rank of an offer among all offers for one (domain, subdomain) pair."""

    domain: str
    subdomain: str
    catalogue: str
    offer_id: str
    """The catalogue's identifier of the offer."""
    rank: int
    """1 for the best; 0 for an offer that is refused or not relevant."""
    score: float
    """See `relevance`."""
    ranked_by: str
    """`rule`, or the name of the model."""
    reason: str
    """Why it has no rank; empty if it has one."""


def relevance(offer: Offer, topic: Topic) -> float:
    """Score of an offer for a topic: the shares of the topic's words that occur in the offer, weighted by field.

    Words of the subdomain are looked up in title, keywords and description separately, words of the domain in all three
    together. An offer that covers the topic according to its catalogue gets the weight of a full title.
    """
    terms, area = set(words(topic.subdomain)), set(words(topic.domain))
    title, about = set(words(offer.title)), set(words(offer.description))
    keywords = set(words(" ".join(offer.keywords)))
    stated = subject(topic.domain, topic.subdomain) in offer.subjects
    total = STATED * stated
    if terms:
        total += TITLE * len(terms & title) / len(terms) + KEYWORDS * len(terms & keywords) / len(terms)
        total += DESCRIPTION * len(terms & about) / len(terms)
    if area:
        total += DOMAIN * len(area & (title | keywords | about)) / len(area)
    return round(total + TEXTBOOK * (offer.category == "textbook"), 6) if total else 0.0


def rank_offers(
    offers: Sequence[Offer], topic: Topic, refused: dict[tuple[str, str], str], librarian: Librarian | None = None
) -> tuple[list[Ranking], list[ModelCall]]:
    """Rank the offers for a topic, the best first and those without a rank last; also returns the model's replies.

    `refused` maps the key of each refused offer to the reason. Offers are sorted by `relevance`; equal scores keep the
    catalogue's order. If there is a librarian, the model ranks the best of them, unless its replies are unusable.
    """
    scores = {offer.key: relevance(offer, topic) for offer in offers}
    free = sorted((o for o in offers if o.key not in refused), key=lambda offer: -scores[offer.key])
    ranked = [offer for offer in free if scores[offer.key] > 0]
    reasons = {offer.key: "shares no word with the pair" for offer in free if scores[offer.key] == 0} | refused
    calls: list[ModelCall] = []
    ranked_by = BY_RULE
    if librarian is not None and ranked:
        listed, unlisted = ranked[:MAX_LISTED], ranked[MAX_LISTED:]
        abouts = [f"{o.title} | {o.author} | {', '.join(o.keywords[:8])} | {o.description}" for o in listed]
        lines = (" ".join(about.split())[:LISTED_CHARS] for about in abouts)
        books = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
        prompt = librarian.prompts["rank_books"].messages(domain=topic.domain, subdomain=topic.subdomain, books=books)
        order, calls = librarian.ask("rank", topic, prompt, lambda reply: _parse_order(reply, len(listed)))
        if order is not None:
            ranked, ranked_by = [listed[number - 1] for number in order], librarian.model.name
            reasons |= {offer.key: "left out by the ranking model" for offer in listed if offer not in ranked}
            reasons |= {offer.key: f"not among the {MAX_LISTED} best by rule" for offer in unlisted}
    places = [(offer, place, "") for place, offer in enumerate(ranked, start=1)]
    places += [(offer, 0, reasons[offer.key]) for offer in offers if offer.key in reasons]
    rankings = [
        Ranking(
            domain=topic.domain,
            subdomain=topic.subdomain,
            catalogue=offer.catalogue,
            offer_id=offer.offer_id,
            rank=place,
            score=scores[offer.key],
            ranked_by=ranked_by,
            reason=reason,
        )
        for offer, place, reason in places
    ]
    return rankings, calls


def _parse_order(reply: dict[str, Any], count: int) -> list[int]:
    order = reply.get("ranking")
    if not isinstance(order, list) or not all(type(number) is int for number in order):
        raise ReplyProblem('"ranking" is no list of whole numbers')
    strange = [number for number in order if not 1 <= number <= count]
    if strange:
        raise ReplyProblem(f"number {strange[0]} is not in the list of 1 to {count}")
    if len(set(order)) < len(order):
        raise ReplyProblem("a number occurs twice")
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedQuery:
    """A query that a catalogue did not answer, with the reason."""

    domain: str
    subdomain: str
    catalogue: str
    query: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSearch:
    """Result of searching all catalogues for one (domain, subdomain) pair."""

    queries: list[Query]
    offers: list[Offer]
    """Distinct entries, in the order of the catalogues and queries."""
    rankings: list[Ranking]
    """One per offer."""
    failures: list[FailedQuery]
    calls: list[ModelCall]


def search_topic(
    topic: Topic,
    catalogues: Sequence[Site],
    settings: CatalogueSettings,
    *,
    librarian: Librarian | None = None,
) -> TopicSearch:
    """Search every catalogue for a topic. A failing catalogue does not affect the others.

    Raises CatalogueError if no catalogue answered any query: that is an outage and not a result.
    """
    queries, calls = phrase_queries(topic, settings.queries_per_topic, librarian)
    offers: dict[tuple[str, str], Offer] = {}
    failures: list[FailedQuery] = []
    errors: list[CatalogueError] = []
    answered = False
    for catalogue in catalogues:
        keys: set[tuple[str, str]] = set()
        for query in queries:
            if len(keys) >= OFFERS_PER_CATALOGUE:
                break
            try:
                entries = catalogue.search(topic, query.text)
            except CatalogueError as error:
                errors.append(error)
                failures.append(
                    FailedQuery(
                        domain=topic.domain,
                        subdomain=topic.subdomain,
                        catalogue=catalogue.name,
                        query=query.text,
                        reason=error.message,
                    )
                )
                continue
            answered = True
            for offer in entries:
                keys.add(offer.key)
                offers.setdefault(offer.key, offer)
    if errors and not answered:
        raise errors[0]
    refused = {key: reason for key, offer in offers.items() if (reason := refusal_reason(offer, settings))}
    rankings, more = rank_offers(list(offers.values()), topic, refused, librarian)
    return TopicSearch(
        queries=queries,
        offers=list(offers.values()),
        rankings=rankings,
        failures=failures,
        calls=[*calls, *more],
    )
