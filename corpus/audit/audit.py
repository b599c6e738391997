"""The contamination audit of a document pool against reference data of any size, with recall on planted controls."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast, get_args

from corpus.audit.index import SHARED, short_pairs
from corpus.audit.ngrams import words
from corpus.audit.planted_controls import PER_KIND, Plant, plant
from corpus.audit.references import Shard, shards_of
from corpus.audit.scan import COUNTS, PoolText, Scan, Scanner, matcher_of, opened, pool_texts
from corpus.audit.shingles import NAME
from corpus.markup import controls_table, table
from corpus.pool import WORK, write_json, write_table
from infuser_core import durable, faults, sealed
from infuser_core.config.corpus import Mode, OverlapSettings
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.engines.worker_pool import Task, WorkerPool, local_pool
from infuser_core.schemas import AuditFact, Overlap
from infuser_core.sealed import digest_of, digest_of_file
from infuser_core.seeding import seed_of

VERSION = 4
FINDINGS, SUMMARY, REPORT = "overlaps.parquet", "summary.json", "report.md"
DOCUMENTS = 400
"""Documents that controls are planted from and searched in: recall does not depend on how many there are."""
MODES: tuple[Mode, ...] = get_args(Mode)
POOL = "document"
"""Side of a chunk of the pool; `dev` and `validation` are those of questions, whose names begin so."""
_SIDES = (POOL, "dev", "validation")
_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """One kind of control."""

    kind: str
    """Kind of planted passage."""
    planted: int
    """How many."""
    expected: bool
    """Whether they should be found."""
    found: dict[str, float]
    """Share found, by mode, and the share that has a finding at all (SHARED)."""


def measure(
    documents: Sequence[PoolText],
    config: OverlapSettings,
    *,
    modes: Sequence[Mode] = MODES,
    per_kind: int = PER_KIND,
) -> list[Recall]:
    """The share of planted records that each of these modes finds, the audit's own with its settings."""
    draw = random.Random(seed_of(0, "overlap-documents"))
    texts = [row.text for row in draw.sample(list(documents), min(DOCUMENTS, len(documents)))]
    plants = plant(texts, per_kind=per_kind)
    own = {mode: OverlapSettings(mode=mode).resolved() for mode in MODES} | {config.mode: config}
    hits: dict[str, set[int]] = {mode: _found(texts, plants, own[mode]) for mode in modes}
    hits[SHARED] = _found(texts, plants, OverlapSettings(mode="exact").resolved(), every=True)
    rows = []
    for kind in dict.fromkeys(row.kind for row in plants):
        places = [place for place, row in enumerate(plants) if row.kind == kind]
        found = {name: sum(place in hit for place in places) / len(places) for name, hit in hits.items()}
        rows.append(Recall(kind=kind, planted=len(places), expected=plants[places[0]].expected, found=found))
    return rows


def _found(texts: Sequence[str], plants: Sequence[Plant], config: OverlapSettings, *, every: bool = False) -> set[int]:
    """Numbers of the plants that are matched with the document that they come from; for others, with any.

    With `every` a common n-gram is enough.
    """
    pairs = list(matcher_of(texts, config).pairs([row.record for row in plants], every=every))
    if config.mode != "paper":
        short = [place for place, row in enumerate(plants) if len(words(row.record)) < config.n]
        found = short_pairs(texts, [plants[place].record for place in short], config)
        pairs += [replace(pair, scanned=short[pair.scanned]) for pair in found]
    pairs = [pair for pair in pairs if pair.rule or every]
    return {p.scanned for p in pairs if p.item == plants[p.scanned].document or not plants[p.scanned].expected}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAudit:
    """Result of an audit."""

    mode: str
    """exact, paper or loose."""
    findings: list[Overlap]
    """Matching pairs, and the closest of those that do not match."""
    shards: list[dict[str, Any]]
    """Per shard its name, digest and counts."""
    recalls: list[Recall]
    """Per kind of planted control, the share found by each mode."""
    counts: dict[str, int]
    """Totals."""

    @property
    def controls(self) -> list[dict[str, Any]]:
        """The recalls as JSON values."""
        return [
            {"kind": row.kind, "planted": row.planted, "expected": row.expected, **row.found} for row in self.recalls
        ]


