"""The report and the review page of a pool: counts, the same samples each time, pages of the PDF, nothing that runs."""

import base64
import json
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from corpus_rows import document
from PIL import Image
from reportlab.lib.pagesizes import A5
from reportlab.pdfgen.canvas import Canvas
from typer.testing import CliRunner

from corpus import report
from corpus.chunk.chunk import Discarded
from corpus.find.registry import Coverage
from corpus.pool import PoolSource
from flows.cli.main import app

SPAN = Discarded(
    source_id="s", start=0, end=1, stage="chunk", reason="too_short", header_path="", num_tokens=1, response=""
)
SOURCE = PoolSource(
    source_id="s",
    input="a.pdf",
    title="A | B",
    author="",
    domain="Physics",
    subdomain="Optics",
    licence="CC-BY-4.0",
    licence_evidence="",
    sha256="",
    num_bytes=1,
    converter="c",
    chosen="",
    num_pages=3,
    num_chars=100,
    num_documents=30,
    num_discarded=2,
    markdown="",
    status="admitted",
    stage="",
    reason="",
)
DOCUMENTS = [
    document(f"d{n}", f"te{n:02}", source_id="s", num_tokens=2, domain="Physics" if n % 3 else "Biology")
    for n in range(30)
]
SPANS = [
    SPAN,
    replace(SPAN, reason="blank"),
    replace(SPAN, stage="judge", reason="index"),
    replace(SPAN, stage="judge", reason="undecided: x"),
]
SOURCES = [
    SOURCE,
    replace(SOURCE, status="rejected", stage="convert", reason="needs_ocr: 3 pages", num_documents=0),
]
TOLD = report.ReportInputs(
    judge="none",
    tokenizer="rule",
    coverage=[
        Coverage(domain="Physics", subdomain=name, source_id=source, rank=0)
        for name, source in (("Optics", "s"), ("Waves", ""))
    ],
    audit={
        "mode": "exact",
        "documents": 30,
        "matches": 0,
        "matched_documents": 0,
        "dropped_documents": 0,
        "absent": {"benchmark x": "no file"},
        "references": [{"name": "dev.jsonl", "read": 4, "texts": 8, "short": 1, "matched_documents": 0}],
        "controls": [{"kind": "edited", "planted": 3, "expected": True, "exact": 1.0}],
    },
)


def test_facts_count_documents_sources_and_reasons():
    facts = report.collect_facts(DOCUMENTS, SPANS, SOURCES, TOLD)
    assert (facts["documents"], facts["mean_characters"], facts["mean_tokens"], facts["tokens"]) == (30, 4.0, 2.0, 60)
    assert [(row["discipline"], row["share"]) for row in facts["disciplines"]] == [
        ("Physics", round(20 / 30, 4)),
        ("Biology", round(10 / 30, 4)),
    ]
    assert {(row["subdomain"], row["sources"], row["documents"]) for row in facts["coverage"]} == {
        ("Optics", 1, 30),
        ("Waves", 0, 0),
    }
    assert facts["source_rejects"] == [{"stage": "convert", "reason": "needs_ocr", "count": 1}]
    assert {row["reason"] for row in facts["span_rejects"]} == {"too_short", "rejected by the judge", "undecided"}
    assert facts["licences"] == {"CC-BY-4.0": 2} and facts["discarded"] == 3


def test_the_report_shows_samples_and_the_audit():
    samples = report.draw_samples(DOCUMENTS, SPANS, SOURCES, lambda row: f"<b>{row.reason}</b> `code`")
    text = report.render_report(report.collect_facts(DOCUMENTS, SPANS, SOURCES, TOLD), SOURCES, samples)
    assert "judge: none" in text and "10 random documents" in text and "3 random discarded spans" in text
    assert (
        "| edited | 3 | 1.00 |" in text
        and "Not compared with benchmark x: no file" in text
        and "<b>" not in text
        and "A \\| B" in text
    )


def test_an_empty_pool_has_a_report():
    told = report.ReportInputs(judge="none", tokenizer="rule")
    facts = report.collect_facts([], [], [], told)
    text = report.render_report(facts, [], report.draw_samples([], [], [], lambda row: ""))
    assert facts["mean_tokens"] == 0.0 and "none was made" in text


