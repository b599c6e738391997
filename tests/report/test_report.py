"""A run's report comes from SQL alone, says what is missing, and runs nothing that a model wrote."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pytest

from infuser_core.report.build import build
from infuser_core.report.content import Query

LINEAGE = "run VARCHAR, iteration BIGINT, phase VARCHAR, artifact_key VARCHAR"
VIEWS = {
    "sources": "source_id VARCHAR, title VARCHAR, status VARCHAR, reason VARCHAR",
    "downloads": "source_id VARCHAR",
    "pages": "source_id VARCHAR, status VARCHAR, reason VARCHAR",
    "documents": "document_id VARCHAR, source_id VARCHAR, domain VARCHAR, num_tokens BIGINT",
    "judgements": "document_id VARCHAR, keep BOOLEAN, reason VARCHAR, decided_by VARCHAR",
    "overlaps": "document_id VARCHAR, reference_id VARCHAR, jaccard DOUBLE, longest_run BIGINT, matched BOOLEAN",
    "questions": "question_id VARCHAR, text VARCHAR, choices VARCHAR[], answer VARCHAR, subdomain VARCHAR, "
    "document_id VARCHAR, reasoning VARCHAR, rollout_id VARCHAR",
    "question_labels": "question_id VARCHAR, topic VARCHAR, key VARCHAR",
    "rollouts": "rollout_id VARCHAR, group_id VARCHAR, sample_index BIGINT, role VARCHAR, token_ids BIGINT[], "
    "text VARCHAR, finish_reason VARCHAR, verdict VARCHAR, reward DOUBLE, malformed_reason VARCHAR",
    "scores": "question_id VARCHAR, status VARCHAR, score DOUBLE, reference_norm DOUBLE, solver_accuracy DOUBLE",
    "allocations": "arm VARCHAR, share DOUBLE, count BIGINT, drawn BIGINT, documents BIGINT, pulls BIGINT, "
    "mean DOUBLE, bound DOUBLE",
    "generator_scores": "rollout_id VARCHAR, document_id VARCHAR, reward DOUBLE, advantage DOUBLE",
    "question_scores": "benchmark VARCHAR, question_id VARCHAR, domain VARCHAR, num_samples BIGINT, num_correct BIGINT",
    "reference_questions": "question_id VARCHAR, text VARCHAR, choices VARCHAR[]",
    "asked_questions": "question_id VARCHAR, text VARCHAR, choices VARCHAR[]",
    "artifact_inputs": "input VARCHAR, input_key VARCHAR",
    "updates": "role VARCHAR, step BIGINT, gradient_norm DOUBLE, clip_fraction DOUBLE, mean_ratio DOUBLE, "
    "mean_tis DOUBLE, skipped BOOLEAN",
    "benchmark_scores": "benchmark VARCHAR, num_questions BIGINT, num_samples BIGINT, accuracy DOUBLE, low DOUBLE, "
    "high DOUBLE, answered DOUBLE, unverified BIGINT, mean_response_tokens DOUBLE",
    "topics": "domain VARCHAR",
    "run_artifacts": "digest VARCHAR, rows BIGINT, seconds DOUBLE, state VARCHAR",
    "artifacts": "seconds DOUBLE",
    "candidates": "at_iteration BIGINT, accuracy DOUBLE, behind DOUBLE, behind_error DOUBLE, selected BOOLEAN",
    "leaks": "benchmark VARCHAR, num_questions BIGINT, num_seen BIGINT, share DOUBLE",
    "selections": "selected_iteration BIGINT, accuracy DOUBLE",
    "audit_summary": "name VARCHAR, value DOUBLE",
}
HOSTILE = "<script>alert('x')</script> ![p](http://evil/p.png) $\\frac{ ``` | a \x1b[31m \"><img src=x onerror=y>"


def database(rows: dict[str, list[tuple[object, ...]]]) -> Query:
    connection = duckdb.connect(":memory:")
    for view, columns in VIEWS.items():
        connection.execute(f'CREATE TABLE "{view}" ({LINEAGE}, {columns})')
        for row in rows.get(view, []):
            connection.execute(f'INSERT INTO "{view}" VALUES ({", ".join("?" for _ in row)})', row)

    def query(sql: str) -> list[dict[str, object]]:
        result = connection.execute(sql)
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    return query


def whole_run(text: str = "Why?") -> dict[str, list[tuple[object, ...]]]:
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in VIEWS}
    corpus = ("r", -1, "chunk", "k")
    rows["sources"] = [(*corpus, "s1", "A", "admitted", ""), (*corpus, "s2", "B", "rejected", "no free licence")]
    rows["pages"] = [(*corpus, "s1", "converted", "")]
    rows["documents"] = [(*corpus, "d1", "s1", "Physics", 100)]
    rows["judgements"] = [(*corpus, "d1", True, "teaches", "judge"), (*corpus, "d2", False, text, "judge")]
    rows["judgements"] += [(*corpus, f"x{n}", False, f"reason {n:02}", "size") for n in range(20)]
    rows["overlaps"] = [(*corpus, "d1", f"control:copy:{n}", 0.9, 60, n < 3) for n in range(4)]
    rows["audit_summary"] = [(*corpus, "pairs_compared", 1200.0), (*corpus, "threshold", 0.125)]
    for run, gain in (("r", 0.1), ("other", 0.05)):
        rows["benchmark_scores"] += [
            (run, n, "validate", "k", "validation", 50, 1, 0.3 + gain * n, 0.2, 0.7, 1.0, 0, 8.0 + n) for n in range(3)
        ]
    rows["benchmark_scores"] += [
        ("r", n, "evaluate", "k", "gpqa", 198, 5, 0.25 + 0.1 * n, 0.2, 0.5, 0.9, 3, 8.0) for n in (0, 2)
    ]
    rows["selections"] = [("r", -1, "select", "k", 2, 0.5)]
    rows["candidates"] = [("r", -1, "select", "k", n, 0.3 + 0.1 * n, 0.2 - 0.1 * n, 0.03, n == 2) for n in range(3)]
    rows["leaks"] = [("r", -1, "leakage", "k", "gpqa", 198, 198, 1.0)]
    for n in (1, 2):
        rows["allocations"] += [
            ("r", n, "allocate", "k", arm, 0.5, 2, 2 * n, 9, n - 1, mean, mean)
            for arm, mean in (("Physics", 0.25), (text, None))
        ]
        rows["questions"] += [
            ("r", n, "generate_questions", "k", f"q{n}{m}", text, ["a", text], "A", text if m else "", "d1", text,
             "d1/0") for m in range(5)
        ]  # fmt: skip
        rows["scores"] += [
            ("r", n, "score_influence", "k", f"q{n}{m}", "scored", 0.01 * m, 1.5, 0.5) if n == 1
            else ("r", n, "score_influence", "k", f"q{n}{m}", "no_dev_signal", 0.0, 0.0, 0.5) for m in range(5)
        ]  # fmt: skip
        rows["rollouts"] += [
            ("r", n, "rollout_questions", "k", f"q{n}{m}/0", f"q{n}{m}", 0, "solver", [1, 2, 3], text, "stop",
             "correct", 1.0, "") for m in range(5)
        ]  # fmt: skip
        rows["rollouts"] += [
            ("r", n, "generate_questions", "k", f"d1/{m}", "d1", m, "generator", [1] * 9, text, "length",
             "valid" if m else "invalid", 0.0, "" if m else "truncated_json") for m in range(4)
        ]  # fmt: skip
        rows["updates"] += [("r", n, "update_solver", "k", "solver", n, 0.5, 0.01, 1.0, 1.0, False)]
        rows["run_artifacts"] += [
            ("r", n, "update_solver", "k", "x", 1, 2.5, "ran"),
            ("r", n, "p", "k", "x", 1, 1.0, "ran"),
        ]
    rows["run_artifacts"] += [("r", -1, "chunk", "k", "x", 1, 4.0, "cached")]
    return rows


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


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    def write(rows: dict[str, list[tuple[object, ...]]], **options: object) -> tuple[str, str]:
        files = build(database(rows), run="r", out=tmp_path / "new" / "report", **options)  # type: ignore[arg-type]
        return files.markdown.read_text(), files.html.read_text()

    return write


def test_the_whole_run_is_told(write: Callable[..., tuple[str, str]]) -> None:
    markdown, html = write(whole_run(), compare_with="other", notes=["the headroom is constructed", "second"])
    assert "| gpqa | 25.0% | 20.0% to 50.0% | 45.0% | 20.0% to 50.0% | +20.0 | 198 | 5 | 3 |" in markdown
    assert "| gpqa | 198 | 198 | 100.0% |" in markdown, "what the choice of the checkpoint had seen"
    assert "| 1 | 40.0% | 10.0% | 3.0% |  |" in markdown, "how far a candidate is behind"
    assert "The selected checkpoint is that of iteration 2." in markdown
    assert "| r | 2 | 50.0% | 20.0% to 70.0% |" in markdown and "| other | 2 | 40.0% |" in markdown
    assert "Iterations without a dev gradient: 2." in markdown
    assert "| truncated\\_json | 2 | 1 | 2 |" in markdown and "| 1 | 4 | 75.0% |" in markdown
    assert "| planted: copy | 4 | 3 | 75.0% |" in markdown
    assert "| textbooks offered | dropped | no free licence | 1 |" in markdown
    assert "| chunks judged by size | dropped | other reasons | 8 |" in markdown
    assert "| update\\_solver | 2 | 0 | 5.0 | 0.0 | 45.5% |" in markdown
    assert "- the headroom is constructed" in markdown and "key correct" not in markdown
    assert markdown.count("### Iteration 1") == markdown.count("### Iteration 2") == 3
    # Eight of the run itself, then length against accuracy, textbooks, coverage over iterations and by domain.
    assert html.count("<svg") == 12 and "25.0% \u2192 45.0%" in html


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (build(database(whole_run()), run="r", out=tmp_path / name) for name in ("a", "b"))
    assert first.html.read_bytes() == second.html.read_bytes()
    assert first.markdown.read_bytes() == second.markdown.read_bytes()


def test_an_empty_run_says_so_section_by_section(write: Callable[..., tuple[str, str]]) -> None:
    markdown, html = write({}, compare_with="other")
    for missing in ("final evaluation", "influence scores", "generator rollouts", "generated questions", "rollouts"):
        assert f"No {missing} in this run." in markdown and f"No {missing} in this run." in html
    assert "No validation scores of run other." in markdown and "<svg" not in html


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
def test_any_view_may_be_empty(views: list[str], write: Callable[..., tuple[str, str]]) -> None:
    markdown, _ = write({name: [] if name in views else rows for name, rows in whole_run().items()})
    assert re.search(r"^(No |The selected|Every|[0-9])", markdown, re.MULTILINE)
    assert "None" not in markdown and "nan" not in markdown


def test_hostile_text_is_shown_and_never_run(write: Callable[..., tuple[str, str]]) -> None:
    markdown, html = write(whole_run(HOSTILE), notes=[HOSTILE])
    found = elements(html)
    assert not found.tags & {"script", "img", "iframe", "object", "link"}
    assert not {name for name, _ in found.attributes if name.startswith("on")}
    assert "&lt;script&gt;" in html and "\x1b" not in html + markdown
    outside_fences = re.sub(r"^(`{3,})text\n.*?\n\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside_fences and "![p](" not in outside_fences
    assert "<script" in markdown


def test_the_page_needs_nothing_from_outside(write: Callable[..., tuple[str, str]]) -> None:
    _, html = write(whole_run())
    links = {value for name, value in elements(html).attributes if name in ("href", "src", "xlink:href", "action")}
    assert links and all(value.startswith("#") for value in links)
    assert (
        "default-src 'none'" in html
        and "@import" not in html
        and "http" not in re.sub(r'xmlns[^"]*"[^"]*"|http-equiv', "", html)
    )
    assert "currentColor" in html and "prefers-color-scheme: dark" in html


def test_chart_ids_do_not_meet(write: Callable[..., tuple[str, str]]) -> None:
    _, html = write(whole_run())
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert {name for name in re.findall(r"url\(#([^)]*)\)", html)} <= set(ids)


def test_key_correctness_is_shown_where_the_run_knows_it(tmp_path: Path) -> None:
    query = database(whole_run())
    query("""INSERT INTO question_labels
        SELECT run, iteration, phase, artifact_key, question_id, 'clock', if(question_id LIKE '%1', 'sound', 'unsound')
        FROM questions WHERE iteration = 1""")
    markdown = build(query, run="r", out=tmp_path).markdown.read_text()
    assert "| 1 | 4 | 75.0% | 5 | 20.0% |" in markdown and "| 2 | 4 | 75.0% | - | - |" in markdown


def test_a_run_name_is_a_value_not_sql(tmp_path: Path) -> None:
    assert build(database(whole_run()), run="r' OR '1'='1", out=tmp_path).markdown.read_text().count("No ") >= 9
