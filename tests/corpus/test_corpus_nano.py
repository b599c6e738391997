"""The nano shelf goes through the whole pipeline: every section becomes one chunk, word for word."""

import re
from functools import partial

from loopback import GUARD

from corpus.chunk.chunk import chunk_page
from corpus.find.catalogue import connect
from corpus.find.catalogues import local
from corpus.find.download import Holdings, download_sources
from corpus.find.registry import admit_offers
from corpus.find.search import search_topic
from corpus.find.session import live_recorder
from corpus.read.converters import pdfium
from corpus.read.file_kinds import file_of
from corpus.read.page import ConversionJob
from infuser_core.config.corpus import CatalogueSettings, ChunkSettings
from infuser_core.nano import language, textbooks
from infuser_core.nano.shelf import serve_shelf
from infuser_core.schemas import Topic

SECTION = re.compile(r"## [^\n]+\n\n([^\n]+)")


def test_every_section_of_the_admitted_books_is_one_chunk(tmp_path):
    entries = textbooks.build_shelf(tmp_path, 0)
    pairs = sorted({(s["domain"], s["subdomain"]) for entry in entries for s in entry["subjects"]})
    topics = [Topic(domain=domain, subdomain=subdomain, num_questions=1) for domain, subdomain in pairs]
    with serve_shelf(tmp_path) as base, live_recorder(GUARD) as session:
        catalogue = connect("local", base=base, client=session.client)
        searches = [search_topic(topic, [catalogue], CatalogueSettings()) for topic in topics]
        offers = [offer for found in searches for offer in found.offers]
        rankings = [row for found in searches for row in found.rankings]
        ranked = admit_offers(offers, topics, CatalogueSettings(), rankings)
        held, address = Holdings(tmp_path / "held"), partial(local.resolve, catalogue)
        fetched, _ = download_sources(ranked.sources, address, tmp_path / "pdf", held, GUARD)
    assert {row.subdomain for row in ranked.coverage if row.source_id} == {topic.subdomain for topic in topics}
    assert base.rpartition(":")[2] not in repr(ranked)
    admitted = {row.source_id for row in fetched if row.status == "admitted"}
    books = [book for book in textbooks.BOOKS if f"doi:{book.doi}" in admitted]
    assert len(books) == len(admitted) == 4

    files = {row.source_id: file_of(tmp_path / "pdf", row.sha256) for row in fetched if row.sha256}
    pages = [pdfium.convert(path, name, ConversionJob()) for name, path in files.items()]
    config = ChunkSettings(min_tokens=16, max_tokens=96, small_sections="drop")
    chunks = [row for page in pages for row in chunk_page(page, lambda text: len(text.split()), config, "d")]
    found = [match[1] for row in chunks if not row.discard and (match := SECTION.fullmatch(row.document.text))]
    notes = [note for book in books for chapter in textbooks.book_notes(book, 0) for note in chapter]
    assert sorted(found) == sorted(language.paragraph(note.facts) for note in notes)
