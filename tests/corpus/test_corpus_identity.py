"""Different spellings of one identifier are equal; wrong ones are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.find import identifiers


@pytest.mark.parametrize(
    "value", ["10.1000/ABC.1", "https://doi.org/10.1000/abc.1", "doi: 10.1000/abc.1", "10.1000%2Fabc.1"]
)
def test_doi_spellings(value):
    assert identifiers.doi(value) == "doi:10.1000/abc.1"


@pytest.mark.parametrize("value", ["0-306-40615-2", "978-0-306-40615-7", "ISBN-13: 9780306406157"])
def test_isbn_spellings(value):
    assert identifiers.isbn(value) == "isbn:9780306406157"


@pytest.mark.parametrize("value", ["0-306-40615-3", "978-0-306-40615-8", "12345", ""])
def test_isbn_with_a_wrong_check_digit_is_none(value):
    assert identifiers.isbn(value) == ""


def test_isbn_with_check_digit_x():
    assert identifiers.isbn("080442957X") == "isbn:9780804429573"


@pytest.mark.parametrize("value", ["arXiv:2101.00001v3", "https://arxiv.org/pdf/2101.00001v2.pdf", "2101.00001"])
def test_arxiv_spellings(value):
    assert identifiers.arxiv(value) == "arxiv:2101.00001"


@pytest.mark.parametrize(
    "value",
    [
        "http://Example.org:80/a/../b%7Ec?z=1&a=2#top",
        "https://example.org/b~c?a=2&z=1&utm_source=x",
        "https://EXAMPLE.ORG:443/./b~c?z=1&a=2",
    ],
)
def test_url_spellings(value):
    assert identifiers.url(value) == "url:example.org/b~c?a=2&z=1"


def test_url_path_keeps_its_case():
    assert identifiers.url("https://example.org/A") != identifiers.url("https://example.org/a")


@pytest.mark.parametrize(
    "value",
    [
        "arXiv:math.AG/0101001v2",
        "http://export.arxiv.org/abs/math.AG/0101001",
        "oai:arXiv.org:math.AG/0101001",
        "MATH.AG/0101001",
    ],
)
def test_old_arxiv_spellings(value):
    assert identifiers.arxiv(value) == "arxiv:math.ag/0101001"


def test_a_doi_that_arxiv_gave_is_its_identifier():
    assert identifiers.arxiv("https://doi.org/10.48550/arXiv.2101.00001") == "arxiv:2101.00001"
    assert identifiers.arxiv("10.1000/2101.00001") == ""


def test_a_field_with_several_isbns():
    field = "9780306406157;0-306-40615-2 | 978-0-306-40615-8, 080442957X"
    assert identifiers.isbns(field) == ["isbn:9780306406157", "isbn:9780804429573"]


@pytest.mark.parametrize(
    "value", ["20.500.12657/101", "hdl:20.500.12657/101", "https://lib.example/handle/20.500.12657/101"]
)
def test_handle_spellings(value):
    assert identifiers.handle(value) == "hdl:20.500.12657/101"


@given(st.text(alphabet="0123456789", min_size=9, max_size=9))
def test_both_lengths_of_an_isbn_are_one_identifier(nine):
    check = -sum(weight * int(d) for weight, d in zip(range(10, 1, -1), nine, strict=True)) % 11
    short = nine + ("X" if check == 10 else str(check))
    long = identifiers.isbn(short)
    assert long.startswith("isbn:978") and identifiers.isbn(long) == long
    wrong = nine + str((check + 1) % 10 if check != 10 else 0)
    assert identifiers.isbn(wrong) == ""


@given(st.text(max_size=40))
def test_any_text_has_some_canonical_address_and_keeps_it(text):
    once = identifiers.url(text)
    assert once == "" or once.startswith("url:")
    assert identifiers.url("http://example.org/" + once.removeprefix("url:").replace("/", "")) != ""
    for kind in (identifiers.doi, identifiers.isbn, identifiers.arxiv, identifiers.handle):
        assert isinstance(kind(text), str)


@pytest.mark.parametrize("value", ["http://[bad", "http://host:port/x", "http://" + "ö" * 80 + "/"])
def test_addresses_that_cannot_be_parsed_stay_as_they_are(value):
    assert identifiers.url(value) == f"url:{value}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("b.pdf", "https://x.example/a/b.pdf"),
        ("/b.pdf", "https://x.example/b.pdf"),
        ("//y.example/b", "https://y.example/b"),
        (" http://y.example/b ", "http://y.example/b"),
        ("file:///etc/passwd", ""),
        ("javascript:alert(1)", ""),
        ("mailto:a@b", ""),
        ("http://[bad", ""),
        ("http://x:port/", ""),
        ("http:///path", ""),
    ],
)
def test_written_addresses(written, meant):
    assert identifiers.absolute("https://x.example/a/page", written) == meant


@given(st.text(max_size=30))
def test_no_text_is_too_strange(text):
    target = identifiers.absolute("https://x.example/", text)
    assert target == "" or target.startswith(("http://", "https://"))
    parts = identifiers.parts_of(text)
    assert isinstance(parts.path, str) and isinstance(parts.hostname, str | None)
    assert isinstance(identifiers.scheme_of("https://x/", text), str)
