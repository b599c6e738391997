"""A language model may name the boundaries; it sees headings alone, and what it says is checked against them."""

import json
import re

import pytest
from corpus_rows import book_page

from corpus.chunk.front_matter import SHOWN, exclude, find_bounds
from infuser_core.engines.fake import ScriptedChat
from infuser_core.prompts.load import load

BODY = "secret text of the chapter " * 40
BOOK = f"# Greeting\n\n{BODY}\n\n# Wugs\n\n{BODY}\n\n## Blicks\n\n{BODY}\n\n# Farewell\n\n{BODY}\n"
PAGE = book_page(BOOK)
TEMPLATE = load("find_boundaries", profile="paper")


def asked(reply, page=PAGE):
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
    assert found.bounds.decided_by == "scripted"
    spans = exclude(PAGE, mode="headings", bounds=found.bounds)
    assert [BOOK[span.start : span.end].split("\n")[0] for span in spans] == ["# Greeting", "# Farewell"]


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
    assert found.bounds.decided_by == "rules" and found.bounds.problem
    assert exclude(PAGE, mode="headings", bounds=found.bounds) == exclude(PAGE, mode="headings")


def test_a_refused_answer_is_asked_for_again_with_its_problem():
    replies = iter(['{"first_chapter": 9, "end_marker": null}', '{"first_chapter": 1, "end_marker": null}'])
    found, prompts = asked(lambda _: next(replies))
    assert found.bounds.decided_by == "scripted" and len(found.calls) == 2
    assert '"first_chapter" is 9' in prompts[1]


def test_a_long_book_is_shown_in_windows_to_its_end():
    text = "".join(f"# Title {n}\n\ntext {n}\n\n" for n in range(2 * SHOWN + 10))
    page = book_page(text)

    def answer(prompt: str) -> str:
        numbers = [int(number) for number in re.findall(r"^(\d+) \| level", prompt, re.M)]
        first = 5 if 5 in numbers else None
        end = 2 * SHOWN + 8 if 2 * SHOWN + 8 in numbers else None
        return json.dumps({"first_chapter": first, "end_marker": end})

    found, prompts = asked(answer, page)
    assert len(prompts) == 3
    assert text[found.bounds.first :].startswith("# Title 5\n") and text[found.bounds.end :].startswith(
        f"# Title {2 * SHOWN + 8}\n"
    )


def test_a_book_without_headings_is_not_asked_about():
    found, prompts = asked("{}", book_page("text"))
    assert prompts == [] and found.bounds.problem == "the book has no headings"