@pytest.mark.parametrize(
    ("converter", "share", "reason", "reader"),
    [
        ("embedded-1", 0.5, "garbled_formula", "marker or docling"),
        ("embedded-1", 0.5, "no_language", "OCR (`pip install 'infuser[scans]'`), or marker"),
        ("pandoc-1", 0.5, "no_language", "another edition or format of the book"),
        ("embedded-1", 0.3, "garbled_formula", ""),
    ],
)
def test_a_book_that_loses_much_to_doubt_says_what_may_read_it(tmp_path, converter, share, reason, reader):
    spans = [replace(SPAN, reason=reason, doubt=0.1)] * 3
    sources = [replace(SOURCE, converter=converter, doubt=share, doubtful_for=reason)]
    facts = report.collect_facts(DOCUMENTS, spans, sources, replace(TOLD, audit=None))
    (row,) = facts["doubt"]
    assert (row["share"], row["chunks"], row[reason]) == (share, 3, 3)
    assert row["reader"].startswith(reader) and bool(row["reader"]) == bool(reader)
    text = report.render_report(facts, sources, [])
    assert f"| A \\| B | 3 | {share:.1%} |" in text
    lines = report.summary_text(facts, sources, tmp_path, changed=True).splitlines()
    assert [line for line in lines if line.startswith("doubt: ")] == [
        f"doubt: {share:.0%} of A | B is lost; to read it: {row['reader']}"
    ] * bool(reader)


HOSTILE = '`<script>alert("x")</script> & >`'
PAGES = 6


def sentence(page: int, line: int) -> str:
    return f"On sheet {page} the dial of line {line} is read twice and noted under number {page * 100 + line}."


def printed(path: Path) -> Path:
    canvas = Canvas(str(path), pagesize=A5)
    for page in range(PAGES):
        canvas.setFont("Helvetica", 9)
        for line in range(40):
            canvas.drawString(40, 560 - 12 * line, sentence(page, line))
        canvas.showPage()
    canvas.save()
    return path


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    notes = tmp_path / "notes.md"
    lines = "\n\n".join(sentence(7, line) for line in range(60))
    notes.write_text(f"# Notes {HOSTILE}\n\n{lines}\n\n$\\frac{{a}}{{b}}$ {HOSTILE}\n\n```\nlisting\n```\n")
    (tmp_path / "empty.txt").write_text("")
    sources = [printed(tmp_path / "dials.pdf"), notes, tmp_path / "empty.txt"]
    done = CliRunner().invoke(app, ["corpus", "build", "--out", str(tmp_path / "pool"), *map(str, sources)])
    assert done.exit_code == 0, done.output
    return tmp_path / "pool"


def shown(pool: Path, *words: str) -> tuple[dict, str]:
    file = pool.parent / "page.html"
    done = CliRunner().invoke(app, ["corpus", "report", str(pool), "--html", str(file), "--json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.output), file.read_text()


def test_chunks_stand_beside_their_page_with_their_lines_marked(pool: Path) -> None:
    facts, page = shown(pool, "--chunks", "1")
    assert (facts["books"], facts["chunks"], facts["pictures"]) == (2, 2, 1) and facts["bytes"] == len(page.encode())
    (coded,) = re.findall(r'src="data:image/webp;base64,([^"]+)"', page)
    with Image.open(BytesIO(base64.b64decode(coded))) as image:
        assert image.height > image.width > 500
    number = int(re.search(r"page (\d+) of 6", page)[1])
    chunk = page.split('class="chunk">')[1].split("</span>")[0]
    assert sentence(number - 1, 20) in chunk
    marks = [tuple(map(float, mark)) for mark in re.findall(r"left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%", page)]
    # Forty lines of the page, each from its left margin and as wide as the sentence.
    assert len(marks) >= 38 and all(8 < left < 11 and 60 < width < 90 for left, _, width in marks)
    assert [top for _, top, _ in marks] == sorted(top for _, top, _ in marks)
    assert shown(pool, "--chunks", "1")[1] == page


def test_text_of_a_book_is_text_in_the_page_and_reasons_are_told(pool: Path) -> None:
    _, page = shown(pool)
    assert "<script" not in page and "&lt;script&gt;" in page and "default-src" in page
    assert "No page is shown: the source has no pages." in page and "empty.txt" in page
    assert "\\frac{a}{b}" in page and "listing" in page


def test_a_file_that_has_changed_is_not_shown(pool: Path) -> None:
    with (pool.parent / "dials.pdf").open("ab") as file:
        file.write(b"%")
    facts, page = shown(pool)
    assert facts["pictures"] == 0 and "is another file than the pool was built from" in page
