"""Search for one topic: queries to every catalogue, admission rules, ranking of what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.find import identifiers as identity
from corpus.find import licences
from corpus.find.catalogue import Offer, Site, subject
from corpus.find.queries import BY_RULE, Librarian, Query, phrase, words
from corpus.model_reply import ModelCall, ReplyProblem
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic

OFFERS_PER_CATALOGUE = 20
"""Offers of one catalogue for one pair from which on it is not asked the pair's further queries."""
MAX_SHOWN = 40
"""Books a model is shown for one pair, the best by rule."""
SHOWN_CHARS = 300
# A word in the title says more than one in the description.
TITLE, KEYWORDS, DESCRIPTION, DOMAIN, STATED, TEXTBOOK = 3.0, 2.0, 1.0, 0.5, 3.0, 0.25
_LANGUAGES = {
    "eng": "en", "english": "en", "ger": "de", "deu": "de", "german": "de", "fre": "fr", "fra": "fr", "french": "fr",
    "spa": "es", "spanish": "es", "ita": "it", "italian": "it", "por": "pt", "portuguese": "pt", "dut": "nl",
    "nld": "nl", "dutch": "nl", "rus": "ru", "russian": "ru", "pol": "pl", "polish": "pl", "chi": "zh", "zho": "zh",
    "chinese": "zh", "jpn": "ja", "japanese": "ja", "kor": "ko", "korean": "ko", "ara": "ar", "arabic": "ar",
}  # fmt: skip


def identifiers(offer: Offer) -> list[str]:
    """Every canonical identifier of an offer, the most reliable kind first; never empty."""
    found = [
        identity.doi(offer.doi),
        *identity.isbns(offer.isbn),
        identity.arxiv(offer.arxiv) or identity.arxiv(offer.doi),
        *offer.other_ids,
        identity.url(offer.download_url),
        identity.url(offer.source_url),
        f"url:{offer.catalogue}:{offer.offer_id}",
    ]
    return list(dict.fromkeys(name for name in found if name))


def refusal(offer: Offer, rules: CatalogueSettings) -> str:
    """Reason for which an offer may not be taken by itself, whatever else was found; empty when it may."""
    if not offer.licence:
        return f"no licence: {offer.licence_evidence}"
    if not licences.allowed(offer.licence, rules.licences):
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
    """The place of one offer among those found for one pair."""

    domain: str
    """Domain of the pair."""
    subdomain: str
    """Subdomain of the pair."""
    catalogue: str
    """Catalogue of the offer."""
    offer_id: str
    """The catalogue's identifier of the offer."""
    rank: int
    """1 for the best; 0 when the offer is not taken."""
    score: float
    """Shared words, weighted; see `score`."""
    ranked_by: str
    """`rule`, or the name of the model."""
    reason: str
    """Why it is not taken; empty when it has a rank."""


def score(offer: Offer, topic: Topic) -> float:
    """Share of the subdomain's words in title, keywords and description, weighted; a little for the domain's.

    What covers the pair by the catalogue's own statement gets the weight of a full title.
    """
    wanted, area = set(words(topic.subdomain)), set(words(topic.domain))
    title, terms, about = set(words(offer.title)), set(words(" ".join(offer.keywords))), set(words(offer.description))
    stated = subject(topic.domain, topic.subdomain) in offer.subjects
    total = STATED * stated
    if wanted:
        total += TITLE * len(wanted & title) / len(wanted) + KEYWORDS * len(wanted & terms) / len(wanted)
        total += DESCRIPTION * len(wanted & about) / len(wanted)
    if area:
        total += DOMAIN * len(area & (title | terms | about)) / len(area)
    return round(total + TEXTBOOK * (offer.category == "textbook"), 6) if total else 0.0


