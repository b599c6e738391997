"""Books in Markdown, R Markdown, MyST, mdBook and notebooks say what their readers see: titles, references and embedded
formulas stay; code that only the program needs does not."""

from pathlib import Path

from corpus.read.books.convert import convert_book
from infuser_core.child import Limits
from infuser_core.schemas import Page

LIMITS = Limits(wall_seconds=60.0, cpu_seconds=60)


def convert(folder: Path, name: str, text: str) -> Page:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return convert_book(path, "book", LIMITS)


def test_a_directive_of_myst_ends_at_a_longer_fence(tmp_path):
    text = "# Wells\n\n```{figure} a.png\n:label: f-a\nA well.\n````\n\nDig $d_1$.\n\n```{math}\nd = 2\n```\n\nEnd.\n"
    assert convert(tmp_path, "a.md", text).markdown.splitlines()[4::2] == ["Dig $d_1$.", "$$d = 2$$", "End."]


def test_a_directive_of_myst_ends_with_the_one_around_it(tmp_path):
    inner = "```{dropdown} Answer\nYes.\n"
    text = f"# Wells\n\n````{{exercise}}\nDeep?\n\n{inner}````\n\n````{{exercise}}\nDry?\n\n{inner}````\n\n    dig()\n"
    page = convert(tmp_path, "a.md", text)
    assert page.markdown.count("**Exercise**") == 2 and "\n``` text\ndig()\n```" in page.markdown, page.markdown
    assert "Deep?\n\n**Answer**\n\nYes.\n\n**Exercise**" in page.markdown


def test_a_reference_of_myst_without_text_is_its_label_in_words(tmp_path):
    text = "# Wells [](#wells)\n\nUse [](#e-depth_two) and [](wet-sand.md), or ![](#fig:well); `[](#x)` is code.\n\n![](a.png)\n"
    page = convert(tmp_path, "a.md", text)
    assert (
        "\n\nUse e depth two and wet sand, or fig well; `[](#x)` is code." in page.markdown
        and "wells" not in page.markdown
    )


def test_an_embedded_formula_of_myst_is_the_formula(tmp_path):
    labelled = "```{math}\n:label: e-d\nd\n= a^2 % squared\n\n+ b\n```\n\n$$ w_1 = 2 $$ (e-w)\n\n"
    text = f"# Wells\n\n{labelled}1. Show that ![](#e-d) and\n2. that ![](#e-w).\n"
    page = convert(tmp_path, "a.md", text)
    assert page.markdown.count("d = a^2 + b$$") == 1 and page.markdown.count("w_1 = 2") == 2, page.markdown
    assert "1.  Show that\n    $$d = a^2 + b$$\n\n    and" in page.markdown and "(e-w)" not in page.markdown
