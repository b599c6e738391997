"""A run on a pool of own books knows the title, the page and the picture of what a question was written from."""

import html
import json
import shutil
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun

from infuser_core.schemas import Page
from infuser_core.store.store import Store
from infuser_core.store.views import Lens
from infuser_core.view.books import sheet

CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
PACKAGE = (
    '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
    '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">own</dc:identifier><dc:title>Own'
    '</dc:title><dc:language>en</dc:language></metadata><manifest><item id="a" href="a.xhtml" '
    'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>'
)


def write_epub(path: Path, markdown: str) -> None:
    lines = [line for line in markdown.splitlines() if line.strip()]
    tags = [f"h{len(line) - len(line.lstrip('#'))}" if line.startswith("#") else "p" for line in lines]
    body = [f"<{tag}>{html.escape(line.lstrip('# '))}</{tag}>" for tag, line in zip(tags, lines, strict=True)]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("mimetype", "application/epub+zip")
        file.writestr("META-INF/container.xml", CONTAINER)
        file.writestr("book.opf", PACKAGE)
        page = f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>{"".join(body)}</body></html>'
        file.writestr("a.xhtml", page)


def run_on(launch: Launcher, pool: Path, store: Path) -> str:
    """The name of a run of one iteration on a pool."""
    settings = [f"corpus.pool={pool}", "cotrain.iterations=1", "cotrain.documents=12", "evaluate.benchmarks=[]"]
    ended = launch("run", "nano", *[word for each in settings for word in ("--set", each)], store=store)
    assert ended.code == 0, ended.err
    (name,) = {path.name for path in (store / "runs").iterdir() if (path / "report").is_dir()}
    return name


@pytest.fixture(scope="module")
def own_books(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The store and the pool of a PDF and an EPUB."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(sorted((small_run.root / "artifacts" / "sources").glob("*/*.pdf"))[0], folder / "own.pdf")
    (converted,) = (small_run.root / "artifacts" / "convert").glob("*/pages.parquet")
    ref = next(ref for ref in small_run.store.refs("convert-") if ref.key == converted.parent.name)
    write_epub(folder / "own.epub", small_run.store.rows(ref, "pages", Page)[1].markdown)
    files = [str(folder / name) for name in ("own.pdf", "own.epub")]
    store, pool = folder / "store", folder / "pool"
    ended = launch("corpus", "build", "--config", "nano", "--source", *files, "--out", str(pool), store=store)
    assert ended.code == 0 and len(json.loads((pool / "report.json").read_text())) > 3, ended.err
    return store, pool


def test_a_question_from_an_own_book_leads_to_its_title_its_page_and_its_picture(
    launch: Launcher, own_books: tuple[Path, Path]
):
    store, pool = own_books
    name = run_on(launch, pool, store)
    with closing(Lens(Store(store), runs=[name])) as lens:
        written = lens.query(
            "select s.title, min(q.question_id) as question, min_by(d.document_id, q.question_id) as document"
            " from questions q join documents d using (document_id) join sources s using (source_id)"
            " group by 1 order by 1"
        )
        assert [row["title"] for row in written] == ["own.epub", "own.pdf"]
        for row in written:
            story = launch("why", row["question"], store=store).out
            assert f"title: {row['title']}" in story
            assert ("\n  page: " in story) == (row["title"] == "own.pdf")
            picture, note = sheet(lens, row["document"])
            if row["title"] == "own.pdf":
                assert picture is not None and picture["image"].startswith("data:image/webp") and picture["marks"]
                assert f"page: {picture['page'] + 1}" in story
            else:
                assert picture is None and note == "This book is no PDF but .epub: it has no pages to show."
    assert "own.pdf" in (store / "runs" / name / "report" / "report.html").read_text()


def test_a_pool_without_a_registry_says_so(launch: Launcher, own_books: tuple[Path, Path], tmp_path: Path):
    store, pool = own_books
    file = tmp_path / "documents.json"
    assert launch("corpus", "export", str(pool), "--out", str(file), store=store).code == 0
    other = tmp_path / "store"
    run_on(launch, file, other)
    told = launch("sql", "select question_id from questions order by 1 limit 1", "--json", store=other).out
    story = launch("why", json.loads(told)[0]["question_id"], store=other).out
    assert "its pool is documents alone" in " ".join(story.split())
