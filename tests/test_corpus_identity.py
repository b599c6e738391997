"""Different spellings of one identifier are equal; wrong ones are none."""

import pytest

from corpus import identity


@pytest.mark.parametrize(
    "value", ["10.1000/ABC.1", "https://doi.org/10.1000/abc.1", "doi: 10.1000/abc.1", "10.1000%2Fabc.1"]
)
def test_doi_spellings(value):
    assert identity.doi(value) == "doi:10.1000/abc.1"


@pytest.mark.parametrize("value", ["0-306-40615-2", "978-0-306-40615-7", "ISBN-13: 9780306406157"])
def test_isbn_spellings(value):
    assert identity.isbn(value) == "isbn:9780306406157"


@pytest.mark.parametrize("value", ["0-306-40615-3", "978-0-306-40615-8", "12345", ""])
def test_isbn_with_a_wrong_check_digit_is_none(value):
    assert identity.isbn(value) == ""


def test_isbn_with_check_digit_x():
    assert identity.isbn("080442957X") == "isbn:9780804429573"


@pytest.mark.parametrize("value", ["arXiv:2101.00001v3", "https://arxiv.org/pdf/2101.00001v2.pdf", "2101.00001"])
def test_arxiv_spellings(value):
    assert identity.arxiv(value) == "arxiv:2101.00001"


@pytest.mark.parametrize(
    "value",
    [
        "http://Example.org:80/a/../b%7Ec?z=1&a=2#top",
        "https://example.org/b~c?a=2&z=1&utm_source=x",
        "https://EXAMPLE.ORG:443/./b~c?z=1&a=2",
    ],
)
def test_url_spellings(value):
    assert identity.url(value) == "url:example.org/b~c?a=2&z=1"


def test_url_path_keeps_its_case():
    assert identity.url("https://example.org/A") != identity.url("https://example.org/a")
