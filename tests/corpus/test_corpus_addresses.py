"""Addresses are resolved as a browser would, and what leads off the web is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.find.identifiers import absolute, host_of, path_of, scheme_of


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
    assert absolute("https://x.example/a/page", written) == meant


@given(st.text(max_size=30))
def test_no_text_is_too_strange(text):
    target = absolute("https://x.example/", text)
    assert target == "" or target.startswith(("http://", "https://"))
    assert all(isinstance(part, str) for part in (scheme_of("https://x/", text), host_of(text), path_of(text)))
