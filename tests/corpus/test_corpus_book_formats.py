"""None"""

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from book_tools import LIMITS, convert, written

from corpus.read.books import library, pandoc
from corpus.read.books.convert import CONVERTER, convert_book
from corpus.read.doubt import MARK
from corpus.read.formats.mediawiki import prepare
from infuser_core.system.child import Limits

HTML = """<html><head><title>Falling</title></head><body><nav><a href="i.html">All chapters</a></nav>
<p>Next: <a href="b.html">Bridges</a>, Up: <a href="i.html">Top</a></p>
<h1><span class="secnum">4</span><span>Falling stones</span></h1>
<p>A stone falls <math><msub><mi>h</mi><mn>0</mn></msub><mo>=</mo><mfrac><mn>1</mn><mn>2</mn></mfrac><mi>g</mi>
<msup><mi>t</mi><mn>2</mn></msup></math> metres; 10<sup>6</sup> of them.<sup><a href="#f1">7</a></sup></p>
<figure><img src="s.png" alt="A stone in the air"/><figcaption>The stone at noon.</figcaption></figure>
<table><caption>Heights</caption><tr><th>t</th><th>h</th></tr><tr><td>1</td><td>$|x|$</td></tr>
<tr><td colspan="2">both</td></tr></table>
<dl><dt>drag</dt><dd>what air does</dd></dl>
<pre><code class="python">for t in range(3):
    print(t)</code></pre>
<p>\u00a9 2020 Nobody. All rights reserved.</p>
<p><a href="#top">Back to top</a></p></body></html>"""

NOTEBOOK = {
    "nbformat": 4, "nbformat_minor": 5, "metadata": {},
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Sums\n\nHere $s_n = x^2$ and\n$$\\sum_i i^2$$\n"},
        {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": 1, "source": "print(sum(range(4)))",
         "outputs": [{"output_type": "stream", "name": "stdout", "text": "6\n"},
                     {"output_type": "display_data", "metadata": {}, "data": {"image/png": "aGk=", "text/plain": "<Figure>"}}]},
    ],
}  # fmt: skip

CNXML = """<document xmlns="http://cnx.rice.edu/cnxml" xmlns:m="http://www.w3.org/1998/Math/MathML">
<title>Springs</title><metadata><md:title xmlns:md="x">no</md:title></metadata><content>
<para id="p">See <link target-id="f2"/> for <m:math><m:msup><m:mi>k</m:mi><m:mn>2</m:mn></m:msup></m:math>.</para>
<section id="s"><title>Pulling</title>
<figure id="f1"><media alt="hook"><image src="h.jpg"/></media><caption>A hook.</caption></figure>
<figure id="f2"><media alt="spring"><image src="s.jpg"/></media><caption>A spring.</caption></figure>
<equation id="e"><m:math><m:mi>F</m:mi><m:mo>=</m:mo><m:mtext>\u2212</m:mtext><m:mi>k</m:mi><m:mi>x</m:mi></m:math></equation>
<note id="n"><title>Law</title><para id="q">Twice the pull, twice the length.</para></note>
<table id="t"><tgroup cols="2"><tbody><row><entry>1</entry><entry>2</entry></row></tbody></tgroup></table>
<exercise id="x"><problem><para id="r">How far?</para></problem><solution><para id="u">2 cm.</para></solution></exercise>
</section></content><glossary><definition id="d"><term>spring</term><meaning>a coil</meaning></definition></glossary>
</document>"""

LATEX = r"""\documentclass{book}
\newcommand{\tide}[1]{T_{#1}}
\makeatletter\def\@loop#1{\@loop{#1#1}}\def\again#1;{\@loop{#1}}\makeatother
\begin{document}
\chapter{Tides} The tide $\tide{3}^2$ rises. % not \chapter{this}
\begin{equation} h = \frac{a}{b} \end{equation}
\begin{lstlisting}
rise(3)
\end{lstlisting}
\chapter{Ebb} It falls by 50\%.
\end{document}
"""

