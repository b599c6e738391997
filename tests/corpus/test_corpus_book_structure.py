"""Lists keep their letters, notes stay apart from words, statements keep their titles and formulas their place."""

import re

import pytest
from book_tools import convert, written
from corpus_epub import pack_epub

from corpus.find.named_sources import gather_sources
from corpus.find.web_config import WebConfig
from corpus.read.books.library import find_books
from corpus.read.books.tree import Folder, pack_files
from corpus.read.doubt import find_doubt, unresolved

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
        "# Sets\n\nDefinition (Small set)\n\nA set of one.\n\nSee \\[?small-set\\].\n"
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


NAMED = {
    "\\section{One}\\label{x}": ("1.1", "## One"),
    "\\begin{table}\\begin{tabular}{ll}a & b\\\\c & d\\end{tabular}\\caption{Cap}\\label{x}\\end{table}": (
        "1.1",
        "**Table 1.1.** Cap",
    ),
    "\\begin{figure}Drawn.\\caption[Short]{Cap}\\label{x}\\end{figure}": ("1.1", "**Figure 1.1.** Cap"),
    "\\begin{equation}\\label{x} a = b\\end{equation}": ("1.1", "\\tag{1.1} a = b"),
    "\\begin{align}a &= b\\nonumber\\\\ c &= d\\label{x}\\end{align}": ("1.1", "c &= d\\tag{1.1}"),
    "\\begin{enumerate}[(i)]\\item One.\\item\\label{x} Two.\\end{enumerate}": ("(ii)", "(ii) Two."),
    "\\begin{align*}a &= b\\\\ c &= d\\label{x}\\end{align*}": ("\\[?x\\]", "c &= d"),
    "\\section*{One}\\label{x}": ("“One”", "## One"),
    "No such label.": ("\\[?x\\]", "No such label."),
}


@pytest.mark.parametrize("named", sorted(NAMED))
def test_a_reference_is_the_number_of_what_it_names_or_a_mark(tmp_path, named):
    text = f"\\begin{{document}}\\chapter{{Sets}}\nSee \\ref{{x}}.\n\n{named}\n\\end{{document}}"
    number, printed = NAMED[named]
    found = convert(written(tmp_path, "book.tex", text)).markdown
    assert (
        f"See {number}.\n" in found
        and printed in found.replace("  ", " ")
        and "label" not in found.replace("such label", "")
    )


@pytest.mark.parametrize("chapter", [1, 2])
def test_statements_have_the_numbers_of_their_chapter_and_references_their_kind(tmp_path, chapter):
    text = (
        "\\newtheorem{thm}{Theorem}[chapter]\\newtheorem{lem}[thm]{Lemma}\n\\newcommand{\\see}[1]{See \\cref{x:#1}}\n"
        "\\begin{document}\n" + "\\chapter{Sets}\n" * chapter + "\\begin{thm}[Small]\\label{x:a} Yes.\\end{thm}\n"
        "\\begin{lem}\\label{x:b} No.\\end{lem}\n\\chapter{Maps}\n\\see{b}. \\verb|\\ref{x}|\n\\end{document}"
    )
    found = convert(written(tmp_path, "book.tex", text)).markdown
    assert f"**Theorem {chapter}.1** (Small). *Yes.*" in found and f"**Lemma {chapter}.2**. *No.*" in found
    assert f"See Lemma\u00a0{chapter}.2. `\\ref{{x}}`\n" in found


def test_a_chapter_with_an_unresolved_reference_is_doubtful():
    for name in ("fig.x", "sec:a_b", "?"):
        assert (
            find_doubt(f"As \\{unresolved(name)[:-1]}\\] shows.").share
            == 1
            == find_doubt(f"${unresolved(name)}$").share
        )
    assert not find_doubt("The pattern `[?a]` and a\\[?\\] or [?].").share


