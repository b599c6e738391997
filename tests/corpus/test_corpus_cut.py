"""Books are cut and judged to the same rows here and by any number of workers."""

from contextlib import closing
from pathlib import Path

import pytest

from corpus.chunk.cut import LEAST_CHARS, BookChunks, ConvertedBook, cut_books
from corpus.chunk.judge import RULED_TOGETHER, judge_by_rules, rule_on
from corpus.chunk.split import by_rule
from corpus.read.page import page_of
from infuser_core.config.corpus import CorpusSettings
from infuser_core.config.overlays import load
from infuser_core.system.worker_pool import LocalPool

SENTENCE = "The charge on the sphere number {} is spread evenly, and the field inside of it is zero everywhere. "


def texts(count: int) -> list[ConvertedBook]:
    """Books of different lengths; together they are worth a process."""
    made = []
    for book in range(count):
        parts = [
            f"# Chapter {number}\n\n" + "".join(SENTENCE.format(number * 50 + place) for place in range(30 + 5 * book))
            for number in range(20)
        ]
        markdown = "\n\n".join([*parts, "# Index\n\ncharge, 3\n\nfield, 4\n"])
        made.append(ConvertedBook(page=page_of(f"book-{book}", markdown, converter="none"), domain="physics"))
    return made


@pytest.fixture
def settings() -> CorpusSettings:
    return load([Path("configs/nano.yaml")], []).corpus


def rows(settings: CorpusSettings, books: list[ConvertedBook], workers: int) -> list[BookChunks]:
    with closing(LocalPool(workers)) as pool:
        found = dict(cut_books(books, settings, by_rule, pool))
    return [found[place] for place in range(len(books))]


def test_workers_change_no_row(settings: CorpusSettings):
    books = texts(4)
    assert sum(len(book.page.markdown) for book in books) > LEAST_CHARS
    here, there = rows(settings, books, 1), rows(settings, books, 2)
    assert here == there and all(each.candidates for each in here)
    kept = [document for each in here for document in each.candidates]
    assert len(kept) > RULED_TOGETHER
    with closing(LocalPool(2)) as pool:
        assert judge_by_rules(kept, pool) == rule_on(kept)


@pytest.mark.parametrize(("structure", "cut_off"), [("headings", True), ("off", False)])
def test_front_and_back_matter_is_cut_off_where_the_settings_say_so(settings: CorpusSettings, structure, cut_off):
    (found,) = rows(settings.model_copy(update={"structure": structure}), texts(1), 1)
    assert any(row.reason == "back_matter" for row in found.discarded) == cut_off
