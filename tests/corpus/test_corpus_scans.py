"""Scanned pages become Markdown: recognised boxes by rules, pages without a text layer by RapidOCR if it is installed."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from difflib import SequenceMatcher
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pytest
from PIL import Image
from places import ROOT
from reportlab.pdfgen.canvas import Canvas

from corpus.read import scans
from corpus.read.convert import SourceFile, convert
from corpus.read.converters import rapidocr
from corpus.read.doubt import MARK
from corpus.read.page import ConversionJob
from corpus.read.scans import Region, ScanLine, ScanPage
from infuser_core.config.corpus import ConvertSettings
from infuser_core.errors import InfuserError
from infuser_core.schemas import Page
from infuser_core.system import sealed
from infuser_core.system.worker_pool import LocalPool

needs_models = pytest.mark.skipif(
    bool(rapidocr.trouble(ConversionJob())), reason="needs the extra `scans`: pip install 'infuser[scans]'"
)
TEXT = (
    "the kiln burns clay until its water leaves and every grain of sand inside begins to melt at the edge of the "
    "shelf where heat gathers first while cold air enters below through an open door that no potter has closed since"
)


def sentence(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(TEXT.split(), k=count))


def line_at(x: float, y: float, text: str, *, size: float = 10.0, score: float = 0.99, fall: float = 0.0) -> ScanLine:
    """A line's box as the recogniser returns it: `y` from the top, `fall` to the right in points per point."""
    width, height = len(text) * size / 2, size / scans.FONT
    corners = [[x, y + fall * x], [x + width, y + fall * (x + width)]]
    corners += [[cx, cy + height] for cx, cy in reversed(corners)]
    return ScanLine(text=text, score=score, corners=corners)


def page_with(*lines: ScanLine, regions: list[Region] | None = None) -> ScanPage:
    return ScanPage(height=792.0, lines=list(lines), regions=regions or [])


def prose(x: float, top: float, count: int, *, first: int = 0, fall: float = 0.0) -> list[ScanLine]:
    """Lines of one paragraph, 50 characters each."""
    texts = [sentence(first + row, 20)[:50].strip().ljust(50, "x") for row in range(count)]
    return [line_at(x, top + 13 * row, text, fall=fall) for row, text in enumerate(texts)]


@pytest.fixture
def read(tmp_path: Path):
    """Assembles recorded pages of a blank PDF, and returns the fields of `Reading`."""

    def assemble(*pages: ScanPage) -> dict[str, Any]:
        canvas = Canvas(str(tmp_path / "blank.pdf"))
        for _ in pages:
            canvas.showPage()
        canvas.save()
        return scans.assemble(str(tmp_path / "blank.pdf"), [asdict(page) for page in pages])

    return assemble


def test_two_columns_of_a_turned_page_are_read_one_after_the_other(read):
    left, right = prose(50, 100, 12, fall=0.01), prose(320, 100, 12, first=50, fall=0.01)
    mixed = [line for row in zip(left, right, strict=True) for line in row]
    markdown = read(page_with(*mixed))["markdown"]
    assert markdown.split() == " ".join(line.text for line in left + right).split()


def test_titles_are_headings_by_their_region_or_their_height(read):
    large, bold = line_at(50, 60, "1 The kiln", size=16), line_at(50, 300, "1.1 How it burns")
    title = Region(kind="title", x0=45, y0=295, x1=300, y1=320)
    page = page_with(large, *prose(50, 100, 10), bold, *prose(50, 340, 10, first=20), regions=[title])
    reading = read(page, page_with(bold, *prose(50, 340, 10, first=40), regions=[title]))
    headings = [row for row in reading["markdown"].splitlines() if row.startswith("#")]
    assert headings == ["# 1 The kiln", *["## 1.1 How it burns"] * 2]