def audit_pool(
    pool: Path,
    references: Sequence[Path],
    mode: str,
    out: Path,
    *,
    workers: int = 1,
    progress: Progress = no_progress,
) -> PoolAudit:
    """Compare the pool with every record of the references; write overlaps.parquet, summary.json and report.md.

    Raises UsageError for references that cannot be read and DocumentError for a pool that is none.
    """
    config = OverlapSettings(mode=cast(Any, mode)).resolved()
    scanner = Scanner(pool_texts(pool), config)
    shards = shards_of(references)
    base = digest_of([VERSION, NAME, scanner.digest, config_values(config)])
    work = out / WORK / "audit" / base[:16]
    work.mkdir(parents=True, exist_ok=True)
    digests = [digest_of_file(shard.path) for shard in shards]
    with closing(local_pool(workers)) as processes:
        scanned = scans(scanner, shards, digests, work, workers=processes, progress=progress)
        result = compared(scanner, shards, scanned)
    write_table(out / FINDINGS, result.findings, Overlap)
    write_json(out / SUMMARY, as_json(result))
    durable.write(out / REPORT, _report(result, references).encode("utf-8", "replace"))
    return result


def config_values(config: OverlapSettings) -> dict[str, Any]:
    """Settings that a scan depends on."""
    values = config.model_dump(include={"mode", "n", "containment", "run_words", "min_words"})
    return {**values, "paper_min_chars": config.min_chars}


def compared(scanner: Scanner, shards: Sequence[Shard], scans: Sequence[Scan]) -> PoolAudit:
    """The scans of all shards together, with the recall on planted controls."""
    findings = [row for scan in scans for row in scan.findings]
    matched = [row for row in findings if row.matched]
    counts = {
        "documents": len(scanner.documents),
        **{name: sum(scan.counts[name] for scan in scans) for name in COUNTS},
        "matches": len(matched),
        "matched_documents": len({row.document_id for row in matched}),
        "matched_records": len({(row.shard, row.record) for row in matched}),
    }
    return PoolAudit(
        mode=scanner.config.mode,
        findings=findings,
        shards=[
            {
                "shard": shard.name,
                **scan.counts,
                "matched_documents": len({row.document_id for row in scan.findings if row.matched}),
            }
            for shard, scan in zip(shards, scans, strict=True)
        ],
        recalls=measure(scanner.documents, scanner.config),
        counts=counts,
    )


def scans(
    scanner: Scanner,
    shards: Sequence[Shard],
    digests: Sequence[str],
    work: Path,
    *,
    workers: WorkerPool,
    least: int = 0,
    progress: Progress = no_progress,
) -> list[Scan]:
    """One scan per shard, from the work folder where it was finished before.

    By several workers if several shards are ahead, of more than `least` bytes together.
    """
    pairs = zip(shards, digests, strict=True)
    kept = {shard: work / f"{digest_of([shard.name, digest])[:32]}.json" for shard, digest in pairs}
    ahead = [shard for shard in shards if not _is_sound(kept[shard])]
    total = sum(shard.num_bytes for shard in shards)
    before = total - sum(shard.num_bytes for shard in ahead)

    def shown(done: int) -> None:
        progress((before + done) >> 20, max(total >> 20, 1), 0)

    shown(0)
    if len(ahead) > 1 and total - before > least and workers.size > 1:
        _by_workers(scanner, ahead, kept, work, workers, shown)
    else:
        _in_turn(scanner, ahead, kept, shown)
    return [Scan.from_file(kept[shard]) for shard in shards]


def _is_sound(path: Path) -> bool:
    """Whether a scan was kept here, and is what it was."""
    try:
        Scan.from_file(path)
    except (FileNotFoundError, ValueError):
        return False
    return True


def _in_turn(scanner: Scanner, ahead: Sequence[Shard], kept: dict[Shard, Path], shown: Callable[[int], None]) -> None:
    done = 0
    for shard in ahead:
        before = done

        def told(size: int, before: int = before) -> None:
            shown(before + size)

        sealed.write(kept[shard], scanner.scan(shard, told).as_json())
        faults.point("audit:shard")
        done += shard.num_bytes


def _by_workers(
    scanner: Scanner,
    ahead: Sequence[Shard],
    kept: dict[Shard, Path],
    work: Path,
    workers: WorkerPool,
    shown: Callable[[int], None],
) -> None:
    done = 0
    with scanner.on_disk(work) as folder:
        task = Task(
            name="overlap audit",
            begin=partial(opened, folder, scanner.config),
            item=attrgetter("name"),
        )
        # Machines have working folders of their own.
        placed = [replace(shard, path=shard.path.resolve()) for shard in ahead]
        for place, scan in workers.each(task, placed):
            sealed.write(kept[ahead[place]], scan.as_json())
            done += ahead[place].num_bytes
            shown(done)


def as_json(result: PoolAudit) -> dict[str, Any]:
    """The summary as JSON values."""
    return {"mode": result.mode, **result.counts, "controls": result.controls, "shards": result.shards}


