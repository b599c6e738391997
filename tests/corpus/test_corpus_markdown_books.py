"""Books in Markdown, R Markdown, MyST, mdBook and notebooks say what their readers see: titles, references and embedded
formulas stay; code that only the program needs does not."""

import json
import zipfile
from pathlib import Path

import book_tools
import pytest

from infuser_core.schemas import Page


def convert(folder: Path, name: str, text: str) -> Page:
    return book_tools.convert(book_tools.written(folder, name, text))


def test_a_directive_of_myst_ends_at_a_longer_fence(tmp_path):
    text = "# Wells\n\n```{figure} a.png\n:label: f-a\nA well.\n````\n\nDig $d_1$.\n\n```{math}\nd = 2\n```\n\nEnd.\n"
    assert convert(tmp_path, "a.md", text).markdown.splitlines()[4::2] == ["Dig $d_1$.", "$$d = 2$$", "End."]


def test_a_directive_of_myst_ends_with_the_one_around_it(tmp_path):
    inner = "```{dropdown} Answer\nYes.\n"
    text = f"# Wells\n\n````{{exercise}}\nDeep?\n\n{inner}````\n\n````{{exercise}}\nDry?\n\n{inner}````\n\n    dig()\n"
    page = convert(tmp_path, "a.md", text)
    assert page.markdown.count("**Exercise**") == 2 and "\n``` text\ndig()\n```" in page.markdown, page.markdown
    assert "Deep?\n\n**Answer**\n\nYes.\n\n**Exercise**" in page.markdown


def test_a_reference_of_myst_to_no_place_is_a_mark(tmp_path):
    text = "# Wells [](#wells)\n\nUse [](#e-depth_two) and [](wet-sand.md), or ![](#fig:well); `[](#x)` is code.\n\n![](a.png)\n"
    page = convert(tmp_path, "a.md", text)
    assert (
        "\n\nUse \\[?e-depth-two\\] and \\[?wet-sand.md\\], or \\[?fig:well\\]; `[](#x)` is code." in page.markdown
        and "wells" not in page.markdown
    )


def test_an_embedded_formula_of_myst_is_the_formula(tmp_path):
    labelled = "```{math}\n:label: e-d\nd\n= a^2 % squared\n\n+ b\n```\n\n$$ w_1 = 2 $$ (e-w)\n\n"
    text = f"# Wells\n\n{labelled}1. Show that ![](#e-d) and\n2. that ![](#e-w).\n"
    page = convert(tmp_path, "a.md", text)
    assert page.markdown.count("d = a^2 + b$$") == 1 and page.markdown.count("w_1 = 2") == 2, page.markdown
    assert "1.  Show that\n    $$d = a^2 + b$$\n\n    and" in page.markdown and "(e-w)" not in page.markdown


@pytest.mark.parametrize("name", ["a.md", "a.myst", "a.Rmd", "a.qmd", "a.mdx"])
def test_the_title_of_a_file_heads_it_where_its_text_has_none(tmp_path, name):
    head, code = '---\ntitle: "Wells: a start"\n---\n\n', "```python\n# no heading\n```\n"
    assert convert(tmp_path, name, f"{head}Dig.\n\n## Depth\n\n{code}").markdown.startswith("# Wells: a start\n\nDig.")
    for heading in ("# Ponds", "Ponds\n====="):
        assert convert(tmp_path, name, f"{head}Dig.\n\n{heading}\n\n{code}").markdown.startswith("Dig.\n\n# Ponds")


@pytest.mark.parametrize(
    "cell",
    [
        "```{r plot-1, echo = FALSE, fig.cap = 'A \"deep\" well {here}.'}\nHIDDEN(1)\n```",
        "```{r, fig.cap = demo$caption('A \"deep\" well {here}.'), echo=F}\n# HIDDEN\n\nx\n```",
        "```{python}\n#| echo: false\n#| fig-cap: 'A \"deep\" well {here}.'\nHIDDEN(1)\n```",
    ],
)
def test_a_cell_that_its_book_hides_is_a_record_and_its_caption_stays(tmp_path, cell):
    page = convert(tmp_path, "a.Rmd", f"# Wells\n\nDig.\n\n{cell}\n\n```{{r}}\nshown(2)\n```\n")
    assert page.markdown == "# Wells\n\nDig.\n\nA “deep” well {here}.\n\n``` r\nshown(2)\n```\n"
    assert [each for each in page.removed if "HIDDEN" in each], page.removed