def test_citations_are_the_works_of_the_bibliography(tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "main.tex").write_text("\\begin{document}\\input{a}\\end{document}")
    (folder / "a.tex").write_text("\\citet{k} says \\cite[p.~3]{k,l}; \\verb|\\cite{k}|, \\cite{gone}.")
    (folder / "b.bib").write_text(
        '@book{k, author = {Ann B. Ode}, year = 1984}\n@article{l,\n author="Lee, Jo and {\\\'E}lan, Al", year={1994}}\n'
    )
    pack_files(folder, ["a.tex", "b.bib", "main.tex"], "main.tex", tmp_path / "book.zip")
    assert convert(tmp_path / "book.zip").markdown == (
        "Ode (1984) says (Ode, 1984; Lee and Elan, 1994, p.\u00a03); `\\cite{k}`, \\[?gone\\].\n"
    )


@pytest.mark.parametrize(
    "drawing",
    [
        "\\begin{forest} [A [B]] \\end{forest}",
        "\\begin{circuitikz}\\draw (0,0) to[R] (2,0);\\end{circuitikz}",
        "\\tikz[scale=2] \\draw (0,0) -- (1,1);",
        "\\tikz{\\node {A}; \\draw (0,0);}",
        "\\begin{tikzpicture}\\node {A};\\end{tikzpicture}",
    ],
)
def test_a_drawing_is_a_picture(tmp_path, drawing):
    page = convert(written(tmp_path, "book.tex", f"\\begin{{document}}Before {drawing} after.\\end{{document}}"))
    assert " ".join(page.markdown.split()) == "Before after." and "image" in page.removed_for


def test_a_command_that_only_tex_can_read_leaves_a_mark_in_formulas_and_headings_stay(tmp_path):
    text = (
        "\\documentclass{book}\n\\def\\prd#1{\\@ifnextchar\\bgroup{a}{b}}\n\\newcommand{\\one}{1}\n"
        "\\renewcommand{\\section}{\\@startsection{section}{1}}\n\\def\\chapter{\\@chap}\n"
        "\\begin{document}\n\\chapter{A}\n\\section{B}\nSo $\\prd{x} = \\one$.\n\\end{document}"
    )
    found = convert(written(tmp_path, "book.tex", text)).markdown
    assert found.startswith("# A\n\n## B\n\nSo ") and "[?prd]" in found and find_doubt(found).share
    assert "= 1$" in found


def test_terms_that_a_command_files_for_the_index_are_not_printed(tmp_path):
    text = "\\begin{document}A \\indexdef{small} set\\index[symbols]{set}, \\important{closed}.\\end{document}"
    assert convert(written(tmp_path, "book.tex", text)).markdown == "A set, closed.\n"


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


def test_notes_in_a_file_of_their_own_stay_with_their_sentence(tmp_path):
    mark = '<a epub:type="noteref" href="{}">1</a>'
    notes = '<aside epub:type="footnote" id="{}"><p>{}</p></aside>'
    path = pack_epub(
        tmp_path / "book.epub",
        {
            "one.xhtml": f"<p>Two bulges{mark.format('notes.xhtml#n')} rise{mark.format('#own')}.</p>"
            + notes.format("own", "Twice a day."),
            "notes.xhtml": "<h2>Notes</h2><section>"
            + notes.format("n", "Newton saw it.")
            + notes.format("x", "Nobody refers to it.")
            + "</section>",
        },
    )
    assert convert(path).markdown == (
        "Two bulges[^1] rise[^2].\n\n[^1]: Newton saw it.\n\n[^2]: Twice a day.\n\n## Notes\n\nNobody refers to it.\n"
    )


SPANS = {
    "book.html": "<table><tr><th>Metal</th><th>melts</th><th>boils</th></tr><tr><td rowspan=2>Tin</td><td>232</td>"
    "<td rowspan=2>2602</td></tr><tr><td>13</td></tr><tr><td>Iron</td><td>1538</td><td>2862</td></tr></table>",
    "book.tex": r"\begin{document}\begin{tabular}{lcc} Metal & melts & boils \\ \hline \multirow{2}{*}{Tin} & 232 &"
    r" \multirow{2}{*}{2602} \\ \cline{2-2} & 13 & \\ \cmidrule(lr){2-3} Iron & 1538 & 2862 \\ \end{tabular}\end{document}",
    "book.docbook": '<article><informaltable><tgroup cols="3"><tbody><row><entry>Metal</entry><entry>melts</entry>'
    '<entry>boils</entry></row><row><entry morerows="1">Tin</entry><entry>232</entry><entry morerows="1">2602</entry></row>'
    "<row><entry>13</entry></row><row><entry>Iron</entry><entry>1538</entry><entry>2862</entry></row></tbody></tgroup>"
    "</informaltable></article>",
    "book.typ": "#table(columns: 3, [Metal], [melts], [boils], table.cell(rowspan: 2)[Tin], [232],"
    " table.cell(rowspan: 2)[2602], [13], [Iron], [1538], [2862])",
    "book.mediawiki": "{|\n! Metal !! melts !! boils\n|-\n| rowspan=2 | Tin || 232 || rowspan=2 | 2602\n|-\n| 13\n|-\n"
    "| Iron || 1538 || 2862\n|}",
}


