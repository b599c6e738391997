"""Overlap audits: kept chunks against the questions of a run, group by group, and against other data, set by set."""

import json
from collections.abc import Sequence
from pathlib import Path

from corpus.audit import audit, overlap
from corpus.audit import audit as auditing
from corpus.audit.minhash import NAME
from corpus.audit.overlap import OverlapConfig
from corpus.audit.references import Shard, shards_of
from corpus.audit.scan import Finding, PoolText, Scan, Scanner
from corpus.settings import overlap_of
from infuser_core import faults
from infuser_core.engines.protocols import Progress
from infuser_core.evaluation.folder import write_json
from infuser_core.schemas import AuditFact, Overlap, Question
from infuser_core.store.recipe import ArtifactRef, digest_of
from infuser_core.store.store import Outcome, Table
from tasks.pool import kept, numbered
from tasks.recipes import recipe_of
from tasks.run import Run, current
from tasks.stage import StageResult, run_stage, stage

VERSION = 3
DEV = "dev:"
"""Dev questions that are looked for in a reference stand beside the documents under such names."""


def references(run: str) -> list[str]:
    """The data sets that the chunks are compared with."""
    return list(current(run).config.corpus.overlap.references)


@stage
def audit_overlap(
    run: Run,
    chunks: ArtifactRef,
    judgements: ArtifactRef,
    dev: ArtifactRef,
    validation: ArtifactRef,
    benchmarks: ArtifactRef,
) -> StageResult:
    """One group's kept chunks against dev, validation and benchmark questions, with planted controls."""
    config = overlap_of(run.config.corpus.overlap)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        questions = [
            *run.store.rows(dev, "reference_questions", Question),
            *run.store.rows(validation, "reference_questions", Question),
            *run.store.rows(benchmarks, "audited_questions", Question),
        ]
        result = overlap.audit(kept(run, [chunks], [judgements]), questions, config, progress=progress)
        facts = [AuditFact(name=name, value=float(value)) for name, value in result.summary.items()]
        real = {row.document_id for row in result.rows if row.matched and not row.reference_id.startswith("control:")}
        return Outcome(
            tables={
                "overlaps": Table(row_type=Overlap, rows=result.rows),
                "audit_summary": Table(row_type=AuditFact, rows=facts),
            },
            summary={"mode": config.mode, "matched": len(real)},
        )

    inputs = {
        "chunks": chunks,
        "judgements": judgements,
        "dev": dev,
        "validation": validation,
        "benchmarks": benchmarks,
    }
    return run_stage(run, recipe_of(run, "audit", VERSION, config, inputs), produce)


@stage
def audit_reference(
    run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef], dev: ArtifactRef, path: str
) -> StageResult:
    """All kept chunks, and the dev set, against one data set. Shards that were scanned before a kill are kept."""
    config = overlap_of(run.config.corpus.overlap)
    shards = shards_of([Path(path)])
    digests = digests_of(run, shards)
    values = {
        "audit": auditing.config_values(config),
        "scan": [auditing.VERSION, NAME],
        # The data enters by content: where it lies changes nothing.
        "shards": [[shard.name, digest] for shard, digest in zip(shards, digests, strict=True)],
    }
    inputs = {"dev": dev, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = recipe_of(run, "audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = [PoolText(document_id=row.document_id, text=row.text) for row in kept(run, chunks, judgements)]
        questions = [
            PoolText(document_id=f"{DEV}{row.question_id}", text=overlap.serialise(row))
            for row in run.store.rows(dev, "reference_questions", Question)
        ]
        scanner = Scanner(Path(path), [*documents, *questions], config)
        scans = scans_of(scanner, shards, digests, run.store.partial(recipe), progress)
        label = Path(path).name
        findings = [row for scan in scans for row in scan.findings]
        facts = facts_of(label, scans, audit.measure(documents, config), config)
        rows = [_overlap(label, row) for row in findings]
        return Outcome(
            tables={
                "overlaps": Table(row_type=Overlap, rows=rows),
                "reference_overlaps": Table(row_type=Finding, rows=findings),
                "audit_summary": Table(row_type=AuditFact, rows=facts),
            },
            summary={
                "mode": config.mode,
                "reference": label,
                "matched": len({row.document_id for row in rows if row.matched}),
            },
        )

    return run_stage(run, recipe, produce)


def scans_of(
    scanner: Scanner, shards: Sequence[Shard], digests: Sequence[str], folder: Path, progress: Progress
) -> list[Scan]:
    """One scan per shard; finished ones are found in the folder."""
    total, done = max(sum(shard.num_bytes for shard in shards) >> 20, 1), 0
    found = []
    for shard, digest in zip(shards, digests, strict=True):
        path = folder / f"{digest_of([shard.name, digest])[:32]}.json"
        if not path.is_file():
            before = done

            def told(size: int, before: int = before) -> None:
                progress((before + size) >> 20, total, 0)

            write_json(path, scanner.scan(shard, told).as_json())
            faults.point("audit:shard")
        done += shard.num_bytes
        progress(done >> 20, total, 0)
        found.append(Scan.from_file(path))
    return found


def facts_of(
    label: str, scans: Sequence[Scan], recalls: Sequence[audit.Recall], config: OverlapConfig
) -> list[AuditFact]:
    """Counts of a data set, and the share of planted passages that each mode finds."""
    names = sorted({name for scan in scans for name in scan.counts})
    facts = {f"{label}: {name}": float(sum(scan.counts[name] for scan in scans)) for name in names}
    for row in recalls:
        facts[f"{label}: controls, {row.kind}"] = float(row.planted)
        for mode, share in row.found.items():
            kind = "recall" if row.expected else "false matches"
            used = ", used" if mode == config.mode else ""
            facts[f"{label}: {kind} ({mode}{used}), {row.kind}"] = share
    return [AuditFact(name=name, value=value) for name, value in facts.items()]


def _overlap(label: str, row: Finding) -> Overlap:
    name = row.shard if row.shard == label else f"{label}/{row.shard}"
    return Overlap(
        document_id=row.document_id,
        reference_id=f"{name}#{row.record}",
        jaccard=row.jaccard,
        containment_document=row.containment_document,
        containment_reference=row.containment_reference,
        longest_run=row.longest_run,
        matched=row.matched,
        minhash=row.estimate,
    )


def digests_of(run: Run, shards: Sequence[Shard]) -> list[str]:
    """sha256 of the shards. A file of known size and time of change is not read again: data sets are large."""
    record = run.store.root / "textbooks" / "references.json"
    known = json.loads(record.read_text()) if record.is_file() else {}
    names = [_stamp(shard) for shard in shards]
    fresh = {name: shard.digest() for name, shard in zip(names, shards, strict=True) if name not in known}
    if fresh:
        write_json(record, {**known, **fresh})
    return [(known | fresh)[name] for name in names]


def _stamp(shard: Shard) -> str:
    status = shard.path.stat()
    return f"{shard.path.absolute()}|{status.st_size}|{status.st_mtime_ns}"
