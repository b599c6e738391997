"""Blocks tile any text, pieces fit the limit, and chunks are exact slices that cover the source."""

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from corpus_rows import book_page, by_characters, by_words
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic import ValidationError

from corpus.chunk import split
from corpus.chunk.blocks import ATOMIC, BlockType, scan
from corpus.chunk.chunk import Chunk, Discard, Excluded, chunk_page, split_sections
from corpus.chunk.cut import LEAST_CHARS, BookChunks, ConvertedBook, cut_books
from corpus.chunk.judge import RULED_TOGETHER, judge_by_rules, rule_on
from corpus.chunk.langchain_chunk import NOWHERE, chunk_langchain
from corpus.chunk.split import SliceCounter, Span, by_rule, pack, pieces, trim
from corpus.read.page import page_of
from infuser_core.config.corpus import ChunkSettings, CorpusSettings
from infuser_core.config.overlays import load
from infuser_core.system.worker_pool import LocalPool

PARTS = [
    "# A\n",
    "## B\n",
    "### C #\n",
    "Title\n===\n",
    "\n",
    "One two three four. Five six; seven, eight nine.\n\n",
    "Fig. 3 shows et al. nothing (or little); see Dr. Wug, e.g. there.\n",
    "crlf line\r\n",
    "```\ncode # x\n\n# y\n```\n",
    "````\n```\n# in\n````\n",
    "```\n",
    "$$\na # b\n# c\n$$\n",
    "\\[\nx\n\\]\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "- item\n",
    "> quote\n",
    "    # indented\n",
    "\u2028",
    "\x0c",
    "x" * 300 + "\n",
    "word ",
]
TEXT = "One two three four five six seven. "
SOURCES = st.lists(st.sampled_from(PARTS), max_size=25).map("".join)
BOUNDS = st.sampled_from([(1, 8), (5, 20), (20, 60), (0, 3)])
MODES = st.sampled_from(["merge", "drop"])


COUNTS = st.sampled_from([by_words, by_characters])


def chunks_of(source: str, count=by_words, bounds=(5, 20), mode="merge") -> list[Chunk]:
    page = book_page(source)
    config = ChunkSettings(min_tokens=bounds[0], max_tokens=bounds[1], small_sections=mode)
    return chunk_page(page, count, config, "Physics")


@settings(max_examples=60, deadline=None)
@given(SOURCES, BOUNDS, MODES, COUNTS)
def test_p1_p2_p3_chunks_are_bounded_slices_that_cover_the_source(source, bounds, mode, count):
    position = 0
    for row in chunks_of(source, count, bounds, mode):
        document = row.document
        assert document.start >= position and not source[position : document.start].strip()
        assert document.text == source[document.start : document.end] and document.text.strip()
        assert document.num_tokens == count(document.text)
        if row.discard is None:
            assert bounds[0] <= document.num_tokens <= bounds[1]
        assert row.discard is not Discard.TOO_LONG or len(document.text) == 1
        position = document.end
    assert not source[position:].strip()


