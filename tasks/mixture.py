"""The audit of an instruction-finetuned anchor's training data, and what follows from what it finds."""

from collections.abc import Sequence
from pathlib import Path

from corpus import settings
from corpus.audit import audit as auditing
from corpus.audit.minhash import NAME
from corpus.audit.mixture import MixtureOverlap, conversation_of, matches_of, overlap_of, side_facts, texts_of
from corpus.audit.references import digests_of, shards_of
from corpus.audit.scan import PoolText, Scanner
from infuser_core.engines.protocols import Progress
from infuser_core.errors import DocumentError
from infuser_core.schemas import AuditFact, Question
from infuser_core.store.recipe import ArtifactRef
from infuser_core.store.store import Outcome, Table
from tasks.audits import digest_record
from tasks.pool import kept, numbered
from tasks.run import Run, current
from tasks.stage import stage
from tasks.work import Work

VERSION = 1
LABEL = "mixture "
"""Facts of such an audit begin so."""


def mixtures(run: str) -> list[str]:
    """The data sets that the anchor was trained on."""
    return list(current(run).config.corpus.overlap.mixture)


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
    config = settings.overlap_of(run.config.corpus.overlap)
    shards = shards_of([Path(path)])
    digests = digests_of(shards, digest_record(run))
    values = {
        "mixture": auditing.config_values(config),
        "scan": [auditing.VERSION, NAME],
        "shards": [[shard.name, digest] for shard, digest in zip(shards, digests, strict=True)],
    }
    inputs = {"dev": dev, "validation": validation, **numbered("chunks", chunks), **numbered("judgements", judgements)}
    recipe = run.recipe("audit", VERSION, values, inputs)

    def produce(workspace: Path, progress: Progress) -> Outcome:
        documents = kept(run, chunks, judgements)
        sides = [run.store.rows(ref, "reference_questions", Question) for ref in (dev, validation)]
        texts = texts_of(documents, *sides)
        scanner = Scanner(texts, config, as_record=conversation_of)
        scans = auditing.scans(scanner, shards, digests, run.store.partial(recipe), progress=progress)
        rows = [overlap_of(finding) for scan in scans for finding in scan.findings]
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


def stops(run: str) -> bool:
    """Whether a match ends the run."""
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

    return Work(recipe=run.recipe("audit", VERSION, {"stop": True}, {"audit": audit}), produce=produce)
