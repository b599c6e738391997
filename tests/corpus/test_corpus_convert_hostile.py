"""Broken and hostile files end as a rejected row with a reason, within their limits; nothing else happens."""

from pathlib import Path

import corpus_hostile as hostile
import pytest
from corpus_books import BookPlan, write_book

from corpus.read.converters import pdfium
from corpus.read.embedded import ReadingConfig, convert
from corpus.read.file_kinds import pdf_fault
from corpus.read.page import ConversionJob
from infuser_core.system.child import Limits


class Small(ConversionJob):
    """A job whose limited processes get little memory."""

    limits = Limits(wall_seconds=60.0, cpu_seconds=30, memory_bytes=700 << 20)


def reason(path: Path) -> str:
    page = pdfium.convert(path, "book", Small())
    assert (page.status, page.markdown, page.page_starts) == ("rejected", "", []) and "\n" not in page.reason
    return page.reason


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty: "),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "not_pdf: the file begins with a web page"),
        (b"PK\x03\x04 a zip", "not_pdf: the file begins with b'PK"),
        (b"%PDF-1.7\n" + b"x" * 9000, "truncated: "),
        (b"%PDF-1.7\n" + bytes(range(256)) * 40 + b"\n%%EOF\n", "unreadable: "),
        (hostile.page_loop(), "unreadable: "),
        (hostile.deep_nesting(3000), "unreadable: "),
        (hostile.compression_bomb(400), "unreadable: needs more than 0.7 GB"),
    ],
    ids=["zero bytes", "web page", "zip", "no trailer", "noise", "page loop", "deep nesting", "compression bomb"],
)
def test_a_file_that_is_no_readable_pdf_says_why(tmp_path, content, said):
    (tmp_path / "a.pdf").write_bytes(content)
    assert reason(tmp_path / "a.pdf").startswith(said)


def test_a_book_cut_in_half_is_not_taken_for_a_short_book(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan())
    whole = (tmp_path / "a.pdf").read_bytes()
    (tmp_path / "a.pdf").write_bytes(whole[: len(whole) // 2])
    assert reason(tmp_path / "a.pdf").startswith("truncated: ")


def test_an_encrypted_file_needs_its_password(tmp_path):
    hostile.encrypted(tmp_path / "a.pdf")
    assert reason(tmp_path / "a.pdf").startswith("encrypted: ")


def test_more_pages_than_a_textbook_has_are_not_read(tmp_path):
    (tmp_path / "a.pdf").write_bytes(hostile.many_pages(5000))
    assert reason(tmp_path / "a.pdf") == "too_long: 5000 pages, at most 4000 are converted"


def test_very_many_pages_are_read_when_allowed(tmp_path):
    (tmp_path / "a.pdf").write_bytes(hostile.many_pages(300))
    assert convert(str(tmp_path / "a.pdf"), ReadingConfig(max_pages=4000, min_page_chars=20)).num_pages == 300


def test_a_file_that_is_gone_is_a_reason_too(tmp_path):
    assert pdf_fault(tmp_path / "none.pdf") == "unreadable: No such file or directory"


def test_a_page_that_cannot_be_loaded_does_not_cost_the_book(tmp_path):
    objects = hostile.one_page(hostile.stream(b"BT /F1 10 Tf 50 700 Td (" + b"timber and copper " * 20 + b") Tj ET"))
    objects[1] = b"<< /Type /Pages /Kids [3 0 R 6 0 R] /Count 2 >>"
    (tmp_path / "a.pdf").write_bytes(hostile.raw_pdf([*objects, b"(no page)"]))
    page = pdfium.convert(tmp_path / "a.pdf", "book", Small())
    assert "timber and copper" in page.markdown and page.chosen == "text layer on 1 of 2 pages"