@settings(max_examples=60, deadline=None)
@given(SOURCES, BOUNDS, MODES)
def test_p2_rows_and_blank_gaps_tile_the_source(source, bounds, mode):
    rows = chunks_of(source, bounds=bounds, mode=mode)
    edges = [0, *(edge for row in rows for edge in (row.document.start, row.document.end)), len(source)]
    blanks = [source[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    texts = [row.document.text for row in rows]
    assert not "".join(blanks).strip()
    assert "".join(part for pair in zip(blanks, [*texts, ""], strict=True) for part in pair) == source


WHOLE = [part for part in PARTS if part.endswith("\n") and part not in ("```\n", "# A\n", "Title\n===\n")]
BODIES = st.lists(st.sampled_from(WHOLE), min_size=1, max_size=8).map("\n".join)


@settings(max_examples=60, deadline=None)
@given(BODIES, BODIES, BODIES, BOUNDS)
def test_p5_an_edit_changes_no_chunk_of_another_top_level_section(body, before, after, bounds):
    tail = f"\n\n# Second\n\n{body}"
    one, two = (chunks_of(f"# First\n\n{head}{tail}", bounds=bounds) for head in (before, after))
    place = [f"# First\n\n{head}\n\n" for head in (before, after)]
    texts = [
        [
            (row.document.text, row.discard, row.document.start - len(head))
            for row in rows
            if row.document.start >= len(head)
        ]
        for rows, head in zip((one, two), place, strict=True)
    ]
    assert texts[0] == texts[1]


@settings(max_examples=60, deadline=None)
@given(SOURCES, BOUNDS, COUNTS)
def test_p6_code_math_and_tables_are_whole_and_headings_keep_their_text(source, bounds, count):
    rows = chunks_of(source, count, bounds)
    edges = {edge for row in rows for edge in (row.document.start, row.document.end)}
    blocks = [block for block in scan(source) if block.kind is not BlockType.BLANK]
    for block in blocks:
        text = source[block.start : block.end]
        if block.kind in ATOMIC and count(text.strip()) <= bounds[1]:
            cuts = [edge for edge in edges if block.start < edge < block.end]
            assert all(not source[block.start : e].strip() or not source[e : block.end].strip() for e in cuts)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["# A\n", "## B\n", "### C\n", "Title\n===\n", "    # code\n", "```\n# x\n```\n", TEXT]),
        max_size=12,
    ),
    BOUNDS,
)
def test_p3_header_paths_are_the_ancestors_that_a_commonmark_parser_finds(parts, bounds):
    source = "\n".join(parts)
    lines = source.split("\n")
    tokens = MarkdownIt("commonmark").parse(source)
    stack: list[tuple[int, str]] = []
    paths = {}
    for token, after in zip(tokens, tokens[1:], strict=False):
        if token.type == "heading_open":
            level = int(token.tag[1])
            stack = [above for above in stack if above[0] < level] + [(level, " ".join(after.content.split()))]
            paths[sum(len(line) + 1 for line in lines[: token.map[0]])] = [title for _, title in stack]
    for row in chunks_of(source, bounds=bounds, mode="drop"):
        above = [start for start in paths if start <= row.document.start]
        path = paths[max(above)] if above else []
        assert row.document.header_path == " > ".join(path)


@settings(max_examples=60, deadline=None)
@given(SOURCES, BOUNDS)
def test_p3_a_joined_chunk_has_the_path_that_its_sections_share(source, bounds):
    parts = split_sections(source)
    for row in chunks_of(source, bounds=bounds, mode="merge"):
        inside = [part.path for part in parts if part.start < row.document.end and part.end > row.document.start]
        shared = row.document.header_path.split(" > ") if row.document.header_path else []
        assert all(list(path[: len(shared)]) == shared for path in inside)


@settings(max_examples=60, deadline=None)
@given(SOURCES, BOUNDS, st.lists(st.integers(0, 300), min_size=2, max_size=2))
def test_every_span_left_out_is_a_row_with_its_reason(source, bounds, edges):
    start, end = sorted(edges)
    page = book_page(source)
    config = ChunkSettings(min_tokens=bounds[0], max_tokens=bounds[1])
    out = [Excluded(start=start, end=end, reason=Discard.FRONT_MATTER)]
    rows = chunk_page(page, by_words, config, "Physics", excluded=out)
    covered = "".join(row.document.text for row in rows)
    assert "".join(covered.split()) == "".join(source.split())
    for part in split_sections(source):
        if start <= part.start < end and source[part.start : part.end].strip():
            assert any(r.discard is Discard.FRONT_MATTER and part.start <= r.document.start < part.end for r in rows)


def test_nothing_is_discarded_that_could_be_joined():
    source = "# A\n\none two\n\n## B\n\nthree four five\n\n## C\n\nsix\n"
    assert [row.discard for row in chunks_of(source, bounds=(5, 20))] == [None]
    assert {row.discard for row in chunks_of(source, bounds=(5, 20), mode="drop")} == {Discard.TOO_SHORT, None}


def test_p6_a_heading_stays_with_the_text_below():
    text = "# A\n\n" + "One two three four five six. " * 10
    assert chunks_of(text)[0].document.text.startswith("# A\n\nOne")


def test_p7_only_the_unit_that_is_too_long_is_cut():
    short = "Alpha beta, gamma delta. Epsilon zeta, eta theta."
    long = ", ".join(["one two three four"] * 10) + "."
    texts = [row.document.text for row in chunks_of(f"{short}\n\n{long}\n\n{short}", bounds=(1, 11))]
    assert texts[0] == short and texts[-1] == short
    assert all(text.endswith((",", ".")) for text in texts)


def test_a_section_with_one_paragraph_is_one_chunk():
    paragraph = "One two three four. Five six seven eight. Nine ten eleven twelve."
    source = f"# Chapter\n\n## Section 1\n\n{paragraph}\n\n## Section 2\n\n{paragraph}\n"
    rows = chunks_of(source, mode="drop")
    assert [row.discard for row in rows] == [Discard.TOO_SHORT, None, None]
    assert [row.document.text for row in rows[1:]] == [f"## Section {n}\n\n{paragraph}" for n in (1, 2)]
    assert rows[1].document.header_path == "Chapter > Section 1"


