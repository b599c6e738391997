"""Headings are found by the outline, and by fonts alone where there is none."""

from pathlib import Path

import pytest
from corpus_books import FACES, BookPlan, write_book

from corpus.read.embedded import ReadingConfig, convert


def found(path: Path, *, use_outline: bool = True) -> list[tuple[int, str]]:
    text = convert(str(path), ReadingConfig(use_outline=use_outline)).markdown
    lines = [line for line in text.split("\n") if line.startswith("#")]
    return [(len(line) - len(line.lstrip("#")), line.lstrip("# ")) for line in lines]


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("face", sorted(FACES))
def test_the_outline_names_every_heading_with_its_level(tmp_path, face, columns):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, columns=columns))
    assert found(tmp_path / "a.pdf") == book.headings


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("face", sorted(FACES))
def test_fonts_alone_find_nearly_every_heading(tmp_path, face, columns):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, columns=columns, outline=False))
    titles = [title for _, title in found(tmp_path / "a.pdf")]
    wanted = [title for _, title in book.headings]
    hits = sum(title in titles for title in wanted)
    assert hits >= 0.9 * len(wanted) and hits >= 0.9 * len(titles)


@pytest.mark.parametrize("face", ["serif", "sans", "cjk"])
def test_unnumbered_titles_are_found_by_their_size(tmp_path, face):
    book = write_book(tmp_path / "a.pdf", BookPlan(face=face, outline=False, numbered=False))
    assert found(tmp_path / "a.pdf") == book.headings


def test_withholding_the_outline_is_the_same_as_having_none(tmp_path):
    write_book(tmp_path / "a.pdf", BookPlan())
    write_book(tmp_path / "b.pdf", BookPlan(outline=False))
    assert found(tmp_path / "a.pdf", use_outline=False) == found(tmp_path / "b.pdf")


def test_an_outline_of_chapters_only_is_completed_by_fonts(tmp_path):
    """Fewer bookmarks than one in twelve pages name no sections."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"))
    for page in range(30):
        canvas.setFont("Helvetica-Bold", 16)
        if page in (0, 15):
            canvas.drawString(72, 750, f"Chapter on matter {'one' if page else 'two'}")
            canvas.bookmarkPage(f"p{page}", fit="XYZ", left=0, top=770)
            canvas.addOutlineEntry(f"Chapter on matter {'one' if page else 'two'}", f"p{page}", 0)
        canvas.setFont("Helvetica-Bold", 13)
        canvas.drawString(72, 700, f"Section about {'abcdefghijklmnopqrstuvwxyzABCD'[page] * 4}")
        canvas.setFont("Times-Roman", 10)
        for row in range(12):
            canvas.drawString(
                72,
                670 - 12 * row,
                f"The harbor carries timber number {page * 20 + row} over the ridge and to the valley.",
            )
        canvas.showPage()
    canvas.save()
    titles = found(tmp_path / "a.pdf")
    assert [title for level, title in titles if level == 1] == ["Chapter on matter two", "Chapter on matter one"]
    assert sum(level == 2 for level, _ in titles) == 30
