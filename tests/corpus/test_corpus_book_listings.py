"""Listings, directives and attributes of AsciiDoc, Sphinx and notebooks: code keeps its lines, and no markup is text."""

import json

from book_tools import convert, written


def notebook(*cells: dict[str, object]) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def text_cell(source: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def code_cell(**data: str) -> dict[str, object]:
    shown = {name.replace("_", "/"): value for name, value in data.items()}
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": shown}
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": "x", "outputs": [output]}


def test_attributes_of_asciidoc_are_their_values_outside_listings(tmp_path):
    text = (
        "= Book\n:ver: 2.5\n:app: Gauge {ver}\n:off: x\n:!off:\n\nThe {app} and {none} and {off}.\n\n"
        "----\nuse {app}\n----\n\n:app: Meter\n\nThe {app}.\n"
    )
    assert convert(written(tmp_path, "book.adoc", text)).markdown == (
        "The Gauge 2.5 and {none} and {off}.\n\n``` text\nuse {app}\n```\n\nThe Meter.\n"
    )


def test_a_listing_of_asciidoc_right_below_a_line_is_code(tmp_path):
    text = "= Book\n\nType:\n----\nread\n# twice\n----\nand:\n....\nwait\n....\n\n.Title\n[source,c]\n----\nx;\n----\n"
    assert convert(written(tmp_path, "book.adoc", text)).markdown == (
        "Type:\n\n``` text\nread\n# twice\n```\n\nand:\n\n``` text\nwait\n```\n\nTitle\n\n``` c\nx;\n```\n"
    )


def test_directives_in_a_notebook_are_those_of_markdown(tmp_path):
    source = (
        "(1.1)=\n# T\n\n```{index} sand\n```\n\n````{margin}\n```{note}\nSilt settles **later**.\n```\n````\n\n"
        "```{math}\nE = h f\n```\n\n<div class='box'>\n\nIt's *so*.\n\n</div>\n\nSizes:\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    page = convert(written(tmp_path, "book.ipynb", notebook(text_cell(source))))
    assert page.markdown.replace("|     |", "|---|").split("\n\n") == [
        "# T", "Silt settles **later**.", "$$E = h f$$", "It's *so*.", "Sizes:", "| a   | b   |\n|-----|-----|\n| 1   | 2   |\n",
    ]  # fmt: skip


def test_results_of_a_notebook_are_formulas_or_text(tmp_path):
    cells = [
        code_cell(text_latex="$\\displaystyle \\frac{x^{3}}{3}$", text_plain="x**3/3"),
        code_cell(text_latex="\\begin{tabular}{l}a\\end{tabular}", text_plain="   a\n0  1"),
        code_cell(text_plain="a\n```\nb"),
    ]
    code = "``` python\nx\n```"
    assert convert(written(tmp_path, "book.ipynb", notebook(*cells))).markdown.split(code) == [
        "",
        "\n\n$$\\frac{x^{3}}{3}$$\n\n",
        "\n\n``` text\n   a\n0  1\n```\n\n",
        "\n\n```` text\na\n```\nb\n````\n",
    ]


def test_directives_of_sphinx_for_code_keep_its_lines(tmp_path):
    text = (
        "Waves\n=====\n\n.. math::\n   :label: e1\n\n   E = h f\n\n.. only:: html\n\n   Words of the web.\n\n"
        ".. testsetup::\n\n   import secret\n\n.. doctest::\n\n   >>> for i in x:\n   ...     i\n   1\n\n"
        ".. testoutput::\n   :hide:\n\n   secret\n\n.. ipython:: python\n\n   z = 3\n   z\n\n.. prompt:: bash $\n\n   ls\n"
    )
    assert convert(written(tmp_path, "book.rst", text)).markdown == (
        "# Waves\n\n$$E = h f$$\n\nWords of the web.\n\n``` python\n>>> for i in x:\n...     i\n1\n```\n\n"
        "``` python\nz = 3\nz\n```\n\n``` bash\nls\n```\n"
    )


def test_a_session_of_python_needs_no_directive(tmp_path):
    text = "T\n=\n\n>>> x = 1\n>>> x\n1\n\nCode::\n\n    def f():\n        '''\n\n        >>> f()\n        '''\n\n.. note::\n\n   >>> y\n"
    assert convert(written(tmp_path, "book.rst", text)).markdown == (
        "# T\n\n``` python\n>>> x = 1\n>>> x\n1\n```\n\nCode:\n\n``` text\ndef f():\n    '''\n\n    >>> f()\n    '''\n```\n\n"
        "Note\n\n``` python\n>>> y\n```\n"
    )


def test_code_between_braces_is_no_role_and_a_sign_before_a_number_is_a_formula(tmp_path):
    text = "It replaces `{0}` while `MW` and {ref}`the sum <sum>` is {math}`x^2`, 225$\\pm$13, for $5 and $10.\n"
    assert convert(written(tmp_path, "book.md", text)).markdown == (
        "It replaces `{0}` while `MW` and the sum is $x^2$, 225$\\pm$ 13, for \\$5 and \\$10.\n"
    )
