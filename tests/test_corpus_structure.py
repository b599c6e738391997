"""Front and back matter are named by their headings, and only when asked."""

from corpus.chunk import ChunkConfig, Discard, chunk
from corpus.convert import page_of
from corpus.structure import exclude

BOOK = (
    "A Title\n\nby someone\n\n# Preface\n\nthanks\n\n## To the reader\n\nmore\n\n# 1 Indexing data\n\nreal text\n\n"
    "## Chapter references\n\nkept\n\n## References\n\nold books\n\n# Answer Key\n\n1. A\n\n# Index\n\nwug, 3\n"
)
PAGE = page_of("book", BOOK, num_pages=1, converter="test", reason="")


def test_off_names_nothing():
    assert exclude(PAGE) == []


def test_matter_is_named_with_its_subsections():
    spans = exclude(PAGE, mode="headings")
    texts = [BOOK[span.start : span.end].split("\n")[0] for span in spans]
    assert texts == ["A Title", "# Preface", "## References", "# Answer Key", "# Index"]
    assert "To the reader" in BOOK[spans[1].start : spans[1].end]
    assert [span.reason for span in spans] == [Discard.FRONT_MATTER] * 2 + [Discard.BACK_MATTER] * 3


def test_excluded_spans_become_discards():
    config = ChunkConfig(min_tokens=1, max_tokens=50)
    rows = chunk(PAGE, lambda text: len(text.split()), config, "d", excluded=exclude(PAGE, mode="headings"))
    kept = [row.document.text for row in rows if row.discard is None]
    assert kept == ["# 1 Indexing data\n\nreal text", "## Chapter references\n\nkept"]
    assert sum(row.discard in (Discard.FRONT_MATTER, Discard.BACK_MATTER) for row in rows) == 6


def test_a_text_without_headings_is_left_alone():
    assert exclude(page_of("book", "only text\n", num_pages=1, converter="t", reason=""), mode="headings") == []
