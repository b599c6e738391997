"""A folder, a repository or an archive of a book is one source with its parts in reading order; what is no regular file,
or leads out of the folder, is a row with its reason."""

import os
import zipfile
from pathlib import Path

import pytest

from corpus.chunk.chunk import Discarded
from corpus.find.named_sources import SourceItem, gather_sources
from corpus.find.web_config import WebConfig
from corpus.formats import read_documents
from corpus.pool import DISCARDED, SOURCES, PoolSource
from corpus.read.books.convert import CONVERTER, convert_book
from flows.corpus import build_pool
from infuser_core.errors import UsageError
from infuser_core.store.tables import read_rows
from infuser_core.system.child import Limits

LIMITS = Limits(wall_seconds=60.0, cpu_seconds=60)


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def taken(folder: Path, tmp_path: Path) -> list[SourceItem]:
    return gather_sources([str(folder)], tmp_path / "out", tmp_path / "fetched", WebConfig())


def module(title: str) -> str:
    return (
        f'<document xmlns="http://cnx.rice.edu/cnxml"><title>{title}</title><content><para id="a">About {title}.</para>'
        "</content></document>"
    )


COLLECTION = (
    '<col:collection xmlns:col="http://cnx.rice.edu/collxml" xmlns:md="m"><md:title>Water</md:title><col:content>'
    '<col:module document="m3"/><col:subcollection><md:title>Rivers</md:title><col:content>'
    '<col:module document="m1"/></col:content></col:subcollection></col:content></col:collection>'
)