def test_small_sections_join_their_neighbours_below_the_same_top_heading():
    source = "# A\n\n## B\n\none two\n\n## C\n\nthree four\n\n# D\n\nfive\n"
    rows = chunks_of(source)
    texts = [row.document.text for row in rows]
    assert texts == ["# A\n\n## B\n\none two\n\n## C\n\nthree four", "# D\n\nfive"]
    assert rows[0].document.header_path == "A" and rows[1].discard is Discard.TOO_SHORT


def test_a_short_tail_is_balanced():
    sentences = " ".join(["One two three four five six."] * 4)
    sizes = [row.document.num_tokens for row in chunks_of(sentences, bounds=(8, 20))]
    assert sizes == [12, 12]


def test_identifiers_are_distinct_and_start_with_the_digest():
    rows = chunks_of("# A\n\n" + "One two three. " * 50)
    names = [row.document.document_id for row in rows]
    assert len(set(names)) == len(names) and len({name.split("-")[0] for name in names}) == 1


@pytest.mark.parametrize("bounds", [(5, 4), (-1, 4), (0, 0)])
def test_impossible_bounds_are_an_error(bounds):
    with pytest.raises(ValidationError, match="_tokens"):
        chunks_of("text", bounds=bounds)


LISTED = "# A\n\nOne two three four.\n\n## B\n\n```python\ndef wug():\n    return 1\n```\n\n" + "Five six, seven. " * 20


def test_located_chunks_are_slices_and_the_others_are_counted():
    page = book_page(LISTED)
    result = chunk_langchain(page, by_words, ChunkSettings(min_tokens=2, max_tokens=20), "d")
    located = [row.document for row in result if row.document.start != NOWHERE]
    assert all(page.markdown[d.start : d.end] == d.text for d in located)
    assert 0 < len(located) < len(result)
    assert all(row.document.num_tokens <= 20 for row in result)
    assert {row.document.header_path for row in result} == {"A", "A > B"}


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
def corpus_settings() -> CorpusSettings:
    return load([Path("configs/nano.yaml")], []).corpus


def rows(corpus_settings: CorpusSettings, books: list[ConvertedBook], workers: int) -> list[BookChunks]:
    with closing(LocalPool(workers)) as pool:
        found = dict(cut_books(books, corpus_settings, by_rule, pool))
    return [found[place] for place in range(len(books))]


def test_workers_change_no_row(corpus_settings: CorpusSettings):
    books = texts(4)
    assert sum(len(book.page.markdown) for book in books) > LEAST_CHARS
    here, there = rows(corpus_settings, books, 1), rows(corpus_settings, books, 2)
    assert here == there and all(each.candidates for each in here)
    kept = [document for each in here for document in each.candidates]
    assert len(kept) > RULED_TOGETHER
    with closing(LocalPool(2)) as pool:
        assert judge_by_rules(kept, pool) == rule_on(kept)


@pytest.mark.parametrize(("structure", "cut_off"), [("headings", True), ("off", False)])
def test_front_and_back_matter_is_cut_off_where_the_settings_say_so(
    corpus_settings: CorpusSettings, structure, cut_off
):
    (found,) = rows(corpus_settings.model_copy(update={"structure": structure}), texts(1), 1)
    assert any(row.reason == "back_matter" for row in found.discarded) == cut_off


def plain_pack(parts: Sequence[Span], measure: SliceCounter, max_tokens: int) -> list[Span]:
    """Piece after piece, every candidate counted."""
    runs: list[Span] = []
    for start, end in parts:
        if runs and measure(runs[-1][0], end) <= max_tokens:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def plain_trim(source: str, start: int, end: int) -> tuple[int, int]:
    """Blank characters taken away one by one; the indentation of the first line stays."""
    while end > start and source[end - 1].isspace():
        end -= 1
    ink = start
    while ink < end and source[ink].isspace():
        ink += 1
    breaks = [place for place in range(start, ink) if source[place] in "\r\n"]
    return (breaks[-1] + 1 if breaks and ink < end else start, end)


RAGGED_TEXTS = st.text(alphabet="ab .,;\n\r\t\u00a0\u2028x", max_size=200)
COUNTERS = st.sampled_from([by_words, by_characters, len])


