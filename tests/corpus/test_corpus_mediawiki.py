"""Exports of a wiki: articles in order, pages where they are included, and what templates show of their arguments."""

from pathlib import Path

from corpus.read.books.convert import convert_book
from corpus.read.formats.mediawiki import prepare
from infuser_core.system.child import Limits

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
