"""The converter suits the source, and the page says which one and why."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_books import BookPlan, write_book
from reportlab.pdfgen.canvas import Canvas

from corpus.read.convert import ChoiceConfig, convert_auto
from corpus.read.embedded import CONVERTER, ConvertConfig
from corpus.read.marker import MarkerConfig
from infuser_core.errors import DocumentError

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
            canvas.drawString(72, 700 - 14 * row, f"x = ( a + b ) / {page} - q ^ r [ s ] = < k > + u v w")
        canvas.showPage()
    canvas.save()
    return path


def config(tmp_path: Path, code: str | None) -> ChoiceConfig:
    command = "no-such-marker"
    if code is not None:
        script = tmp_path / "marker_single"
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o755)
        command = str(script)
    return ChoiceConfig(embedded=ConvertConfig(), marker=MarkerConfig(command=command, version="1", attempts=1))


def test_a_born_digital_book_is_read_by_its_text_layer_even_where_marker_is_installed(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan(chapters=1))
    page = convert_auto(tmp_path / "a.pdf", "book", config(tmp_path, WRITES))
    assert page.converter == CONVERTER and page.chosen.startswith("text layer on ")


def test_a_scan_goes_to_marker(tmp_path):
    page = convert_auto(scan(tmp_path / "a.pdf"), "book", config(tmp_path, WRITES))
    assert (page.converter, page.status) == ("marker_single-1", "converted")
    assert page.chosen == "marker: needs_ocr: 3 of 3 pages have under 100 characters"


def test_a_scan_without_marker_is_rejected_and_says_what_it_needs(tmp_path):
    page = convert_auto(scan(tmp_path / "a.pdf"), "book", config(tmp_path, None))
    assert (page.status, page.markdown) == ("rejected", "")
    assert page.reason.startswith("needs_ocr: 3 of 3") and "needs marker: no command 'no-such-marker'" in page.reason


@pytest.mark.parametrize("code", ["raise SystemExit('broken')", "raise OSError('cannot reach huggingface.co')"])
def test_a_scan_that_marker_fails_on_has_both_reasons(tmp_path, code):
    page = convert_auto(scan(tmp_path / "a.pdf"), "book", config(tmp_path, code))
    assert page.reason.startswith("needs_ocr: ") and "needs marker: marker: " in page.reason


def test_garbled_formulas_go_to_marker_and_stay_where_there_is_none(tmp_path):
    seen = convert_auto(formulas(tmp_path / "a.pdf"), "book", config(tmp_path, WRITES))
    assert seen.chosen == "marker: 4 of 4 pages have garbled formulas"
    kept = convert_auto(tmp_path / "a.pdf", "book", config(tmp_path, None))
    assert kept.status == "converted" and "marker could not help" in kept.chosen


def test_markdown_is_taken_as_it_is(tmp_path):
    (tmp_path / "a.md").write_text("# Kiln\n\ntext\n")
    page = convert_auto(tmp_path / "a.md", "book", config(tmp_path, None))
    assert (page.markdown, page.converter) == ("# Kiln\n\ntext\n", "text-1")


def test_marker_may_be_asked_for_whatever_the_file_is(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan(chapters=1))
    page = convert_auto(tmp_path / "a.pdf", "book", replace(config(tmp_path, WRITES), always_marker=True))
    assert (page.converter, page.chosen) == ("marker_single-1", "marker was asked for")
    with pytest.raises(DocumentError, match="no command"):
        convert_auto(tmp_path / "a.pdf", "book", replace(config(tmp_path, None), always_marker=True))


def test_without_a_command_marker_is_switched_off(tmp_path):
    choice = ChoiceConfig(embedded=ConvertConfig(), marker=MarkerConfig(command=""))
    assert convert_auto(scan(tmp_path / "a.pdf"), "book", choice).reason.endswith("needs marker: it is switched off")
