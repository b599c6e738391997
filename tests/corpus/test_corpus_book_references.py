"""References, citations, roles and substitutions are what the book prints in their place, or a mark that is doubtful."""

import pytest
from book_tools import convert, written
from corpus_epub import pack_epub

from corpus.read.books.latex_numbers import write_numbers
from corpus.read.books.library import find_books
from corpus.read.books.tree import Folder, pack_files

SPHINX = {
    "index.rst": "Book\n====\n\n.. toctree::\n\n   one\n   two\n",
    "conf.py": "version = '2.1'\nextlinks = {'issue': ('https://x/%s', 'ticket %s')}\nrst_epilog = '''\n.. |it| replace:: This\n'''\n",
    "two.rst": ".. _second:\n\n=========\nTwo *big*\n=========\n\n.. _trees:\n\n.. figure:: a.png\n   :width: 3\n\n   Tall trees\n",
}
MYST = {
    "_toc.yml": "root: index\nchapters:\n- file: one\n- file: two\n",
    "index.md": "# Book\n",
    "_config.yml": "parse:\n  myst_enable_extensions: [substitution]\n  myst_substitutions: {it: This}\n",
    "b.bib": "@book{k, author = {Ann B. Ode}, year = 1984}\n",
    "two.md": "# Two\n\n(second)=\n## Big\n\n$$\na = b\n$$ (eq-a)\n\nBy {eq}`eq-a`:\n\n```{figure} a.png\n:name: trees\n\nTall trees\n```\n",
}
ASCIIDOC = {
    "book.adoc": "= Book\n\ninclude::one.adoc[]\n\ninclude::two.adoc[]\n",
    "two.adoc": "[[second]]\n== Big\n\n=== Three things\n\n[#trees]\n.Tall trees\nimage::a.png[]\n",
}


def read_with(tmp_path, files, name, text):
    """Markdown of a book whose file `name` has a sentence."""
    files = {**files, name: text}
    folder = tmp_path / "book"
    folder.mkdir()
    for each, content in files.items():
        (folder / each).write_text(content)
    (layout,) = find_books(Folder(folder))
    pack_files(folder, sorted(files), layout.root, tmp_path / "book.zip")
    return convert(tmp_path / "book.zip").markdown


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        (":ref:`second`", "Two big"),
        (":ref:`that one <second>`", "that one"),
        (":doc:`two`", "Two big"),
        (":numref:`trees`", "“Tall trees”"),
        (":numref:`Figure %s <trees>`", "Figure “Tall trees”"),
        (":ref:`gone`", "\\[?gone\\]"),
        (":rfc:`2822`", "RFC 2822"),
        (":pep:`8`", "PEP 8"),
        (":cve:`2020-1`", "CVE-2020-1"),
        (":issue:`12`", "ticket 12"),
        (":gh:`44`", "GH 44"),
        (":manpage:`ls(1)`", "ls(1)"),
        (":term:`queue`", "queue"),
        (":func:`~os.path.join`", "`join`"),
        (":class:`!Foo`", "`Foo`"),
        (":meth:`read() <a.b.read>`", "read()"),
        ("|it| |version|", "This 2.1"),
        (":math:`x^2` and ``:ref:`x` ``", "$x^2$ and `` :ref:`x` ``"),
    ],
)
def test_roles_of_sphinx_are_what_they_print(tmp_path, source, printed):
    text = read_with(tmp_path, SPHINX, "one.rst", f"One\n===\n\nSee {source} here.\n")
    assert f"See {printed} here.\n" in text and "one two" not in text


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{ref}`second`", "Big"),
        ("{ref}`that <second>`", "that"),
        ("{doc}`two`", "Two"),
        ("[](two.md)", "Two"),
        ("[](second)", "Big"),
        ("{eq}`eq-a`", "(1)"),
        ("{numref}`trees`", "“Tall trees”"),
        ("{glue:text}`share`", "\\[?share\\]"),
        ("{numref}`gone`", "\\[?gone\\]"),
        ("{cite}`k`", "(Ode, 1984)"),
        ("{cite:t}`k`", "Ode (1984)"),
        ("{rfc}`2822`", "RFC 2822"),
        ("{{ it }} and `{{ it }}`", "This and `{{ it }}`"),
        ("{{ gone }}", "\\[?gone\\]"),
    ],
)
def test_roles_and_substitutions_of_myst_are_what_they_print(tmp_path, source, printed):
    text = read_with(tmp_path, MYST, "one.md", f"# One\n\nSee {source} here.\n")
    assert f"See {printed} here.\n" in text and "$$a = b \\tag{1}$$\n\nBy (1):\n" in text


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("<<second>>", "Big"),
        ("<<two.adoc#second>>", "Big"),
        ("<<second,that>>", "that"),
        ("<<_three_things>>", "Three things"),
        ("xref:two.adoc#trees[]", "Tall trees"),
        ("<<gone>>", "\\[?gone\\]"),
        ("C{plus}{plus}", "C++"),
    ],
)
def test_references_of_asciidoc_are_titles(tmp_path, source, printed):
    text = read_with(tmp_path, ASCIIDOC, "one.adoc", f"== One\n\nSee {source} here.\n")
    assert f"See {printed} here.\n" in text