def test_a_cell_that_is_run_only_leaves_no_listing(tmp_path):
    for cell in ("```{r, include=FALSE}\nrun()\n```", "```{r}\n#| include: false\nrun()\n```"):
        page = convert(tmp_path, "a.qmd", f"# Wells\n\n{cell}\n\nDig.\n")
        assert page.markdown == "# Wells\n\nDig.\n" and page.removed == ["run()"]


def test_the_source_of_a_hidden_cell_that_a_book_shows_stays(tmp_path):
    cell = "```{r, echo = FALSE}\nrun()\n```"
    page = convert(
        tmp_path,
        "a.Rmd",
        f"# Wells\n\n````markdown\nSee:\n\n{cell}\n````\n\n```{{r, fig.cap='echo = FALSE'}}\ndig()\n```\n",
    )
    assert "run()" in page.markdown and "dig()" in page.markdown and not page.removed, page.markdown


def test_lines_of_rust_that_mdbook_hides_are_left_out(tmp_path):
    code = "# use a::B;\n#\n#[derive(Debug)]\n#![allow(x)]\nfn f() {\n    # let x = 1;\n    ## two\n}\n"
    text = f"# Wells\n\n```rust ,ignore\n{code}```\n\n```toml\n# shown\na = 1\n```\n"
    page = convert(tmp_path, "a.md", text)
    assert "\n#[derive(Debug)]\n#![allow(x)]\nfn f() {\n    # two\n}\n```" in page.markdown, page.markdown
    assert "\n# shown\n" in page.markdown and "use a::B" not in page.markdown


def test_a_cell_for_the_readers_own_code_is_no_listing(tmp_path):
    sources = [
        "# Solution goes here",
        "# YOUR CODE HERE\n",
        "",
        "# your code here\n\n# Solution here.",
        "# code here: x",
    ]
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": each}
        for each in sources
    ]
    page = convert(
        tmp_path, "a.ipynb", json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})
    )
    assert page.markdown == "``` python\n# code here: x\n```\n"


def test_what_stands_indented_between_tags_is_prose(tmp_path):
    tip = "<Tip warning={true}>\n\n    Mind the *edge*.\n\n    ```jsx\n    <Tip>\n        dig()\n    ```\n\n</Tip>\n"
    page = convert(tmp_path, "a.mdx", f"# Wells\n\n{tip}\n    listing()\n\n```jsx\n<Tip>\n    dug()\n</Tip>\n```\n")
    assert "# Wells\n\nMind the *edge*.\n\n``` jsx\n<Tip>\n    dig()\n```\n" in page.markdown, page.markdown
    assert "``` text\nlisting()\n```" in page.markdown and "<Tip>\n    dug()\n</Tip>" in page.markdown


def test_a_rule_behind_a_directive_begins_no_metadata(tmp_path):
    text = "# Tides\n\n```{figure} a.png\n```\n---\nHigh: of: water\nlow\n\n---\n\nEnd.\n"
    page = convert(tmp_path, "book.md", text)
    assert "High: of: water" in page.markdown and page.markdown.endswith("End.\n"), page.reason


def test_backslashed_brackets_are_a_formula_in_r_alone(tmp_path):
    text = "# Errors\n\n\\[ \\sqrt{a} = b. \\] See \\[1\\].\n"
    assert "\n\n$$\\sqrt{a} = b.$$\n\n" in convert(tmp_path, "a.Rmd", text).markdown
    assert "$" not in convert(tmp_path, "a.md", "# Notes\n\nSee \\[1\\].\n").markdown


PROGRAM = (
    "use a;\n// ANCHOR: all\n// ANCHOR: dig\nfn dig() {\n    // ANCHOR_END: dig\n    go();\n}\n// ANCHOR_END: all\n"
)
EXCERPTS = {
    "include a.rs:dig": "fn dig() {",
    "rustdoc_include a.rs:all": "fn dig() {\n    go();\n}",
    "include a.rs": "use a;\nfn dig() {\n    go();\n}",
    "include a.rs:4": "fn dig() {",
    "include a.rs:4:6": "fn dig() {\n    go();",
    "rustdoc_include a.rs:6:": "    go();\n}",
    "include a.rs::4 editable": "use a;\nfn dig() {",
    "include a.rs:absent": "{{#include a.rs:absent}}",
}


