"""The converter suits the source, and the page says which one and why."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from corpus_books import BookPlan, write_book
from reportlab.pdfgen.canvas import Canvas

from corpus.read.convert import SourceFile, convert
from corpus.read.embedded import CONVERTER
from corpus.read.page import ConversionJob
from infuser_core.config.corpus import ConvertSettings
from infuser_core.errors import ConfigError, DocumentError
from infuser_core.schemas import Page
from infuser_core.system.worker_pool import LocalPool


def converted(path: Path, job: ConversionJob) -> Page:
    """The one book's page."""
    pages: list[Page] = []
    convert([SourceFile(path=path, source_id="book")], job, LocalPool(1), pages.append)
    (page,) = pages
    return page


WRITES = "import sys, pathlib\n(pathlib.Path(sys.argv[3]) / 'x.md').write_text('# Read by looking')"


def scan(path: Path) -> Path:
    canvas = Canvas(str(path))
    for _ in range(3):
        canvas.rect(100, 100, 200, 200, fill=1)
        canvas.showPage()
    canvas.save()
    return path


def formulas(path: Path) -> Path:
    canvas = Canvas(str(path))
    for page in range(4):
        for row in range(30):
            canvas.drawString(72, 700 - 14 * row, f"x = = ( a + b ) / {page} - q ^ r [ s ] = < k > + u v w")
        canvas.showPage()
    canvas.save()
    return path


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job whose marker is a script of this code; None for no such command."""

    def made(code: str | None, **settings: str) -> ConversionJob:
        script = tmp_path / "marker_single"
        if code is not None:
            script.write_text(f"#!{sys.executable}\n{code}\n")
            script.chmod(0o755)
        monkeypatch.setenv("INFUSER_MARKER", "no-such-marker" if code is None else str(script))
        return ConversionJob(settings=ConvertSettings(**settings))

    return made


def test_a_born_digital_book_is_read_by_its_text_layer_even_where_marker_is_installed(tmp_path, job):
    write_book(tmp_path / "a.pdf", BookPlan(chapters=1))
    page = converted(tmp_path / "a.pdf", job(WRITES))
    assert page.converter == CONVERTER and page.chosen.startswith("text layer on ")


def test_a_scan_goes_to_marker(tmp_path, job):
    page = converted(scan(tmp_path / "a.pdf"), job(WRITES))
    assert (page.converter, page.status) == ("marker_single-unknown", "converted")
    assert page.chosen == "marker: needs_ocr: 3 of 3 pages have under 100 characters"


def test_a_scan_without_marker_is_rejected_and_says_what_it_needs(tmp_path, job):
    page = converted(scan(tmp_path / "a.pdf"), job(None))
    assert (page.status, page.markdown) == ("rejected", "")
    assert page.reason.startswith("needs_ocr: 3 of 3") and "needs marker: no command 'no-such-marker'" in page.reason


@pytest.mark.parametrize("code", ["raise SystemExit('broken')", "raise OSError('cannot reach huggingface.co')"])
def test_a_scan_that_marker_fails_on_has_both_reasons(tmp_path, job, code):
    page = converted(scan(tmp_path / "a.pdf"), job(code))
    assert page.reason.startswith("needs_ocr: ") and "needs marker: marker: " in page.reason


def test_garbled_formulas_go_to_marker_and_stay_where_there_is_none(tmp_path, job):
    seen = converted(formulas(tmp_path / "a.pdf"), job(WRITES))
    assert seen.chosen == "marker: garbled_formula: on pages with 100% of the text, such as {!r}".format(
        "x = = ( a + b ) / 3 - q ^ r [ s ] = < k > + u v w x = = ( a "
    )
    kept = converted(tmp_path / "a.pdf", job(None))
    assert kept.status == "converted" and "marker could not help" in kept.chosen


def test_markdown_is_taken_as_it_is(tmp_path, job):
    (tmp_path / "a.md").write_text("# Kiln\n\ntext\n")
    page = converted(tmp_path / "a.md", job(None))
    assert (page.markdown, page.converter) == ("# Kiln\n\ntext\n", "text-3")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("---\nlayout: page\npermalink: /kiln/\n---\n\nHeat.\n", "\nHeat.\n"),
        ("---\ntitle: 'The kiln'\ntags:\n  - heat\n---\nHeat.\n", "# The kiln\n\nHeat.\n"),
        ("---\n\nHeat: a kiln's.\n\n---\n", "---\n\nHeat: a kiln's.\n\n---\n"),
    ],
)
def test_settings_at_the_beginning_of_markdown_are_no_heading(tmp_path, job, written, read):
    (tmp_path / "a.md").write_text(written)
    page = converted(tmp_path / "a.md", job(None))
    assert page.markdown == read
    assert page.removed_for == ["settings"] * len(page.removed) and all(keys in written for keys in page.removed)
    assert len(page.removed) == (read != written)


def test_marker_may_be_asked_for_whatever_the_file_is(tmp_path, job):
    write_book(tmp_path / "a.pdf", BookPlan(chapters=1))
    page = converted(tmp_path / "a.pdf", job(WRITES, type="marker"))
    assert (page.converter, page.chosen) == ("marker_single-unknown", "marker was asked for")
    with pytest.raises(DocumentError, match="no command"):
        converted(tmp_path / "a.pdf", job(None, type="marker"))


def test_without_a_helper_a_scan_is_rejected(tmp_path, job):
    for settings in ({"helper": ""}, {"type": "pdfium"}):
        page = converted(scan(tmp_path / "a.pdf"), job(WRITES, **settings))
        assert page.reason.startswith("needs_ocr: ") and page.reason.endswith(": it is switched off")


def test_docling_is_a_command_whose_markdown_is_cleaned(tmp_path, job, monkeypatch):
    script = tmp_path / "docling"
    code = "import sys, pathlib\nout = pathlib.Path(sys.argv[sys.argv.index('--output') + 1])\n"
    script.write_text(
        f"#!{sys.executable}\n{code}(out / 'a.md').write_text('# Kiln\\n\\n![a sketch](x.png)It burns.\\n\\n"
        "<!-- formula-not-decoded -->\\n\\nx GLYPH<3> y')\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("INFUSER_DOCLING", str(script))
    page = converted(scan(tmp_path / "a.pdf"), job(None, helper="docling"))
    text = "# Kiln\n\nIt burns.\n\n<!-- formula-not-decoded -->\n\nx GLYPH<3> y"
    assert (page.markdown, page.converter, page.removed) == (text, "docling", ["a sketch"])
    monkeypatch.setenv("INFUSER_DOCLING", "no-such-docling")
    with pytest.raises(DocumentError, match="no command 'no-such-docling'"):
        converted(tmp_path / "a.pdf", job(None, type="docling"))


def test_a_converter_that_is_none_is_named_with_those_that_are(tmp_path, job):
    with pytest.raises(ConfigError) as failed:
        converted(scan(tmp_path / "a.pdf"), job(None, type="reader"))
    assert "docling, http, marker, pdfium" in failed.value.hint


class Answers(BaseHTTPRequestHandler):
    """A service that answers by the path."""

    def do_POST(self) -> None:
        posted = self.rfile.read(int(self.headers["Content-Length"]))
        status, kind, body = {
            "/text": (200, "text/markdown", f"# Read {posted[:5].decode()}"),
            "/json": (200, "application/json", '{"document": {"md_content": "# Read as JSON"}, "status": "success"}'),
            "/other": (200, "application/json", '["no", "text"]'),
            "/broken": (200, "application/json", "{"),
            "/page": (200, "text/html", "<h1>Sign in</h1>"),
        }.get(self.path, (503, "text/plain", "busy"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.mark.parametrize(
    ("place", "markdown", "reason"),
    [
        ("text", "# Read %PDF-", ""),
        ("json", "# Read as JSON", ""),
        ("other", "", "http: the answer of 14 bytes is no Markdown"),
        ("broken", "", "http: the answer of 1 bytes is no Markdown"),
        ("page", "", "http: the answer of 16 bytes is no Markdown"),
        ("down", "", "http: status 503 from "),
    ],
)
def test_a_service_is_sent_the_file_and_answers_in_markdown(tmp_path, job, place, markdown, reason):
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{place}"
        page = converted(scan(tmp_path / "a.pdf"), job(None, type="http", url=url))
        server.shutdown()
    assert page.markdown == markdown and page.reason.startswith(reason) and bool(page.reason) == bool(reason)


def test_a_service_that_nobody_runs_is_an_error(tmp_path, job):
    with pytest.raises(DocumentError, match="Connection refused"):
        converted(scan(tmp_path / "a.pdf"), job(None, type="http", url="http://127.0.0.1:9/"))


def test_tags_and_pictures_of_markdown_are_removed_outside_code(tmp_path, job):
    text = "# Kiln\n\n<div class='a'>\n<img src='k.png' width=9>\nIt <b>burns</b> x<sup>2</sup> `<b>`.\n</div>\n\n```\n<p>\n```\n"
    (tmp_path / "a.md").write_text(text)
    page = converted(tmp_path / "a.md", job(None))
    assert page.markdown.split() == ["#", "Kiln", "It", "burns", "$x^{2}$", "`<b>`.", "```", "<p>", "```"]
    assert (page.removed, page.removed_for) == (["k.png"], ["image"])