TEXTS = {
    ".html": (HTML, ["# 4 Falling stones", r"$h_{0} = \frac{1}{2}gt^{2}$", "$10^{6}$", "\\[7\\]", "The stone at noon.", "Heights",
                     "print(t)", "**drag**", "what air does", "both"]),
    ".ipynb": (json.dumps(NOTEBOOK), ["# Sums", "$s_n = x^2$", "\n$$\\sum_i i^2$$\n", "print(sum(range(4)))", "6"]),
    ".cnxml": (CNXML, ["# Springs", "Figure 2", "$k^{2}$", "## Pulling", "**Figure 2** A spring.", "\n$$F = - kx$$\n", "**Law**",
                       "**Table 1**", "**Solution**", "2 cm.", "## Glossary", "**spring**"]),
    ".tex": (LATEX, ["# Tides", "$T_{3}^2$", r"h = \frac{a}{b}", "rise(3)", "# Ebb", "50%"]),
    ".adoc": ("= Locks\n\n[[gates]]\n== Gates\n\nA gate holds stem:[p_1^2].\n\n[source,c]\n----\nopen();\n----\n\n"
              "|===\n|a |b\n\n|1 |2\n|===\n", ["Gates", "open();", "| 1"]),
    ".rst": ("Mills\n=====\n\n.. currentmodule:: mill\n\nPower :math:`P_1^2` is\n\n.. math::\n\n   P = F v\n\n.. code-block:: c\n\n   grind();\n",
             ["# Mills", "$P_1^2$", "P = F v", "grind();"]),
    ".qmd": ("---\ntitle: Dunes\n---\n\n# Dunes\n\n```{r, fig.width=3}\n#| label: fig-a\nplot(x)\n```\n\nSand $s_1$.\n"
             "1.  first\n2.  second\n", ["# Dunes", "``` r\nplot(x)\n```", "$s_1$", "first"]),
    ".mdx": ("import Tabs from 'tabs'\n\n# Hives\n\n<Tabs kind=\"a\">\n\nBees $b^2$ fly.\n\n</Tabs>\n\n```jsx\nimport Bee from 'bee'\n"
             "<Bee/>\n```\n", ["# Hives", "$b^2$", "import Bee from 'bee'\n<Bee/>"]),
    ".wiki": ("= Ovens =\n\nHeat <math>q_1^2</math> in [[Bread|loaves]].\n\n{| class=\"wikitable\"\n! a !! b\n|-\n| 1 || 2\n|}\n",
              ["# Ovens", "$q_1^2$", "loaves", "| 1"]),
    ".org": ("* Kilns\n\nHeat \\(q_1^2\\).\n\n#+begin_src c\nfire();\n#+end_src\n", ["# Kilns", "$q_1^2$", "fire();"]),
    ".typ": ("= Wells\n\nDepth $d_1^2$.\n", ["# Wells", "$d_{1}^{2}$"]),
    ".docbook": ("<article><title>Nets</title><section><title>Knots</title><para>Tie <emphasis>two</emphasis>.</para>"
                 "<programlisting>tie();</programlisting></section></article>", ["Knots", "*two*", "tie();"]),
}  # fmt: skip
"""A book of each text format, and what must be in its Markdown."""


@pytest.mark.parametrize("suffix", sorted(TEXTS))
def test_what_a_format_says_survives(tmp_path, suffix):
    text, expected = TEXTS[suffix]
    page = convert(written(tmp_path, f"book{suffix}", text))
    assert not page.reason and [each for each in expected if each not in page.markdown] == [], page.markdown
    assert page.converter.startswith(f"{CONVERTER}/3.") and page.status == "converted"


def test_navigation_and_licences_go_with_a_record(tmp_path):
    page = convert(written(tmp_path, "book.html", HTML))
    assert not [word for word in ("Next", "Back to top", "rights", "chapters", "<", "s.png") if word in page.markdown]
    left = dict(zip(page.removed, page.removed_for, strict=True))
    assert left["Back to top"] == "navigation" and left["A stone in the air"] == "image"
    assert left["\u00a9 2020 Nobody. All rights reserved."] == "licence" and left["All chapters"] == "navigation"
    assert set(page.removed_for) == {"navigation", "licence", "image"}


def test_a_chapter_about_copyright_is_no_licence(tmp_path):
    text = "<h1>Scraping</h1><h2>Copyright</h2><p>Lists are not copyrightable; think of it before you scrape.</p>"
    page = convert(written(tmp_path, "book.html", text))
    assert "Lists are not copyrightable" in page.markdown and page.removed == []


