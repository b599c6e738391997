"""A built pool is compared with questions and other data; what matches goes, stays or stops, and recall is told."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT

from corpus.audit.overlap import OverlapConfig
from corpus.audit.scan import Finding
from corpus.build import BuildConfig, build
from corpus.build_audit import OverlapPlan, audit_built
from corpus.find.intake import from_files
from corpus.pool import DISCARDED, OVERLAPS, Discarded, read_documents
from corpus.source_steps import SourceConfig
from infuser_core.config.corpus import ChunkSettings
from infuser_core.errors import DocumentError, UsageError
from infuser_core.nano import world
from infuser_core.schemas import Question
from infuser_core.store.tables import read_rows

WORDS = [
    "tide",
    "moon",
    "shore",
    "wave",
    "sand",
    "rope",
    "boat",
    "gull",
    "salt",
    "wind",
    "cloud",
    "rain",
    "stone",
    "shell",
    "crab",
    "net",
    "oar",
    "keel",
    "mast",
    "sail",
]


def passage(seed: int, count: int = 60) -> str:
    return " ".join(
        WORDS[(seed * 7 + n * n * (seed + 3) + n) % len(WORDS)] + str((seed * n) % 13) for n in range(count)
    )


def question(name: str, text: str) -> Question:
    return replace(world.questions("dev", world.TARGET, 1, 0)[0], question_id=name, text=text)


SOURCE = "# Sea\n\n" + "\n\n".join(f"## Part {n}\n\n{passage(n)}." for n in range(6))
SMALL = SourceConfig(chunk=ChunkSettings(min_tokens=5, max_tokens=400, small_sections="drop"))


def plan(tmp_path: Path, **changes: object) -> OverlapPlan:
    (tmp_path / "sft").mkdir(exist_ok=True)
    (tmp_path / "sft" / "one.jsonl").write_text(json.dumps({"text": passage(4)}) + "\n")
    (tmp_path / "sft" / "two.jsonl").write_text(json.dumps({"text": "nothing of the kind is said here " * 9}) + "\n")
    values = {
        "config": OverlapConfig(controls_per_kind=2),
        "questions": {"dev": [question("q1", passage(2)), question("q2", "Which rope is longer, and by how much?")]},
        "references": [tmp_path / "sft"],
    }
    return OverlapPlan(**{**values, **changes})


def built(tmp_path: Path, overlap: OverlapPlan):
    (tmp_path / "a.md").write_text(SOURCE)
    return build(from_files([str(tmp_path / "a.md")]), tmp_path / "out", BuildConfig(source=SMALL, overlap=overlap))


def test_questions_go_and_other_data_is_reported(tmp_path):
    found = built(tmp_path, plan(tmp_path, absent={"benchmark x": "no file"}))
    rows = read_rows(tmp_path / "out" / OVERLAPS, Finding)
    assert {(row.shard, row.record_id, row.matched) for row in rows if row.matched} == {
        ("dev.jsonl", "q1", True),
        ("one.jsonl", "", True),
    }
    (dropped,) = [row for row in read_rows(tmp_path / "out" / DISCARDED, Discarded) if row.stage == "overlap"]
    assert dropped.header_path.endswith("Part 2") and "dev.jsonl record q1" in dropped.reason
    assert {row.header_path.split()[-1] for row in read_documents(tmp_path / "out")} == set("01345")
    facts = found.overlap.facts
    assert facts["mode"] == "exact" and facts["absent"] == {"benchmark x": "no file"}
    assert [row["name"] for row in facts["references"]] == ["dev.jsonl", "one.jsonl", "two.jsonl"]
    verbatim = [row for row in facts["controls"] if row["expected"]]
    assert verbatim and all(row["exact"] == 1.0 for row in verbatim)


def test_the_second_time_nothing_is_compared_again(tmp_path):
    assert built(tmp_path, plan(tmp_path)).changed
    work = tmp_path / "out" / ".work"
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file() and path.name != "lock"}
    assert not built(tmp_path, plan(tmp_path)).changed
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (tmp_path / "a.md").touch()
    changed = plan(tmp_path, questions={"dev": [question("q1", passage(3))]})
    assert built(tmp_path, changed).changed
    assert {row.header_path.split()[-1] for row in read_documents(tmp_path / "out")} == set("01245")


def test_a_match_may_stop_the_build_or_only_be_told(tmp_path):
    kept = built(tmp_path, plan(tmp_path, matched="report"))
    assert len(kept.documents) == 6 and not kept.overlap.dropped
    assert len(built(tmp_path, plan(tmp_path, reference_matched="drop")).documents) == 4
    with pytest.raises(DocumentError, match=r"dev\.jsonl record q1"):
        built(tmp_path, plan(tmp_path, matched="stop"))


def test_the_mode_decides(tmp_path):
    documents = built(tmp_path, plan(tmp_path, matched="report")).documents
    loose = plan(tmp_path, config=OverlapConfig(mode="loose", n=5, containment=0.5, controls_per_kind=2))
    assert audit_built(documents, loose, tmp_path / "w").facts["mode"] == "loose"
    paper = audit_built(
        documents, plan(tmp_path, config=OverlapConfig(mode="paper", controls_per_kind=2)), tmp_path / "w"
    )
    assert paper.facts["mode"] == "paper" and {row.rule for row in paper.findings if row.matched} <= {
        *("jaccard", "document", "reference")
    }


def test_a_reference_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        built(tmp_path, plan(tmp_path, references=[tmp_path / "nowhere"]))


def test_without_anything_to_compare_with_the_facts_say_so(tmp_path):
    found = built(tmp_path, plan(tmp_path, questions={}, references=[]))
    assert found.overlap.facts["references"] == [] and read_rows(tmp_path / "out" / OVERLAPS, Finding) == []


def test_a_build_killed_while_comparing_goes_on_with_the_next_shard(tmp_path):
    (tmp_path / "a.md").write_text(SOURCE)
    plan(tmp_path)
    script = (
        "import sys; sys.path[:0] = ['tests/support', 'tests/corpus']\nfrom pathlib import Path\nimport test_corpus_build_audit as t\n"
        f"t.built(Path({str(tmp_path)!r}), t.plan(Path({str(tmp_path)!r})))\n"
    )
    environment = {**os.environ, "INFUSER_CRASH_AT": "audit:shard:2"}
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True)
    assert killed.returncode == -9 and not (tmp_path / "out" / OVERLAPS).exists()
    scans = list((tmp_path / "out" / ".work" / "overlap").rglob("*.json"))
    stamps = {path: path.stat().st_mtime_ns for path in scans}
    assert len(stamps) == 2
    built(tmp_path, plan(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in scans} == stamps
    assert len(read_documents(tmp_path / "out")) == 5