@pytest.mark.parametrize("name", sorted(SPANS))
def test_the_row_below_a_cell_over_two_rows_keeps_its_columns(tmp_path, name):
    lines = convert(written(tmp_path, name, SPANS[name])).markdown.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert rows[-3:] == [["Tin", "232", "2602"], ["", "13", ""], ["Iron", "1538", "2862"]]


def test_figures_and_columns_of_latex_keep_their_captions_and_print_no_arguments(tmp_path):
    text = (
        r"\begin{document}\begin{wrapfigure}[9]{r}{0.4\textwidth}\includegraphics{a}\caption{Sand sinks.}"
        r"\end{wrapfigure}\begin{SCfigure}[0.5][h]\includegraphics{b}\caption{Silt floats.}\end{SCfigure}"
        r"\begin{multicols}{2}Clay\end{multicols}\begin{adjustwidth}{1cm}{}stays.\end{adjustwidth}\end{document}"
    )
    assert convert(written(tmp_path, "book.tex", text)).markdown.split() == [
        "Sand",
        "sinks.",
        "Silt",
        "floats.",
        "Clay",
        "stays.",
    ]


def test_entities_of_docbook_are_texts_and_its_parts_are_one_book(tmp_path):
    files = {
        "index.docbook": '<?xml version="1.0"?>\n<!DOCTYPE book SYSTEM "x.dtd" [\n<!ENTITY app "Sky Chart">\n'
        '<!ENTITY full "&app; &amp; more">\n<!ENTITY sand SYSTEM "sand.docbook">\n]>\n<book><chapter><title>One</title>'
        '<para>The &full;&mdash;of &nobody;.</para></chapter>&sand;<xi:include href="silt.docbook"/></book>',
        "sand.docbook": "<chapter><title>Sand</title><para>The &app; of sand.</para><programlisting><xi:include "
        'parse="text" href="a.c"/></programlisting></chapter>',
        "silt.docbook": '<?xml version="1.0"?><chapter><title>Silt</title><para>Fine.</para></chapter>',
        "a.c": "if (a < b && c) run();",
    }
    for name, text in files.items():
        written(tmp_path / "book", name, text)
    tree = Folder(tmp_path / "book")
    assert [layout.root for layout in find_books(tree)] == ["index.docbook"]
    pack_files(tmp_path / "book", tree.names(), "index.docbook", tmp_path / "book.zip")
    markdown = convert(tmp_path / "book.zip").markdown
    assert [line for line in markdown.splitlines() if line] == [
        "# One", "The Sky Chart & more—of \\[?nobody\\].", "# Sand", "The Sky Chart of sand.", "``` text",
        "if (a < b && c) run();", "```", "# Silt", "Fine.",
    ]  # fmt: skip


def test_a_folder_of_xml_is_a_docbook_book_or_a_row_with_the_reason(tmp_path):
    book = {
        "main.xml": '<!DOCTYPE book [<!ENTITY sand SYSTEM "sand.xml">]><book><title>Earth</title>&sand;</book>',
        "sand.xml": "<chapter><title>Sand</title><para>Dry.</para></chapter>",
        "index.html": "<p>Read main.xml.</p>",
    }
    for name, text in book.items():
        written(tmp_path / "book", name, text)
    (item,) = gather_sources([str(tmp_path / "book")], tmp_path / "out", tmp_path / "files", WebConfig())
    assert convert(item.path).markdown == "# Sand\n\nDry.\n"
    written(tmp_path / "tool", "build.xml", "<!-- ant --><project><target/></project>")
    (item,) = gather_sources([str(tmp_path / "tool")], tmp_path / "out", tmp_path / "files", WebConfig())
    assert "the root element project is not DocBook's" in convert(item.path).reason