def test_an_inclusion_of_mdbook_has_the_lines_it_names(tmp_path):
    listings = [f"```rust\nlet a;\n{{{{#{command}}}}}\nlet b;\n```" for command in EXCERPTS]
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as book:
        book.writestr("src/SUMMARY.md", "- [Wells](a.md)\n")
        book.writestr("src/a.md", "\n\n".join(["# Wells", *listings]))
        book.writestr("src/a.rs", PROGRAM)
    wanted = [f"``` rust\nlet a;\n{lines}\nlet b;\n```" for lines in EXCERPTS.values()]
    assert book_tools.convert(tmp_path / "book.zip").markdown == "\n\n".join(["# Wells", *wanted]) + "\n"


def test_a_chapter_that_is_included_keeps_lines_that_look_like_marks(tmp_path):
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as book:
        book.writestr("src/SUMMARY.md", "- [Wells](a.md)\n")
        book.writestr("src/a.md", "# Wells\n\n{{#include b.md}}\n")
        book.writestr("src/b.md", "ANCHOR: deep\n\nDig.\n")
    assert book_tools.convert(tmp_path / "book.zip").markdown == "# Wells\n\nANCHOR: deep\n\nDig.\n"


def test_a_line_that_calls_the_program_of_a_book_is_a_record(tmp_path):
    text = "# Wells\n\n{{%session outline}}\n\n{{#title Wells}}\n\nDig.\n\n```text\n{{%segment outline}}\n```\n"
    page = convert(tmp_path, "a.md", text)
    assert page.markdown == "# Wells\n\nDig.\n\n``` text\n{{%segment outline}}\n```\n"
    assert page.removed == ["{{%session outline}}", "{{#title Wells}}"]


@pytest.mark.parametrize("name", ["a.md", "a.mdx", "a.qmd"])
def test_an_alert_has_its_kind_above_it(tmp_path, name):
    page = convert(tmp_path, name, "# Wells\n\n> [!TIP]\n> Dig *deep*.\n>\n> - a\n\nEnd.\n")
    assert page.markdown == "# Wells\n\nTip\n\nDig *deep*.\n\n- a\n\nEnd.\n"


@pytest.mark.parametrize("name", ["a.md", "a.mdx"])
def test_tabs_keep_their_labels(tmp_path, name):
    tabs = '<hfoptions id="tools">\n<hfoption id="spade">\nDig.\n</hfoption>\n<hfoption id="drill">\n\nTurn.\n\n'
    items = '<Tabs>\n<TabItem value="a" label="A well">\n\nOne.\n\n</TabItem>\n<TabItem value="b">\n\nTwo.\n\n</TabItem>\n</Tabs>\n'
    card = '<Card title="Next" />\n\n<Tip warning={true}>\n\nThree.\n\n</Tip>\n'
    page = convert(tmp_path, name, f"# Wells\n\n{tabs}</hfoption>\n</hfoptions>\n\n{items}\n{card}")
    said = ["# Wells", "**spade**", "Dig.", "**drill**", "Turn.", "**A well**", "One.", "**b**", "Two.", "Three."]
    assert page.markdown.split("\n\n") == [*said[:-1], f"{said[-1]}\n"], page.markdown


CELLS = {
    "{r, fig.cap = 'A \\'deep\\' \\\\(d\\\\).'}": "A ‘deep’ $d$.",
    '{r, fig.cap="", out.width="50%"}': "",
    "{r, eval=FALSE, fig.cap='Not drawn.'}": "",
    '{r, fig.cap="The set {a} is."}': "The set {a} is.",
    "{r}\n#| fig-cap: >\n#|   Two\n#|   lines.": "Two lines.",
    '{r}\n#| tbl-cap: "Depths: all."': "Depths: all.",
    "{r}\n#| fig.cap = 'Depths: all.'": "Depths: all.",
}


@pytest.mark.parametrize("head", sorted(CELLS))
def test_the_caption_of_what_a_cell_draws_stands_below_it(tmp_path, head):
    found = convert(tmp_path, "a.Rmd", f"# Wells\n\n```{head}\ndig()\n```\n\nEnd.\n").markdown
    parts = ["# Wells", "``` r\ndig()\n```", *([CELLS[head]] if CELLS[head] else []), "End.\n"]
    assert found.split("\n\n") == parts, found


def test_words_that_a_book_keeps_for_a_caption_stand_in_its_place_once(tmp_path):
    words = "(ref:deep-well) A *deep* well, as in Figure \\@ref(fig:wet-sand)a.\n\n(ref:other) Words.\n\n"
    cell = "```{r deep, echo=FALSE, fig.cap='(ref:deep-well)'}\nrun()\n```\n"
    page = convert(tmp_path, "a.Rmd", f"# Wells\n\n{words}Dig.\n\n{cell}\n```r\nx('(ref:deep-well)')\n```\n")
    assert page.markdown == (
        "# Wells\n\nWords.\n\nDig.\n\nA *deep* well, as in Figure wet sand a.\n\n``` r\nx('(ref:deep-well)')\n```\n"
    )