MYST = """(sec:ponds)=
# Ponds

Depth {math}`d_1` as in {ref}`the plan <sec:plan>`.

```{math}
:label: eq_d

d = a^2
```

````{note}
Mind the {doc}`frogs`.

```{code-cell} ipython3
---
tags: [hide]
---
frogs = 3
```
````

```{prf:theorem} Frogs
Every pond has $f^2$ frogs.
```

```{toctree}
hidden
```

```text
{note}
```
"""


def test_directives_of_a_markdown_book_are_formulas_code_and_prose(tmp_path):
    page = convert(written(tmp_path, "book.myst", MYST))
    expected = [
        "Depth $d_1$ as in the plan.",
        "\n$$d = a^2$$\n",
        "Mind the \\[?frogs\\].",
        "``` python\nfrogs = 3\n```",
    ]
    expected += ["**Theorem Frogs**\n\nEvery pond has $f^2$ frogs.", "``` text\n{note}\n```"]
    assert [each for each in expected if each not in page.markdown] == [], page.markdown
    assert not [each for each in ("hidden", "eq_d", "tags", "sec:", "{math}") if each in page.markdown]


def test_an_environment_of_latex_in_markdown_is_a_formula(tmp_path):
    text = "# Sums\n\n\\begin{align*}\na &= b \\\\\nc &= d\n\\end{align*}\n\nEnd.\n"
    page = convert(written(tmp_path, "book.qmd", text))
    assert "$$\\begin{align*}\na &= b" in page.markdown and "\\end{align*}$$" in page.markdown and not page.removed


@pytest.mark.parametrize("name", ["book.mdx", "book.qmd", "book.md"])
def test_a_remark_between_rules_is_no_metadata(tmp_path, name):
    remark = "---\nTwo [logs](a.md): one of the *kiln*\n- and one\n---\n"
    text = f"---\ntitle: Of kilns: a log\n---\n\n# Kilns\n\nEmber.\n\n{remark}\n```yaml\n\n---\nash: [\n---\n```\n"
    page = convert(written(tmp_path, name, text))
    assert page.markdown.startswith("# Kilns\n\nEmber.\n\n"), page.markdown
    assert (
        "one of the *kiln*" in page.markdown and "---\nash: [\n---" in page.markdown and "Of kilns" not in page.markdown
    )


def test_a_sidebar_of_a_book_is_a_part_of_it(tmp_path):
    text = "# Depth\n\n::: sidebar\nA digression on wells.\n:::\n"
    assert "A digression on wells." in convert(written(tmp_path, "book.qmd", text)).markdown


def test_commands_of_a_drawing_are_no_text(tmp_path):
    text = "\\begin{document}\nA wheel.\n\\begin{asy}\nsize(400);\n\ndraw(O--(pi,0));\n\\end{asy}\nIt turns.\n\\end{document}\n"
    page = convert(written(tmp_path, "book.tex", text))
    assert page.markdown.split() == ["A", "wheel.", "It", "turns."]
    assert (page.removed_for[0], page.removed[0][:10]) == ("image", "size(400);")


def test_an_unknown_environment_costs_no_formula(tmp_path):
    text = (
        "\\documentclass{book}\n\\begin{document}\n\\begin{remarks}Rivers run.\\end{remarks} Then\n"
        "\\begin{equation*}\n\\lim_{n\\to\\infty} x_n = \\sup X .\n\\end{equation*}\nOften.\n\\end{document}\n"
    )
    page = convert(written(tmp_path, "book.tex", text))
    assert "Rivers run." in page.markdown and "\\lim_{n\\to\\infty} x_n = \\sup X" in page.markdown, page.markdown


def test_emphasis_within_emphasis_is_one(tmp_path):
    text = "<p>Press <strong class='k'><strong><strong>Ctrl</strong>+<strong>u</strong></strong></strong>, <em>a <em>b</em> c</em>.</p>"
    assert convert(written(tmp_path, "book.html", text)).markdown == "Press **Ctrl+u**, *a b c*.\n"