BOOKS: dict[str, tuple[dict[str, str], list[str]]] = {
    "openstax": (
        {"collections/water.collection.xml": COLLECTION, "README.md": "# Water\n"}
        | {f"modules/m{n}/index.cnxml": module(title) for n, title in ((1, "Beds"), (2, "Left out"), (3, "Rain"))},
        ["# Rain", "# Rivers", "## Beds"],
    ),
    "latex": (
        {
            "main.tex": "\\documentclass{book}\n\\begin{document}\n% \\input{old}\n\\input{chap/two}\n\\include{one}\n\\end{document}\n",
            "chap/two.tex": "\\chapter{Two}\n\\input{chap/inner}\n",
            "chap/inner.tex": "\\section{Inner} $x_1$\n",
            "one.tex": "\\chapter{One}\nText.\n",
            "old.tex": "\\chapter{Old}\nText.\n",
        },
        ["# Two", "## Inner", "# One"],
    ),
    "latex with commands in paths": (
        {
            "main.tex": "\\documentclass{book}\n\\begin{document}\n\\input{one/all}\n\\input{two/all}\n\\end{document}\n",
            "one/all.tex": "\\chapter{One}\n\\renewcommand{\\here}{one}\n\\input{\\here/x}\n",
            "two/all.tex": "\\chapter{Two}\n\\def\\here{two}\n\\input{./\\here/x.tex}\n",
            "one/x.tex": "\\section{Of one}\nText.\n",
            "two/x.tex": "\\section{Of two}\nText.\n",
        },
        ["# One", "## Of one", "# Two", "## Of two"],
    ),
    "latex with commands of its own": (
        {
            "main.tex": "\\documentclass{book}\n\\input{\\top/sty/own.sty}\n\\begin{document}\n\\part[two]{b}\n"
            "\\take{7}{one}\n\\input bare\n\\import{far/}{last}\n\\end{document}\n",
            "sty/own.sty": "\\newcommand\\take[2]{\n  \\setcounter{chapter}{#1}\n  \\include{ch_#2/#2}\n}\n"
            "\\DeclareDocumentCommand \\part { o m }{\n  \\subfile{\\here #2}\n}\n",
            "two/b.tex": "\\documentclass[../main]{subfiles}\n\\begin{document}\n\\chapter{Two}\nText.\n\\end{document}\n",
            "ch_one/one.tex": "\\chapter{One}\nText.\n",
            "bare.tex": "\\section{Bare}\nText.\n",
            "far/last.tex": "\\chapter{Last}\nText.\n",
        },
        ["# Two", "# One", "## Bare", "# Last"],
    ),
    "asciidoc": (
        {
            "book.adoc": "= Book\n\ninclude::b.adoc[]\n\ninclude::a.adoc[]\n",
            "a.adoc": "[[last]]\n== Last\n\nText.\n",
            "b.adoc": "== First\n\nText.\n\ninclude::deep/c.adoc[]\n",
            "deep/c.adoc": "=== Deep\n\nText.\n",
        },
        ["# First", "## Deep", "# Last"],
    ),
    "sphinx": (
        {
            "index.rst": "Book\n====\n\n.. toctree::\n   :maxdepth: 2\n\n   zeta\n   Named <alpha>\n   page\n   cells\n",
            "zeta.rst": "Zeta\n====\n\nText.\n",
            "alpha.rst": "Alpha\n=====\n\nText.\n",
            "page.md": "# Page\n\nText.\n",
            "cells.ipynb": '{"cells": [{"cell_type": "markdown", "metadata": {}, "source": "# Cells\\n\\nText."}], '
            '"metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
        },
        ["# Book", "# Zeta", "# Alpha", "# Page", "# Cells"],
    ),
    "quarto": (
        {
            "_quarto.yml": "book:\n  chapters:\n    - index.qmd\n    - part: Middle\n      chapters:\n        - b.qmd\n    - a.qmd\n",
            "index.qmd": "# Start\n\nText.\n",
            "a.qmd": "# End\n\nText.\n",
            "b.qmd": "# Centre\n\nText.\n",
        },
        ["# Start", "# Middle", "## Centre", "# End"],
    ),
    "jupyter": (
        {
            "_toc.yml": "format: jb-book\nroot: intro\nchapters:\n- file: b\n  sections:\n  - file: a\n",
            "intro.md": "# Intro\n\nText.\n",
            "b.md": "# B\n\nText.\n",
            "a.md": "# A\n\nText.\n",
        },
        ["# Intro", "# B", "## A"],
    ),
    "mystmd": (
        {
            "myst.yml": "version: 1\nproject:\n  toc:\n    - file: text/b.md\n      title: B\n    - title: More\n"
            "      children:\n        - file: text/a.md\nsite:\n  title: Site\n",
            "text/b.md": "# B\n\nSee {numref}`f`.\n\n```{figure} x.png\n:name: f\nA spring.\n```\n",
            "text/a.md": "# A\n\nText.\n",
        },
        ["# B", "# More", "## A"],
    ),
    "mdbook": (
        {
            "src/SUMMARY.md": "# Summary\n\n- [Two](two.md)\n    - [Deep](deep.md)\n- [One](one.md)\n",
            "src/one.md": "# One\n\nText.\n",
            "src/two.md": "# Two\n\n```rust\n{{#include ../listings/a.rs}}\n```\n",
            "listings/a.rs": "#[listed]\n",
            "src/deep.md": "# Deep\n\nText.\n",
        },
        ["# Two", "#[listed]", "## Deep", "# One"],
    ),
    "numbered": (
        {f"{n:02}-x.html": f"<h1>Chapter {n}</h1><p>Text.</p>" for n in (2, 10, 1)},
        ["# Chapter 1", "# Chapter 2", "# Chapter 10"],
    ),
    "linked": (
        {"index.html": "".join(f'<a href="p/{n}.html#top">{n}</a>' for n in "cab")}
        | {f"p/{n}.html": f"<h1>{n}</h1><p>Text.</p>" for n in "abc"},
        ["# c", "# a", "# b"],
    ),
    "contents": (
        {
            "index.html": '<link rel="contents" href="toc.html"><link rel="index" href="keys.html"><a href="a.html">a</a>'
            '<a href="toc.html">c</a><a href="keys.html">k</a>',
            "toc.html": "".join(f'<a href="{n}.html#top">{n}</a>' for n in ("keys", "c", "a", "b")),
            "keys.html": "<h1>Index</h1><p>Text.</p>",
        }
        | {f"{n}.html": f"<h1>{n}</h1><p>Text.</p>" for n in "abc"},
        ["# c", "# a", "# b"],
    ),
}


