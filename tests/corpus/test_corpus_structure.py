"""Front and back matter is named by headings, or by a model that sees the headings alone."""

import json
import re

import pytest
from corpus_rows import book_page, by_words

from corpus.chunk.chunk import Discard, chunk_page
from corpus.chunk.front_matter import HEADINGS_PER_PROMPT, exclude, find_bounds
from infuser_core.config.corpus import ChunkSettings
from infuser_core.engines.fake import ScriptedChat
from infuser_core.prompts.templates import load_template

BOOK = (
    "A Title\n\nby someone\n\n# Preface\n\nthanks\n\n## To the reader\n\nmore\n\n# 1 Indexing data\n\nreal text\n\n"
    "## Chapter references\n\nkept\n\n## References\n\nold books\n\n# Answer Key\n\n1. A\n\n# Index\n\nwug, 3\n"
)
PAGE = book_page(BOOK)


def test_matter_is_named_with_its_subsections():
    spans = exclude(PAGE)
    texts = [BOOK[span.start : span.end].split("\n")[0] for span in spans]
    assert texts == ["A Title", "# Preface", "## References", "# Answer Key", "# Index"]
    assert "To the reader" in BOOK[spans[1].start : spans[1].end]
    assert [span.reason for span in spans] == [Discard.FRONT_MATTER] * 2 + [Discard.BACK_MATTER] * 3


def test_excluded_spans_become_discards():
    config = ChunkSettings(min_tokens=1, max_tokens=50)
    rows = chunk_page(PAGE, by_words, config, "d", excluded=exclude(PAGE))
    kept = [row.document.text for row in rows if row.discard is None]
    assert kept == ["# 1 Indexing data\n\nreal text", "## Chapter references\n\nkept"]
    assert sum(row.discard in (Discard.FRONT_MATTER, Discard.BACK_MATTER) for row in rows) == 6


def test_a_text_without_headings_is_left_alone():
    assert exclude(book_page("only text\n")) == []


def titles(text: str) -> list[str]:
    page = book_page(text)
    return [text[span.start : span.end].split("\n")[0] for span in exclude(page)]


BODY = "real text " * 200


def test_everything_before_the_first_chapter_goes_but_an_introduction():
    front = "Cover\n\n# Colophon\n\nx\n\n# How we work\n\ny\n\n# Introduction\n\nuseful"
    text = f"{front}\n\n# Chapter 1: Wugs\n\n{BODY}\n\n# 2 More\n\n{BODY}\n"
    assert titles(text) == ["Cover", "# Colophon", "# How we work"]


def test_a_chapter_far_into_the_book_is_not_the_first():
    text = f"# Wugs\n\n{BODY}\n\n# Blicks\n\n{BODY}\n\n# 1 Numbers\n\n{BODY}\n"
    assert titles(text) == []


def test_a_numbered_step_of_a_chapter_is_not_the_first_chapter():
    steps = "# Wugs\n\nx\n\n# Blicks\n\ny\n\n# Daxes\n\n## 1. Count them\n\nz"
    assert titles(f"{steps}\n\n# Feps\n\n{BODY * 2}\n") == []
    # Below the title of the book and its subtitle, a chapter has a lower level.
    assert titles(f"# Wugs\n\n# A course\n\n## Thanks\n\nx\n\n## 1 Blicks\n\n{BODY}\n")[-1] == "## Thanks"


def test_everything_from_the_end_marker_on_goes():
    back = "# Bibliography\n\nz\n\n# Index\n\n## A\n\nwug, 3\n"
    text = f"# 1 Wugs\n\n{BODY}\n\n## References\n\nold\n\n# 2 Blicks\n\n{BODY}\n\n{back}"
    assert titles(text) == ["## References", "# Bibliography", "# Index"]


def test_a_book_below_the_title_of_its_contents_stays():
    tides = "The sea rises twice a day. " * 9
    text = f"# Contents\n\n1 Tides\n\n## 2.1 Tides\n\n{tides}\n\n## 3.1 Moon\n\nIt pulls.\n"
    assert [text[span.end :][:11] for span in exclude(book_page(text))] == ["## 2.1 Tide"]


def test_a_section_that_teaches_about_indexes_stays():
    text = f"# 1 Data\n\n{BODY}\n\n## 1.1 Index\n\nkept\n\n## 1.2 Figures\n\nkept\n\n# 2 Last\n\n{BODY}\n"
    assert titles(text) == []


@pytest.mark.parametrize("title", ["\u7b2c\u4e00\u7ae0 \u6c34", "Chapter One", "I. Wugs", "Part 1 Wugs", "1. Wugs"])
def test_the_first_chapter_is_known_by_its_number(title):
    assert titles(f"# Thanks\n\nx\n\n# {title}\n\n{BODY}\n\n# Other\n\n{BODY}\n") == ["# Thanks"]


SECRET = "secret text of the chapter " * 40
GREETED = f"# Greeting\n\n{SECRET}\n\n# Wugs\n\n{SECRET}\n\n## Blicks\n\n{SECRET}\n\n# Farewell\n\n{SECRET}\n"
GREETED_PAGE = book_page(GREETED)
TEMPLATE = load_template("find_boundaries", profile="paper")


