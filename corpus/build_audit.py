"""A build's documents compared with what the configuration names: its questions, its benchmarks, other data.

Shards that were scanned before a kill are kept, and so is the result for unchanged documents and references.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from corpus.audit import audit
from corpus.audit import audit as auditing
from corpus.audit.minhash import NAME
from corpus.audit.overlap import OverlapConfig
from corpus.audit.references import Shard, shards_of
from corpus.audit.scan import Finding, PoolText, Scanner
from corpus.pool import write_json
from infuser_core import durable
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import Document, Question

Matched = Literal["drop", "stop", "report"]
_COUNTS = ("read", "texts", "empty", "short", "tiny", "sharing")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPlan:
    """What a pool is compared with, how, and what happens to a document that matches."""

    config: OverlapConfig
    """Mode and thresholds."""
    questions: Mapping[str, Sequence[Question]]
    """Questions by the name of their set."""
    references: Sequence[Path]
    """Files and folders of other data."""
    matched: Matched = "drop"
    """What happens to a document that overlaps with a question."""
    reference_matched: Matched = "report"
    """What happens to a document that overlaps with other data."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Sets that should be compared with and cannot be had, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping:
    """What the audit found."""

    findings: list[Finding]
    """Matching pairs, and the closest of those that do not match."""
    facts: dict[str, Any]
    """Mode, counts, planted controls and references, as JSON values."""
    dropped: dict[str, str]
    """Documents that leave the pool, with the reason."""
    identity: str
    """Digest of everything that the findings depend on."""


def audit_built(
    documents: Sequence[Document],
    plan: OverlapPlan,
    work: Path,
    *,
    workers: int = 1,
    progress: Progress = no_progress,
) -> Overlapping:
    """Compare the documents with every question set and reference of the plan.

    Raises DocumentError where a match is to stop the build, UsageError for references that cannot be read.
    """
    asked = _question_files(plan.questions, work / "references")
    shards = shards_of([*asked, *plan.references])
    questions = {shard.name for shard in shards if shard.path in set(asked)}
    identity = _identity(documents, shards, plan)
    if not documents or not shards:
        facts: dict[str, Any] = {
            "mode": plan.config.mode,
            "documents": len(documents),
            "references": [],
            "absent": dict(plan.absent),
        }
        return Overlapping(findings=[], facts=facts, dropped={}, identity=identity)
    kept = work / "overlap" / f"{identity[:32]}.json"
    if not kept.is_file():
        write_json(kept, _compared(documents, shards, plan, kept.with_suffix(""), workers, progress))
    found = json.loads(kept.read_bytes())
    findings = [Finding(**row) for row in found["findings"]]
    facts = {**found["facts"], "absent": dict(plan.absent)}
    return Overlapping(findings=findings, facts=facts, dropped=_dropped(findings, questions, plan), identity=identity)


def _question_files(sets: Mapping[str, Sequence[Question]], folder: Path) -> list[Path]:
    """The question sets as data to compare with: each question alone, and with its choices and answer."""
    paths = []
    for name, rows in sets.items():
        lines = [
            json.dumps({"question_id": q.question_id, "question": q.text, "choices": q.choices, "answer": q.answer})
            for q in rows
        ]
        path = folder / f"{name.replace('/', '_')}.jsonl"
        data = "".join(f"{line}\n" for line in lines).encode()
        if not (path.is_file() and path.read_bytes() == data):
            durable.write(path, data)
        paths.append(path)
    return paths


def _identity(documents: Sequence[Document], shards: Sequence[Shard], plan: OverlapPlan) -> str:
    values = [auditing.VERSION, NAME, auditing.config_values(plan.config), plan.config.controls_per_kind]
    total = hashlib.sha256(json.dumps(values).encode())
    for shard in shards:
        total.update(f"{shard.name}\0{shard.digest()}\0".encode())
    for row in documents:
        total.update(f"{row.document_id}\0{row.text}\0".encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def _compared(
    documents: Sequence[Document],
    shards: Sequence[Shard],
    plan: OverlapPlan,
    folder: Path,
    workers: int,
    progress: Progress,
) -> dict[str, Any]:
    scanner = Scanner([PoolText(document_id=row.document_id, text=row.text) for row in documents], plan.config)
    # Starting a process costs more than scanning a few megabytes.
    digests = [shard.digest() for shard in shards]
    scans = auditing.scans(scanner, shards, digests, folder, workers=workers, least=32 << 20, progress=progress)
    counts = {name: sum(scan.counts[name] for scan in scans) for name in _COUNTS}
    findings = [row for scan in scans for row in scan.findings]
    matched = [row for row in findings if row.matched]
    facts = {
        "mode": plan.config.mode,
        "documents": len(documents),
        **counts,
        "matches": len(matched),
        "matched_documents": len({row.document_id for row in matched}),
        "controls": [
            {"kind": row.kind, "planted": row.planted, "expected": row.expected, **row.found}
            for row in audit.measure(scanner.documents, plan.config)
        ],
        "references": [
            {
                "name": shard.name,
                **scan.counts,
                "matched_documents": len({row.document_id for row in scan.findings if row.matched}),
            }
            for shard, scan in zip(shards, scans, strict=True)
        ],
    }
    return {"facts": facts, "findings": [asdict(row) for row in findings]}


def _dropped(findings: Sequence[Finding], questions: set[str], plan: OverlapPlan) -> dict[str, str]:
    """Documents that leave the pool. Raises DocumentError where a match is to stop the build."""
    dropped: dict[str, str] = {}
    for row in sorted((row for row in findings if row.matched), key=lambda row: -row.longest_run):
        action = plan.matched if row.shard in questions else plan.reference_matched
        reason = f"overlaps {row.shard} record {row.record_id or row.record}, run of {row.longest_run} words"
        if action == "stop":
            raise DocumentError(
                f"{row.document_id} {reason}",
                hint="set corpus.overlap.matched or reference_matched to drop, or to report",
            )
        if action == "drop":
            dropped.setdefault(row.document_id, reason)
    return dropped