def headings(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("#")]


@pytest.mark.parametrize("kind", sorted(BOOKS))
def test_the_parts_of_a_folder_are_one_book_in_reading_order(tmp_path, kind):
    files, expected = BOOKS[kind]
    folder = put(tmp_path / "in", files)
    (item,) = taken(folder, tmp_path)
    page = convert_book(item.path, "book", LIMITS)
    assert headings(page.markdown) == expected, page.reason
    # The same folder elsewhere, with other dates, is the same source.
    again = put(tmp_path / "elsewhere", files)
    os.utime(next(path for path in again.rglob("*") if path.is_file()), (1, 1))
    assert taken(again, tmp_path)[0].source.source_id == item.source.source_id


@pytest.mark.parametrize("kind", ["latex", "openstax", "mdbook"])
def test_an_archive_is_read_like_its_folder(tmp_path, kind):
    files, expected = BOOKS[kind]
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(f"book-main/{name}", text)
        archive.writestr("../../outside.tex", "out")
    page = convert_book(tmp_path / "book.zip", "book", LIMITS)
    assert headings(page.markdown) == expected, page.reason


def test_a_chapter_that_includes_a_table_is_not_the_book(tmp_path):
    files = {f"0{n}_part.asciidoc": f"== Part {n}\n\n{'Water runs downhill. ' * 20}\n" for n in (1, 2, 3)}
    files["02_part.asciidoc"] += "\ninclude::table.asciidoc[]\n"
    (item,) = taken(put(tmp_path / "in", files | {"table.asciidoc": "The table.\n"}), tmp_path)
    page = convert_book(item.path, "book", LIMITS)
    places = [page.markdown.index(text) for text in ("Part 1", "Part 2", "The table.", "Part 3")]
    assert places == sorted(places) and page.markdown.count("The table.") == 1 and not page.removed


def test_an_absolute_inclusion_begins_at_the_folder_of_the_sources(tmp_path):
    files = {"docs/index.rst": ".. toctree::\n\n   part/routing\n", "docs/part/links.rst": "Not this one.\n"}
    files |= {
        "docs/part/routing.rst": "Routing\n=======\n\n.. include:: /links.rst\n",
        "docs/links.rst": "Links cost.\n",
    }
    (item,) = taken(put(tmp_path / "in", files), tmp_path)
    page = convert_book(item.path, "book", LIMITS)
    assert "Links cost." in page.markdown and "Not this one." not in page.markdown, page.markdown


def test_an_index_with_most_of_its_text_elsewhere_is_the_book_alone(tmp_path):
    files = {f"parts/{n}.adoc": f"== Part {n}\n\n{'Water runs downhill. ' * 20}\n" for n in (1, 2)}
    files["main.adoc"] = "".join(f"include::parts/{n}.adoc[]\n\n" for n in (1, 2))
    (item,) = taken(put(tmp_path / "in", files | {f"notes{n}.adoc": f"Draft {n}. " * 200 for n in (1, 2)}), tmp_path)
    page = convert_book(item.path, "book", LIMITS)
    assert "Part 2" in page.markdown and "Draft" not in page.markdown
    assert {*zip(page.removed, page.removed_for, strict=True)} == {("notes1.adoc", "unused"), ("notes2.adoc", "unused")}


def test_parts_that_no_table_of_contents_names_are_told(tmp_path):
    (item,) = taken(put(tmp_path / "in", BOOKS["openstax"][0]), tmp_path)
    page = convert_book(item.path, "book", LIMITS)
    assert ("modules/m2/index.cnxml", "unused") in zip(page.removed, page.removed_for, strict=True)


def test_a_shelf_holds_books_of_files_and_of_folders(tmp_path):
    shelf = put(tmp_path / "in" / "mills", BOOKS["quarto"][0]).parent
    put(shelf, {"note.md": "# Note\n", "one.html": "<h1>One</h1>", "picture.svg": "<svg/>"})
    names = [Path(item.input).relative_to(shelf).as_posix() for item in taken(shelf, tmp_path)]
    assert names == ["mills/_quarto.yml", "note.md", "one.html"]


