"""Search for one topic: queries to every catalogue, admission rules, ranking of what was found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from corpus.find import identifiers as identity
from corpus.find import licences
from corpus.find.catalogue import Catalogue, Offer, subject
from corpus.find.queries import Query, phrase, words
from corpus.model_reply import ModelCall, ReplyProblem, ask
from infuser_core.engines.protocols import ChatModel, Progress, no_progress
from infuser_core.errors import CatalogueError
from infuser_core.prompts.load import Template
from infuser_core.schemas import Topic

OPEN_LICENCES = (
    "CC0-1.0",
    "CC-PDM-1.0",
    "CC-PDDC",
    "PDDL-1.0",
    "LicenseRef-public-domain",
    "CC-BY",
    "CC-BY-SA",
    "GFDL",
)
"""Licences that allow reuse of an adaptation, every version; NC and ND are for a user's own configuration to add."""
_LANGUAGES = {
    "eng": "en", "english": "en", "ger": "de", "deu": "de", "german": "de", "fre": "fr", "fra": "fr", "french": "fr",
    "spa": "es", "spanish": "es", "ita": "it", "italian": "it", "por": "pt", "portuguese": "pt", "dut": "nl",
    "nld": "nl", "dutch": "nl", "rus": "ru", "russian": "ru", "pol": "pl", "polish": "pl", "chi": "zh", "zho": "zh",
    "chinese": "zh", "jpn": "ja", "japanese": "ja", "kor": "ko", "korean": "ko", "ara": "ar", "arabic": "ar",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an offer must fulfil."""

    licences: Sequence[str] = OPEN_LICENCES
    """Allow-list; see licences.covers."""
    languages: Sequence[str] = ()
    """Two-letter codes; empty for every language. An entry that names no language passes."""
    books_per_topic: int = 0
    """Books taken for one pair where offers are ranked; 0 for all."""


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


def refusal(offer: Offer, rules: Rules) -> str:
    """Why an offer may not be taken by itself, whatever else was found; empty when it may."""
    if not offer.licence:
        return f"no licence: {offer.licence_evidence}"
    if not licences.allowed(offer.licence, rules.licences):
        return f"licence not allowed: {offer.licence}"
    if not offer.download_url:
        return "no file: the catalogue names none that can be downloaded"
    language = _language(offer.language)
    if rules.languages and language and language not in rules.languages:
        return f"language {offer.language}, not among {', '.join(rules.languages)}"
    return ""


def _language(value: str) -> str:
    name = value.strip().lower().replace("_", "-").split("-")[0]
    return _LANGUAGES.get(name, name)


MAX_SHOWN = 40
"""Books a model is shown for one pair, the best by rule."""
SHOWN_CHARS = 300
MAX_TOKENS = 512
BY_RULE = "rule"
# A word in the title says more than one in the description.
TITLE, KEYWORDS, DESCRIPTION, DOMAIN, STATED, TEXTBOOK = 3.0, 2.0, 1.0, 0.5, 3.0, 0.25


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Places of all offers for one pair, and what a model said."""

    rankings: list[Ranking]
    """Best first, then those that are not taken."""
    calls: list[ModelCall]
    """Replies of the model; none by rule."""


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
    offers: Sequence[Offer],
    topic: Topic,
    *,
    refused: dict[tuple[str, str], str],
    model: ChatModel | None = None,
    template: Template | None = None,
    attempts: int = 3,
) -> Ranked:
    """Places for all offers. `refused` names those that may not be taken: (catalogue, offer_id) to reason.

    Equal scores keep the catalogue's order. Where the model's replies cannot be used, the rule decides.
    """
    scores = {_key(offer): score(offer, topic) for offer in offers}
    free = sorted((o for o in offers if _key(o) not in refused), key=lambda offer: -scores[_key(offer)])
    kept = [offer for offer in free if scores[_key(offer)] > 0]
    reasons = {_key(offer): "shares no word with the pair" for offer in free if scores[_key(offer)] == 0} | refused
    calls: list[ModelCall] = []
    judge = BY_RULE
    if model is not None and template is not None and kept:
        shown, unseen = kept[:MAX_SHOWN], kept[MAX_SHOWN:]
        chosen, calls = _by_model(shown, topic, model, template, attempts)
        if chosen is not None:
            reasons |= {_key(offer): "left out by the ranking model" for offer in shown if offer not in chosen}
            reasons |= {_key(offer): f"not among the {MAX_SHOWN} best by rule" for offer in unseen}
            kept, judge = chosen, model.name
    rest = [offer for offer in offers if _key(offer) in reasons]
    places = [(offer, place, "") for place, offer in enumerate(kept, start=1)]
    places += [(offer, 0, reasons[_key(offer)]) for offer in rest]
    return Ranked(
        rankings=[
            Ranking(
                domain=topic.domain,
                subdomain=topic.subdomain,
                catalogue=offer.catalogue,
                offer_id=offer.offer_id,
                rank=place,
                score=scores[_key(offer)],
                ranked_by=judge,
                reason=reason,
            )
            for offer, place, reason in places
        ],
        calls=calls,
    )