def test_lines_that_differ_little_in_height_have_one_font_size():
    lines = prose(50, 100, 9)
    low = line_at(50, 217, lines[0].text, size=10)
    low = ScanLine(text=low.text, score=1.0, corners=[*low.corners[:2], *([x, y - 2.2] for x, y in low.corners[2:])])
    pieces, _ = scans.pieces_of(page_with(*lines, low), scans.usual_box(lines))
    assert low.height < lines[0].height / 1.2 and len({piece.size for piece in pieces}) == 1


@pytest.mark.parametrize(
    "line",
    [
        line_at(50, 400, "the heat is E = mc2 at the edge"),
        line_at(50, 400, "a kiln is \u20ac-hot if it burns"),
        line_at(50, 400, "thc kiIn bvrns c1ay untii its", score=0.89),
    ],
)
def test_lines_with_signs_of_a_formula_or_a_low_score_are_marked(read, line):
    markdown = read(page_with(*prose(50, 100, 10), line))["markdown"]
    assert [MARK in block for block in markdown.strip().split("\n\n")] == [False, True]
    assert MARK not in read(page_with(*prose(50, 100, 10)))["markdown"]


def test_an_equation_is_marked_whether_or_not_its_text_was_read(read):
    equation = Region(kind="equation", x0=100, y0=380, x1=300, y1=420)
    for lines in ([line_at(120, 390, "dx dt a")], []):
        markdown = read(page_with(*prose(50, 100, 10), *lines, regions=[equation]))["markdown"]
        assert markdown.count(MARK) == 1 and markdown.rstrip().endswith(MARK)


def test_labels_of_a_figure_are_left_out_and_text_that_looks_like_one_is_marked(read):
    figure = Region(kind="figure", x0=40, y0=380, x1=400, y1=500)
    reading = read(page_with(*prose(50, 100, 10), line_at(120, 390, "time, s"), regions=[figure]))
    assert [(row["text"], row["reason"]) for row in reading["removed"]] == [("time, s", "label")]
    assert "time, s" not in reading["markdown"]
    options = [line_at(50, 390 + 13 * row, f"-{letter}, --{letter}") for row, letter in enumerate("abc")]
    for lines in (prose(50, 400, 4, first=30), options):
        reading = read(page_with(*prose(50, 100, 10), *lines, regions=[figure]))
        assert not reading["removed"] and MARK in reading["markdown"].strip().split("\n\n")[-1]


def test_running_heads_and_page_numbers_are_left_out(read):
    pages = [page_with(line_at(50, 40, "THE KILN"), *prose(50, 80, 30, first=40 * n),
                       line_at(300, 740, str(n + 7))) for n in range(5)]  # fmt: skip
    reading = read(*pages)
    assert [row["text"] for row in reading["removed"]] == [text for n in range(5) for text in ("THE KILN", str(n + 7))]
    assert len(reading["page_starts"]) == 5 and "KILN" not in reading["markdown"]


def test_finished_pages_are_not_read_again(tmp_path):
    values = [asdict(page_with(*prose(50, 100, 3, first=n))) for n in range(3)]
    for index, value in enumerate(values):
        sealed.write(tmp_path / f"{index:06}.json", value)
    job, missing = ConversionJob(), tmp_path / "missing.pdf"
    assert rapidocr.read_pages(missing, tmp_path, 3, job) == values
    (tmp_path / "000001.json").write_text("{}"[:1])
    with pytest.raises(InfuserError):
        rapidocr.read_pages(missing, tmp_path, 3, job)


def converted(path: Path, job: ConversionJob) -> Page:
    pages: list[Page] = []
    convert([SourceFile(path=path, source_id="book")], job, LocalPool(1), pages.append)
    return pages[0]


def image_pdf(path: Path, pages: list[list[tuple[float, float, str, float]]]) -> Path:
    """A PDF of pictures of pages with text at (x, y, text, size), turned by half a degree."""
    canvas = Canvas(str(path.with_suffix(".text.pdf")), pagesize=(612, 792))
    for page in pages:
        for x, y, text, size in page:
            canvas.setFont("Times-Roman", size)
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    images = []
    with pdfium.PdfDocument(path.with_suffix(".text.pdf")) as document:
        for page in document:
            image = page.render(scale=200 / 72, grayscale=True).to_pil()
            image = image.rotate(0.5, resample=Image.Resampling.BICUBIC, fillcolor=255)
            image.save(data := io.BytesIO(), "JPEG", quality=70)
            images.append(Image.open(data))
    images[0].save(path, "PDF", resolution=200, save_all=True, append_images=images[1:])
    return path


