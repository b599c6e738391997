"""The comparison of a tool's text with a chapter's source, and the reading of sources, by small cases."""

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textbook_scores import (
    LEAST_SIGNS,
    Truth,
    closest_distance,
    compare_paragraphs,
    count_cells,
    formula_key,
    longest_increasing,
    score,
    table_rows,
    title_key,
)
from textbook_sources import UNREAD, TreeReader, formula_keys, html_of, pandoc

PROSE = ["The harbor carries timber over the ridge and to the valley in spring.",
         "A second paragraph about lagoons and their tides follows the first one."]  # fmt: skip
TRUTH = Truth(
    headings=["Chapter 3. Sums", "Proofs"],
    paragraphs=PROSE,
    formulas=["x^{2}+1=0", "a=b+c", "n"],
    lines=["for i in x:", "    print(i)", ""],
    rows=[["a", "1"], ["b", ""]],
)
TEXT = f"""# 3 Sums

{PROSE[0]}

x^{{2}} + 1 = 0 and a = b + c

```
for i in x:
    print(i)
# a comment
```

## Proofs

{PROSE[1]}

| a | 1 |
|---|---|
| b |  |
"""


def plain_distance(pattern: str, text: str) -> int:
    """The same by a table of all prefixes."""
    row = [0] * (len(text) + 1)
    for number, sign in enumerate(pattern, 1):
        last, row = row, [number]
        for place, other in enumerate(text, 1):
            row.append(min(last[place] + 1, row[-1] + 1, last[place - 1] + (sign != other)))
    return min(row)


@given(st.text("abc", min_size=1, max_size=70), st.text("abc", max_size=20))
def test_the_closest_passage_has_the_distance_of_the_plain_table(pattern: str, text: str):
    assert closest_distance(pattern, text) == plain_distance(pattern, text)


def test_a_perfect_text_is_right_in_every_count():
    counts = score(TEXT, TRUTH)
    assert {name: counts[name] for name in ("headings", "formulas", "built", "lines", "cells", "order")} == {
        name: counts[f"{name} of"] for name in ("headings", "formulas", "built", "lines", "cells", "order")
    }
    assert counts["formulas of"] == 2 and counts["headings read"] == 2 and counts["errors"] == 0


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("## Proofs", "Proofs", "headings"),
        ("x^{2}", "x2", "built"),
        ("a = b + c", "a = b - c", "formulas"),
        ("    print", "print", "lines"),
        ("| a | 1 |", "| 1 | a |", "cells"),
    ],
)
def test_one_fault_costs_one(old: str, new: str, name: str):
    assert score(TEXT.replace(old, new), TRUTH)[name] == score(TEXT, TRUTH)[name] - (2 if name == "cells" else 1)


def test_paragraphs_out_of_order_and_wrong_characters_are_counted():
    places, errors = compare_paragraphs(PROSE, f"{PROSE[1]} {PROSE[0].replace('timber', 'tmber')}")
    assert (longest_increasing(places), len(places), errors) == (1, 2, 1)
    assert compare_paragraphs(PROSE, "nothing") == ([], sum(map(len, PROSE)))


def test_signs_of_fonts_and_sources_have_one_key():
    assert formula_key("x² − 1 ≤ \\frac{a}{b}") == formula_key("x^{2}-1≤frac{a}{b}")
    assert formula_key("y^{a}_{i}") == formula_key("y_{i}^{a}") != formula_key("y_{i}a")
    assert title_key("## **Chapter 2** The `lim`") == title_key("2.1 The lim") == "thelim"
    assert count_cells([["a", "b"]], table_rows("| a | c |\n| x | b |")) == 1


def test_formulas_of_a_source_have_the_notation_of_texts():
    written = [
        r"\frac{x_1^2}{\sqrt{n}}",
        r"\hat{x}",
        r"\begin{aligned}a&=b\\c&=d\end{aligned}",
        r"\begin{pmatrix}1&2\end{pmatrix}",
    ]
    keys = formula_keys(written)
    assert keys == [["frac{x_{1}^{2}}{sqrt{n}}"], [formula_key("x̂")], ["a=b", "c=d"], [f"({UNREAD * LEAST_SIGNS})"]]


def test_a_source_is_read_without_its_notes_and_pictures():
    cnxml = """<document xmlns="http://cnx.rice.edu/cnxml" xmlns:m="http://www.w3.org/1998/Math/MathML"><title>Top</title><content>
    <section><title>Part</title><para>One <emphasis>two</emphasis><footnote>note</footnote> three.</para>
    <para>Of <m:math><m:mi>n</m:mi></m:math> after.</para>
    <figure><media/><caption>lost</caption></figure><code>\n  a = 1\n    b</code>
    <table><tgroup><tbody><row><entry>x</entry><entry/></row></tbody></tgroup></table></section></content></document>"""
    html = ElementTree.tostring(html_of(ElementTree.fromstring(cnxml), 0), encoding="unicode")
    reader = TreeReader()
    reader.read_blocks(json.loads(pandoc(html, "-f", "html", "-t", "json"))["blocks"])
    assert (reader.headings, reader.lines, reader.rows) == (["Top", "Part"], ["a = 1", "  b"], [["x"]])
    assert [text.strip() for text in reader.paragraphs if text] == ["One two three.", f"Of {UNREAD}0{UNREAD} after."]