def test_links_never_lead_out_of_a_folder(tmp_path):
    put(tmp_path, {"secret/passwd.txt": "root", "in/good.md": "# Good\n"})
    (tmp_path / "in" / "stolen.txt").symlink_to(tmp_path / "secret" / "passwd.txt")
    (tmp_path / "in" / "away").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "inner.md").symlink_to(tmp_path / "in" / "good.md")
    rows = {Path(item.input).name: item.source.reason for item in taken(tmp_path / "in", tmp_path)}
    assert rows["good.md"] == "" and rows["inner.md"].startswith("duplicate of ")
    assert rows["stolen.txt"] == f"link: it leads out of {tmp_path / 'in'}" and "passwd.txt" not in rows


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_never_opened(tmp_path, kind):
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "pipe.pdf"
        os.mkfifo(path)
    (item,) = gather_sources([str(path)], tmp_path / "out", tmp_path / "fetched", WebConfig())
    named = {"pipe": "a named pipe", "device": "a device"}[kind]
    assert item.source.reason == f"no_file: {named}; only regular files are read" and item.stage == "intake"


def test_a_pipe_in_a_folder_is_passed_over(tmp_path):
    put(tmp_path / "in", {"good.md": "# Good\n"})
    os.mkfifo(tmp_path / "in" / "pipe.md")
    rows = {Path(item.input).name: item.source.reason.partition(":")[0] for item in taken(tmp_path / "in", tmp_path)}
    assert rows == {"good.md": "", "pipe.md": "no_file"}


def test_a_folder_without_books_says_what_is_taken(tmp_path):
    with pytest.raises(UsageError, match="no book in this folder") as caught:
        taken(put(tmp_path / "in", {"a.svg": "<svg/>"}), tmp_path)
    assert "EPUB" in str(caught.value.hint)


def test_an_inclusion_of_a_file_outside_the_book_is_named(tmp_path):
    chapter = "# Locks\n\nA gate holds water.\n\n```rust\n{{#include ../../code/gate.rs}}\n```\n"
    folder = put(tmp_path / "book", {"SUMMARY.md": "- [Locks](locks.md)\n", "locks.md": chapter})
    (item,) = taken(folder, tmp_path)
    page = convert_book(Path(item.path), "book", LIMITS)
    assert page.removed_for[0] == "missing" and page.removed[0] == "locks.md: {{#include ../../code/gate.rs}}"


def test_a_build_shows_what_conversion_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    text = "".join(f"<h2>Part {n}</h2><p>{'A mill grinds corn by the water of a brook. ' * 40}</p>" for n in range(3))
    folder = put(tmp_path / "in", {"a.html": f"<h1>Mills</h1>{text}<p><a href='#t'>Back to top</a></p>"})
    options = {"configs": [], "search": False, "judge": "", "workers": 1}
    made = build_pool([str(folder)], tmp_path / "out", **options)
    assert made.facts["documents"] > 0 and read_documents(tmp_path / "out")
    rows = [row for row in read_rows(tmp_path / "out" / DISCARDED, Discarded) if row.stage == "convert"]
    assert [(row.reason, row.text, row.start) for row in rows] == [("navigation", "Back to top", -1)]
    (source,) = read_rows(tmp_path / "out" / SOURCES, PoolSource)
    assert source.converter.startswith(f"{CONVERTER}/") and source.status == "admitted"
    assert not build_pool([str(folder)], tmp_path / "out", **options).facts["changed"]


def test_commands_that_pandoc_does_not_know_keep_their_text_or_leave_a_mark(tmp_path):
    text = "\\documentclass{book}\n\\begin{document}\n\\chapter{One}\nThe \\shade{truth} is \\two{a}{b} here.\n\\newcommand{\\k}{41}\n"
    path = put(tmp_path, {"book.tex": text + "\\chapter{Two}\nIt is $\\k+1$.\n\\end{document}\n"}) / "book.tex"
    page = convert_book(path, "book", LIMITS)
    assert "The truth is \\[?two\\] here." in page.markdown and "$41+1$" in page.markdown and not page.removed
