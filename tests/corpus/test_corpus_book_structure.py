"""Lists keep their letters, notes stay apart from words, statements keep their titles and formulas their place."""

import re

import pytest
from book_tools import convert, written

ITEMS = {
    "book.html": '<ol type="a" start="2"><li>one</li><li><p>two</p></li></ol>',
    "book.tex": "\\begin{document}\\begin{enumerate}[(a)]\\item one \\item two\\end{enumerate}\\end{document}",
    "book.md": "b. one\nc. two\n",
}


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_items_keep_their_letters(tmp_path, name):
    found = convert(written(tmp_path, name, ITEMS[name])).markdown.split()
    letters = ["(a)", "(b)"] if name == "book.tex" else ["b.", "c."]
    assert found == ["-", letters[0], "one", "-", letters[1], "two"]


def test_the_choices_of_an_exercise_have_the_letters_of_its_answers(tmp_path):
    items = "".join(f"<item>{word}</item>" for word in ("oak", "ash", "elm", "fir"))
    text = f'<document xmlns="http://cnx.rice.edu/cnxml"><content><list list-type="enumerated" number-style="upper-roman">{items}</list></content></document>'
    assert convert(written(tmp_path, "book.cnxml", text)).markdown.split() == [
        "-",
        "I.",
        "oak",
        "-",
        "II.",
        "ash",
        "-",
        "III.",
        "elm",
        "-",
        "IV.",
        "fir",
    ]


def test_the_mark_of_a_note_changes_no_number(tmp_path):
    text = '<p>It weighs 100,000<a href="notes.xhtml#n45" epub:type="noteref">45</a> tons.</p>'
    assert convert(written(tmp_path, "book.html", text)).markdown == "It weighs 100,000\\[45\\] tons.\n"


def test_a_display_in_an_emphasised_statement_stands_alone(tmp_path):
    text = "\\begin{document}\\emph{We have \\[ a\n=\nb \\] for all.}\\end{document}"
    assert convert(written(tmp_path, "book.tex", text)).markdown == "We have\n\n$$a\n=\nb$$\n\nfor all.\n"


def test_a_statement_of_sphinx_keeps_its_title_and_what_stands_behind_a_line_of_blanks(tmp_path):
    text = "Sets\n====\n\n.. proof:definition:: Small set\n   \n   A set of one.\n\nSee :numref:`small_set`.\n"
    assert convert(written(tmp_path, "book.rst", text)).markdown == (
        "# Sets\n\nDefinition (Small set)\n\nA set of one.\n\nSee small set.\n"
    )


@pytest.mark.parametrize("around", ["{}", "\\begin{{center}}{}\\end{{center}}", "\\[ {} \\]", "$${}$$"])
def test_a_diagram_of_arrows_is_a_formula(tmp_path, around):
    text = (
        "\\begin{document}They commute: "
        + around.format("\\begin{tikzcd} A \\arrow[r] & B \\end{tikzcd}")
        + " where.\\end{document}"
    )
    found = convert(written(tmp_path, "book.tex", text)).markdown
    assert found == "They commute:\n\n$$\\begin{tikzcd} A \\arrow[r] & B \\end{tikzcd}$$\n\nwhere.\n"


def test_an_environment_that_a_book_defines_for_listings_is_code(tmp_path):
    text = (
        "\\documentclass{book}\n\\lstnewenvironment{code}{}{}\n\\lstnewenvironment{run}[2][400]{}{}\n\\begin{document}\nSee:\n"
        '\\begin{code}\nif (a) {\n    print("%d\\n");\n}\n\\end{code}\n\\begin{run}[200]{A.java}\nb();\n\\end{run}\n'
        "\\begin{lstlisting}[title=c]{}\nc();\n\\end{lstlisting}\n\\end{document}\n"
    )
    page = convert(written(tmp_path, "book.tex", text))
    listings = ['if (a) {\n    print("%d\\n");\n}', "b();", "c();"]
    assert page.markdown == "See:\n\n" + "\n\n".join(f"``` text\n{each}\n```" for each in listings) + "\n"


@pytest.mark.parametrize("skip", ["\\vskip\\baselineskip", "\\vskip -\\baselineskip", "\\hskip-\\parindent"])
def test_a_latex_book_with_skips_by_lengths_is_read(tmp_path, skip):
    text = f"\\begin{{document}}\nOne load. {skip} Two loads.\n\\end{{document}}\n"
    assert convert(written(tmp_path, "book.tex", text)).markdown == "One load. Two loads.\n"


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("<thead><tr><th>a<th>b<tbody><tr><td>1<td>2<tr><td>3<td>4", "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"),
        ("<tr><th>a<th>b<tr><td>1<td><table><tr><td>2</table>", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("<tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr>", "| a | b |\n|---|---|\n| 1 | 2 |"),
    ],
)
def test_a_table_of_html_needs_no_ends_of_its_rows_and_cells(tmp_path, source, read):
    found = convert(written(tmp_path, "book.html", f"<p>Loads:<table>{source}</table><p>All."))
    assert re.sub(r"[ -]{2,}", lambda run: run[0][:1] * (3 if "-" in run[0] else 1), found.markdown) == (
        f"Loads:\n\n{read}\n\nAll.\n"
    )


