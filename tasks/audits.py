"""Stages of the overlap audit: compare accepted chunks with a run's questions, per group, and with other data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus.audit import audit as auditing
from corpus.audit.references import ReferenceShard, digests_of, question_shards, serialise, shards_of, with_unique_names
from corpus.audit.scan import PoolText, Scan, Scanner
from corpus.audit.shingles import NAME
from corpus.build import overlap_reason
from corpus.pool import write_json
from infuser_core.config.corpus import Mode, OverlapSettings
from infuser_core.errors import DocumentError
from infuser_core.protocols import Progress
from infuser_core.schemas import AuditFact, Overlap, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from infuser_core.system.sealed import digest_of_file
from tasks.documents import accepted_chunks
from tasks.run import Run
from tasks.stage import stage
from tasks.textbooks import numbered
from tasks.work import Work

VERSION = 6
LABEL = "mixture "
"""Prefix of facts about the training data of the anchor (the pre-trained base model)."""
COMPARISON = "comparison.json"
"""File with the facts of a comparison, for the report of a built pool."""
LEAST_BYTES = 32 << 20
"""Bytes of data below which worker processes would cost more than the scan."""


def _digests(run: Run, shards: Sequence[ReferenceShard]) -> list[str]:
    return digests_of(shards, run.store.root / "textbooks" / "references.json")


def _scan_values(config: OverlapSettings, shards: Sequence[ReferenceShard], digests: Sequence[str]) -> dict[str, Any]:
    """Settings of a scan for its artifact key. Data sets enter by content: their paths do not matter."""
    return {
        "audit": auditing.config_values(config),
        "scan": [auditing.VERSION, NAME],
        "shards": [[shard.name, digest] for shard, digest in zip(shards, digests, strict=True)],
    }


def _scan(
    run: Run, scanner: Scanner, shards: Sequence[ReferenceShard], digests: Sequence[str], work: Path, progress: Progress
) -> list[Scan]:
    work.mkdir(parents=True, exist_ok=True)
    return auditing.scan_shards(
        scanner, shards, digests, work, workers=run.workers, least=LEAST_BYTES, progress=progress
    )


def _pool_texts(run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]) -> list[PoolText]:
    return [PoolText(document_id=row.document_id, text=row.text) for row in accepted_chunks(run, chunks, judgements)]


def _outcome(
    label: str,
    texts: Sequence[PoolText],
    scans: Sequence[Scan],
    config: OverlapSettings,
    *,
    modes: Sequence[Mode] = auditing.MODES,
) -> Outcome:
    """Make the outcome of an audit: overlapping pairs, their counts, and the recall of `modes` on planted passages."""
    rows = [row for scan in scans for row in scan.findings]
    pool = [text for text in texts if auditing.side_of(text.document_id) == auditing.POOL]
    facts = auditing.facts_of(label, scans, auditing.measure_recall(pool, config, modes=modes), config.mode)
    return Outcome(
        tables={
            "overlaps": Table(row_type=Overlap, rows=rows),
            "audit_summary": Table(row_type=AuditFact, rows=[*facts, *auditing.side_facts(label, texts, rows)]),
        },
        summary={
            "mode": config.mode,
            "compared with": label,
            "matched": len({row.document_id for row in rows if row.matched}),
        },
    )


@stage("audit")
def audit_questions(
    run: Run,
    chunks: ArtifactRef,
    judgements: ArtifactRef,
    dev: ArtifactRef,
    validation: ArtifactRef,
    benchmarks: ArtifactRef,
) -> Work:
    """Compare one group's accepted chunks with the dev, validation and benchmark questions, with planted controls."""
    config = run.config.corpus.overlap.with_defaults()
    questions = {"dev": dev, "validation": validation, "benchmarks": benchmarks}
    inputs = {"chunks": chunks, "judgements": judgements, **questions}
    recipe = run.recipe("audit", VERSION, _scan_values(config, [], []), inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        texts, work = _pool_texts(run, [chunks], [judgements]), run.store.partial(recipe)
        shards = question_shards(_question_sets(run, questions), work / "questions")
        digests = [digest_of_file(shard.path) for shard in shards]
        scans = _scan(run, Scanner(texts, config), shards, digests, work, progress)
        # Measure the recall of the configured mode only, because this runs for every group.
        return _outcome("questions", texts, scans, config, modes=[config.mode])

    return Work(recipe=recipe, produce=produce)


@stage("audit")
def audit_data(
    run: Run,
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    dev: ArtifactRef,
    validation: ArtifactRef,
    path: str,
) -> Work:
    """Compare all accepted chunks, and the dev and validation set, with one data set. A restart continues by shard."""
    config = run.config.corpus.overlap.with_defaults()
    label = Path(path).name
    source_shards = shards_of([Path(path)])
    shards = [shard if shard.name == label else replace(shard, name=f"{label}/{shard.name}") for shard in source_shards]
    digests = _digests(run, shards)
    questions = {"dev": dev, "validation": validation}
    inputs = {**questions, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    trained_on = path in run.config.corpus.overlap.mixture
    values = {**_scan_values(config, shards, digests), "trained_on": trained_on}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        texts = _pool_texts(run, chunks, judgements)
        for side, ref in questions.items():
            rows = run.store.rows(ref, "reference_questions", Question)
            texts += [PoolText(document_id=f"{side}:{row.question_id}", text=serialise(row)) for row in rows]
        scans = _scan(run, Scanner(texts, config), shards, digests, run.store.partial(recipe), progress)
        return _outcome(f"{LABEL if trained_on else ''}{label}", texts, scans, config)

    return Work(recipe=recipe, produce=produce)


@stage("audit")
def refuse_matches(run: Run, audit: ArtifactRef, path: str) -> Work:
    """Raise DocumentError if the audit found a match. A separate stage, so that the audit's rows are stored first."""
    label = Path(path).name

    def produce(workspace: Path, progress: Progress) -> Outcome:
        matches = {row.document_id: row for row in run.store.rows(audit, "overlaps", Overlap) if row.matched}
        if not matches:
            return Outcome(tables={}, summary={"mixture": label, "matched": 0})
        name, row = min(matches.items())
        raise DocumentError(
            f"{len(matches)} texts overlap with the anchor's training data {label}, e.g. {name} {overlap_reason(row)}",
            hint="look at `infuser sql 'select * from \"overlaps\" where matched'`, or set corpus.overlap.sft_matched "
            "to report",
        )

    return Work(recipe=run.recipe("audit", VERSION, {"stop": True}, {"audit": audit}), produce=produce)


@stage("audit")
def compare_pool(
    run: Run,
    chunks: Sequence[ArtifactRef],
    judgements: Sequence[ArtifactRef],
    questions: Mapping[str, ArtifactRef],
) -> Work:
    """Compare all accepted chunks with named question sets and all other data in one scan, for a pool to export."""
    config = run.config.corpus.overlap.with_defaults()
    others = shards_of([Path(path) for path in run.config.corpus.overlap.references])
    other_digests = _digests(run, others)
    values = _scan_values(config, others, other_digests)
    inputs = {**questions, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        work = run.store.partial(recipe)
        question_files = question_shards(_question_sets(run, questions), work / "questions")
        shards = with_unique_names([*question_files, *others])
        scanner = Scanner(_pool_texts(run, chunks, judgements), config)
        digests = [*(digest_of_file(shard.path) for shard in question_files), *other_digests]
        scans = _scan(run, scanner, shards, digests, work, progress)
        result = auditing.merge_scans(scanner, shards, scans)
        write_json(workspace / COMPARISON, auditing.pool_facts(result, len(question_files)))
        return Outcome(
            tables={"overlaps": Table(row_type=Overlap, rows=result.findings)},
            summary={"mode": config.mode, "matched": result.counts["matched_documents"]},
        )

    return Work(recipe=recipe, produce=produce)


def _question_sets(run: Run, questions: Mapping[str, ArtifactRef]) -> dict[str, list[Question]]:
    """Question sets by name; the benchmarks' artifact is split by the label in front of its question ids."""
    sets: dict[str, list[Question]] = {}
    for label, ref in questions.items():
        if label != "benchmarks":
            sets[label] = run.store.rows(ref, "reference_questions", Question)
            continue
        rows = run.store.rows(ref, "audited_questions", Question)
        for name in [row.label or row.name for row in run.config.evaluate.benchmarks]:
            subset = [row for row in rows if row.question_id.startswith(f"{name}/")]
            sets[f"benchmark {name}"] = [
                replace(row, question_id=row.question_id.removeprefix(f"{name}/")) for row in subset
            ]
    return sets