MARKDEEP = """<meta charset="utf-8">
<!-- Markdeep: a page without tags -->
                    **Falling**

Stones
====================
A stone falls as $h = g t^2 / 2$, so

  $$ t = \\sqrt{2 h / g} $$

<div class='together'>
  - first
    line

    ~~~~~~~~~~~~~~~~~~~ C++
    #include <cmath>
    ~~~~~~~~~~~~~~~~~~~ C++ highlight
        double t = <!-- h -->;
    ~~~~~~~~~~~~~~~~~~~
    [Listing [fall]: <kbd>[fall.cc]</kbd> A fall]
</div>
<style class="fallback">body{visibility:hidden}</style>
<script src="markdeep.min.js"></script>
"""


@pytest.mark.parametrize("name", ["book.html", "book.md.html"])
def test_a_page_without_tags_that_a_script_prints_is_markdown(tmp_path, name):
    assert convert(written(tmp_path, name, MARKDEEP)).markdown == (
        "**Falling**\n\n# Stones\n\nA stone falls as $h = g t^2 / 2$, so\n\n$$t = \\sqrt{2 h / g}$$\n\n"
        "- first line\n\n``` c++\n#include <cmath>\n    double t = <!-- h -->;\n```\n\n\\[fall.cc\\] A fall\n"
    )


def test_a_listing_that_a_page_can_run_is_code(tmp_path):
    text = "Loops\n=====\n\n.. activecode:: lst_f\n    :caption: One\n\n    def f(x):\n        return x\n\nText.\n"
    assert (
        "\n``` python\ndef f(x):\n    return x\n```\n\nText." in convert(written(tmp_path, "book.rst", text)).markdown
    )


def test_a_fraction_within_a_sentence_of_latex_stays(tmp_path):
    text = "\\documentclass{book}\n\\begin{document}\n\\section{Kin}\nSibs share \\nicefrac{1}{2}, cousins $\\nicefrac{1}{8}$.\n\\end{document}\n"
    assert "Sibs share 1/2, cousins $1/8$." in convert(written(tmp_path, "book.tex", text)).markdown


def test_a_remark_in_a_cell_of_r_is_prose(tmp_path):
    text = '# Loops\n\n```{block, type="rmdnote"}\nMost *never* loop.\n```\n\n```{r}\nx = 1\n```\n'
    assert "\nMost *never* loop.\n\n``` r\nx = 1\n```" in convert(written(tmp_path, "book.Rmd", text)).markdown


def test_an_exercise_of_a_bank_leaves_no_empty_box(tmp_path):
    bank = (
        '<exercise id="y"><problem><para id="z"><link class="os-embed" url="#exercise/1"/></para></problem></exercise>'
    )
    page = convert(written(tmp_path, "book.cnxml", CNXML.replace("</section>", f"{bank}</section>")))
    assert page.markdown.count("**Exercise**") == 1 and "linked section" not in page.markdown, page.markdown


def test_lines_of_a_formula_stay_lines(tmp_path):
    pull = '<m:math><m:mi>u</m:mi><m:mo>=</m:mo><m:mn>4</m:mn><m:mspace linebreak="newline"/><m:mi>v</m:mi></m:math>'
    page = convert(
        written(tmp_path, "book.cnxml", CNXML.replace("</section>", f'<para id="w">{pull}</para></section>'))
    )
    assert "$u = 4$\\\n$v$" in page.markdown, page.markdown


@pytest.mark.parametrize(
    "number", ['<span class="pagenum"><a id="p8">[Pg 8]</a></span>', '<span epub:type="pagebreak" title="8">8</span>']
)
def test_page_numbers_of_the_print_go_with_a_record(tmp_path, number):
    page = convert(written(tmp_path, "book.html", f"<h1>Stones</h1><p>A gran{number}ite wall bears the load.</p>"))
    assert "A granite wall bears" in page.markdown and page.removed_for == ["navigation"]


def test_the_name_of_an_object_is_no_output(tmp_path):
    shown = ["<IPython.core.display.HTML object>", "[<matplotlib.lines.Line2D at 0x7f1>]", "<b>3</b>"]
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": {"text/plain": text, "text/html": "x"}}
        for text in shown
    ]
    cell = {**NOTEBOOK["cells"][1], "outputs": outputs}
    page = convert(written(tmp_path, "book.ipynb", json.dumps({**NOTEBOOK, "cells": [NOTEBOOK["cells"][0], cell]})))
    assert [text for text in shown if text in page.markdown] == ["<b>3</b>"], page.markdown


