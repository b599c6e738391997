"""Overlap audits: kept chunks against the questions of a run, group by group, and against other data, set by set."""

from collections.abc import Sequence
from pathlib import Path

from corpus.audit import audit as auditing
from corpus.audit import overlap
from corpus.audit.minhash import NAME
from corpus.audit.references import digests_of, shards_of
from corpus.audit.scan import Finding, PoolText, Scanner
from corpus.settings import overlap_of
from infuser_core.engines.protocols import Progress
from infuser_core.schemas import AuditFact, Overlap, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.pool import kept, numbered
from tasks.run import Run, current
from tasks.stage import stage
from tasks.work import Work

VERSION = 3
DEV = "dev:"
"""Dev questions that are looked for in a reference stand beside the documents under such names."""


def digest_record(run: Run) -> Path:
    """Where the digests of large files are remembered."""
    return run.store.root / "textbooks" / "references.json"


def references(run: str) -> list[str]:
    """The data sets that the chunks are compared with."""
    return list(current(run).config.corpus.overlap.references)


@stage("audit")
def audit_overlap(
    run: Run,
    chunks: ArtifactRef,
    judgements: ArtifactRef,
    dev: ArtifactRef,
    validation: ArtifactRef,
    benchmarks: ArtifactRef,
) -> Work:
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
    return Work(recipe=run.recipe("audit", VERSION, config, inputs), produce=produce)


@stage("audit")
def audit_reference(
    run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef], dev: ArtifactRef, path: str
) -> Work:
    """All kept chunks, and the dev set, against one data set. Shards that were scanned before a kill are kept."""
    config = overlap_of(run.config.corpus.overlap)
    shards = shards_of([Path(path)])
    digests = digests_of(shards, digest_record(run))
    values = {
        "audit": auditing.config_values(config),
        "scan": [auditing.VERSION, NAME],
        # The data enters by content: where it lies changes nothing.
        "shards": [[shard.name, digest] for shard, digest in zip(shards, digests, strict=True)],
    }
    inputs = {"dev": dev, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = [PoolText(document_id=row.document_id, text=row.text) for row in kept(run, chunks, judgements)]
        questions = [
            PoolText(document_id=f"{DEV}{row.question_id}", text=overlap.serialise(row))
            for row in run.store.rows(dev, "reference_questions", Question)
        ]
        scanner = Scanner([*documents, *questions], config)
        scans = auditing.scans(scanner, shards, digests, run.store.partial(recipe), progress=progress)
        label = Path(path).name
        findings = [row for scan in scans for row in scan.findings]
        facts = auditing.facts_of(label, scans, auditing.measure(documents, config), config.mode)
        rows = [auditing.overlap_of(label, row) for row in findings]
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

    return Work(recipe=recipe, produce=produce)