def _key(offer: Offer) -> tuple[str, str]:
    return offer.catalogue, offer.offer_id


def _by_model(
    offers: list[Offer], topic: Topic, model: ChatModel, template: Template, attempts: int
) -> tuple[list[Offer] | None, list[ModelCall]]:
    listed = "\n".join(f"{number}. {_shown(offer)}" for number, offer in enumerate(offers, start=1))
    prompt = template.messages(domain=topic.domain, subdomain=topic.subdomain, books=listed)
    asked = ask(
        model,
        [prompt],
        lambda place, reply: _order(reply, len(offers)),
        task="rank",
        items=[f"{topic.domain} / {topic.subdomain}"],
        max_tokens=MAX_TOKENS,
        attempts=attempts,
    )
    order = asked.values[0]
    return (None if order is None else [offers[number - 1] for number in order]), asked.calls


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
class SearchConfig:
    """How widely is searched."""

    queries_per_topic: int = 3
    """Queries phrased for one pair, at most."""
    offers_per_catalogue: int = 20
    """Offers of one catalogue for one pair from which on it is not asked the pair's further queries."""
    rules: Rules = field(default_factory=Rules)
    """What an offer must fulfil to be ranked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The model that phrases queries and orders what was found. It chooses among offers and adds none."""

    model: ChatModel
    """Answers prompts."""
    phrase: Template | None = None
    """Asks for queries; None leaves them to the rule."""
    rank: Template | None = None
    """Asks for an order; None leaves it to the rule."""
    attempts: int = 3
    """Times a prompt is asked before the rule decides."""


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
    """What went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSearch:
    """Everything found for one pair."""

    queries: list[Query]
    """What was asked, the most specific first."""
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
    catalogues: Sequence[Catalogue],
    config: SearchConfig,
    *,
    agent: Agent | None = None,
    progress: Progress = no_progress,
) -> TopicSearch:
    """Ask every catalogue for a pair. A catalogue that fails costs its own answers alone.

    Raises CatalogueError when none of them answered any query: that is an outage and no result to keep.
    """
    model = agent.model if agent else None
    attempts = agent.attempts if agent else 1
    phrased = phrase(
        topic, config.queries_per_topic, model=model, template=agent.phrase if agent else None, attempts=attempts
    )
    offers: dict[tuple[str, str], Offer] = {}
    failures: list[Failure] = []
    errors: list[CatalogueError] = []
    answered = False
    for done, catalogue in enumerate(catalogues):
        own: set[tuple[str, str]] = set()
        for query in phrased.queries:
            if len(own) >= config.offers_per_catalogue:
                break
            try:
                found = catalogue.search(topic, query.text)
            except CatalogueError as error:
                errors.append(error)
                failures.append(_failure(topic, catalogue.name, query.text, error))
                continue
            answered = True
            for offer in found:
                own.add((offer.catalogue, offer.offer_id))
                offers.setdefault((offer.catalogue, offer.offer_id), offer)
        progress(done + 1, len(catalogues), 0)
    if errors and not answered:
        raise errors[0]
    refused = {key: reason for key, offer in offers.items() if (reason := refusal(offer, config.rules))}
    ranked = rank(
        list(offers.values()),
        topic,
        refused=refused,
        model=model,
        template=agent.rank if agent else None,
        attempts=attempts,
    )
    return TopicSearch(
        queries=phrased.queries,
        offers=list(offers.values()),
        rankings=ranked.rankings,
        failures=failures,
        calls=[*phrased.calls, *ranked.calls],
    )


def _failure(topic: Topic, catalogue: str, query: str, error: CatalogueError) -> Failure:
    return Failure(
        domain=topic.domain, subdomain=topic.subdomain, catalogue=catalogue, query=query, reason=error.message
    )
