"""A run on a pool of somebody's own PDF and EPUB knows each chunk's book and page, as one on catalogues does."""

import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_stages import config_of, running
from reportlab.lib.pagesizes import A5
from reportlab.pdfgen.canvas import Canvas
from typer.testing import CliRunner

from corpus.pool import SOURCES, PoolSource, read_sources, write_table
from flows.cli.main import app
from flows.corpus import document_pool
from infuser_core.errors import DocumentError
from infuser_core.results.export.card import textbooks
from infuser_core.results.lineage.graph import graph_of
from infuser_core.results.lineage.story import Story
from infuser_core.results.lineage.why import why
from infuser_core.results.view.books import listed, sheet
from infuser_core.schemas import Document
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.store import Store
from infuser_core.store.tables import foreign_rows
from infuser_core.store.views import Lens
from tasks import documents

CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>
<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i"><metadata
xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="i">mills</dc:identifier><dc:title>Mills</dc:title>
<dc:language>en</dc:language></metadata><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>
</manifest><spine><itemref idref="a"/></spine></package>"""
Fill = Callable[[Path], tuple[list[Document], str]]


def sentence(page: int, line: int) -> str:
    return f"At quay {page} the crane of row {line} lifts {page * 100 + line} crates before noon."


def printed(path: Path) -> Path:
    canvas = Canvas(str(path), pagesize=A5)
    for page in (1, 2, 3):
        canvas.setFont("Helvetica", 9)
        for line in range(40):
            canvas.drawString(40, 560 - 12 * line, sentence(page, line))
        canvas.showPage()
    canvas.save()
    return path


def bound(path: Path) -> Path:
    parts = [f"<h1>Mill {part}</h1><p>{' '.join(sentence(part, line) for line in range(5))}</p>" for part in (7, 8)]
    page = (
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>M</title></head><body>{"".join(parts)}</body></html>'
    )
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("mimetype", "application/epub+zip")
        file.writestr("META-INF/container.xml", CONTAINER)
        file.writestr("book.opf", PACKAGE)
        file.writestr("a.xhtml", page)
    return path


def command(*words: object) -> None:
    done = CliRunner().invoke(app, ["corpus", *map(str, words)])
    assert done.exit_code == 0, done.output


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def pool(root: Path, tmp_path: Path) -> Path:
    books = [printed(tmp_path / "quays.pdf"), bound(tmp_path / "mills.epub")]
    command("build", "--out", tmp_path / "pool", "--source", *books)
    return tmp_path / "pool"


@pytest.fixture
def fill(root: Path, tmp_path: Path) -> Fill:
    """Fill a run's pool from one that is given: its documents and the run's name."""

    def filled(place: Path) -> tuple[list[Document], str]:
        with running(config_of(f"corpus.pool={place}"), name=f"on-{place.stem}") as run:
            dev, validation = (documents.reference_questions(run.name, part) for part in ("dev", "validation"))
            return run.store.rows(document_pool(run.name, dev, validation), "documents", Document), run.name

    return filled


def facts(answer: Story, passage: str) -> dict:
    return dict(answer.passage(passage).facts)


def test_title_page_and_picture_are_those_of_the_book(root: Path, pool: Path, fill: Fill, tmp_path: Path):
    rows, run = fill(pool)
    titles = {row.source_id: row.title for row in read_sources(pool)}
    assert sorted(titles.values()) == ["mills.epub", "quays.pdf"]
    shown = set()
    with closing(Lens(Store(root), runs=[run])) as lens:
        for row in rows:
            answer = why(root, row.document_id, run=run)
            source, chunk = facts(answer, "source"), facts(answer, "document")
            assert source["title"] == titles[row.source_id] and source["sha256"] == row.source_id.split(":")[1]
            picture, note = sheet(lens, row.document_id)
            if source["title"] == "mills.epub":
                assert picture is None and note == "This book is not a PDF but .epub: it has no pages to show."
                assert "page" not in chunk and chunk["converter"].startswith("pandoc")
                continue
            # The page that `why` names has the chunk's first sentence, and the picture is of a page of the chunk.
            first, last = (int(end) for end in (str(chunk["page"]).split("-") * 2)[:2])
            assert f"At quay {first} " in row.text and f"At quay {last} " in row.text and chunk["num_pages"] == 3
            assert first <= picture["page"] + 1 <= last and picture["pages"] == 3 and picture["marks"]
            shown.update(range(first, last + 1))
        assert shown == {1, 2, 3}
        assert {row["title"] for row in listed(lens)} == set(titles.values())
    registry = textbooks(graph_of(Catalogue(root), run), Store(root))
    assert {row.title for row in registry} == set(titles.values())
    # A registry is published with a model: it does not say where the files were.
    assert str(tmp_path) not in json.dumps([row.source_url + row.download_url + row.filename for row in registry])


def test_where_the_pool_is_changes_no_key_and_another_title_changes_that_of_the_registry_alone(
    root: Path, pool: Path, fill: Fill, tmp_path: Path
):
    def keys(run: str) -> dict[str, str]:
        return {record.phase: record.key for record in graph_of(Catalogue(root), run).records.values()}

    first = keys(fill(pool)[1])
    moved = keys(fill(shutil.copytree(pool, tmp_path / "moved"))[1])
    assert moved == first
    rows = [{**row, "title": "Renamed"} for row in foreign_rows(pool / SOURCES)]
    write_table(tmp_path / "moved" / SOURCES, [PoolSource(**row) for row in rows], PoolSource)
    shutil.move(tmp_path / "moved", tmp_path / "renamed")
    renamed = keys(fill(tmp_path / "renamed")[1])
    assert {phase for phase in first if renamed[phase] != first[phase]} == {"sources"}


def test_documents_alone_run_and_say_why_their_book_is_unknown(root: Path, pool: Path, fill: Fill, tmp_path: Path):
    command("convert", pool, "--format", "documents-json", "--out", tmp_path / "alone.json")
    rows, run = fill(tmp_path / "alone.json")
    note = "its pool is documents alone, without a build's sources.parquet"
    assert why(root, rows[0].document_id, run=run).passage("source").note.endswith(note)
    with closing(Lens(Store(root), runs=[run])) as lens:
        assert sheet(lens, rows[0].document_id) == (
            None,
            "The run's registry does not have this book, so no page is shown.",
        )


def test_a_book_whose_file_the_store_has_not_says_how_to_add_it(
    root: Path, pool: Path, fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "elsewhere"))
    rows, run = fill(pool)
    (quays,) = [row.source_id for row in read_sources(pool) if row.title == "quays.pdf"]
    chunk = next(row.document_id for row in rows if row.source_id == quays)
    assert facts(why(tmp_path / "elsewhere", chunk, run=run), "source")["title"] == "quays.pdf"
    with closing(Lens(Store(tmp_path / "elsewhere"), runs=[run])) as lens:
        assert "`infuser corpus build` adds it" in sheet(lens, chunk)[1]
        command("build", "--out", tmp_path / "pool2", "--source", tmp_path / "quays.pdf")
        assert sheet(lens, chunk)[0] is not None


def test_a_registry_of_an_older_build_has_titles_and_no_pages(pool: Path):
    new = read_sources(pool)
    older = [{name: value for name, value in row.items() if name not in ("page_starts", "markdown_sha256")}
             for row in foreign_rows(pool / SOURCES)]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(older), pool / SOURCES)
    read = read_sources(pool)
    assert [row.title for row in read] == [row.title for row in new]
    assert all(row.page_starts == [] for row in read) and any(row.page_starts for row in new)
    pq.write_table(pa.table({"title": ["x"]}), pool / SOURCES)
    with pytest.raises(DocumentError, match=r"sources\.parquet lacks the columns source_id, input"):
        read_sources(pool)