def column(x: float, rows: list[str]) -> list[tuple[float, float, str, float]]:
    return [(x, 660 - 13 * row, text, 11) for row, text in enumerate(rows)]


@needs_models
def test_a_scan_is_read_by_rapidocr_if_marker_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("INFUSER_MARKER", "no-such-marker")
    columns = [[sentence(30 * side + row, 8)[:42] for row in range(18)] for side in range(2)]
    formula = (320.0, 380.0, "E = m c + \u00b1 (a + b) / 2", 11.0)
    page = [(60.0, 700.0, "1 The kiln", 20.0), *column(60, columns[0]), *column(280, columns[1]), formula]
    result = converted(image_pdf(tmp_path / "a.pdf", [page]), ConversionJob())
    assert result.chosen == "rapidocr: needs_ocr: 1 of 1 pages have under 100 characters"
    assert result.converter == rapidocr.name() and result.markdown.startswith("# 1 The kiln")
    blocks = [block for block in result.markdown.split("\n\n") if MARK not in block]
    text = " ".join([*columns[0], *columns[1]])
    assert SequenceMatcher(None, " ".join(blocks[1:]).split(), text.split()).ratio() > 0.95
    assert MARK in result.markdown


@needs_models
def test_a_killed_conversion_resumes_with_the_finished_pages(tmp_path):
    pages = [[(60.0, 700.0 - 20 * row, sentence(9 * n + row, 10), 12.0) for row in range(5)] for n in range(12)]
    path, work = image_pdf(tmp_path / "a.pdf", pages), tmp_path / "work"
    code = (
        "from pathlib import Path\nfrom corpus.read.converters import rapidocr\n"
        "from corpus.read.page import ConversionJob\n"
        f"rapidocr.convert(Path({str(path)!r}), 'book', ConversionJob(work=Path({str(work)!r})))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        while process.poll() is None and not list(work.rglob("*.json")):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    finished = {file: file.stat().st_mtime_ns for file in work.rglob("*.json")}
    assert 0 < len(finished) < 12
    counts: list[tuple[int, int]] = []
    job = ConversionJob(work=work, progress=lambda done, total, _: counts.append((done, total)))
    result = rapidocr.convert(path, "book", job)
    assert result.status == "converted" and result.num_pages == 12
    assert all(file.stat().st_mtime_ns == time for file, time in finished.items())
    assert counts[-1] == (12 - len(finished), 12 - len(finished))
    assert all(before < after for before, after in pairwise(result.page_starts))


@pytest.mark.skipif(find_spec("rapidocr") is not None, reason="RapidOCR is installed")
def test_without_the_extra_a_scan_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("INFUSER_MARKER", "no-such-marker")
    result = converted(image_pdf(tmp_path / "a.pdf", [column(60, ["the kiln"])]), ConversionJob())
    assert "needs marker: " in result.reason and "pip install 'infuser[scans]'" in result.reason


def test_garbled_formulas_of_a_text_layer_never_go_to_rapidocr(tmp_path, monkeypatch):
    monkeypatch.setenv("INFUSER_MARKER", "no-such-marker")
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for row in range(30):
        canvas.drawString(72, 700 - 14 * row, f"x = = ( a + b ) / {row} - q ^ r [ s ] = < k > + u v w")
    canvas.save()
    for helper in ("marker", "rapidocr"):
        result = converted(tmp_path / "a.pdf", ConversionJob(settings=ConvertSettings(helper=helper)))
        assert result.status == "converted" and result.chosen.startswith(
            "text layer on 1 of 1 pages; garbled_formula: on pages with 100% of the text"
        )
        assert ("marker could not help" in result.chosen) == (helper == "marker") and "rapidocr" not in result.chosen