def test_a_reference_by_number_of_bookdown_or_quarto_is_its_label_in_words(tmp_path):
    formula = "\\begin{equation}\na = b\n(\\#eq:sum)\n\\end{equation}\n"
    text = f"# Wells\n\nSee (\\@ref(eq:sum)), Chapter \\@ref(wet-sand), @sec-wet_sand and a@sec-b.org.\n\n{formula}"
    page = convert(tmp_path, "a.Rmd", f"{text}\n```r\n# \\@ref(fig:a)\n```\n")
    said = "See (sum), Chapter wet sand, Section wet sand and a@sec-b.org.\n\n$$\\begin{equation}\na = b\n\\end{equation}$$"
    assert page.markdown == f"# Wells\n\n{said}\n\n``` r\n# \\@ref(fig:a)\n```\n"


def test_captions_and_brackets_of_quarto_have_the_words_of_their_references(tmp_path):
    cell = "```{r}\n#| fig-cap: A well, as in [Chapter -@sec-sand].\nplot(1)\n```\n"
    page = convert(tmp_path, "a.qmd", f"# Wells\n\nSee [@sec-sand].\n\n{cell}\n## Wet sand {{#sec-sand}}\n\nDig.\n")
    assert "See Section “Wet sand”." in page.markdown and "\n\nA well, as in Chapter “Wet sand”.\n" in page.markdown


def test_a_sentence_that_waits_for_a_result_of_code_is_doubtful(tmp_path):
    page = convert(tmp_path, "a.qmd", "# Wells\n\nThe mean is `r round(mean(x), 1)` m.\n")
    assert page.markdown == "# Wells\n\nThe mean is \\[?result\\] m.\n"


def test_a_picture_that_stands_alone_has_its_caption_below_it_where_pages_print_it(tmp_path):
    text = "# Wells\n\n![A deep well.](a.png){#fig-deep}\n\nDig ![here](b.png).\n"
    page = convert(tmp_path, "a.qmd", text)
    assert page.markdown == "# Wells\n\nA deep well.\n\nDig .\n" and page.removed == ["A deep well.", "here"]
    assert convert(tmp_path, "a.md", text).markdown == "# Wells\n\nDig .\n"


def test_a_tag_of_a_picture_is_what_markdowns_own_picture_is(tmp_path):
    html = (
        'Dig <img src="a.png" alt="a well"> here.\n\n<div>\n<img src="b.png" width="9"/>\n</div>\n\n`<img src="c">`, '
    )
    page = convert(tmp_path, "a.md", f'# Wells\n\n{html}<img class="latex" src="d.png" alt="x^2">.\n')
    assert page.markdown == '# Wells\n\nDig here.\n\n`<img src="c">`, $x^2$.\n'
    assert list(zip(page.removed_for, page.removed, strict=True)) == [("image", "a well"), ("image", "b.png")]


HEADS = (":tags: [{}]\n", "---\ntags: [{}]\n---\n", "---\nname: x\ntags:\n- {}\n---\n")


@pytest.mark.parametrize(
    ("tag", "code"), [("remove-cell", ""), ("remove-input", ""), ("hide-input", "glue(4)"), ("x", "glue(4)")]
)
def test_code_that_the_book_removes_is_no_text(tmp_path, tag, code):
    cells = [
        f"{fence}{{code-cell}} ipython3\n{head.format(tag)}glue(4)\n{fence}\n\nEnd.\n\n"
        for fence in ("```", "~~~~", ":::")
        for head in HEADS
    ]
    page = convert(tmp_path, "book.myst", "".join(cells))
    listing = f"``` python\n{code}\n```\n\n" if code else ""
    assert page.markdown.strip() == (f"{listing}End.\n\n" * len(cells)).strip()
    assert sum("glue" in row for row in page.removed) == (0 if code else len(cells))
    output = [{"output_type": "stream", "name": "stdout", "text": "44"}]
    cell = {"cell_type": "code", "source": "glue(4)", "metadata": {"tags": [tag]}, "outputs": output}
    markdown = convert(tmp_path, "book.ipynb", json.dumps({"cells": [cell]})).markdown
    assert ("glue" in markdown, "44" in markdown) == (bool(code), tag != "remove-cell")