@pytest.mark.parametrize(
    ("target", "printed"),
    [
        ('<example id="x"><title>Big <emphasis>trees</emphasis></title><para>Oak.</para></example>', "Big *trees*"),
        ('<section xml:id="x"><info><title>Big trees</title></info><para>Oak.</para></section>', "Big trees"),
        ('<variablelist><varlistentry id="x"><term>oak</term><listitem/></varlistentry></variablelist>', "oak"),
        ('<note id="x" xreflabel="Note 2"><para>Oak.</para></note>', "Note 2"),
        ('<para id="x">Oak is <command>cut</command>.</para>', "\\[?x\\]"),
    ],
)
def test_references_of_docbook_are_the_titles_of_any_element(tmp_path, target, printed):
    text = f'<book><chapter><para>See <xref linkend="x"/>.</para>{target}</chapter></book>'
    assert f"See {printed}." in convert(written(tmp_path, "book.docbook", text)).markdown.split("\n")


def test_entities_of_docbook_are_spelled_as_the_book_does_and_terms_of_the_index_print_nothing(tmp_path):
    text = (
        "<book><title>The Kate Book</title><chapter><title>C</title><indexterm><primary>apple</primary></indexterm>"
        '<para>In &kate; press &Ctrl; as &qq; says; see <xref linkend="gone"/>.</para></chapter></book>'
    )
    found = convert(written(tmp_path, "book.docbook", text)).markdown
    assert "In Kate press Ctrl as \\[?qq\\] says; see \\[?gone\\].\n" in found and "apple" not in found


def test_what_leads_around_a_page_of_html_is_no_text(tmp_path):
    text = (
        "<form><input value=Go></form><p>You are here: <a href=i.html>Home</a> ‣ <a href=b.html>Book</a> ‣"
        "<p>Difficulty level: ♦♢<h1>Sand</h1><p><a href=i.html>Home</a> › <a href=b.html>Book</a>"
        "<p>Sand is <a href=s.html>small</a> → dust.<p>⁂<p>☜ ☞<p>5.<p>Ω"
    )
    found = convert(written(tmp_path, "book.html", text)).markdown
    assert found == "# Sand\n\nSand is small → dust.\n\n5\\.\n\nΩ\n"


def test_numbers_of_paragraphs_are_no_text_and_numbered_lines_are_headings(tmp_path):
    page = (
        '<label><a href="#o1">1</a></label><h1 id="o1">17. Stones</h1><label><a href="#o2">2</a></label>'
        '<p id="o2">They fall.</p><label><a href="#o3">3</a></label><p id="o3">17.1 Heavy stones</p>'
        "<p>They fall as fast.</p><p>17.2 is the number of stones that fell in the yard.</p><p>Why?</p>"
        "<p>17.3 A list</p><p>17.4 Of contents</p>"
    )
    found = convert(pack_epub(tmp_path / "book.epub", {"a.xhtml": page})).markdown
    assert "# 17. Stones\n\nThey fall.\n\n## 17.1 Heavy stones\n\nThey fall as fast.\n" in found
    assert "\n17.2 is the number" in found and "\n17.3 A list\n\n17.4 Of contents" in found


def test_the_lines_of_code_in_a_cell_stay_in_its_row(tmp_path):
    text = "<table><tr><th>a</th><th>b</th></tr><tr><td><pre>x = 1\ny = 2</pre></td><td>sum</td></tr></table>"
    assert "| `x = 1` / `y = 2` | sum |" in convert(written(tmp_path, "book.html", text)).markdown


def test_definitions_count_where_they_are_used_and_environments_of_the_book_by_their_counter() -> None:
    preamble = r"""
\newenvironment{task}[1]{\refstepcounter{equation}\textbf{Task \theequation} #1}{}
\newenvironment{loud}[1]{\bf}{}
\newenvironment{quiz}{\refstepcounter{quiz}}{}
"""
    body = r"""
\newenvironment{opening}[1]{
\begin{frame}[%
 a=b]
\chapter{#1}
}{\end{frame}}
\newcommand\pic[2]{\begin{figure}\includegraphics{#1}\caption{#2}\end{figure}}
\chapter*{Preface}
\chapter{One}\label{one}
\begin{figure}\caption{A tree}\label{tree}\end{figure}
\begin{task}{Add. \label{add}}\end{task}
\begin{loud}{b}\label{loud}\end{loud}
\begin{equation}a\label{sum}\end{equation}
\begin{quiz}\label{quiz}\end{quiz}
See \ref{one}, \ref{tree}, \ref{add}, \ref{loud}, \eqref{sum}, \ref{quiz}.
"""
    assert write_numbers(body, preamble).splitlines()[-1] == "See 1, 1.1, 1.1, 1, (1.2), [?quiz]."