@settings(max_examples=100)
@given(RAGGED_TEXTS, st.integers(0, 200), st.integers(0, 200))
def test_trimming_equals_its_plain_form(source, one, other):
    start, end = sorted((min(one, len(source)), min(other, len(source))))
    assert trim(source, start, end) == plain_trim(source, start, end)


@settings(max_examples=100)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 80), COUNTERS)
def test_packing_equals_its_plain_form(lengths, max_tokens, count):
    source = "".join(("; ;; " * length)[: length - 1] + " " for length in lengths)
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    parts = list(pairwise(edges))
    plain = plain_pack(parts, SliceCounter(source=source, count=count), max_tokens)
    packed = pack(parts, SliceCounter(source=source, count=count), min_tokens=0, max_tokens=max_tokens)
    assert packed == plain


def cut(source: str, max_tokens: int) -> list[str]:
    measure = SliceCounter(source=source, count=by_words)
    return [source[start:end].strip() for start, end in pieces(scan(source), measure, max_tokens)]


@pytest.mark.parametrize(
    ("paragraph", "parts"),
    [
        ("One two three.", ["One two three."]),
        ("One two three four. Five six seven.", ["One two three four.", "Five six seven."]),
        ("One two three, four five six; seven eight.", ["One two three,", "four five six;", "seven eight."]),
        ("one two three four five six seven eight nine", ["one two three four five", "six seven eight nine"]),
        (
            "\u6c34\u706b\u6728\u3002 \u91d1 \u571f \u5c71 \u5ddd \u65e5\u3002",
            ["\u6c34\u706b\u6728\u3002", "\u91d1 \u571f \u5c71 \u5ddd \u65e5\u3002", ""],
        ),
    ],
)
def test_a_unit_is_cut_at_the_first_level_that_is_enough(paragraph, parts):
    assert cut(f"Alpha beta.\n\n{paragraph}\n\nGamma delta.\n", 5) == ["Alpha beta.", *parts, "Gamma delta."]


def test_a_level_deeper_is_used_on_the_part_that_needs_it_alone():
    found = cut("One two three. Four five, six seven eight nine, ten. Eleven twelve.", 4)
    assert found == ["One two three.", "Four five,", "six seven eight nine,", "ten.", "Eleven twelve."]


@pytest.mark.parametrize(
    "text", ["Fig. 3 shows it.", "See e.g. the kiln.", "By J. Wug et al. in May.", "Wait ... and see."]
)
def test_a_full_stop_that_ends_no_sentence_is_no_place_to_cut(text):
    assert split.SENTENCE.findall(text[:-1] + " ") == []


def test_a_word_without_end_is_cut_into_windows_that_fit():
    source = "x" * 10_000
    found = pieces(scan(source), SliceCounter(source=source, count=len), 64)
    sizes = [end - start for start, end in found]
    assert all(32 < size <= 64 for size in sizes[:-1]) and sum(sizes) == 10_000


def test_a_long_slice_is_never_given_to_the_counter_at_once():
    asked: list[int] = []

    def count(text: str) -> int:
        asked.append(len(text))
        return len(text) // 4

    source = "The kiln is warm and the jetty is cold. " * 20_000
    measure = SliceCounter(source=source, count=count)
    parts = pieces(scan(source), measure, 2048)
    assert pack(parts, measure, min_tokens=200, max_tokens=2048)
    assert max(asked) <= split.WINDOW and sum(asked) < 6 * len(source)


def test_counting_in_windows_is_exact_for_words():
    source = "kiln jetty " * 40_000
    assert SliceCounter(source=source, count=by_words)(0, len(source)) == 80_000


ODDITIES = [
    "\u2028",
    "\x0c",
    "\x85",
    "\r",
    "\r\n",
    "\n",
    "# ",
    "`" * 3,
    "~" * 4,
    "$$",
    "\\[",
    "|",
    "<!--",
    "a",
    " ",
    "=",
]
CLEAN = [
    "# A\n",
    "## B ##\n",
    "###### deep\n",
    "####### seven\n",
    "#nospace\n",
    "Title\n===\n",
    "Two\nlines\n---\n",
    "\n",
    "text one\n",
    "```\n# code\n```\n",
    "````\n```\n# in\n````\n",
    "~~~ python\n# in\n~~~\n",
    "    # indented\n",
    "\\# escaped\n",
    "- item\n",
    "> quote\n",
    "***\n",
    "1. one\n",
    "  # in a list or not\n",
    "   continued\n",
    "    - deeper\n",
    "===\n",
    "---\n",
    "<!-- a\n# b\n-->\n",
    "<div>\n# in\n",
    "<b>\n",
    "<pre>\n\n# in\n</pre>\n",
    "[kiln]: /address\n",
    "| a | b |\n|---|---|\n| 1 | # |\n",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(ODDITIES), max_size=40).map("".join))
