"""A pool against data: what is planted is found, offsets point at it, shards resume, controls are printed."""

import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from corpus_rows import document, writer

from corpus.audit.audit import audit_pool
from corpus.audit.references import shards_of, texts_of
from corpus.pool import DOCUMENTS, write_table
from infuser_core.errors import DocumentError, KilledProcessError, UsageError
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.schemas import Document, Overlap
from infuser_core.store.tables import read_rows

prose = writer(11)
POOL = [document(f"d{number}", f"{prose(150)}. {prose(250)}!") for number in range(30)]


def chat(*turns: str) -> dict[str, object]:
    roles = ["system", "user", "assistant"]
    return {"id": "x", "messages": [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]}


def planted() -> list[dict[str, object]]:
    rows = [chat("s", prose(60), prose(200)) for _ in range(40)]
    rows[3] = chat("s", "Read this:", f"{prose(300)} {POOL[4].text} {prose(300)}")
    rows[5] = chat("s", POOL[6].text[100:500], "ok")
    rows[7] = chat(POOL[8].text, prose(50), prose(100))
    rows[9] = chat("s", " ".join(POOL[10].text.split()[20:28]), "")
    return rows


@pytest.fixture
def folder(tmp_path):
    write_table(tmp_path / "pool" / DOCUMENTS, POOL, Document)
    (tmp_path / "ref").mkdir()
    lines = "\n".join(json.dumps(row) for row in planted())
    (tmp_path / "ref" / "train-0.jsonl").write_text(lines + "\n")
    (tmp_path / "ref" / "train-1.jsonl").write_text(json.dumps(chat("s", prose(30), prose(30))) + "\n")
    return tmp_path


def run(folder: Path, mode: str = "exact", **options):
    return audit_pool(folder / "pool", [folder / "ref"], mode, folder / "out", **options)


def test_copies_are_found_in_both_directions_with_their_places(folder):
    result = run(folder)
    rows = {row.record: row for row in read_rows(folder / "out" / "overlaps.parquet", Overlap) if row.matched}
    # Record 7 has its copy in the system turn, which is not compared.
    assert {(n, row.document_id, row.rule) for n, row in rows.items()} == {
        (3, "d4", "document"),
        (5, "d6", "reference"),
        (9, "d10", "reference"),
    }
    assert rows[3].containment_document == 1.0 and rows[3].longest_run == 400
    run_text = POOL[6].text[rows[5].document_start : rows[5].document_end]
    record = planted_text(5)
    assert record[rows[5].reference_start : rows[5].reference_end] == run_text and len(run_text) > 350
    assert result.counts["read"] == 41 and result.counts["short"] == 1 and result.counts["matches"] == 3


