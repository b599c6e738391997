r"""What a book prints is in its text, or its place has a mark: no sentence has a hole and no text runs into another."""

import json

import pytest
from book_tools import convert, written

from corpus.find.named_sources import gather_sources
from corpus.find.web_config import WebConfig
from corpus.read.books.library import find_books
from corpus.read.books.tree import Folder, pack_files
from corpus.read.doubt import find_doubt

HEAD = r"""\documentclass{book}
\usepackage{lake}
\declaretheorem[style=x,name=Tide rule,numberwithin=section]{rule}
\newtcbtheorem[number within=section]{dam}{Dam}{colback=green}{dm}
\newmdtheoremenv{law}{Law}
\newenvironment{warm}[1][Note]{\textbf{#1}}{}
\newcommand{\ifwet}{if it rains}
\newcommand{\loop}{\ifx\a\b one word\fi}
\begin{document}
"""


def of_latex(tmp_path, body, head=HEAD):
    """Markdown of a LaTeX text."""
    return convert(written(tmp_path, "b.tex", f"{head}{body}\n\\end{{document}}\n")).markdown


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"\section{A}\begin{rule}[Moon]Two a day.\end{rule}", "**Tide rule 1.1** (Moon). *Two a day.*"),
        (
            r"\section{A}\begin{dam}{Low}{low}It holds.\end{dam} By \ref{dm:low}.",
            "**Dam 1.1** (Low). *It holds.*\n\nBy 1.1.",
        ),
        (r"\begin{law}All falls.\end{law}", "**Law 1**. *All falls.*"),
        (r"\begin{tcolorbox}[title=On {mud}, colback=red] Mud is wet.\end{tcolorbox}", "On mud\n\nMud is wet."),
        (r"\begin{mdframed}[frametitle={Mud, wet}] It is.\end{mdframed}", "Mud, wet\n\nIt is."),
        (r"\begin{warm}[Warm up now] Run.\end{warm}", "Warm up now\n\nRun."),
        (r"\begin{pool}{How deep is $x$?} Two metres.\end{pool}", "How deep is $x$?\n\nTwo metres."),
        (r"\begin{hint} Look.\end{hint}", "**Hint**\n\nLook."),
        ("\\begin{proof}\nDone.\\end{proof}", "*Proof.* Done.\u00a0\u25fb"),
        (r"It falls \ifwet{} today.", "It falls if it rains today."),
        (r"It is \loop here, $\loop$.", "It is \\[?loop\\]here, $\\textrm{[?loop]}$."),
        ("\\askbox{Why is \\emph{mud} \\deep{wet}?\n\nSay so.}", "Why is *mud* wet?\n\nSay so."),
        (r"\open \step{1}{A or B} \close", "\\[?step\\]"),
        (r"\task{How wet is mud?}{} \reply{}{It is wet.}", "How wet is mud? It is wet."),
        (r"It turns \rotatebox{90}{upright} \vgap{3em} now.", "It turns upright now."),
        ("\\newglossaryentry{x}\n{name=neg, description={A sign \\foo}}\n\nText.", "Text."),
        (
            "\\begin{tabular}{c|d e f}\n1 & 2 & 3 & 4\\\\\n5 & 6 & 7 & 8\n\\end{tabular}",
            "| 1   | 2   | 3   | 4   |\n| 5   | 6   | 7   | 8   |",
        ),
    ],
)
def test_latex_loses_no_title_argument_or_command(tmp_path, body, text):
    markdown = of_latex(tmp_path, body)
    assert text in markdown and "colback" not in markdown and "3em" not in markdown and "neg" not in markdown


def test_commands_of_the_books_package_are_defined(tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "lake.sty").write_text("\\ProvidesPackage{lake}\n\\newcommand{\\lake}{Lake Ba}\n")
    (folder / "b.tex").write_text(f"{HEAD}\\chapter{{Water}} We see \\lake{{}} now.\n\\end{{document}}\n")
    (layout,) = find_books(Folder(folder))
    pack_files(folder, ["b.tex", "lake.sty"], layout.root, tmp_path / "book.zip")
    assert "We see Lake Ba now." in convert(tmp_path / "book.zip").markdown


