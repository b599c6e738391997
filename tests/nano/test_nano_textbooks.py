"""The shelf: real PDFs with an outline, the same bytes at every build, offered by a catalogue over HTTP."""

import hashlib

import httpx
import pypdfium2
import pytest

from infuser_core.errors import CatalogueError
from infuser_core.nano import language
from infuser_core.nano.shelf import serve_shelf
from infuser_core.nano.textbooks import BOOKS, CHAPTERS, SECTIONS, book_notes, book_pdf, build_shelf
from infuser_core.nano.world import TARGET, world_of


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    build_shelf(folder, 0)
    return folder


def pages_of(book, seed=0):
    document = pypdfium2.PdfDocument(book_pdf(book, seed))
    return document, [" ".join(page.get_textpage().get_text_bounded().split()) for page in document]


def test_the_basic_shelf_keeps_its_bytes_and_another_seed_prints_another_book(shelf):
    def digest(content):
        return hashlib.sha256(content).hexdigest()[:16]

    assert digest(b"".join(book_pdf(book, 0) for book in BOOKS)) == "352695dbf54e3655"
    assert digest((shelf / "catalogue.json").read_bytes()) == "87bdca55ba8338e3"
    assert book_pdf(BOOKS[0], 0) != book_pdf(BOOKS[0], 1)


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.book_id)
def test_the_outline_points_at_the_printed_headings(book):
    document, pages = pages_of(book)
    entries = list(document.get_toc())
    assert sum(entry.level == 1 for entry in entries) == CHAPTERS * SECTIONS
    assert [entry.get_title() for entry in entries if entry.level == 0][-2:] == ["Index", "Answers"]
    for entry in entries:
        assert entry.get_title() in pages[entry.get_dest().get_index()]


def test_every_note_is_printed_whole():
    _, pages = pages_of(BOOKS[0])
    for note in [note for chapter in book_notes(BOOKS[0], 0) for note in chapter]:
        assert any(language.paragraph(note.facts) in page for page in pages)


@pytest.mark.parametrize("name", ["basic", "hard"])
def test_the_licensed_books_hold_150_notes_on_all_topics(name):
    licensed = [book for book in BOOKS if book.licence]
    notes = [note for book in licensed for chapter in book_notes(book, 0, world_of(name)) for note in chapter]
    assert len(notes) >= 150
    assert {fact.topic for note in notes for fact in note.facts} == set(world_of(name).topics)
    with_target = sum(any(fact.topic.name in TARGET for fact in note.facts) for note in notes) / len(notes)
    assert name == "basic" or 0.3 <= with_target <= 0.6


def test_the_contents_name_the_right_pages():
    document, pages = pages_of(BOOKS[1])
    start = next(i for i, page in enumerate(pages) if page.startswith("Contents 1 "))
    contents = " ".join(pages[start : start + 2])
    for entry in [entry for entry in document.get_toc() if entry.level == 1]:
        assert f"{entry.get_title()} {entry.get_dest().get_index() + 1}" in contents


def test_one_entry_has_no_licence_and_one_is_offered_twice(shelf):
    entries = build_shelf(shelf, 0)
    dois = [entry["doi"] for entry in entries if "doi" in entry]
    assert [entry["id"] for entry in entries if entry["license"] is None] == ["scans"]
    assert len(dois) == len(set(dois)) + 1
    assert all((shelf / entry["pdf"]).is_file() for entry in entries)


def test_the_search_is_paged_and_reaches_every_match(shelf):
    with serve_shelf(shelf) as base, httpx.Client(base_url=base) as client:
        found, url = [], "/catalogue.json?q=voltage&page=1"
        while url:
            answer = client.get(url).json()
            found += [entry["id"] for entry in answer["data"]]
            url = answer["links"]["next"]
        assert found == [entry["id"] for entry in build_shelf(shelf, 0)]
        assert client.get("/catalogue.json", params={"q": "alchemy"}).json() == {"data": [], "links": {"next": None}}


def test_a_pdf_comes_whole(shelf):
    whole = (shelf / "books" / "notes.pdf").read_bytes()
    with serve_shelf(shelf) as base, httpx.Client(base_url=base) as client:
        answer = client.get("/books/notes.pdf")
    assert answer.content == whole
    assert (answer.headers["content-length"], answer.headers["content-type"]) == (str(len(whole)), "application/pdf")


def test_nothing_outside_the_shelf_is_served(shelf):
    (shelf.parent / "secret.pdf").write_bytes(b"%PDF-")
    with serve_shelf(shelf) as base, httpx.Client(base_url=base) as client:
        assert client.get("/%2e%2e/secret.pdf").status_code == 404
        assert client.get("/books/none.pdf").status_code == 404
        assert client.get("/books/").status_code == 404
        assert client.get("/catalogue.json?page=zero").status_code == 400


def test_a_folder_without_a_catalogue_is_refused(tmp_path):
    with pytest.raises(CatalogueError, match=r"no catalogue\.json"), serve_shelf(tmp_path):
        pass
