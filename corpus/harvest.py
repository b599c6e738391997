"""Books from catalogues for a build: topics, queries, offers, ranking, licences, files; each offer an item.

The same functions as a run's stages. What was found and said is written beside the pool, in `search/`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpus.find import configured, registry
from corpus.find.catalogue import Offer
from corpus.find.download import download
from corpus.find.holdings import Holdings
from corpus.find.intake import Item
from corpus.find.queries import Agent, Query
from corpus.find.registry import ADMITTED, REJECTED, Admission, Coverage
from corpus.find.search import Failure, Ranking, TopicSearch, failure_of, search_topic
from corpus.find.topics import Assignment, Merge, Taxonomy
from corpus.model_reply import ModelCall
from corpus.pool import SEARCH, write_table
from corpus.read.file_kinds import file_of
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import CatalogueError
from infuser_core.nano import shelf as shelves
from infuser_core.nano import textbooks
from infuser_core.nano.world import WORLDS
from infuser_core.schemas import Source, Topic

EVERYTHING = Topic(domain="", subdomain="", num_questions=0)
"""Stands for no topic: what a catalogue offers in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is looked for, and where."""

    topics: Sequence[Topic]
    """Pairs to search for; empty for everything that the catalogues offer."""
    settings: CatalogueSettings
    """Catalogues, rules and pauses."""
    agent: Agent | None = None
    """The model that phrases queries and ranks books; rules do it when None."""
    web_search: str = ""
    """Command of the catalogue `web`."""
    contact: str = ""
    """Address in the User-Agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What the catalogues gave."""

    items: list[Item]
    """One per offer: with its file, or with the reason why there is none."""
    failures: list[Failure]
    """Catalogues and queries without an answer."""
    coverage: list[Coverage]
    """Which admitted source was found for which pair; a source may serve several."""


def harvest(
    wish: Wish,
    out: Path,
    work: Path,
    *,
    searching: Progress = no_progress,
    fetching: Progress = no_progress,
) -> Harvest:
    """Search, choose and fetch. Raises CatalogueError when no catalogue gave any answer at all."""
    with _opened(wish, work) as opened:
        found = _searched(wish, opened, searching)
        write_search(found, out)
        offers = [row for search in found for row in search.offers]
        admission = _admitted(wish, offers, [row for search in found for row in search.rankings])
        items = _fetched(wish, admission, offers, opened, work, fetching)
    failures = [row for search in found for row in search.failures]
    return Harvest(items=items, failures=failures, coverage=admission.coverage)


@contextmanager
def _opened(wish: Wish, work: Path) -> Iterator[configured.Opened]:
    """The catalogues; the micro-world's is printed once and served on loopback for as long as it is needed."""
    where: dict[str, Any] = {"folder": work / "answers", "search": wish.web_search, "contact": wish.contact}
    if wish.settings.type != "nano":
        with configured.open_catalogues(wish.settings, **where) as opened:
            yield opened
        return
    folder = work / f"shelf-{wish.settings.world}-{wish.settings.shelf}"
    if not (folder / "catalogue.json").is_file():
        textbooks.build_shelf(folder, seed=0, world=WORLDS[wish.settings.world], shelf=wish.settings.shelf)
    with shelves.serve_shelf(folder) as base, configured.open_catalogues(wish.settings, shelf=base, **where) as opened:
        yield opened


def _searched(wish: Wish, opened: configured.Opened, progress: Progress) -> list[TopicSearch]:
    """One search per pair. A pair that no catalogue answered for is a failure of its own, unless all of them are."""
    if not wish.topics:
        # No pair, so no query: the catalogues list what they have.
        offers = [offer for catalogue in opened.catalogues for offer in catalogue.search(EVERYTHING)]
        return [TopicSearch(queries=[], offers=offers, rankings=[], failures=[], calls=[])]
    found: list[TopicSearch] = []
    first: CatalogueError | None = None
    answered = False
    for done, topic in enumerate(wish.topics, 1):
        try:
            found.append(search_topic(topic, opened.catalogues, wish.settings, agent=wish.agent))
            answered = True
        except CatalogueError as error:
            first = first or error
            failures = [failure_of(topic, error)]
            found.append(TopicSearch(queries=[], offers=[], rankings=[], failures=failures, calls=[]))
        progress(done, len(wish.topics), 0)
    if first and not answered:
        raise first
    return found


