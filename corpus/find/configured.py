"""Catalogues, search and download set up from a run's settings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corpus.find.catalogue import Catalogue, connect
from corpus.find.catalogues.local import SCHEME
from corpus.find.download import DownloadConfig
from corpus.find.guard import GuardConfig
from corpus.find.identifiers import host_of
from corpus.find.polite_http import Politeness
from corpus.find.search import Agent, Rules, SearchConfig
from corpus.find.session import Answer, AnswerFolder, Session, SessionConfig, command_search, live, replayed
from corpus.find.topics import Librarian
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.engines.protocols import ChatModel
from infuser_core.errors import ConfigError
from infuser_core.prompts.load import Template, load

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
AGENT = "infuser-corpus/0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Catalogues that can be asked, and what they have answered so far."""

    catalogues: Sequence[Catalogue]
    """In the order of the settings."""
    session: Session
    """The client and its record."""

    @property
    def answers(self) -> list[Answer]:
        """Every answer so far, one per address."""
        return self.session.answers


@contextmanager
def open_catalogues(
    settings: CatalogueSettings, *, shelf: str = "", folder: Path | None = None, search: str = "", contact: str = ""
) -> Iterator[Opened]:
    """The configured catalogues for as long as they are needed.

    `shelf` is the address at which the micro-world's catalogue is served; `folder` keeps answers for later runs and
    is what `answers: recorded` lives on; `search` is the command of the catalogue `web`; `contact` is an address for
    the User-Agent.
    """
    entries = _entries(settings, shelf)
    own = frozenset(host for _, base in entries if (host := host_of(base)))
    config = SessionConfig(
        guard=_guard(settings, contact, own),
        politeness=Politeness(delay_seconds=settings.host_delay_seconds, robots_exempt=tuple(settings.robots_exempt)),
        # What is served on loopback changes with the run, and its port is another's tomorrow.
        folder=folder if settings.type == "catalogues" else None,
        max_age_days=settings.answer_days,
        search=command_search(search),
    )
    recorded = settings.type == "catalogues" and settings.answers == "recorded"
    with replayed(AnswerFolder(folder or Path())) if recorded else live(config) as session:
        yield Opened(
            catalogues=[connect(name, base=base, client=session.client) for name, base in entries], session=session
        )


def address_in(catalogues: Sequence[Catalogue], download_url: str) -> str:
    """The address to fetch for a source: the local catalogue's where the source was stored without its host."""
    local = [catalogue for catalogue in catalogues if catalogue.name == "local"]
    return local[0].address(download_url) if local and download_url.startswith(SCHEME) else download_url


def search_config(settings: CatalogueSettings) -> SearchConfig:
    """How widely is searched."""
    return SearchConfig(queries_per_topic=settings.queries_per_topic, rules=rules_of(settings))


def rules_of(settings: CatalogueSettings) -> Rules:
    """What an offer must fulfil."""
    return Rules(licences=settings.licences, languages=settings.languages, books_per_topic=settings.books_per_topic)


def download_config(settings: CatalogueSettings, *, shelf: str = "", contact: str = "") -> DownloadConfig:
    """How sources are fetched."""
    own = frozenset(host for name, base in _entries(settings, shelf) if name == "local" and (host := host_of(base)))
    return DownloadConfig(
        guard=_guard(settings, contact, own),
        host_delay_seconds=settings.host_delay_seconds,
        robots_exempt=tuple(settings.robots_exempt),
    )


def librarian_of(model: ChatModel, profile: str) -> Librarian:
    """The model that labels questions, with the profile's prompts."""
    return Librarian(model=model, assign=_prompt("assign_topic", profile), merge=_prompt("merge_topics", profile))


def agent_of(model: ChatModel, profile: str) -> Agent:
    """The model that phrases queries and ranks books, with the profile's prompts."""
    return Agent(model=model, phrase=_prompt("phrase_query", profile), rank=_prompt("rank_books", profile))


def prompts_of(profile: str) -> list[Template]:
    """Every prompt of taxonomy and search, for the keys of their stages."""
    return [_prompt(name, profile) for name in ("assign_topic", "merge_topics", "phrase_query", "rank_books")]


def _prompt(name: str, profile: str) -> Template:
    """The profile's text, or the shipped one where the profile, like the nano lab's, has none of that name."""
    try:
        return load(name, profile=profile)
    except ConfigError:
        return load(name, profile="paper")


def _entries(settings: CatalogueSettings, shelf: str) -> list[tuple[str, str]]:
    if settings.type == "nano":
        return [("local", shelf)]
    if settings.type == "local":
        return [("local", settings.url)]
    return [(entry.name, entry.base) for entry in settings.catalogues]


def _guard(settings: CatalogueSettings, contact: str, own: frozenset[str]) -> GuardConfig:
    """Hosts that the settings name may be private; nobody else's may."""
    loopback = LOOPBACK if settings.type in ("nano", "local") else frozenset()
    return GuardConfig(allowed_hosts=own | loopback, user_agent=f"{AGENT} (+{contact})" if contact else AGENT)