RST = """Title
=====

     .. tikz:: A small net
        :libs: shapes

        \\node[host] (a) {a};
\t\\path[draw] (a) edge (b);

d. What fails ?

..
   Answer of the teacher

   a1# show

.. msc::

   a -> b;

.. spelling::

   wordx

After it.
"""


def test_drawings_and_comments_of_sphinx_are_no_text(tmp_path):
    page = convert(written(tmp_path, "b.rst", RST))
    assert "> A small net\n" in page.markdown and "After it." in page.markdown and "What fails ?" in page.markdown
    assert not any(each in page.markdown for each in ("node", "path", "Answer", "->", "wordx"))
    assert [text for text, reason in zip(page.removed, page.removed_for, strict=True) if reason == "image"] == [
        "node host (a) a ; path draw (a) edge (b);",
        "a -> b;",
    ]


ANTORA = {
    "antora.yml": "name: x\nnav: [modules/ROOT/nav.adoc]\nasciidoc: {attributes: {my-version: '7'}}\n",
    "modules/ROOT/nav.adoc": "* xref:two.adoc[]\n* More\n** xref:sea:one.adoc[One]\n* xref:other::a.adoc[No]\n",
    "modules/ROOT/pages/two.adoc": "= Two ways\n\nVersion {my-version} of {no-such}, see xref:sea:one.adoc[].\n\n"
    "TIP: Run `go now` as in xref:far::a.adoc[Far].\n",
    "modules/sea/pages/one.adoc": "= One sea\n\n----\ninclude::example$a.py[indent=0,tag=b]\n----\n\ninclude::ROOT:partial$p.adoc[]\n\n"
    "----\ninclude::example$gone.py[]\n----\n",
    "modules/sea/examples/a.py": "import a\n# tag::b[]\nprint(1)\n# end::b[]\n",
    "modules/ROOT/partials/p.adoc": "A shared part.\n",
    "modules/ROOT/pages/alone.adoc": "= Alone\n\nNot listed.\n",
}


def test_pages_of_antora_are_a_book_in_the_order_of_the_navigation(tmp_path):
    folder = tmp_path / "book"
    for name, content in ANTORA.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (layout,) = find_books(Folder(folder))
    pack_files(folder, sorted(ANTORA), layout.root, tmp_path / "book.zip")
    page = convert(tmp_path / "book.zip")
    assert page.markdown == (
        "# Two ways\n\nVersion 7 of \\[?no-such\\], see One sea.\n\nTip\n\nRun `go now` as in Far.\n\n# More\n\n"
        "## One sea\n\n``` text\nprint(1)\n```\n\nA shared part.\n\n``` text\n```\n"
    )
    assert "modules/ROOT/pages/alone.adoc" in page.removed


def test_quarto_prints_titles_and_cited_works(tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "_bookdown.yml").write_text("rmd_files: [a.Rmd, b.Rmd]\n")
    (folder / "b.bib").write_text("@book{k, author={Doe, Jane}, year={2018}}\n@book{l, author={Roe, R}, year={2019}}\n")
    (folder / "a.Rmd").write_text(
        "# Cats\n\nSo [@k; see @l, p. 3], Section \\@ref(two-dogs), @k says.\n\n```r\nx[@k]\n```\n"
    )
    (folder / "b.Rmd").write_text("# Dogs {#two-dogs}\n\nBut [@none], me@k or `@k`.\n")
    (layout,) = find_books(Folder(folder))
    pack_files(folder, ["_bookdown.yml", "a.Rmd", "b.Rmd", "b.bib"], layout.root, tmp_path / "book.zip")
    markdown = convert(tmp_path / "book.zip").markdown
    assert "So (Doe, 2018; Roe, 2019, p.\u00a03), Section “Dogs”, Doe (2018) says." in markdown
    assert "x[@k]" in markdown and "But \\[?none\\], me@k or `@k`." in markdown


def test_breaks_of_cells_and_rows_with_more_backslashes_are_no_text(tmp_path):
    cell = "One.\n\n+++\n\nTwo.\n\n\\begin{eqnarray}\na &=& b \\\\\\\nc &=& d\n\\end{eqnarray}\n\nAfter.\n"
    book = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": cell}], "metadata": {}, "nbformat": 4}
    markdown = convert(written(tmp_path, "b.ipynb", json.dumps(book))).markdown
    formula = "$$\\begin{eqnarray}\na &=& b \\\\\nc &=& d\n\\end{eqnarray}$$"
    assert markdown == f"One.\n\nTwo.\n\n{formula}\n\nAfter.\n"