def test_a_bar_in_a_formula_ends_no_cell(tmp_path):
    text = "<table><tr><th>a</th></tr><tr><td><math><mo>|</mo><mi>x</mi><mo>|</mo></math></td></tr></table>"
    rows = convert(written(tmp_path, "book.html", text)).markdown.splitlines()
    assert all(row.count("|") == 2 for row in rows if row)


def office(folder: Path, suffix: str) -> Path:
    """A file of a word processor or an electronic book, made of Markdown."""
    text = "# Weirs\n\nWater $v_1^2$ runs.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n``` c\nrun();\n```\n"
    path = folder / f"book{suffix}"
    words = [pandoc.program(), "--mathml", "--from", "markdown", "--to", suffix[1:], "--output", str(path)]
    subprocess.run(words, input=text.encode(), check=True, timeout=60)
    if suffix == ".odt":
        # LibreOffice names the objects so.
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        files["content.xml"] = files["content.xml"].replace(b'"Formula-0/"', b'"./Formula-0"')
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    return path


@pytest.mark.parametrize("suffix", [".docx", ".odt", ".epub"])
def test_formulas_tables_and_code_of_packed_formats_survive(tmp_path, suffix):
    page = convert(office(tmp_path, suffix))
    expected = ["# Weirs", "run();", "| 1", "$v_1^2$"]
    assert [each for each in expected if each not in page.markdown.replace("{1}^{2}", "1^2")] == [], page.markdown


def test_an_electronic_book_whose_list_names_places_as_files_is_read_part_by_part(tmp_path):
    path = office(tmp_path, ".epub")
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    package = next(name for name in files if name.endswith(".opf"))
    files[package] = re.sub(rb'href="(text/ch\d+.xhtml)"', rb'href="\1#o8"', files[package])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    page = convert(path)
    assert "# Weirs" in page.markdown and "run();" in page.markdown, page.reason


def test_formulas_that_another_program_drew_into_a_text_leave_a_mark(tmp_path):
    text = "# **Weirs**\n\nThe flow is ![](one.wmf){width=1in} litres.\n\n![](plan.wmf){width=5in}\n"
    page = convert(packed(tmp_path, text, "one.wmf", "plan.wmf"))
    assert page.markdown == f"# Weirs\n\nThe flow is {MARK} litres.\n"
    assert "image" in page.removed_for


def test_a_frame_around_a_text_is_no_table_and_items_in_a_cell_stay_apart(tmp_path):
    box = "+------------+\n| **Theorem**|\n|            |\n| 1. First.  |\n| 2. Second. |\n+------------+\n"
    table = "+-----------+---+\n| - one     | 2 |\n| - three   |   |\n+-----------+---+\n| four      | 5 |\n+-----------+---+\n"
    page = convert(packed(tmp_path, f"{box}\nand\n\n{table}"))
    assert page.markdown.startswith("**Theorem**\n\n1.  First.\n2.  Second.\n"), page.markdown
    assert "| one / three | 2 " in page.markdown, page.markdown


def test_room_to_write_in_is_one_line_break(tmp_path):
    text = "**Find the claim.\\\n\\\n\\\nThen test it.**\n\n**\\\n**\n\nDone.\\\n\\\n"
    page = convert(packed(tmp_path, text))
    assert page.markdown == "**Find the claim.**\\\n**Then test it.**\n\nDone.\n"


def packed(folder: Path, text: str, *pictures: str) -> Path:
    """A word processor's file, made of Markdown with pictures."""
    for name in pictures:
        (folder / name).write_bytes(b"\xd7\xcd\xc6\x9a" + bytes(60))
    path = folder / "book.docx"
    words = [pandoc.program(), "--from", "markdown", "--to", "docx", "--output", str(path)]
    subprocess.run(words, input=text.encode(), check=True, timeout=60, cwd=folder)
    return path


def test_endless_macros_cost_their_chapter_alone(tmp_path):
    body = (
        r"\documentclass{book}\begin{document}"
        "\n\\chapter{One} Fine $a^2$.\n\\chapter{Two} \\def\\x{\\x\\x\\x}\\x $\\x$"
    )
    body += "".join(f"\n\\chapter{{More {n}}} Text {n}." for n in range(8)) + r"\end{document}"
    page = convert_book(written(tmp_path, "book.tex", body), "book", LIMITS)
    assert "Fine $a^2$" in page.markdown and "Text 7" in page.markdown
    assert all(
        "book.tex: pandoc:" in text
        for text, why in zip(page.removed, page.removed_for, strict=True)
        if why == "unreadable"
    )


