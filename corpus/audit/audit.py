"""Audit a document pool for contamination: find its overlaps with reference data, such as evaluation questions.

The audit also measures its recall on planted controls. Reference data may have any size.
"""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast, get_args

from corpus.audit.index import SHARED, short_pairs
from corpus.audit.ngrams import words
from corpus.audit.planted_controls import PER_KIND, Plant, plant_controls
from corpus.audit.references import ReferenceShard, shards_of
from corpus.audit.scan import COUNTS, PoolText, Scan, Scanner, matcher_of, open_scanner, pool_texts
from corpus.audit.shingles import NAME
from corpus.markup import controls_table, table
from corpus.pool import WORK, write_json, write_table
from infuser_core.config.corpus import Mode, OverlapSettings
from infuser_core.protocols import Progress, no_progress
from infuser_core.schemas import AuditFact, Overlap
from infuser_core.seeding import seed_of
from infuser_core.system import durable, sealed
from infuser_core.system import fault_points as faults
from infuser_core.system.sealed import digest_of, digest_of_file
from infuser_core.system.worker_pool import LocalPool, Task, WorkerPool

VERSION = 4
FINDINGS, SUMMARY, REPORT = "overlaps.parquet", "summary.json", "report.md"
DOCUMENTS = 400
"""Number of documents from which controls are made and in which they are searched; recall does not depend on it."""
MODES: tuple[Mode, ...] = get_args(Mode)
POOL = "document"
"""Origin of the pool's chunks. The other origins, `dev` and `validation`, are prefixes of the names of questions."""
_SIDES = (POOL, "dev", "validation")
_MAX_PAIRS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Recall of the audit on one kind of planted control."""

    kind: str
    planted: int
    expected: bool
    """Whether the audit should find these controls."""
    shares: dict[str, float]
    """Share of the controls matched by each mode, and under SHARED the share with any n-gram in common."""


def measure_recall(
    documents: Sequence[PoolText],
    config: OverlapSettings,
    *,
    modes: Sequence[Mode] = MODES,
    per_kind: int = PER_KIND,
) -> list[Recall]:
    """Make planted controls from the documents and measure the share of them that each mode finds.

    `config` replaces the default settings of its mode.
    """
    draw = random.Random(seed_of(0, "overlap-documents"))
    texts = [row.text for row in draw.sample(list(documents), min(DOCUMENTS, len(documents)))]
    plants = plant_controls(texts, per_kind=per_kind)
    settings = {mode: OverlapSettings(mode=mode).with_defaults() for mode in MODES} | {config.mode: config}
    hits: dict[str, set[int]] = {mode: _matched_plants(texts, plants, settings[mode]) for mode in modes}
    hits[SHARED] = _matched_plants(texts, plants, OverlapSettings(mode="exact").with_defaults(), every=True)
    rows = []
    for kind in dict.fromkeys(row.kind for row in plants):
        places = [place for place, row in enumerate(plants) if row.kind == kind]
        shares = {name: sum(place in hit for place in places) / len(places) for name, hit in hits.items()}
        rows.append(Recall(kind=kind, planted=len(places), expected=plants[places[0]].expected, shares=shares))
    return rows


def _matched_plants(
    texts: Sequence[str], plants: Sequence[Plant], config: OverlapSettings, *, every: bool = False
) -> set[int]:
    """Numbers of the planted controls that are found, which means that they match their document.

    A control that should not match counts if it matches any document. With `every`, one common n-gram is a match.
    """
    pairs = list(matcher_of(texts, config).pairs([row.record for row in plants], every=every))
    if config.mode != "paper":
        short = [place for place, row in enumerate(plants) if len(words(row.record)) < config.n]
        records = [plants[place].record for place in short]
        pairs += [replace(pair, scanned=short[pair.scanned]) for pair in short_pairs(texts, records, config)]
    pairs = [pair for pair in pairs if pair.rule or every]
    return {p.scanned for p in pairs if p.item == plants[p.scanned].document or not plants[p.scanned].expected}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAudit:
    """Result of a contamination audit."""

    mode: str
    findings: list[Overlap]
    """Matching pairs of a document and a reference text, and the closest pairs that do not match."""
    shards: list[dict[str, Any]]
    """Name and counts of each shard."""
    recalls: list[Recall]
    counts: dict[str, int]
    """Totals over all shards."""

    @property
    def controls(self) -> list[dict[str, Any]]:
        """Recall on each kind of planted control, as JSON values."""
        return [
            {"kind": row.kind, "planted": row.planted, "expected": row.expected, **row.shares} for row in self.recalls
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
    """Compare a pool with every record of the references; write overlaps.parquet, summary.json and report.md to `out`.

    Raises UsageError if a reference cannot be read and DocumentError if `pool` is not a pool.
    """
    config = OverlapSettings(mode=cast(Any, mode)).with_defaults()
    scanner = Scanner(pool_texts(pool), config)
    shards = shards_of(references)
    base = digest_of([VERSION, NAME, scanner.digest, config_values(config)])
    work = out / WORK / "audit" / base[:16]
    work.mkdir(parents=True, exist_ok=True)
    digests = [digest_of_file(shard.path) for shard in shards]
    with closing(LocalPool(workers)) as processes:
        scans = scan_shards(scanner, shards, digests, work, workers=processes, progress=progress)
    result = merge_scans(scanner, shards, scans)
    write_table(out / FINDINGS, result.findings, Overlap)
    write_json(out / SUMMARY, as_json(result))
    durable.write(out / REPORT, _report(result, references).encode("utf-8", "replace"))
    return result


def config_values(config: OverlapSettings) -> dict[str, Any]:
    """The settings on which a scan depends, for recipes."""
    values = config.model_dump(include={"mode", "n", "containment", "run_words", "min_words"})
    return {**values, "paper_min_chars": config.min_chars}


def merge_scans(scanner: Scanner, shards: Sequence[ReferenceShard], scans: Sequence[Scan]) -> PoolAudit:
    """Merge the scans of all shards into one result, and measure recall on planted controls."""
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
        recalls=measure_recall(scanner.documents, scanner.config),
        counts=counts,
    )


def scan_shards(
    scanner: Scanner,
    shards: Sequence[ReferenceShard],
    digests: Sequence[str],
    work: Path,
    *,
    workers: WorkerPool,
    least: int = 0,
    progress: Progress = no_progress,
) -> list[Scan]:
    """Compare the pool with every shard; scans finished by an earlier attempt are read from the folder `work`.

    Workers are used if more than one shard remains and the remaining ones have more than `least` bytes together.
    """
    names = zip(shards, digests, strict=True)
    paths = {shard: work / f"{digest_of([shard.name, digest])[:32]}.json" for shard, digest in names}
    ahead = []
    for shard in shards:
        try:
            Scan.from_file(paths[shard])
        except (FileNotFoundError, ValueError):
            ahead.append(shard)
    total = sum(shard.num_bytes for shard in shards)
    size_ahead = sum(shard.num_bytes for shard in ahead)
    finished = total - size_ahead

    def report(num_bytes: int) -> None:
        progress((finished + num_bytes) >> 20, max(total >> 20, 1), 0)

    report(0)
    if len(ahead) > 1 and size_ahead > least and workers.size > 1:
        with scanner.on_disk(work) as folder:
            begin = partial(open_scanner, folder, scanner.config)
            task = Task(name="overlap audit", begin=begin, item=attrgetter("name"))
            # Paths are absolute because workers on other machines have other working folders.
            absolute = [replace(shard, path=shard.path.resolve()) for shard in ahead]
            for place, scan in workers.each(task, absolute):
                sealed.write(paths[ahead[place]], scan.as_json())
                finished += ahead[place].num_bytes
                report(0)
    else:
        for shard in ahead:
            sealed.write(paths[shard], scanner.scan(shard, report).as_json())
            faults.point("audit:shard")
            finished += shard.num_bytes
    return [Scan.from_file(paths[shard]) for shard in shards]


def as_json(result: PoolAudit) -> dict[str, Any]:
    """Counts, controls and shards of an audit as JSON values, for summary.json."""
    return {"mode": result.mode, **result.counts, "controls": result.controls, "shards": result.shards}


def pool_facts(result: PoolAudit, num_questions: int) -> dict[str, Any]:
    """Figures of an audit for the report on a built pool; the first `num_questions` shards are question sets."""
    return {
        "mode": result.mode,
        **result.counts,
        "controls": result.controls,
        "references": [{"name" if name == "shard" else name: row[name] for name in row} for row in result.shards],
        "questions": [row["shard"] for row in result.shards[:num_questions]],
    }


def summary_text(result: PoolAudit, out: Path) -> str:
    """Summary of an audit for the terminal, a few lines."""
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
        _verdict_table(rows),
        "## Planted controls",
        controls_table(result.controls),
        "## Matches",
        _pair_table(matched),
        "## Shared passages that are no match by themselves",
        _pair_table(others),
        "## Shards",
        table(["shard", "records", "texts", "short"], shards),
    ]
    return "\n\n".join(parts) + "\n"


def _verdict_table(rows: Sequence[Overlap]) -> str:
    """Table of verdicts: the numbers of pairs, documents and records with each, and the longest common run."""
    by_name: dict[str, list[Overlap]] = {}
    for row in rows:
        for name in row.verdicts.split():
            by_name.setdefault(name, []).append(row)
    lines = [
        [
            name,
            len(pairs),
            len({row.document_id for row in pairs}),
            len({(row.shard, row.record) for row in pairs}),
            max(row.longest_run for row in pairs),
        ]
        for name, pairs in sorted(by_name.items())
    ]
    return table(["verdict", "pairs", "documents", "records", "longest run, words"], lines) if lines else "none"


def _pair_table(rows: Sequence[Overlap]) -> str:
    """Table of the first _MAX_PAIRS pairs of `rows`."""
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
        for row in rows[:_MAX_PAIRS]
    ]
    return table(columns, lines) if lines else "none"


def side_of(name: str) -> str:
    """Origin of an audited text by its name: POOL for chunks, else dev or validation."""
    side, colon, _ = name.partition(":")
    return side if colon and side in _SIDES[1:] else POOL


def side_facts(label: str, texts: Sequence[PoolText], rows: Sequence[Overlap]) -> list[AuditFact]:
    """Count the texts of each origin (see `side_of`): compared, sharing n-grams with the data, and matched."""
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
    """Figures of an audit for a run's report: counts, and the share of planted controls that each mode finds."""
    names = sorted({name for scan in scans for name in scan.counts})
    facts = {f"{label}: {name}": float(sum(scan.counts[name] for scan in scans)) for name in names}
    for row in recalls:
        facts[f"{label}: controls, {row.kind}"] = float(row.planted)
        for other, share in row.shares.items():
            kind = "recall" if row.expected else "false matches"
            used = ", used" if other == mode else ""
            facts[f"{label}: {kind} ({other}{used}), {row.kind}"] = share
    return [AuditFact(name=name, value=value) for name, value in facts.items()]
