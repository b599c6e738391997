"""Catalogues, search and download set up from a run's settings."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corpus.find.catalogue import Catalogue, connect
from corpus.find.catalogues.local import SCHEME
from corpus.find.download import DownloadConfig
from corpus.find.guard import GuardConfig
from corpus.find.identifiers import host_of
from corpus.find.polite_http import Politeness
from corpus.find.queries import Agent
from corpus.find.session import Session, SessionConfig, live, replayed
from corpus.find.topics import Librarian
from corpus.find.web_search import CommandSearch
from infuser_core.config.corpus import CatalogueSettings
from infuser_core.engines.protocols import ChatModel
from infuser_core.errors import ConfigError
from infuser_core.prompts.load import Template, load

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
AGENT = "infuser-corpus/0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Catalogues that can be asked, what they have answered so far, and how their books are fetched."""

    catalogues: Sequence[Catalogue]
    """In the order of the settings."""
    session: Session
    """The client and its record."""
    download: DownloadConfig
    """How sources are fetched."""

    def address(self, download_url: str) -> str:
        """The address to fetch for a source: the local catalogue's where it was stored without its host."""
        local = [catalogue for catalogue in self.catalogues if catalogue.name == "local"]
        return local[0].address(download_url) if local and download_url.startswith(SCHEME) else download_url


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
    hosts = [(name, host) for name, base in entries if (host := host_of(base))]
    politeness = Politeness(delay_seconds=settings.host_delay_seconds, robots_exempt=tuple(settings.robots_exempt))
    config = SessionConfig(
        guard=_guard(settings, contact, [host for _, host in hosts]),
        politeness=politeness,
        # What is served on loopback changes with the run, and its port is another's tomorrow.
        folder=folder if settings.type == "catalogues" else None,
        max_age_days=settings.answer_days,
        search=CommandSearch(command=shlex.split(search)) if search.strip() else None,
    )
    own = [host for name, host in hosts if name == "local"]
    download = DownloadConfig(guard=_guard(settings, contact, own), politeness=politeness)
    recorded = settings.type == "catalogues" and settings.answers == "recorded"
    with replayed(folder or Path()) if recorded else live(config) as session:
        catalogues = [connect(name, base=base, client=session.client) for name, base in entries]
        yield Opened(catalogues=catalogues, session=session, download=download)


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


def _guard(settings: CatalogueSettings, contact: str, own: Iterable[str]) -> GuardConfig:
    """Hosts that the settings name may be private; nobody else's may."""
    loopback = LOOPBACK if settings.type in ("nano", "local") else frozenset()
    return GuardConfig(allowed_hosts=loopback | {*own}, user_agent=f"{AGENT} (+{contact})" if contact else AGENT)