def test_a_message_of_pandoc_ends_before_the_next_one():
    text = (
        "[INFO] Skipped '\\\\shade{a\nb}' at chunk line 3\n[INFO] Skipped '<b>\n[INFO] Skipped 'c' at line 4 column 1\n"
    )
    assert [each["text"] for each in pandoc.SKIP.finditer(text)] == ["\\\\shade{a\nb}", "c"]


def test_a_command_that_is_redefined_by_its_own_copy_stays_what_latex_defines(tmp_path):
    head = "\\let\\oldcap\\bigcap\n\\renewcommand{\\bigcap}{\\displaystyle\\oldcap}\n\\newcommand{\\both}{\\oldcap\\limits}\n"
    text = f"\\documentclass{{book}}\n{head}\\begin{{document}}\n\\section{{Sets}}\nA $\\bigcap_i A_i$ and $\\both_i B_i$.\n\\end{{document}}\n"
    assert "A $\\bigcap_i A_i$ and $\\bigcap\\limits_i B_i$." in convert(written(tmp_path, "a.tex", text)).markdown


def test_a_title_without_braces_is_a_title(tmp_path):
    text = "\\documentclass{book}\n\\newcommand{\\tasks}{Problems}\n\\begin{document}\n\\section\\tasks\nOne.\n\\end{document}\n"
    assert "# Problems\n\nOne." in convert(written(tmp_path, "book.tex", text)).markdown


def test_a_text_reads_no_file_of_the_machine(tmp_path):
    secret = written(tmp_path, "secret.txt", "zebra crossing\n")
    sources = {
        "a.tex": rf"\documentclass{{book}}\begin{{document}}Hi \input{{{secret}}} there\end{{document}}",
        "a.adoc": f"Hi\n\ninclude::{secret}[]\n\nthere\n",
        "a.rst": f"Hi\n\n.. include:: {secret}\n\nthere\n",
    }
    for name, text in sources.items():
        page = convert(written(tmp_path / "in", name, text))
        assert "zebra" not in page.markdown and "there" in page.markdown, name


@pytest.mark.parametrize("content", [b"PK\x03\x04broken", b"", b"\x00" * 100])
@pytest.mark.parametrize("suffix", [".zip", ".epub", ".docx", ".ipynb", ".cnxml"])
def test_a_damaged_file_is_a_rejected_row(tmp_path, suffix, content):
    path = tmp_path / f"book{suffix}"
    path.write_bytes(content)
    page = convert(path)
    assert page.reason.split(":")[0] in ("unreadable", "empty") and not page.markdown


def test_an_archive_that_unpacks_without_an_end_is_refused(tmp_path):
    path = tmp_path / "book.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(6):
            archive.writestr(f"{number}.html", bytes(100 << 20))
    reason = convert(path).reason
    assert f"at most 50000 of {512 << 20} are read" in reason and str(600 << 20) in reason


def test_without_pandoc_the_reason_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pandoc, "program", lambda: "")
    page = convert(written(tmp_path, "book.html", HTML))
    assert page.reason == "pandoc is not installed: pip install 'infuser[formats]', or pandoc 3.9 or later on the PATH"


def test_every_format_has_a_name_of_its_own():
    suffixes = [suffix for each in library.formats() for suffix in each.suffixes]
    assert len(suffixes) == len(set(suffixes)) and all(name.startswith(".") and name.islower() for name in suffixes)
    assert shutil.which("pandoc") or pandoc.program()


def test_comments_within_a_paragraph_and_index_terms_stop_no_reader(tmp_path):
    text = "== Gates\n\nA gate(((gates, kinds of (all)))) holds\n//TODO: more\nwater.\n\n----\n// code\n(((x)))\n----\n"
    page = convert(written(tmp_path, "book.adoc", text))
    assert "A gate holds" in page.markdown and "TODO" not in page.markdown, page.reason
    assert "// code\n(((x)))" in page.markdown


def test_a_box_of_asciidoc_leaves_no_stars(tmp_path):
    text = "== Sets\n\nOne.\n\n.What a set holds\n****\n\nValues.\n\n****\n\n----\n****\n----\n"
    page = convert(written(tmp_path, "book.adoc", text))
    assert "What a set holds\n\nValues." in page.markdown and page.markdown.count("****") == 1, page.markdown