def rank(
    offers: Sequence[Offer], topic: Topic, refused: dict[tuple[str, str], str], librarian: Librarian | None = None
) -> tuple[list[Ranking], list[ModelCall]]:
    """Places for all offers, the best first and those that are not taken last.

    `refused` names those that may not be taken, with the reason. Equal scores keep the catalogue's order. Without an
    librarian, and where its replies cannot be used, the rule decides.
    """
    scores = {offer.key: score(offer, topic) for offer in offers}
    free = sorted((o for o in offers if o.key not in refused), key=lambda offer: -scores[offer.key])
    kept = [offer for offer in free if scores[offer.key] > 0]
    reasons = {offer.key: "shares no word with the pair" for offer in free if scores[offer.key] == 0} | refused
    calls: list[ModelCall] = []
    ranked_by = BY_RULE
    if librarian is not None and kept:
        shown, unseen = kept[:MAX_SHOWN], kept[MAX_SHOWN:]
        listed = "\n".join(f"{number}. {_shown(offer)}" for number, offer in enumerate(shown, start=1))
        prompt = librarian.prompts["rank_books"].messages(domain=topic.domain, subdomain=topic.subdomain, books=listed)
        order, calls = librarian.ask("rank", topic, prompt, lambda reply: _order(reply, len(shown)))
        if order is not None:
            kept, ranked_by = [shown[number - 1] for number in order], librarian.model.name
            reasons |= {offer.key: "left out by the ranking model" for offer in shown if offer not in kept}
            reasons |= {offer.key: f"not among the {MAX_SHOWN} best by rule" for offer in unseen}
    places = [(offer, place, "") for place, offer in enumerate(kept, start=1)]
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


def _shown(offer: Offer) -> str:
    about = f"{offer.title} | {offer.author} | {', '.join(offer.keywords[:8])} | {offer.description}"
    return " ".join(about.split())[:SHOWN_CHARS]


def _order(reply: dict[str, Any], count: int) -> list[int]:
    found = reply.get("ranking")
    if not isinstance(found, list) or not all(type(number) is int for number in found):
        raise ReplyProblem('"ranking" is no list of whole numbers')
    strange = [number for number in found if not 1 <= number <= count]
    if strange:
        raise ReplyProblem(f"number {strange[0]} is not in the list of 1 to {count}")
    if len(set(found)) < len(found):
        raise ReplyProblem("a number occurs twice")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A catalogue that could not answer a query."""

    domain: str
    """Domain of the pair."""
    subdomain: str
    """Subdomain of the pair."""
    catalogue: str
    """Module name of the catalogue."""
    query: str
    """The query."""
    reason: str
    """Reason of the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSearch:
    """Everything found for one pair."""

    queries: list[Query]
    """Queries sent, the most specific first."""
    offers: list[Offer]
    """Distinct entries, in the order in which they were found."""
    rankings: list[Ranking]
    """One place per offer."""
    failures: list[Failure]
    """Catalogues and queries without an answer."""
    calls: list[ModelCall]
    """Replies of the model."""


def search_topic(
    topic: Topic,
    catalogues: Sequence[Site],
    settings: CatalogueSettings,
    *,
    librarian: Librarian | None = None,
) -> TopicSearch:
    """Ask every catalogue for a pair. A catalogue that fails costs its own answers alone.

    Raises CatalogueError when none of them answered any query: that is an outage and no result to keep.
    """
    queries, calls = phrase(topic, settings.queries_per_topic, librarian)
    offers: dict[tuple[str, str], Offer] = {}
    failures: list[Failure] = []
    errors: list[CatalogueError] = []
    answered = False
    for catalogue in catalogues:
        own: set[tuple[str, str]] = set()
        for query in queries:
            if len(own) >= OFFERS_PER_CATALOGUE:
                break
            try:
                found = catalogue.search(topic, query.text)
            except CatalogueError as error:
                errors.append(error)
                failures.append(
                    Failure(
                        domain=topic.domain,
                        subdomain=topic.subdomain,
                        catalogue=catalogue.name,
                        query=query.text,
                        reason=error.message,
                    )
                )
                continue
            answered = True
            for offer in found:
                own.add(offer.key)
                offers.setdefault(offer.key, offer)
    if errors and not answered:
        raise errors[0]
    refused = {key: reason for key, offer in offers.items() if (reason := refusal(offer, settings))}
    rankings, more = rank(list(offers.values()), topic, refused, librarian)
    return TopicSearch(
        queries=queries,
        offers=list(offers.values()),
        rankings=rankings,
        failures=failures,
        calls=[*calls, *more],
    )
