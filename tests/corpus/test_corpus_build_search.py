"""A build searches the configured catalogues: what is offered is taken or has its reason, and is fetched once."""

import json
import os
import signal
import subprocess
import sys

import pytest
from corpus_sources import pdf_bytes
from loopback import Loopback, Say, serving
from places import ROOT

from corpus.find.search import Failure, Ranking
from corpus.harvest import Wish, harvest
from corpus.pool import SEARCH, SOURCES, PoolSource
from infuser_core.config.corpus import CatalogueEntry, CatalogueSettings
from infuser_core.errors import CatalogueError
from infuser_core.schemas import Topic
from infuser_core.store.tables import read_rows

OPTICS = Topic(domain="Physics", subdomain="Optics", num_questions=3)
TIDES = Topic(domain="Geology", subdomain="Tides", num_questions=1)


def offer(name: str, title: str, licence: str = "CC-BY-4.0", domain: str = "Physics", subdomain: str = "Optics"):
    entry = {"id": name, "title": title, "pdf": f"books/{name}.pdf", "license": {"spdx": licence}}
    return {**entry, "subjects": [{"domain": domain, "subdomain": subdomain}]}


@pytest.fixture
def shelf():
    """A catalogue of five books, one of them under a licence that is not allowed and one that is not there."""
    offers = [
        offer("rays", "Rays: a course in Optics"),
        offer("lenses", "Lenses in Optics"),
        offer("closed", "Optics for buyers", "CC-BY-NC-4.0"),
        offer("gone", "Optics that was moved"),
        offer("cheese", "Making cheese", subdomain="Cooking"),
    ]
    with serving() as server:
        server.routes["/catalogue.json"] = Say(body=json.dumps({"data": offers, "links": {"next": None}}).encode())
        for name in ("rays", "lenses", "closed", "cheese"):
            server.routes[f"/books/{name}.pdf"] = Say(body=pdf_bytes(name))
        yield server


def fetched(server: Loopback) -> list[str]:
    return [path for path in server.paths() if path.endswith(".pdf")]


def test_offers_are_ranked_licensed_and_fetched_once(shelf, tmp_path):
    wish = Wish(topics=[OPTICS], settings=CatalogueSettings(type="local", url=shelf.base))
    first = harvest(wish, tmp_path, tmp_path / "work")
    told = {item.source.title: (item.stage, item.source.reason.split(":")[0], item.subdomain) for item in first.items}
    assert told == {
        "Rays: a course in Optics": ("", "", "Optics"),
        "Lenses in Optics": ("", "", "Optics"),
        "Optics for buyers": ("search", "licence not allowed", ""),
        "Optics that was moved": ("download", "download", "Optics"),
        "Making cheese": ("search", "covers none of the topics", ""),
    }
    assert all(item.path and item.path.read_bytes().startswith(b"%PDF") for item in first.items if not item.stage)
    assert {row.rank for row in read_rows(tmp_path / SEARCH / "rankings.parquet", Ranking)} == {0, 1, 2, 3}
    seen = fetched(shelf)
    again = harvest(wish, tmp_path, tmp_path / "work")
    assert again == first and set(fetched(shelf)[len(seen) :]) <= {"/books/gone.pdf"}


def test_without_topics_everything_is_wanted_under_its_own_pair(shelf, tmp_path):
    wish = Wish(topics=[], settings=CatalogueSettings(type="local", url=shelf.base))
    items = [item for item in harvest(wish, tmp_path, tmp_path / "work").items if item.path]
    assert {(item.source.title, item.subdomain) for item in items} == {
        ("Rays: a course in Optics", "optics"),
        ("Lenses in Optics", "optics"),
        ("Making cheese", "cooking"),
    }


def test_a_catalogue_that_is_down_costs_its_own_answers_alone(shelf, tmp_path):
    entries = [CatalogueEntry(name="local", base=shelf.base), CatalogueEntry(name="oapen", base=f"{shelf.base}/down")]
    settings = CatalogueSettings(type="catalogues", catalogues=entries, queries_per_topic=1)
    found = harvest(Wish(topics=[OPTICS, TIDES], settings=settings), tmp_path, tmp_path / "work")
    assert sum(item.path is not None for item in found.items) == 2
    assert {(row.catalogue, row.subdomain) for row in found.failures} == {("oapen", "Optics"), ("oapen", "Tides")}
    assert read_rows(tmp_path / SEARCH / "failures.parquet", Failure) == found.failures


def test_when_no_catalogue_answers_the_build_says_so(tmp_path):
    wish = Wish(topics=[OPTICS, TIDES], settings=CatalogueSettings(type="local", url="http://127.0.0.1:1"))
    with pytest.raises(CatalogueError, match=r"127\.0\.0\.1:1"):
        harvest(wish, tmp_path, tmp_path / "work")


def test_a_build_killed_while_downloading_fetches_the_rest_alone(shelf, tmp_path):
    command = [sys.executable, "-m", "flows.cli.main", "corpus", "build", "--catalogue", shelf.base, "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running: list[subprocess.Popen[str]] = []

    def kill(seen: object, number: int) -> Say:
        running[0].send_signal(signal.SIGKILL)
        return Say(body=pdf_bytes("lenses"))

    shelf.routes["/books/lenses.pdf"] = kill
    out = ["--out", str(tmp_path / "out")]
    running.append(subprocess.Popen([*command, *out], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE))
    running[0].communicate(timeout=120)
    assert running[0].returncode == -9 and fetched(shelf) == ["/books/rays.pdf", "/books/lenses.pdf"]
    shelf.routes["/books/lenses.pdf"] = Say(body=pdf_bytes("lenses"))
    subprocess.run([*command, *out], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert fetched(shelf).count("/books/rays.pdf") == 1
    rows = {row.title: row for row in read_rows(tmp_path / "out" / SOURCES, PoolSource)}
    assert rows["Rays: a course in Optics"].sha256 and rows["Lenses in Optics"].sha256
    assert rows["Optics for buyers"].stage == "search" and rows["Optics that was moved"].stage == "download"
