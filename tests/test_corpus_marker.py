"""marker runs as a command; what goes wrong with it is named."""

import sys
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from corpus.marker import MarkerConfig, convert_marker
from infuser_core.errors import DocumentError

WRITES = "import sys, pathlib; o = pathlib.Path(sys.argv[3]) / 'x'; o.mkdir(); (o / 'x.md').write_text('# Hello')"


@pytest.fixture
def book(tmp_path) -> Path:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(72, 700, "Hello")
    canvas.save()
    return tmp_path / "a.pdf"


def command(tmp_path: Path, code: str, **changes: float) -> MarkerConfig:
    script = tmp_path / "marker_single"
    script.write_text(f"#!{sys.executable}\n{code}\n")
    script.chmod(0o755)
    return MarkerConfig(command=str(script), version="1.0", **changes)


def test_the_written_file_is_the_page(book, tmp_path):
    page = convert_marker(book, "book", command(tmp_path, WRITES))
    assert (page.markdown, page.num_pages, page.converter) == ("# Hello", 1, "marker_single-1.0")


@pytest.mark.parametrize(
    ("code", "reason"),
    [("import time; time.sleep(60)", "still running"), ("raise SystemExit(3)", "exit status 3"), ("", "wrote 0")],
)
def test_a_failed_conversion_is_a_rejected_row(book, tmp_path, code, reason):
    page = convert_marker(book, "book", command(tmp_path, code, wall_seconds=1.0))
    assert page.status == "rejected" and reason in page.reason


def test_a_missing_command_is_an_error(book):
    with pytest.raises(DocumentError, match="install marker-pdf"):
        convert_marker(book, "book", MarkerConfig(command="no-such-marker"))


def test_missing_weights_are_an_error(book, tmp_path):
    failing = command(tmp_path, "raise OSError('cannot reach huggingface.co')")
    with pytest.raises(DocumentError, match="weights"):
        convert_marker(book, "book", failing)
