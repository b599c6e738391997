"""What a textbook catalogue offers, and how one is found: a catalogue is one file of this folder."""

import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from infuser_core.errors import ConfigError
from infuser_core.schemas import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One catalogue entry as found for one topic. Holds no address that changes between two runs."""

    catalogue: str
    """Module name of the catalogue."""
    offer_id: str
    """The catalogue's own identifier of the entry."""
    title: str
    """Title as the catalogue gives it."""
    author: str
    """Authors, joined by "; "."""
    description: str
    """Short description, or empty."""
    category: str
    """textbook, reference, tutorial or notes."""
    subjects: list[str]
    """Pairs that the catalogue says the entry covers, each `domain / subdomain`; empty when it does not say."""
    discipline: str
    """Domain of the topic that the search was for."""
    licence: str
    """SPDX identifier, or empty when the catalogue names none."""
    licence_evidence: str
    """Field and value from which the licence was read."""
    source_url: str
    """Page that describes the entry."""
    download_url: str
    """Where the PDF is; a loopback catalogue writes `local:/path`."""
    doi: str
    """DOI as given, or empty."""
    isbn: str
    """ISBN as given, or empty."""
    arxiv: str
    """arXiv identifier as given, or empty."""


class Catalogue(Protocol):
    """Answers searches for topics. Sees a (domain, subdomain) pair and never a question."""

    @property
    def name(self) -> str:
        """Module name of the catalogue."""
        ...

    def search(self, topic: Topic) -> list[Offer]:
        """Every entry found for the topic, in the catalogue's order."""
        ...

    def address(self, download_url: str) -> str:
        """The address to fetch for an offer's or a source's `download_url`."""
        ...


def subject(domain: str, subdomain: str) -> str:
    """The one spelling under which pairs are compared."""
    return f"{domain.strip()} / {subdomain.strip()}".casefold()


def connect(name: str, *, base: str, client: httpx.Client) -> Catalogue:
    """The catalogue `name`: a module of this folder, or `package.module` from elsewhere.

    Such a module has a function `connect(base, client) -> Catalogue`.
    """
    shipped = sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if m.name != "protocol")
    target = f"corpus.catalogues.{name}" if name in shipped else name
    try:
        module = importlib.import_module(target)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"catalogue: no module {name!r}", hint=f"shipped: {', '.join(shipped)}; or a module of your own"
        ) from error
    if not hasattr(module, "connect"):
        raise ConfigError(f"catalogue: module {name!r} has no connect(base, client)", hint="see corpus/catalogues")
    catalogue: Catalogue = module.connect(base, client=client)
    return catalogue
