"""Front and back matter are named by their headings, and only when asked."""

import pytest
from corpus_rows import book_page, by_words

from corpus.chunk.chunk import Discard, chunk
from corpus.chunk.front_matter import exclude
from infuser_core.config.corpus import ChunkSettings

BOOK = (
    "A Title\n\nby someone\n\n# Preface\n\nthanks\n\n## To the reader\n\nmore\n\n# 1 Indexing data\n\nreal text\n\n"
    "## Chapter references\n\nkept\n\n## References\n\nold books\n\n# Answer Key\n\n1. A\n\n# Index\n\nwug, 3\n"
)
PAGE = book_page(BOOK)


def test_off_names_nothing():
    assert exclude(PAGE) == []


def test_matter_is_named_with_its_subsections():
    spans = exclude(PAGE, mode="headings")
    texts = [BOOK[span.start : span.end].split("\n")[0] for span in spans]
    assert texts == ["A Title", "# Preface", "## References", "# Answer Key", "# Index"]
    assert "To the reader" in BOOK[spans[1].start : spans[1].end]
    assert [span.reason for span in spans] == [Discard.FRONT_MATTER] * 2 + [Discard.BACK_MATTER] * 3


def test_excluded_spans_become_discards():
    config = ChunkSettings(min_tokens=1, max_tokens=50)
    rows = chunk(PAGE, by_words, config, "d", excluded=exclude(PAGE, mode="headings"))
    kept = [row.document.text for row in rows if row.discard is None]
    assert kept == ["# 1 Indexing data\n\nreal text", "## Chapter references\n\nkept"]
    assert sum(row.discard in (Discard.FRONT_MATTER, Discard.BACK_MATTER) for row in rows) == 6


def test_a_text_without_headings_is_left_alone():
    assert exclude(book_page("only text\n"), mode="headings") == []


def titles(text: str, **options: object) -> list[str]:
    page = book_page(text)
    return [text[span.start : span.end].split("\n")[0] for span in exclude(page, mode="headings", **options)]


BODY = "real text " * 200


def test_everything_before_the_first_chapter_goes_but_an_introduction():
    front = "Cover\n\n# Colophon\n\nx\n\n# How we work\n\ny\n\n# Introduction\n\nuseful"
    text = f"{front}\n\n# Chapter 1: Wugs\n\n{BODY}\n\n# 2 More\n\n{BODY}\n"
    assert titles(text) == ["Cover", "# Colophon", "# How we work"]


def test_a_chapter_far_into_the_book_is_not_the_first():
    text = f"# Wugs\n\n{BODY}\n\n# Blicks\n\n{BODY}\n\n# 1 Numbers\n\n{BODY}\n"
    assert titles(text) == []


def test_everything_from_the_end_marker_on_goes():
    back = "# Bibliography\n\nz\n\n# Index\n\n## A\n\nwug, 3\n"
    text = f"# 1 Wugs\n\n{BODY}\n\n## References\n\nold\n\n# 2 Blicks\n\n{BODY}\n\n{back}"
    assert titles(text) == ["## References", "# Bibliography", "# Index"]


def test_a_section_that_teaches_about_indexes_stays():
    text = f"# 1 Data\n\n{BODY}\n\n## 1.1 Index\n\nkept\n\n## 1.2 Figures\n\nkept\n\n# 2 Last\n\n{BODY}\n"
    assert titles(text) == []


@pytest.mark.parametrize("title", ["\u7b2c\u4e00\u7ae0 \u6c34", "Chapter One", "I. Wugs", "Part 1 Wugs", "1. Wugs"])
def test_the_first_chapter_is_known_by_its_number(title):
    assert titles(f"# Thanks\n\nx\n\n# {title}\n\n{BODY}\n\n# Other\n\n{BODY}\n") == ["# Thanks"]
