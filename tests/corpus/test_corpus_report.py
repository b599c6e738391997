"""The corpus report counts what is there and what is not, and shows the same samples each time."""

from dataclasses import replace

from corpus_rows import document

from corpus import report
from corpus.chunk.chunk import Discarded
from corpus.find.registry import Coverage
from corpus.pool import PoolSource

SPAN = Discarded(
    source_id="s", start=0, end=1, stage="chunk", reason="too_short", header_path="", num_tokens=1, response=""
)
SOURCE = PoolSource(
    source_id="s",
    input="a.pdf",
    title="A | B",
    author="",
    domain="Physics",
    subdomain="Optics",
    licence="CC-BY-4.0",
    licence_evidence="",
    sha256="",
    num_bytes=1,
    converter="c",
    chosen="",
    num_pages=3,
    num_chars=100,
    num_documents=30,
    num_discarded=2,
    markdown="",
    status="admitted",
    stage="",
    reason="",
)
DOCUMENTS = [
    document(f"d{n}", f"te{n:02}", source_id="s", num_tokens=2, domain="Physics" if n % 3 else "Biology")
    for n in range(30)
]
SPANS = [
    SPAN,
    replace(SPAN, reason="blank"),
    replace(SPAN, stage="judge", reason="index"),
    replace(SPAN, stage="judge", reason="undecided: x"),
]
SOURCES = [
    SOURCE,
    replace(SOURCE, status="rejected", stage="convert", reason="needs_ocr: 3 pages", num_documents=0),
]
TOLD = report.ReportInputs(
    judge="none",
    tokenizer="rule",
    coverage=[
        Coverage(domain="Physics", subdomain=name, source_id=source, rank=0)
        for name, source in (("Optics", "s"), ("Waves", ""))
    ],
    audit={
        "mode": "exact",
        "documents": 30,
        "matches": 0,
        "matched_documents": 0,
        "dropped_documents": 0,
        "absent": {"benchmark x": "no file"},
        "references": [{"name": "dev.jsonl", "read": 4, "texts": 8, "short": 1, "matched_documents": 0}],
        "controls": [{"kind": "edited", "planted": 3, "expected": True, "exact": 1.0}],
    },
)


def test_facts_count_documents_sources_and_reasons():
    facts = report.collect_facts(DOCUMENTS, SPANS, SOURCES, TOLD)
    assert (facts["documents"], facts["mean_characters"], facts["mean_tokens"], facts["tokens"]) == (30, 4.0, 2.0, 60)
    assert [(row["discipline"], row["share"]) for row in facts["disciplines"]] == [
        ("Physics", round(20 / 30, 4)),
        ("Biology", round(10 / 30, 4)),
    ]
    assert {(row["subdomain"], row["sources"], row["documents"]) for row in facts["coverage"]} == {
        ("Optics", 1, 30),
        ("Waves", 0, 0),
    }
    assert facts["source_rejects"] == [{"stage": "convert", "reason": "needs_ocr", "count": 1}]
    assert {row["reason"] for row in facts["span_rejects"]} == {"too_short", "rejected by the judge", "undecided"}
    assert facts["licences"] == {"CC-BY-4.0": 2} and facts["discarded"] == 3


def test_the_report_shows_samples_and_the_audit():
    samples = report.draw_samples(DOCUMENTS, SPANS, SOURCES, lambda row: f"<b>{row.reason}</b> `code`")
    text = report.render_report(report.collect_facts(DOCUMENTS, SPANS, SOURCES, TOLD), SOURCES, samples)
    assert "judge: none" in text and "10 random documents" in text and "3 random discarded spans" in text
    assert (
        "| edited | 3 | 1.00 |" in text
        and "Not compared with benchmark x: no file" in text
        and "<b>" not in text
        and "A \\| B" in text
    )


def test_an_empty_pool_has_a_report():
    told = report.ReportInputs(judge="none", tokenizer="rule")
    facts = report.collect_facts([], [], [], told)
    text = report.render_report(facts, [], report.draw_samples([], [], [], lambda row: ""))
    assert facts["mean_tokens"] == 0.0 and "none was made" in text
