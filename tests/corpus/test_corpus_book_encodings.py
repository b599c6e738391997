"""A book's text has the encoding that it declares; bytes of an unknown encoding are refused and never guessed."""

import pytest
from book_tools import convert

from corpus.read.books.tree import Folder, decode_text
from corpus.read.doubt import Doubtful, find_doubt

RUSSIAN = "Река несёт песок с холмов на равнину и роняет крупные зёрна. " * 10
POLISH = "Rzeka niesie żwir ze wzgórz na równinę. " * 10
DECLARED = {
    "a.html": (f'<META CONTENT="text/html; charset=windows-1251" http-equiv=x><p>{RUSSIAN}</p>', "cp1251"),
    "b.html": (f"<meta charset=koi8-r><p>{RUSSIAN}</p>", "koi8-r"),
    "c.xhtml": (f"<?xml version='1.0' encoding='iso-8859-2'?><html><body><p>{POLISH}</p></body></html>", "iso-8859-2"),
    "d.docbook": (f'<?xml version="1.0" encoding="ISO-8859-2"?><article><para>{POLISH}</para></article>', "iso-8859-2"),
    "e.tex": (f"\\documentclass{{book}}\\usepackage[latin2]{{inputenc}}\\begin{{document}}{POLISH}\\end{{document}}",
              "iso-8859-2"),
    "f.adoc": (f"= Sand\n:encoding: ISO-8859-2\n\n{POLISH}\n", "iso-8859-2"),
    "g.html": ("<meta charset='shift_jis'><p>川は砂を運ぶ。①</p>", "cp932"),
    "h.html": ("<meta charset='iso-8859-1'><p>The river’s sand “sinks”.</p>", "cp1252"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_the_declared_encoding_is_read(tmp_path, name):
    text, encoding = DECLARED[name]
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    words = {"g.html": "川は砂を運ぶ。①", "h.html": "The river’s sand “sinks”."}
    expected = words.get(name, RUSSIAN if name < "c" else POLISH).strip()
    assert expected in convert(path).markdown


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r"])
def test_a_language_whose_encoding_is_not_declared_is_refused(tmp_path, encoding):
    path = tmp_path / "a.html"
    path.write_bytes(f"<h1>T</h1><p>{RUSSIAN}</p>".encode(encoding))
    page = convert(path)
    assert page.status == "rejected"
    assert "is not UTF-8" in page.reason and "iconv" in page.reason and "book.html" in page.reason


def test_a_wrong_declaration_is_refused(tmp_path):
    path = tmp_path / "a.html"
    path.write_bytes(b"<meta charset=euc-jp><p>" + RUSSIAN.encode("koi8-r"))
    assert "is not UTF-8" in convert(path).reason


def test_a_name_in_an_english_text_needs_no_declaration():
    text = "The river carries sand to the sea. " * 20 + "(G. Möbius, 1858)"
    assert decode_text(text.encode("cp1252")) == text


def test_a_file_without_a_declaration_has_that_of_its_book(tmp_path):
    (tmp_path / "main.tex").write_bytes(b"\\documentclass{book}\\usepackage[latin2]{inputenc}")
    (tmp_path / "one.tex").write_bytes(POLISH.encode("iso-8859-2"))
    assert Folder(tmp_path).text("one.tex") == POLISH


def test_a_damaged_byte_costs_its_paragraph_and_not_the_book(tmp_path):
    path = tmp_path / "a.docbook"
    text = '<?xml version="1.0"?><book><chapter><title>Sand</title><para>“The sand” sinks – slowly.</para>{}</chapter></book>'
    path.write_bytes(text.replace("{}", "<para>If you’{}ve seen it.</para>").encode().replace(b"{}", b"\x80\x99t"))
    page = convert(path)
    assert "“The sand” sinks – slowly." in page.markdown
    (passage,) = find_doubt(page.markdown).passages
    assert (passage[0], "seen it" in passage[1]) == (Doubtful.SIGN, True)
