"""Overlap audits: kept chunks against the questions of a run, group by group, and against other data, set by set.

The data that an instruction-finetuned anchor was trained on is compared with the dev and validation sets, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus.audit import audit as auditing
from corpus.audit import overlap
from corpus.audit.index import OverlapConfig
from corpus.audit.mixture import MixtureOverlap, conversation_of, matches_of, side_facts, texts_of
from corpus.audit.mixture import overlap_of as mixture_row
from corpus.audit.references import Shard, digests_of, question_shards, shards_of, told_apart
from corpus.audit.scan import Finding, PoolText, Scan, Scanner
from corpus.audit.shingles import NAME
from corpus.pool import write_json
from infuser_core.engines.protocols import Progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import AuditFact, Overlap, Question
from infuser_core.sealed import digest_of_file
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.documents import kept
from tasks.run import Run, current
from tasks.stage import stage
from tasks.textbooks import numbered
from tasks.work import Work

VERSION = 4
MIXTURE_VERSION = 2
LABEL = "mixture "
"""Facts of the audit of an anchor's training data begin so."""
COMPARISON = "comparison.json"
"""Facts of a comparison for a built pool."""
LEAST_BYTES = 32 << 20
"""Starting processes costs more than scanning this much."""
DEV = "dev:"
"""Dev questions that are looked for in a reference stand beside the documents under such names."""


def _digests(run: Run, shards: Sequence[Shard]) -> list[str]:
    return digests_of(shards, run.store.root / "textbooks" / "references.json")


def _scan_values(kind: str, config: OverlapConfig, shards: Sequence[Shard], digests: Sequence[str]) -> dict[str, Any]:
    """Settings of a scan for its key. The data enters by content: where it lies changes nothing."""
    return {
        kind: auditing.config_values(config),
        "scan": [auditing.VERSION, NAME],
        "shards": [[shard.name, digest] for shard, digest in zip(shards, digests, strict=True)],
    }


def _scanned(
    run: Run, scanner: Scanner, shards: Sequence[Shard], digests: Sequence[str], work: Path, progress: Progress
) -> list[Scan]:
    work.mkdir(parents=True, exist_ok=True)
    return auditing.scans(scanner, shards, digests, work, crew=run.crew, least=LEAST_BYTES, progress=progress)


def references(run: str) -> list[str]:
    """The data sets that the chunks are compared with."""
    return list(current(run).config.corpus.overlap.references)