def test_html_that_asciidoc_passes_on_is_text(tmp_path):
    text = '== A pass:[<span class="keep">whole</span>]\n\nSee pass:m[<em>a[0]</em>, as <code>c</code>] here.\n\n----\npass:[<b>]\n----\n'
    markdown = convert(written(tmp_path, "book.adoc", text)).markdown
    assert "A whole" in markdown and "See a\\[0\\], as `c` here." in markdown and "pass:[<b>]" in markdown, markdown


def test_lines_of_asciidoc_whose_conditions_hold_are_kept(tmp_path):
    text = (
        "ifndef::parts[:parts: more/]\nifdef::parts[:said: yes]\n\n[[gates]]\n= Gates\n\nA gate {said} holds.\n\n"
        "ifdef::web[]\nifndef::parts[]\nNo.\nendif::[]\nNever.\nendif::web[]\n"
        "ifdef::parts,web[Any.]\nifdef::parts+web[No.]\nA :web: within a line sets nothing.\n\n"
        "ifeval::[1 < 2]\nSeldom.\nendif::[]\nifndef::web[]\nAlways.\nendif::web[]\n"
    )
    assert convert(written(tmp_path, "book.adoc", text)).markdown.split("\n\n") == [
        "A gate yes holds.",
        "Any. A :web: within a line sets nothing.",
        "Always.\n",
    ]


def test_the_name_of_a_drawing_that_is_not_there_stops_no_reader(tmp_path):
    text = "== Gates\n\n[[map]]\n.Map of gates\ninclude::map.edn[]\n\nA gate.\n\n.Alone\ninclude::b.edn[]\n\n[[end]]\n// None.\n"
    assert convert(written(tmp_path, "book.adoc", text)).markdown == "# Gates\n\nMap of gates\n\nA gate.\n\nAlone\n"


def test_a_listing_in_an_open_block_is_code(tmp_path):
    text = "== Gates\n\n[source,c]\n.Opening\n--\nopen();\n\n# wait\n--\n\nDone.\n"
    page = convert(written(tmp_path, "book.adoc", text))
    assert "Opening\n\n``` c\nopen();\n\n# wait\n```\n\nDone." in page.markdown, page.markdown or page.reason


def test_a_section_that_cannot_be_read_costs_no_other_and_the_others_keep_their_level(tmp_path):
    long = " ".join(["Wide ones."] * 30)
    broken = "==== Bent\n\nText.\n\nbibliography::[]"
    text = f"== Gates\n\nA gate.\n\n=== Wide\n\n{long}\n\n==== Wider\n\nOf oak.\n\n{broken}\n"
    page = convert(written(tmp_path, "book.adoc", text))
    assert page.markdown == f"# Gates\n\nA gate.\n\n## Wide\n\n{long}\n\n### Wider\n\nOf oak.\n", page
    assert page.removed_for == ["unreadable"] and "Bent" in page.removed[0]


def test_an_empty_line_ends_no_list(tmp_path):
    text = "Do:\n\n. one\n+\nmore\n\n. two\n+\n----\nrun\n----\n\n. three\n\nThen:\n\n* a\n\n* b\n"
    found = convert(written(tmp_path, "book.adoc", text)).markdown
    assert [line for line in found.split("\n") if line and not line.startswith(" ")] == [
        *("Do:", "1.  one", "2.  two", "3.  three", "Then:", "- a", "- b")
    ]
    assert "<!--" not in found


@pytest.mark.parametrize(
    ("written_as", "read"),
    [
        ("<<the-yard>>", "\\[?the-yard\\]"),
        ("<<book.adoc#the_yard>>", "\\[?the-yard\\]"),
        ("<<the-yard,our yard>>", "our yard"),
        ("xref:the-yard[xrefstyle=full]", "\\[?the-yard\\]"),
        ("xref:book.adoc#the-yard[]", "\\[?the-yard\\]"),
        ("xref:the-yard[our yard]", "our yard"),
        ("https://example.org/yard[our yard^]", "our yard"),
        ("https://example.org/a#b[yard #4: sand]", "yard \\#4: sand"),
        ("a << b >> c", "a \\<\\< b \\>\\> c"),
    ],
)
def test_references_and_links_are_words(tmp_path, written_as, read):
    assert convert(written(tmp_path, "book.adoc", f"See {written_as}.\n")).markdown == f"See {read}.\n"