def pool_facts(result: PoolAudit, num_questions: int) -> dict[str, Any]:
    """Facts of the audit for the report of a built pool; the first shards are `num_questions` sets of questions."""
    names = [row["shard"] for row in result.shards]
    return {
        "mode": result.mode,
        **result.counts,
        "controls": result.controls,
        "references": [{"name" if name == "shard" else name: row[name] for name in row} for row in result.shards],
        "questions": names[:num_questions],
    }


def terminal(result: PoolAudit, out: Path) -> str:
    """A few lines for people."""
    counts = result.counts
    lines = [
        f"{counts['matches']} matches in {counts['matched_documents']} of {counts['documents']} documents and "
        f"{counts['matched_records']} of {counts['read']} records ({result.mode})",
        controls_table(result.controls),
        f"written: {out / FINDINGS}, {out / REPORT}",
    ]
    return "\n".join(lines)


def _report(result: PoolAudit, references: Sequence[Path]) -> str:
    rows = sorted(result.findings, key=lambda row: -row.longest_run)
    matched = [row for row in rows if row.matched]
    others = [row for row in rows if not row.matched]
    shards = [[shard["shard"], shard["read"], shard["texts"], shard["short"]] for shard in result.shards]
    parts = [
        f"# Overlap audit ({result.mode})",
        "Compared with " + ", ".join(path.name for path in references) + ".",
        table(["", ""], [[name.replace("_", " "), value] for name, value in result.counts.items()]),
        "## Verdicts",
        _verdicts(rows),
        "## Planted controls",
        controls_table(result.controls),
        "## Matches",
        _pairs(matched),
        "## Shared passages that are no match by themselves",
        _pairs(others),
        "## Shards",
        table(["shard", "records", "texts", "short"], shards),
    ]
    return "\n\n".join(parts) + "\n"


def _verdicts(rows: Sequence[Overlap]) -> str:
    """Pairs, documents and records by verdict, and their longest common run."""
    by_name: dict[str, list[Overlap]] = {}
    for row in rows:
        for name in row.verdicts.split():
            by_name.setdefault(name, []).append(row)
    lines = [
        [
            name,
            len(held),
            len({row.document_id for row in held}),
            len({(row.shard, row.record) for row in held}),
            max(row.longest_run for row in held),
        ]
        for name, held in sorted(by_name.items())
    ]
    return table(["verdict", "pairs", "documents", "records", "longest run, words"], lines) if lines else "none"


def _pairs(rows: Sequence[Overlap]) -> str:
    """The first of some pairs, longest run first."""
    columns = ["document", "shard", "record", "document in record", "record in document", "longest run", "verdicts"]
    lines = [
        [
            row.document_id,
            row.shard,
            row.record,
            f"{row.containment_document:.2f}",
            f"{row.containment_reference:.2f}",
            row.longest_run,
            row.verdicts,
        ]
        for row in rows[:_SHOWN]
    ]
    return table(columns, lines) if lines else "none"


def side_of(name: str) -> str:
    """The side that a text stands on, by its name."""
    side, colon, _ = name.partition(":")
    return side if colon and side in _SIDES[1:] else POOL


def side_facts(label: str, texts: Sequence[PoolText], rows: Sequence[Overlap]) -> list[AuditFact]:
    """Per side, the number of texts compared, of those that share n-grams with the data, and of those that match."""
    compared = Counter(side_of(text.document_id) for text in texts)
    sharing = Counter(map(side_of, {row.document_id for row in rows}))
    matched = Counter(map(side_of, {row.document_id for row in rows if row.matched}))
    return [
        AuditFact(name=f"{label}: {side} {what}", value=float(counts[side]))
        for side in _SIDES
        if compared[side] or side == POOL
        for what, counts in (("compared", compared), ("sharing", sharing), ("matched", matched))
    ]


def facts_of(label: str, scans: Sequence[Scan], recalls: Sequence[Recall], mode: str) -> list[AuditFact]:
    """Counts of a data set, and the share of planted passages that each mode finds, for a run's report."""
    names = sorted({name for scan in scans for name in scan.counts})
    facts = {f"{label}: {name}": float(sum(scan.counts[name] for scan in scans)) for name in names}
    for row in recalls:
        facts[f"{label}: controls, {row.kind}"] = float(row.planted)
        for other, share in row.found.items():
            kind = "recall" if row.expected else "false matches"
            used = ", used" if other == mode else ""
            facts[f"{label}: {kind} ({other}{used}), {row.kind}"] = share
    return [AuditFact(name=name, value=value) for name, value in facts.items()]