@pytest.mark.parametrize(
    "named",
    [
        "\\section{One}\\label{x}",
        "\\begin{table}\\begin{tabular}{ll}a & b\\\\c & d\\end{tabular}\\caption{Cap}\\label{x}\\end{table}",
        "\\begin{figure}Drawn.\\caption{Cap}\\label{x}\\end{figure}",
        "\\begin{equation}\\label{x} a = b\\end{equation}",
    ],
)
def test_a_reference_to_what_prints_no_number_is_its_label(tmp_path, named):
    text = f"\\begin{{document}}\\chapter{{Sets}}\nSee \\ref{{x}}.\n\n{named}\n\\end{{document}}"
    assert "See \\[x\\].\n" in convert(written(tmp_path, "book.tex", text)).markdown


def test_a_reference_to_a_statement_is_the_number_that_it_prints(tmp_path):
    text = (
        "\\newtheorem{thm}{Theorem}[chapter]\\begin{document}\\chapter{Sets}\nSee Theorem~\\ref{x}.\n\n"
        "\\begin{thm}[Small]\\label{x} Yes.\\end{thm}\\end{document}"
    )
    found = convert(written(tmp_path, "book.tex", text)).markdown
    assert "See Theorem\u00a01.1.\n" in found and "**Theorem 1.1** (Small). *Yes.*" in found


def test_a_reference_into_another_chapter_is_its_label(tmp_path):
    text = (
        "\\newtheorem{thm}{Theorem}[chapter]\\begin{document}\n\\chapter{Sets}\n\\begin{thm}\\label{x} Yes.\\end{thm}\n"
        "\\chapter{Maps}\nSee Theorem \\ref{x}.\n\\end{document}"
    )
    assert "See Theorem \\[x\\].\n" in convert(written(tmp_path, "book.tex", text)).markdown


def test_a_reference_that_was_numbered_with_its_whole_book_keeps_its_number(tmp_path):
    text = '<p>See Section <a href="two.html#x" data-reference-type="ref" data-reference="x">2.5</a>.</p>'
    assert convert(written(tmp_path, "book.html", text)).markdown == "See Section 2.5.\n"


def test_a_vector_outside_of_a_formula_changes_no_formula(tmp_path):
    text = "\\documentclass{book}\n\\begin{document}\nFind \\vec{w}, \\kin{sibs} and $\\vec{w}$.\n\\end{document}\n"
    page = convert(written(tmp_path, "book.tex", text))
    assert "sibs and $\\vec{w}$." in page.markdown
    assert any("\\vec{w}" in each for each in page.removed)


def test_a_number_behind_a_formula_stands_apart_from_it(tmp_path):
    text = "\\begin{document}In air $\\sim$3 cm.\\end{document}"
    assert convert(written(tmp_path, "book.tex", text)).markdown == "In air $\\sim$ 3 cm.\n"


@pytest.mark.parametrize("name", ["algorithmic", "algorithm", "algorithm*", "algorithm2e"])
def test_pseudocode_of_latex_is_left_out_with_its_reason(tmp_path, name):
    text = (
        f"One.\n\\begin{{{name}}}[1]\n\\State $x = 1$\n\\While{{$a$}} \\State go\\; \\EndWhile\n\\end{{{name}}}\nTwo.\n"
    )
    page = convert(written(tmp_path, "book.tex", text))
    assert page.markdown == "One.\n\nTwo.\n"
    assert [text for text, reason in zip(page.removed, page.removed_for, strict=True) if reason == "pseudocode"]


def test_statements_and_listings_in_environments_for_algorithms_stay(tmp_path):
    statement = "\\newtheorem{algorithm}{Algorithm}\n\\begin{document}\n\\begin{algorithm}Halve $a$.\\end{algorithm}\n"
    listing = "\\begin{algorithm}\n\\begin{verbatim}\nx = 1\n\\end{verbatim}\n\\end{algorithm}\n"
    assert "*Halve $a$.*" in convert(written(tmp_path, "a.tex", statement)).markdown
    assert convert(written(tmp_path, "b.tex", listing)).markdown == "``` text\nx = 1\n```\n"


def test_a_division_of_html_for_an_algorithm_stays(tmp_path):
    assert (
        convert(written(tmp_path, "a.html", '<div class="algorithm"><p>Halve it.</p></div>')).markdown == "Halve it.\n"
    )
