r"""The one extractor of `\boxed{...}`: which box counts, what is inside, and what it costs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.verifiers.parts import extract

PIECES = ["\\boxed{", "\\boxed", " ", "{", "}", "\\", "\\{", "\\}", "A", "\\text{", "\n"]
written = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def plain_boxes(response: str) -> list[str]:
    """The rule without cleverness: for every box, its first balanced end; then those inside no other, and not empty."""
    spans = []
    for opening in re.finditer(r"\\boxed\s*\{", response):
        before = response[: opening.start()]
        backslashes = len(before) - len(before.rstrip("\\"))
        depth, place = 1, opening.end()
        while place < len(response) and depth:
            if response[place] == "\\":
                # A run of backslashes escapes what follows it, unless `boxed{` does, or it pairs up.
                run = len(response[place:]) - len(response[place:].lstrip("\\"))
                box = re.compile(r"boxed\s*\{").match(response, place + run)
                depth += 1 if box else 0
                place = box.end() if box else place + run + run % 2
                continue
            depth += {"{": 1, "}": -1}.get(response[place], 0)
            place += 1
        if not depth:
            spans.append((opening.start() - backslashes, opening.end(), place - 1))
    outer = [span for span in spans if not any(o[1] <= span[0] and span[2] < o[2] for o in spans)]
    contents = [response[start:end].strip() for _, start, end in outer]
    return [content for content in contents if content]


@given(written)
def test_one_pass_with_a_stack_equals_the_plain_rule(response: str):
    assert extract.boxes(response) == plain_boxes(response)


@given(written, st.text(alphabet="a }{\\", max_size=8))
def test_text_before_the_first_box_changes_nothing(response: str, reasoning: str):
    assert extract.boxes(f"{reasoning} {response}") == extract.boxes(response)


@given(written, written)
def test_the_paper_reads_nothing_after_the_first_closed_box(before: str, after: str):
    closed = f"\\boxed{{A}} {before}"
    assert extract.first_box(closed) == extract.first_box(f"{closed} {after}") == "A"


@given(st.lists(st.sampled_from(["\\text{", "\\boxed {", "}", "{", "B", "\\", " "]), max_size=12).map("".join))
def test_unwrapping_equals_taking_off_one_wrapper_after_the_other(text: str):
    plain = text.strip()
    while True:
        opening = re.match(r"\\(?:text|boxed)\s*\{", plain)
        if opening is None or plain_closing(plain, opening.end()) != len(plain) - 1:
            break
        plain = plain[opening.end() : -1].strip()
    assert extract.unwrap(text) == plain


def plain_closing(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`, or -1."""
    depth = 1
    for token in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return start + token.start()
    return -1


@pytest.mark.parametrize("piece", [r"\boxed{", "{", "}", r"\boxed{\text{", "\\"])
def test_a_megabyte_of_open_boxes_holds_no_answer(piece: str):
    response = piece * (1_000_000 // len(piece)) + " "
    assert [extract.boxed(response, preset=preset) for preset in extract.PRESETS] == [None] * 4


@pytest.mark.parametrize(("opening", "closing"), [("\\boxed{", "}"), ("\\text{", "}"), ("\\mathbf{ ", " }")])
def test_a_megabyte_of_nested_wrappers_is_peeled_in_one_pass(opening: str, closing: str):
    depth = 1_000_000 // (len(opening) + len(closing))
    response = f"\\boxed{{{opening * depth}B{closing * depth}}}"
    found = extract.last_box(response)
    assert found is not None and extract.unwrap(found) == "B"