def test_a_link_without_text_is_its_address(tmp_path):
    source = '<article><title>T</title><para>The list is at <ulink url="https://example.org/a"/>.</para></article>'
    assert "The list is at https://example.org/a." in convert(written(tmp_path, "b.docbook", source)).markdown


def test_a_note_for_contributors_next_to_a_book_is_no_book(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/_toc.yml").write_text("root: index\n")
    (tmp_path / "book/index.md").write_text("# Water\n\nIt is wet.\n")
    (tmp_path / "README.md").write_text("# Build\n\nRun make.\n")
    items = gather_sources([str(tmp_path)], tmp_path / "out", tmp_path / "files", WebConfig())
    assert [(item.source.title, bool(item.source.reason)) for item in items] == [
        ("_toc.yml", False),
        ("README.md", True),
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "It is shown in Figure .",
        "It is shown in Figure\u00a0. It is wet.",
        "The rise of , which is high, is one.",
        "They are called one, , and two.",
        "We call this system, .",
        "The moon () pulls. ",
        "The moon (see ) pulls.",
        "It is used so:\n\n```java\n\n```",
        "It is used so:\n\n```java\ninclude::a.java[tag=gone]\n```",
        "$P$&$Q$&&$(P$\\",
    ],
)
def test_a_hole_is_doubt(sentence):
    assert find_doubt(sentence).passages


@pytest.mark.parametrize(
    "sentence",
    [
        "One . . . two . . . three! There",
        "Files end in .sig, .sml, or .fun as main() and f() do.",
        "| a , b | () |\n|---|---|\n| c , | ( ) |",
        "The pair ( , ) and $a$ , $b$ .",
        "Run `a , b` and `f ()` now, e.g., .05 or .03.",
    ],
)
def test_punctuation_of_formulas_code_and_tables_is_no_hole(sentence):
    assert not [reason for reason, _ in find_doubt(sentence).passages if reason == "lost_words"]


def test_comments_and_boxes_are_no_part_of_a_formula(tmp_path):
    formula = "\\begin{equation*}\n%old\na = \\tcboxmath[colback=white]{1} % one\n+ 5\\% b\n\\end{equation*}"
    assert of_latex(tmp_path, f"It is\n{formula}") == (
        "It is\n\n$$\\begin{equation*}\na = \\boxed{1} \n+ 5\\% b\n\\end{equation*}$$\n"
    )


EXERCISES = {
    "b.cnxml": '<document xmlns="http://cnx.rice.edu/cnxml"><title>T</title><content><exercise><problem><para>How {}?</para>'
    "</problem><solution><para>2 {}.</para></solution></exercise></content></document>",
    "b.html": '<div class="exercise"><p>How {}?</p><div class="solution"><p>2 {}.</p></div></div>',
}
PICTURES = {"b.cnxml": '<media alt="hook"><image src="h.jpg"/></media>', "b.html": '<img src="h.jpg">'}


@pytest.mark.parametrize("name", sorted(EXERCISES))
def test_a_question_about_a_picture_is_doubtful_and_a_drawn_answer_is_not(tmp_path, name):
    of_question, of_answer = (
        find_doubt(convert(written(tmp_path, name, EXERCISES[name].format(*parts))).markdown).share
        for parts in ((PICTURES[name], "cm"), ("far", PICTURES[name]))
    )
    assert of_question > 0 and of_answer == 0


def test_a_quiz_that_loses_its_answers_leaves_with_its_name(tmp_path):
    quiz = ".. mchoice:: test_q1\n   :answer_a: 4.5\n   :correct: a\n\n   What is it?\n"
    source = f"Tides\n=====\n\n{quiz}\n.. function:: f1\n   :module: b\n\n   It runs.\n"
    page = convert(written(tmp_path, "b.rst", source))
    assert page.markdown == "# Tides\n\nf1\n\nIt runs.\n" and "test_q1What is it?" in page.removed