@pytest.mark.parametrize(("name", "word"), [("awk.texi", ".texi"), ("a.xyz", ".xyz"), ("a", "a file without a suffix")])
def test_a_file_of_an_unknown_format_is_refused_with_its_suffix_and_those_that_are_read(tmp_path, name, word):
    (item,) = gather_sources([str(written(tmp_path, name, "Awk."))], tmp_path, tmp_path, WebConfig())
    assert item.source.reason.startswith(f"format: {word} is not read; taken are PDF, Markdown")


def test_licences_in_a_folder_are_no_books(tmp_path):
    for name in ("LICENSES/Apache-2.0.txt", "LICENSE.md", "licences.md/sand.md", "sand.md"):
        written(tmp_path / "book", name, f"# Sand\n\n{name}\n")
    items = gather_sources([str(tmp_path / "book")], tmp_path / "out", tmp_path / "files", WebConfig())
    reasons = {item.source.filename: item.source.reason.partition(":")[0] for item in items}
    assert reasons == {"Apache-2.0.txt": "notice", "LICENSE.md": "notice", "sand.md": ""}


def test_comments_and_unparsed_text_of_docbook_have_no_entities(tmp_path):
    text = (
        '<!DOCTYPE article [<!ENTITY a "Clay"><!-- <!ENTITY b "Silt"> --><!ENTITY b "Sand">]><article>'
        "<para>So &b;.</para><!-- &a; <!ENTITY c --><screen><![CDATA[<!-- x &a; -->]]></screen></article>"
    )
    assert convert(written(tmp_path, "book.docbook", text)).markdown.split("\n") == [
        "So Sand.", "", "``` text", "<!-- x &a; -->", "```", "",
    ]  # fmt: skip


def test_an_entity_that_contains_itself_ends(tmp_path):
    text = '<!DOCTYPE article [<!ENTITY a "&b;"><!ENTITY b "&a;">]><article><para>So &a;.</para></article>'
    assert convert(written(tmp_path, "book.docbook", text)).markdown == "So \\[?a\\].\n"


def test_entities_that_grow_without_bound_are_refused(tmp_path):
    levels = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
    text = f'<!DOCTYPE article [<!ENTITY l0 "lol"> {levels}]><article><para>&l9;</para></article>'
    page = convert(written(tmp_path, "book.docbook", text))
    assert not page.markdown and "entities expand to more than" in page.reason


def test_an_index_in_any_spelling_of_html_gives_the_order(tmp_path):
    links = (
        '<A HREF="b.html">B</A><a class=x href=a%20b.html>A</a><!-- <a href="d.html"> --><a href = \'c.html#x\'>C</a>'
    )
    files = {"INDEX.HTML": links} | {f"{name}.html": f"<p>{name}</p>" for name in ("a b", "b", "c", "d")}
    for name, text in files.items():
        written(tmp_path, name, text)
    (layout,) = find_books(Folder(tmp_path))
    assert [part.name for part in layout.parts] == ["b.html", "a b.html", "c.html"]


def test_a_formula_of_jats_is_tex_and_labels_are_printed(tmp_path):
    tex = "\\documentclass[12pt]{minimal}\\usepackage{amsmath}\\begin{document}$$ a<b $$\\end{document}"
    text = (
        f"<article><body><p>As <inline-formula><tex-math><![CDATA[{tex}]]></tex-math></inline-formula> holds.</p>"
        "<statement><label>Theorem 1</label><title>Wolff</title><p>Bone grows.</p></statement><table-wrap>"
        "<label>Table 2</label><caption><p>Loads.</p></caption></table-wrap></body></article>"
    )
    assert convert(written(tmp_path, "book.jats", text)).markdown == (
        "As $a<b$ holds.\n\n**Theorem 1. Wolff**\n\nBone grows.\n\nTable 2. Loads.\n"
    )
