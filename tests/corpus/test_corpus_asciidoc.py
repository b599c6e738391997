"""AsciiDoc: what its reader in pandoc stops at is written otherwise, and a section that it cannot read costs no other."""

import pytest
from book_tools import convert, written


def test_comments_within_a_paragraph_and_index_terms_stop_no_reader(tmp_path):
    text = "== Gates\n\nA gate(((gates, kinds of (all)))) holds\n//TODO: more\nwater.\n\n----\n// code\n(((x)))\n----\n"
    page = convert(written(tmp_path, "book.adoc", text))
    assert "A gate holds" in page.markdown and "TODO" not in page.markdown, page.reason
    assert "// code\n(((x)))" in page.markdown


def test_a_box_of_asciidoc_leaves_no_stars(tmp_path):
    text = "== Sets\n\nOne.\n\n.What a set holds\n****\n\nValues.\n\n****\n\n----\n****\n----\n"
    page = convert(written(tmp_path, "book.adoc", text))
    assert "What a set holds\n\nValues." in page.markdown and page.markdown.count("****") == 1, page.markdown


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
        ("<<the-yard>>", "the yard"),
        ("<<book.adoc#the_yard>>", "the yard"),
        ("<<the-yard,our yard>>", "our yard"),
        ("xref:the-yard[xrefstyle=full]", "the yard"),
        ("xref:book.adoc#the-yard[]", "the yard"),
        ("xref:the-yard[our yard]", "our yard"),
        ("https://example.org/yard[our yard^]", "our yard"),
        ("a << b >> c", "a \\<\\< b \\>\\> c"),
    ],
)
def test_references_and_links_are_words(tmp_path, written_as, read):
    assert convert(written(tmp_path, "book.adoc", f"See {written_as}.\n")).markdown == f"See {read}.\n"
