"""Markdown and plain text are sources too, and what is no text is refused by its first bad byte."""

import codecs

import pytest

from corpus.read import convert as converting
from corpus.read.convert import convert_text
from corpus.read.file_kinds import is_text


@pytest.mark.parametrize("content", [b"# A\r\n\r\ntext\n", "\u6c34 # \u706b\n".encode(), b"\xef\xbb\xbf# A\n"])
def test_text_is_kept_save_for_the_byte_order_mark_and_the_form_of_line_ends(tmp_path, content):
    (tmp_path / "a.md").write_bytes(content)
    page = convert_text(tmp_path / "a.md", "book")
    plain = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    assert page.markdown.encode() == plain and page.page_starts == [0]


def test_utf16_with_its_mark_is_read(tmp_path):
    (tmp_path / "a.txt").write_bytes("# Kiln\n".encode("utf-16"))
    assert convert_text(tmp_path / "a.txt", "book").markdown == "# Kiln\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"caf\xe9 au lait", "not_utf8: byte 0xe9 at offset 3"),
        (b"ok \xf0\x9f", "not_utf8: byte 0xf0 at offset 3"),
        (b"a\x00b", "not_text: a zero byte at character 1"),
        (b" \n\t", "empty: "),
    ],
)
def test_what_is_no_text_is_rejected_with_its_reason(tmp_path, content, reason):
    (tmp_path / "a.md").write_bytes(content)
    page = convert_text(tmp_path / "a.md", "book")
    assert page.status == "rejected" and page.reason.startswith(reason) and page.markdown == ""


def test_a_file_larger_than_allowed_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "MAX_BYTES", 99)
    (tmp_path / "a.md").write_bytes(b"x" * 100)
    assert convert_text(tmp_path / "a.md", "book").reason == "too_long: 100 bytes, at most 99 are read"


def test_the_name_says_text_but_a_pdf_stays_a_pdf(tmp_path):
    (tmp_path / "a.md").write_bytes(b"%PDF-1.7")
    (tmp_path / "b.MD").write_bytes(b"text")
    (tmp_path / "c.pdf").write_bytes(b"text")
    assert [is_text(tmp_path / name) for name in ("a.md", "b.MD", "c.pdf")] == [False, True, False]
