"""Chunks are exact, bounded slices that cover the source; what is left out has a reason."""

import pytest
from corpus_rows import book_page, by_characters, by_words
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic import ValidationError

from corpus.chunk.blocks import ATOMIC, BlockType, scan
from corpus.chunk.chunk import Chunk, Discard, Excluded, chunk_page, split_sections
from corpus.chunk.langchain_chunk import NOWHERE, chunk_langchain
from infuser_core.config.corpus import ChunkSettings

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