PAGE = "<page><title>{title}</title><ns>{ns}</ns><revision><text>{text}</text></revision></page>"


def export(*articles: tuple[str, int, str]) -> str:
    """An export of (title, namespace, text)."""
    marked = [text.replace("&", "&amp;").replace("<", "&lt;") for *_, text in articles]
    made = [PAGE.format(title=title, ns=ns, text=text) for (title, ns, _), text in zip(articles, marked, strict=True)]
    return f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">{"".join(made)}</mediawiki>'


def test_an_article_has_the_pages_that_it_includes_and_others_places_have_none():
    book = export(
        ("Kilns", 0, "Hot.\n\n{{:Kilns/Doors}}\n"),
        ("Kilns/Doors", 0, "Shut."),
        ("Ovens", 0, "#REDIRECT [[Kilns]]"),
        ("Talk:Kilns", 1, "Who wrote this?"),
    )
    assert prepare(book) == "= Kilns =\n\nHot.\n\nShut.\n\n\n= Kilns/Doors =\n\nShut."


def test_a_page_that_includes_itself_ends():
    assert prepare(export(("Loop", 0, "Round. {{:Loop}}"))).count("Round.") < 20


def test_marks_of_ours_in_a_text_are_no_marks():
    assert prepare("<nowiki>\0000\000</nowiki> and \0009\000 {{!}}") == "<nowiki>0</nowiki> and 9 |"


def test_templates_in_a_sentence_show_their_words_and_values(tmp_path: Path):
    text = (
        "A kiln of {{convert|5|m|ft}} holds {{math|''n''<sup>2</sup>}} loads, {{frac|1|2}} of them {{lang|fr|chaud}}.\n\n"
        "{{NOTE|Never open the door of a {{mvar|n}}-load kiln.}}\n\n{{Main|Ovens}}\n\n"
        '<source lang="c">int a[] = {{1}, {2}};</source>\n\n<math>\\frac{{a}}{{b}}</math>\n\nCited.{{cite book|title=On kilns}}\n'
    )
    file = tmp_path / "kilns.wiki"
    file.write_text(text)
    page = convert_book(file, "kilns", Limits())
    assert "A kiln of 5 m holds $n^{2}$ loads, $\\tfrac{1}{2}$ of them chaud." in page.markdown
    assert "Never open the door of a n-load kiln." in page.markdown
    assert "int a[] = {{1}, {2}};" in page.markdown and "\\frac{{a}}{{b}}" in page.markdown
    assert sorted(page.removed) == ["{{Main|Ovens}}", "{{cite book|title=On kilns}}"] and set(page.removed_for) == {
        "markup"
    }


def test_a_section_that_cannot_be_read_costs_no_other_and_a_note_of_markup_alone_goes(tmp_path: Path):
    file = tmp_path / "kilns.wiki"
    # As in real articles: a note that is never opened, and one that holds nothing but a citation.
    file.write_text(
        "= Kilns =\n\nHot.<ref>{{cite web|url=x}}</ref> Dry.<ref>Said.</ref>\n\n== Doors ==\n\nShut.</ref>\n\n== Roofs ==\n\nHigh.\n"
        + "A roof keeps the rain out. " * 20
    )
    page = convert_book(file, "kilns", Limits())
    assert "Hot. Dry.[^1]" in page.markdown and "High." in page.markdown and "Shut" not in page.markdown
    assert page.markdown.count("[^") == 2 and "unreadable" in page.removed_for


def test_captions_of_a_gallery_stay_and_the_language_of_drawings_goes_with_a_record(tmp_path: Path):
    file = tmp_path / "kilns.wiki"
    file.write_text(
        "Hot.\n\n<gallery>\nFile:a.jpg|A kiln in ''May''\nImage:b.jpg\n</gallery>\n\n<timeline>\nDateFormat = yyyy\n</timeline>\n\nDry.\n"
    )
    page = convert_book(file, "kilns", Limits())
    assert "A kiln in *May*" in page.markdown and "File:" not in page.markdown and "DateFormat" not in page.markdown
    assert any("DateFormat" in text for text in page.removed) and "Dry." in page.markdown
