"""Overlap audits: kept chunks against the questions of a run, group by group, and against other data, set by set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus.audit import audit as auditing
from corpus.audit.references import Shard, digests_of, question_shards, serialise, shards_of, with_unique_names
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
from tasks.documents import kept
from tasks.run import Run
from tasks.stage import stage
from tasks.textbooks import numbered
from tasks.work import Work

VERSION = 5
LABEL = "mixture "
"""Facts of the audit of an anchor's training data begin so."""
COMPARISON = "comparison.json"
"""Facts of a comparison for a built pool."""
LEAST_BYTES = 32 << 20
"""Starting processes costs more than scanning this much."""


def _digests(run: Run, shards: Sequence[Shard]) -> list[str]:
    return digests_of(shards, run.store.root / "textbooks" / "references.json")


def _scan_values(config: OverlapSettings, shards: Sequence[Shard], digests: Sequence[str]) -> dict[str, Any]:
    """Settings of a scan for its key. The data enters by content: where it lies changes nothing."""
    return {
        "audit": auditing.config_values(config),
        "scan": [auditing.VERSION, NAME],
        "shards": [[shard.name, digest] for shard, digest in zip(shards, digests, strict=True)],
    }


def _scanned(
    run: Run, scanner: Scanner, shards: Sequence[Shard], digests: Sequence[str], work: Path, progress: Progress
) -> list[Scan]:
    work.mkdir(parents=True, exist_ok=True)
    return auditing.scan_shards(
        scanner, shards, digests, work, workers=run.workers, least=LEAST_BYTES, progress=progress
    )


def _texts(run: Run, chunks: Sequence[ArtifactRef], judgements: Sequence[ArtifactRef]) -> list[PoolText]:
    return [PoolText(document_id=row.document_id, text=row.text) for row in kept(run, chunks, judgements)]


def _outcome(
    label: str,
    texts: Sequence[PoolText],
    scans: Sequence[Scan],
    config: OverlapSettings,
    *,
    modes: Sequence[Mode] = auditing.MODES,
) -> Outcome:
    """Every pair, and as facts the counts and the share of planted passages that these modes find."""
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
    """One group's kept chunks against dev, validation and benchmark questions, with planted controls."""
    config = run.config.corpus.overlap.resolved()
    questions = {"dev": dev, "validation": validation, "benchmarks": benchmarks}
    inputs = {"chunks": chunks, "judgements": judgements, **questions}
    recipe = run.recipe("audit", VERSION, _scan_values(config, [], []), inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        texts, work = _texts(run, [chunks], [judgements]), run.store.partial(recipe)
        shards = question_shards(_sets(run, questions), work / "questions")
        digests = [digest_of_file(shard.path) for shard in shards]
        scans = _scanned(run, Scanner(texts, config), shards, digests, work, progress)
        # Once for every group of books: the mode in use alone.
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
    """All kept chunks, the dev and the validation set against one data set. Shards scanned before a kill are kept."""
    config = run.config.corpus.overlap.resolved()
    label = Path(path).name
    found = shards_of([Path(path)])
    shards = [each if each.name == label else replace(each, name=f"{label}/{each.name}") for each in found]
    digests = _digests(run, shards)
    questions = {"dev": dev, "validation": validation}
    inputs = {**questions, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    trained_on = path in run.config.corpus.overlap.mixture
    values = {**_scan_values(config, shards, digests), "trained_on": trained_on}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        texts = _texts(run, chunks, judgements)
        for side, ref in questions.items():
            rows = run.store.rows(ref, "reference_questions", Question)
            texts += [PoolText(document_id=f"{side}:{row.question_id}", text=serialise(row)) for row in rows]
        scans = _scanned(run, Scanner(texts, config), shards, digests, run.store.partial(recipe), progress)
        return _outcome(f"{LABEL if trained_on else ''}{label}", texts, scans, config)

    return Work(recipe=recipe, produce=produce)


@stage("audit")
def refuse_matches(run: Run, audit: ArtifactRef, path: str) -> Work:
    """Fails with DocumentError where the audit found a match; a stage of its own, so that the audit's rows stay."""
    label = Path(path).name

    def produce(workspace: Path, progress: Progress) -> Outcome:
        found = {row.document_id: row for row in run.store.rows(audit, "overlaps", Overlap) if row.matched}
        if not found:
            return Outcome(tables={}, summary={"mixture": label, "matched": 0})
        name, row = min(found.items())
        raise DocumentError(
            f"{len(found)} texts overlap with the anchor's training data {label}, e.g. {name} {overlap_reason(row)}",
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
    """All kept chunks against question sets by name and all other data at once, for a pool that is to be exported."""
    config = run.config.corpus.overlap.resolved()
    others = shards_of([Path(path) for path in run.config.corpus.overlap.references])
    known = _digests(run, others)
    values = _scan_values(config, others, known)
    inputs = {**questions, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        work = run.store.partial(recipe)
        asked = question_shards(_sets(run, questions), work / "questions")
        shards = with_unique_names([*asked, *others])
        scanner = Scanner(_texts(run, chunks, judgements), config)
        digests = [*(digest_of_file(shard.path) for shard in asked), *known]
        scans = _scanned(run, scanner, shards, digests, work, progress)
        found = auditing.merge_scans(scanner, shards, scans)
        write_json(workspace / COMPARISON, auditing.pool_facts(found, len(asked)))
        return Outcome(
            tables={"overlaps": Table(row_type=Overlap, rows=found.findings)},
            summary={"mode": config.mode, "matched": found.counts["matched_documents"]},
        )

    return Work(recipe=recipe, produce=produce)


def _sets(run: Run, questions: Mapping[str, ArtifactRef]) -> dict[str, list[Question]]:
    """The question sets of some artifacts by name; one artifact holds all benchmarks, their labels before the ids."""
    found: dict[str, list[Question]] = {}
    for label, ref in questions.items():
        if label != "benchmarks":
            found[label] = run.store.rows(ref, "reference_questions", Question)
            continue
        rows = run.store.rows(ref, "audited_questions", Question)
        for name in [row.label or row.name for row in run.config.evaluate.benchmarks]:
            own = [row for row in rows if row.question_id.startswith(f"{name}/")]
            found[f"benchmark {name}"] = [
                replace(row, question_id=row.question_id.removeprefix(f"{name}/")) for row in own
            ]
    return found