def test_blocks_tile_the_source(source):
    position = 0
    for block in scan(source):
        assert block.start == position < block.end
        position = block.end
    assert position == len(source)


def headings(source: str) -> list[tuple[int, int, str]]:
    """(row, level, title) of the headings that a CommonMark parser finds at the top level."""
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    pairs = zip(tokens, tokens[1:], strict=False)
    opened = [pair for pair in pairs if pair[0].type == "heading_open" and pair[0].level == 0]
    return [(token.map[0], int(token.tag[1]), " ".join(after.content.split())) for token, after in opened]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(CLEAN), max_size=12), st.sampled_from(["", "\n"]))
def test_headings_are_those_of_commonmark(parts, joint):
    source = joint.join(parts)
    found = [block for block in scan(source) if block.kind is BlockType.HEADING]
    told = [(source.count("\n", 0, block.start), block.level, " ".join(block.title.split())) for block in found]
    assert told == headings(source)


def kinds(source: str) -> list[BlockType]:
    return [block.kind for block in scan(source) if block.kind is not BlockType.BLANK]


def test_blocks_that_hide_headings():
    assert kinds("$$\n# x\n$$\n") == [BlockType.MATH]
    assert kinds("\\[\n# x\n\\]\n") == [BlockType.MATH]
    assert kinds("<!--\n# x\n-->\n") == [BlockType.CODE]
    assert kinds("| a | b |\n|---|---|\n| 1 | 2 |\n") == [BlockType.TABLE]


def test_code_is_one_block_wherever_it_stands():
    assert kinds("    a\n\n    b\n") == [BlockType.CODE]
    assert kinds("> ```\n> a\n>\n> # b\n> ```\n") == [BlockType.CODE]
    assert kinds("- a\n\n    ```\n    b\n\n    # c\n    ```\n") == [BlockType.PARAGRAPH, BlockType.CODE]


def test_what_ends_with_its_container_is_text():
    assert kinds("> ```\n> a\n\n```\nb\n```\n") == [BlockType.PARAGRAPH, BlockType.CODE]
    assert kinds("- <!-- a\n- b -->\n") == [BlockType.PARAGRAPH, BlockType.PARAGRAPH]


def test_an_unclosed_fence_is_text():
    assert kinds("```\ncode\n\n# A\n") == [BlockType.PARAGRAPH, BlockType.HEADING]


def test_a_formula_ends_at_an_empty_line():
    assert kinds("$$\nx\n\n# A\n\n$$\n") == [BlockType.PARAGRAPH, BlockType.HEADING, BlockType.PARAGRAPH]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line", ["```a\n", "$$a\n", "<!--\n", "<pre\n", "- a\n", "| a\n", "> ```a\n", "> $$a\n", "- a\n  <!-- b\n"]
)
def test_openers_that_never_close_do_not_take_long(line: str):
    """Every line opens something; looking for each end anew takes time by the square of their number."""
    assert scan(line * 10_000)[-1].end == len(line) * 10_000


def test_only_line_ends_of_commonmark_count():
    assert kinds("a\u2028# no heading\n") == [BlockType.PARAGRAPH]
    assert [block.title for block in scan("# A #\r\n## B\r# C")] == ["A", "B", "C"]


EXAMPLES = "".join(
    f"**Example {n}**\n\nA cart of {n} kg rolls down the hill and stops. Its energy is\n\n$$E_{n} = mgh$$\n\n"
    "It depends on these:\n\n- mass\n- height\n\n"
    for n in range(1, 5)
)


def test_a_long_section_is_cut_between_its_examples_and_not_before_what_a_text_announces():
    texts = [row.document.text for row in chunks_of(f"# Carts\n\n{EXAMPLES}", bounds=(5, 50))]
    assert [text.count("**Example") for text in texts] == [1, 1, 1, 1]
    assert all(text.endswith("- height") for text in texts)


def test_a_short_section_at_the_end_of_a_chapter_joins_the_one_before():
    text = f"# A\n\n## B\n\n### C\n\n{TEXT * 3}\n\n### Words\n\ntide\n\n## D\n\n{TEXT * 3}\n"
    assert [row.document.text.split()[-1] for row in chunks_of(text, bounds=(5, 50))] == ["tide", "seven."]