def asked(reply, page=GREETED_PAGE):
    prompts: list[str] = []

    def answer(messages) -> str:
        prompts.append(messages[-1]["content"])
        return reply(messages[-1]["content"]) if callable(reply) else reply

    return find_bounds(page, ScriptedChat(reply=answer, name="scripted"), TEMPLATE), prompts


def test_the_model_sees_every_heading_and_no_text():
    _, prompts = asked('{"first_chapter": 1, "end_marker": 3}')
    assert len(prompts) == 1 and all(title in prompts[0] for title in ("Greeting", "Wugs", "Blicks", "Farewell"))
    assert "secret" not in prompts[0]


def test_what_the_model_names_is_left_out():
    found, _ = asked('Sure: {"first_chapter": 1, "end_marker": 3}')
    assert found[0].decided_by == "scripted"
    spans = exclude(GREETED_PAGE, found[0])
    assert [GREETED[span.start : span.end].split("\n")[0] for span in spans] == ["# Greeting", "# Farewell"]


@pytest.mark.parametrize(
    "reply",
    [
        "no idea",
        '{"first_chapter": 9, "end_marker": null}',
        '{"first_chapter": -1, "end_marker": null}',
        '{"first_chapter": "1", "end_marker": null}',
        '{"first_chapter": true, "end_marker": null}',
        '{"first_chapter": 2, "end_marker": 1}',
        '{"first_chapter": 1}',
        '{"first_chapter": null, "end_marker": 3}',
    ],
)
def test_an_answer_that_points_nowhere_leaves_the_rules_in_charge(reply):
    found, _ = asked(reply)
    assert found[0].decided_by == "rules" and found[0].problem
    assert exclude(GREETED_PAGE, found[0]) == exclude(GREETED_PAGE)


def test_a_refused_answer_is_asked_for_again_with_its_problem():
    replies = iter(['{"first_chapter": 9, "end_marker": null}', '{"first_chapter": 1, "end_marker": null}'])
    found, prompts = asked(lambda _: next(replies))
    assert found[0].decided_by == "scripted" and len(found[1]) == 2
    assert '"first_chapter" is 9' in prompts[1]


def test_a_long_book_is_shown_in_windows_to_its_end():
    text = "".join(f"# Title {n}\n\ntext {n}\n\n" for n in range(2 * HEADINGS_PER_PROMPT + 10))
    page = book_page(text)

    def answer(prompt: str) -> str:
        numbers = [int(number) for number in re.findall(r"^(\d+) \| level", prompt, re.M)]
        first = 5 if 5 in numbers else None
        end = 2 * HEADINGS_PER_PROMPT + 8 if 2 * HEADINGS_PER_PROMPT + 8 in numbers else None
        return json.dumps({"first_chapter": first, "end_marker": end})

    found, prompts = asked(answer, page)
    assert len(prompts) == 3
    assert text[found[0].first :].startswith("# Title 5\n") and text[found[0].end :].startswith(
        f"# Title {2 * HEADINGS_PER_PROMPT + 8}\n"
    )


def test_a_book_without_headings_is_not_asked_about():
    found, prompts = asked("{}", book_page("text"))
    assert prompts == [] and found[0].problem == "the book has no headings"


@pytest.mark.parametrize(
    "title",
    [
        "Literature list",
        "Engraving bibliography",
        "GNU Free Documentation License",
        "GNU MPFR Copying Conditions",
        "Legal Section",
    ],
)
def test_lists_of_sources_and_licences_of_a_book_go(title: str):
    text = f"# 1 Wugs\n\n{BODY}\n\n# 2 {title}\n\nold\n\n# 3 Copying files\n\n{BODY}\n\n# 4 Licence plates\n\n{BODY}\n"
    assert titles(text) == [f"# 2 {title}"]


@pytest.mark.parametrize("code", ["", "```\nint &r = x;\n```\n\n"])
def test_a_section_on_references_is_no_list_of_sources(code: str):
    after = "" if code else f"### 1.3.2 Pointers\n\n{BODY}\n\n"
    text = f"# 1 Wugs\n\n{BODY}\n\n## 1.3 Types\n\n{BODY}\n\n### 1.3.1 References\n\n{BODY}\n\n{code}{after}"
    assert titles(f"{text}# 2 Blicks\n\n{BODY}\n\n## References\n\nold\n\n# Bibliography\n\nz\n") == [
        "## References",
        "# Bibliography",
    ]


@pytest.mark.parametrize(
    "title", ["1.2 Typographical conventions", "1.3 How this manual is organized", "About this guide"]
)
def test_sections_about_the_book_itself_are_left_out_at_any_level(title):
    text = f"# 1 Sluices\n\n{BODY}\n\n## {title}\n\nBold words are keys.\n\n## 1.4 Conventions of signs\n\n{BODY}\n"
    assert titles(text) == [f"## {title}"]


def test_works_and_addresses_before_a_review_are_left_out():
    works = "Data from the Tide Office, 2013. Available online at http://tides.example/a (accessed May 2, 2013)."
    text = f"# 1 Wugs\n\n{BODY}\n\n## References\n\n{works}\n\n## Review\n\n{BODY}\n\n# 2 Blicks\n\n{BODY}\n"
    assert titles(text) == ["## References"]