def write_taxonomy(found: Taxonomy, out: Path) -> None:
    """The pairs and how they came about, as tables."""
    tables: list[tuple[str, type, list[Any]]] = [
        ("topics", Topic, found.topics),
        ("topic_assignments", Assignment, found.assignments),
        ("topic_merges", Merge, found.merges),
        ("topic_calls", ModelCall, found.calls),
    ]
    for name, row_type, rows in tables:
        write_table(out / SEARCH / f"{name}.parquet", rows, row_type)


def write_search(found: Sequence[TopicSearch], out: Path) -> None:
    """Queries, offers, rankings, model calls and failures, as tables."""
    tables: list[tuple[str, type, list[Any]]] = [
        ("queries", Query, [row for search in found for row in search.queries]),
        ("offers", Offer, [row for search in found for row in search.offers]),
        ("rankings", Ranking, [row for search in found for row in search.rankings]),
        ("model_calls", ModelCall, [row for search in found for row in search.calls]),
        ("failures", Failure, [row for search in found for row in search.failures]),
    ]
    for name, row_type, rows in tables:
        write_table(out / SEARCH / f"{name}.parquet", rows, row_type)


def _admitted(wish: Wish, offers: Sequence[Offer], rankings: Sequence[Ranking]) -> Admission:
    if wish.topics:
        return registry.admit(offers, wish.topics, wish.settings, rankings=rankings)
    # Nothing is wanted in particular: no subject speaks against a book, and every one may be taken.
    bare = [replace(offer, subjects=[], discipline=_pair(offer)[0] or offer.discipline) for offer in offers]
    return registry.admit(bare, [EVERYTHING], wish.settings.model_copy(update={"books_per_topic": 0}))


def _pair(offer: Offer) -> tuple[str, str]:
    """The first pair that the catalogue says an offer covers."""
    domain, _, subdomain = offer.subjects[0].partition(" / ") if offer.subjects else ("", "", "")
    return domain, subdomain


def _fetched(
    wish: Wish,
    admission: Admission,
    offers: Sequence[Offer],
    opened: configured.Opened,
    work: Path,
    progress: Progress,
) -> list[Item]:
    names: dict[str, list[str]] = {}
    for alias in admission.aliases:
        names.setdefault(alias.source_id, []).append(alias.identifier)
    files = work / "files"
    result = download(
        admission.sources,
        opened.address,
        files,
        opened.download,
        names=names,
        holdings=Holdings(work / "holdings"),
        progress=progress,
    )
    subdomains = _subdomains(wish, admission, offers)
    return [
        _item(before, after, files, subdomains.get(after.source_id, ""))
        for before, after in zip(admission.sources, result.sources, strict=True)
    ]


def _subdomains(wish: Wish, admission: Admission, offers: Sequence[Offer]) -> dict[str, str]:
    """Source to the subdomain that it was found for."""
    found: dict[str, str] = {}
    for row in admission.coverage:
        if row.source_id:
            found.setdefault(row.source_id, row.subdomain)
    if not wish.topics:
        addresses = {offer.download_url: _pair(offer)[1] for offer in reversed(offers)}
        found |= {source.source_id: addresses.get(source.download_url, "") for source in admission.sources}
    return found


def _item(before: Source, after: Source, files: Path, subdomain: str) -> Item:
    path = file_of(files, after.sha256) if after.status == ADMITTED else None
    stage = "search" if before.status == REJECTED else "download"
    return Item(
        source=after,
        path=path,
        given=after.download_url or after.source_url,
        subdomain=subdomain,
        stage="" if path else stage,
    )