def mixtures(run: str) -> list[str]:
    """The data sets that the anchor was trained on."""
    return list(current(run).config.corpus.overlap.mixture)


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
    config = overlap.configured(run.config.corpus.overlap)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        questions = [
            *run.store.rows(dev, "reference_questions", Question),
            *run.store.rows(validation, "reference_questions", Question),
            *run.store.rows(benchmarks, "audited_questions", Question),
        ]
        found, summary = overlap.audit(kept(run, [chunks], [judgements]), questions, config, progress=progress)
        facts = [AuditFact(name=name, value=float(value)) for name, value in summary.items()]
        real = {row.document_id for row in found if row.matched and not row.reference_id.startswith("control:")}
        return Outcome(
            tables={
                "overlaps": Table(row_type=Overlap, rows=found),
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
    config = overlap.configured(run.config.corpus.overlap)
    shards = shards_of([Path(path)])
    digests = _digests(run, shards)
    inputs = {"dev": dev, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", VERSION, _scan_values("audit", config, shards, digests), inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = [PoolText(document_id=row.document_id, text=row.text) for row in kept(run, chunks, judgements)]
        questions = [
            PoolText(document_id=f"{DEV}{row.question_id}", text=overlap.serialise(row))
            for row in run.store.rows(dev, "reference_questions", Question)
        ]
        scanner = Scanner([*documents, *questions], config)
        scans = _scanned(run, scanner, shards, digests, run.store.partial(recipe), progress)
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


@stage("audit")
def audit_mixture(
    run: Run,
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    dev: ArtifactRef,
    validation: ArtifactRef,
    path: str,
) -> Work:
    """All kept chunks, the dev set and the validation set against one data set; what it finds is kept."""
    config = overlap.configured(run.config.corpus.overlap)
    shards = shards_of([Path(path)])
    digests = _digests(run, shards)
    inputs = {"dev": dev, "validation": validation, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", MIXTURE_VERSION, _scan_values("mixture", config, shards, digests), inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = kept(run, chunks, judgements)
        sides = [run.store.rows(ref, "reference_questions", Question) for ref in (dev, validation)]
        texts = texts_of(documents, *sides)
        scanner = Scanner(texts, config, as_record=conversation_of)
        scans = _scanned(run, scanner, shards, digests, run.store.partial(recipe), progress)
        rows = [mixture_row(finding) for scan in scans for finding in scan.findings]
        pool = [PoolText(document_id=row.document_id, text=row.text) for row in documents]
        label = f"{LABEL}{Path(path).name}"
        facts = auditing.facts_of(label, scans, auditing.measure(pool, config), config.mode)
        return Outcome(
            tables={
                "mixture_overlaps": Table(row_type=MixtureOverlap, rows=rows),
                "audit_summary": Table(row_type=AuditFact, rows=[*facts, *side_facts(label, texts, rows)]),
            },
            summary={"mode": config.mode, "mixture": Path(path).name, "matched": len(matches_of(rows))},
        )

    return Work(recipe=recipe, produce=produce)


def mixture_stops(run: str) -> bool:
    """Whether a match with the anchor's training data ends the run."""
    return current(run).config.corpus.overlap.sft_matched == "stop"


@stage("audit")
def refuse_matches(run: Run, audit: ArtifactRef, path: str) -> Work:
    """Fails with DocumentError where the audit found a match; a stage of its own, so that the audit's rows stay."""
    label = Path(path).name

    def produce(workspace: Path, progress: Progress) -> Outcome:
        found = matches_of(run.store.rows(audit, "mixture_overlaps", MixtureOverlap))
        if not found:
            return Outcome(tables={}, summary={"mixture": label, "matched": 0})
        (side, item), row = min(found.items(), key=lambda pair: pair[0])
        raise DocumentError(
            f"{len(found)} texts overlap with the anchor's training data {label}, e.g. {side} {item} with "
            f"{row.shard}#{row.record} in {row.longest_run} words",
            hint='look at `infuser sql "select * from mixture_overlaps where matched"`, or set '
            "corpus.overlap.sft_matched to report",
        )

    return Work(recipe=run.recipe("audit", MIXTURE_VERSION, {"stop": True}, {"audit": audit}), produce=produce)


@stage("audit")
def compare_pool(
    run: Run,
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    questions: Mapping[str, ArtifactRef],
) -> Work:
    """All kept chunks against question sets by name and all other data at once, for a pool that is to be exported.

    Shards that were scanned before a kill are kept.
    """
    config = overlap.configured(run.config.corpus.overlap)
    others = shards_of([Path(path) for path in run.config.corpus.overlap.references])
    values = {**_scan_values("pool", config, others, _digests(run, others)), "controls": config.controls_per_kind}
    inputs = {**questions, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        work = run.store.partial(recipe)
        sets = {name: rows for label, ref in questions.items() for name, rows in _sets(run, label, ref).items()}
        asked = question_shards(sets, work / "questions")
        shards = told_apart([*asked, *others])
        documents = [PoolText(document_id=row.document_id, text=row.text) for row in kept(run, chunks, judgements)]
        scanner = Scanner(documents, config)
        digests = [digest_of_file(shard.path) for shard in shards]
        scans = _scanned(run, scanner, shards, digests, work, progress)
        found = auditing.compared(scanner, shards, scans)
        write_json(workspace / COMPARISON, auditing.pool_facts(found, len(asked)))
        return Outcome(
            tables={"reference_overlaps": Table(row_type=Finding, rows=found.findings)},
            summary={"mode": config.mode, "matched": found.counts["matched_documents"]},
        )

    return Work(recipe=recipe, produce=produce)


def _sets(run: Run, label: str, ref: ArtifactRef) -> dict[str, list[Question]]:
    """The question sets of an artifact by name; one artifact holds all benchmarks, with their labels before the ids."""
    if label != "benchmarks":
        return {label: run.store.rows(ref, "reference_questions", Question)}
    rows = run.store.rows(ref, "audited_questions", Question)
    labels = [row.label or row.name for row in run.config.evaluate.benchmarks]
    return {
        f"benchmark {name}": [
            replace(row, question_id=row.question_id.removeprefix(f"{name}/"))
            for row in rows
            if row.question_id.startswith(f"{name}/")
        ]
        for name in labels
    }