def test_thirteen_common_words_are_reported_with_their_length_and_are_no_match_alone(folder):
    words = POOL[12].text.split()
    rows = [
        chat("s", f"{prose(300)} {' '.join(words[40 : 40 + size])} {prose(300)}", "ok") for size in (12, 13, 30, 60)
    ]
    (folder / "ref" / "train-1.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    found = {row.record: row for row in run(folder).findings if row.shard == "train-1.jsonl"}
    assert {n: (row.longest_run, row.verdicts, row.matched) for n, row in found.items()} == {
        1: (13, "shared", False),
        2: (30, "shared", False),
        3: (60, "run shared", True),
    }
    report = (folder / "out" / "report.md").read_text()
    assert "| shared | 5 | 3 | 5 | 400 |" in report and "Shared passages that are no match" in report


def planted_text(number: int) -> str:
    (reference,) = texts_of(number, {"messages": [{"role": "user", "content": POOL[6].text[100:500]}]})
    return reference.text


def test_every_report_has_controls_and_the_papers_recall_beside(folder):
    run(folder)
    summary = json.loads((folder / "out" / "summary.json").read_text())
    controls = {row["kind"]: row for row in summary["controls"]}
    hard = ("one word in ten changed", "verbatim 150 characters inside 2000", "verbatim 300 characters inside 2000")
    expected = [row for row in controls.values() if row["expected"] and row["kind"] not in hard]
    assert len(expected) == 18 and {row["exact"] for row in expected} == {1.0}
    assert controls["verbatim 300 characters"]["paper"] < 0.5
    assert controls["a whole document in an answer"]["paper"] == 0.0
    assert {controls["unrelated words"][mode] for mode in ("exact", "paper", "loose")} == {0.0}
    assert "found by paper" in (folder / "out" / "report.md").read_text()


def test_the_papers_mode_misses_the_document_in_a_long_record(folder):
    write_table(folder / "pool" / DOCUMENTS, POOL, Document)
    lines = (folder / "ref" / "train-0.jsonl").read_text() + json.dumps(chat("s", POOL[2].text, "")) + "\n"
    (folder / "ref" / "train-0.jsonl").write_text(lines)
    matched = {row.document_id for row in run(folder, "paper").findings if row.matched}
    assert "d2" in matched and "d4" not in matched
    assert {row.document_id for row in run(folder, "loose").findings if row.matched} >= {"d2", "d4", "d6"}


def test_finished_shards_are_not_read_again_and_processes_agree(folder, launch):
    arguments = ["--reference", str(folder / "ref"), "--out", str(folder / "out"), "--workers", "1"]
    killed = launch(
        *("corpus", "audit", "--pool", str(folder / "pool"), *arguments),
        store=folder / "store",
        INFUSER_CRASH_AT="audit:shard",
    )
    assert killed.code == -signal.SIGKILL
    (kept,) = (folder / "out" / ".work").rglob("*.json")
    stamp = kept.stat().st_mtime_ns
    first = run(folder)
    assert kept.stat().st_mtime_ns == stamp
    # Another count under the seal of the first: the shard is read again.
    kept.write_text(kept.read_text().replace('"texts": ', '"texts": 1'))
    assert run(folder) == first and kept.stat().st_mtime_ns != stamp
    again = audit_pool(folder / "pool", [folder / "ref"], "exact", folder / "other", workers=2)
    assert again == first


def children() -> set[int]:
    """Processes that this one started."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


def test_a_killed_process_is_no_verdict_and_the_next_attempt_finds_the_same(folder):
    ended = threading.Event()
    others = children()

    def kill() -> None:
        while not ended.wait(0.01):
            # Each as soon as it is there: others are still being started.
            for child in children() - others:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(KilledProcessError, match=r"audit: train-\d.jsonl lost its worker: a process was killed"):
            run(folder, workers=2)
    finally:
        ended.set()
        killer.join()
    assert children() <= others
    assert not (folder / "out" / "overlaps.parquet").exists()
    assert run(folder, workers=2) == audit_pool(folder / "pool", [folder / "ref"], "exact", folder / "other")


def test_records_of_known_shapes_give_their_texts():
    question = {"question_id": "q", "question_text": "Why?", "choices": {"A": "x", "B": "y"}, "ground_truth": "x"}
    assert [(r.part, r.text, r.name) for r in texts_of(0, question)] == [
        ("question", "Why?", "q"),
        ("question+answer", "Why? x y x", "q"),
    ]
    turns = [{"from": "human", "value": "a"}, {"from": "tool", "value": "b"}, {"from": "model", "value": "c"}]
    assert texts_of(0, {"conversations": turns})[0].text == "a\nc"
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]
    assert texts_of(0, {"messages": parts})[0].text == "a"
    assert texts_of(0, {"content": "t"})[0].part == "text"
    assert texts_of(0, {"prompt": "p", "n": 3, "response": "r"})[0].text == "p\nr"


def test_references_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UsageError, match="no such"):
        shards_of([tmp_path / "none"])
    with pytest.raises(UsageError, match="no parquet"):
        shards_of([tmp_path])
    (tmp_path / "a.jsonl").write_text('{"a": 1}\nnot json\n')
    with pytest.raises(DocumentError, match="line 2"):
        list(rows_of(tmp_path / "a.jsonl"))
