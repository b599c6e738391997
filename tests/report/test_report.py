"""A run's report comes from SQL alone, says what is missing, and runs nothing that a model wrote."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from report_views import database, reported, whole_run

from infuser_core.results.report import page

HOSTILE = "<script>alert('x')</script> ![p](http://evil/p.png) $\\frac{ ``` | a \x1b[31m \"><img src=x onerror=y>"


class Elements(HTMLParser):
    """Collects tags and attributes as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update((name, value or "") for name, value in attrs)


def elements(html: str) -> Elements:
    parser = Elements()
    parser.feed(html)
    return parser


def written(rows: dict[str, list[tuple[object, ...]]], **options: object) -> tuple[str, str]:
    """The report as Markdown and as a page."""
    made = reported(database(rows), **options)
    return page.markdown(made), page.render(made)


def test_the_whole_run_is_told():
    text, html = written(whole_run(), compare_with="other")
    assert "| gpqa\\_diamond | 25.0% | 20.0% to 50.0% | 45.0% | 20.0% to 50.0% | +20.0 | 198 | 5 | 3 |" in text
    assert "| gpqa\\_diamond | 198 | 198 | 100.0% |" in text, "what the choice of the checkpoint had seen"
    assert "| 1 | 40.0% | 10.0% | 3.0% |  |" in text, "how far a candidate is behind"
    assert "The selected checkpoint is that of iteration 2." in text
    assert "| r | 2 | 1 | 50.0% | - | 50.0% | 50.0% | 20.0% | 70.0% |" in text and "| other | 2 | 1 | 40.0% |" in text
    assert "| r | 2 | 1 | - | - | - | - | 0.0% | 0.0% | 0.0% | 100.0% | 50.0% | 0 |" in text, "no dev gradient"
    assert "| r | truncated\\_json | 2 | 1 | 2 |" in text and "| r | valid questions | 1 | 1 | 75.0% |" in text
    assert "| dev.jsonl | 4 | 3 | 75.0% |" in text
    assert "| textbooks offered | dropped | no free licence | 1 |" in text
    assert "| chunks judged by size | dropped | other reasons | 8 |" in text
    assert "| r | update\\_solver | 1 | 2.0 | 5.0 | 0.0 |" in text
    assert "right keys" not in text
    assert "| r | copies of earlier questions | 1 | 1 |" in text and "Drift of the questions" in text
    assert html.count("<svg") == 18


def test_the_same_data_gives_the_same_bytes_in_every_process():
    code = "import test_report as t; text, html = t.written(t.whole_run()); print(text, html)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1 and b"<svg" in seen.pop()


def test_groups_that_are_not_finite_are_counted_by_phase():
    text, _ = written(whole_run())
    assert "Groups left out because one of their numbers is not finite" in text
    assert r"| score\_influence | gradient | 2 | 1 | 2 |" in text


def test_passes_of_the_trainer_are_summed_up_by_time():
    text, _ = written(whole_run())
    assert r"| r | solver | step | cpu | 4 | 100.0 | 3e+09 | - | 50.0% | 2.500 |" in text


def test_no_section_is_empty():
    text, html = written({}, compare_with="other")
    assert text == "# Run r\n" and "<h2>" not in html and "<svg" not in html


@pytest.mark.parametrize(
    "views",
    [
        ["sources", "pages", "documents", "judgements", "overlaps", "audit_summary"],
        ["questions", "topics", "downloads"],
        ["rollouts", "updates"],
        ["scores", "generator_scores"],
        ["benchmark_scores"],
        ["selections"],
        ["run_artifacts"],
    ],
)
def test_any_view_may_be_empty(views: list[str]):
    text, _ = written({name: [] if name in views else rows for name, rows in whole_run().items()})
    assert "None" not in text and "nan" not in text


def test_hostile_text_is_shown_and_never_run():
    text, html = written(whole_run(HOSTILE))
    found = elements(html)
    assert not found.tags & {"script", "img", "iframe", "object", "link"}
    assert not {name for name, _ in found.attributes if name.startswith("on")}
    assert "&lt;script&gt;" in html and "\x1b" not in html + text
    assert "<script" not in text and "![p](" not in text


def test_the_page_needs_nothing_from_outside_and_ids_do_not_meet():
    _, html = written(whole_run())
    links = {value for name, value in elements(html).attributes if name in ("href", "src", "xlink:href", "action")}
    assert all(value.startswith("#") for value in links)
    assert "default-src 'none'" in html and "@import" not in html
    assert "http" not in re.sub(r'xmlns[^"]*"[^"]*"|http-equiv', "", html)
    assert "currentColor" in html and "prefers-color-scheme: dark" in html
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert ids and len(ids) == len(set(ids))
    assert {name for name in re.findall(r"url\(#([^)]*)\)", html)} <= set(ids)


def test_key_correctness_is_shown_where_the_run_knows_it():
    query = database(whole_run())
    for told_by, accuracy in (("labels", 0.2), ("strong solver", 0.4)):
        query(f"""INSERT INTO key_accuracies SELECT DISTINCT
            run, iteration, phase, artifact_key, '{told_by}', {accuracy}, 0.1, 0.6
            FROM questions WHERE iteration = 1""")
    text = page.markdown(reported(query))
    assert "| r | right keys, by labels | 1 | 1 | 20.0% | - | 20.0% | 20.0% | 10.0% | 60.0% |" in text
    assert (
        "| r | right keys, by strong solver | 1 | 1 | 40.0% |" in text
        and "| r | right keys, by labels | 2 |" not in text
    )


def test_a_run_name_is_a_value_not_sql():
    made = reported(database(whole_run()), run="r' OR '1'='1")
    assert made.sections == []


def test_textbooks_of_a_given_pool_go_by_their_identifiers():
    rows = whole_run()
    rows["sources"] = []
    text, _ = written(rows)
    assert "| r | s1 | 10 | 100.0% |" in text and "| r | unknown |" not in text.split("Questions by textbook")[1][:400]
