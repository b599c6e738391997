"""The contamination audit of a document pool against reference data of any size, with recall on planted controls."""

import multiprocessing
import random
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, cast

from corpus.audit import scan as shardscan
from corpus.audit.index import Matcher, short_pairs
from corpus.audit.minhash import NAME, PaperMatcher
from corpus.audit.ngrams import words
from corpus.audit.overlap import Mode, OverlapConfig, config_of
from corpus.audit.planted_controls import Plant, plant
from corpus.audit.references import Shard, shards_of
from corpus.audit.scan import Finding, PoolText, Scan, Scanner
from corpus.pool import WORK, write_json, write_table
from infuser_core import durable, faults
from infuser_core.engines.protocols import Progress, no_progress
from infuser_core.seeding import seed_of
from infuser_core.store.recipe import digest_of

DOCUMENTS = 400
"""Documents that controls are planted from and searched in: recall does not depend on how many there are."""
MODES: tuple[Mode, ...] = ("exact", "paper", "loose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """One kind of control."""

    kind: str
    """What was planted."""
    planted: int
    """How many."""
    expected: bool
    """Whether they should be found."""
    found: dict[Mode, float]
    """Share found, by mode."""


def measure(documents: Sequence[PoolText], config: OverlapConfig) -> list[Recall]:
    """The share of planted records that each mode finds, the audit's own with its settings."""
    draw = random.Random(seed_of(config.seed, "overlap-documents"))
    texts = [row.text for row in draw.sample(list(documents), min(DOCUMENTS, len(documents)))]
    plants = plant(
        texts,
        chars=config.control_chars,
        per_kind=config.controls_per_kind,
        answer_words=config.control_answer_words,
        seed=config.seed,
    )
    hits = {mode: _found(texts, plants, config if mode == config.mode else config_of(mode)) for mode in MODES}
    rows = []
    for kind in dict.fromkeys(row.kind for row in plants):
        places = [place for place, row in enumerate(plants) if row.kind == kind]
        found = {mode: sum(place in hits[mode] for place in places) / len(places) for mode in MODES}
        rows.append(Recall(kind=kind, planted=len(places), expected=plants[places[0]].expected, found=found))
    return rows


def _found(texts: Sequence[str], plants: Sequence[Plant], config: OverlapConfig) -> set[int]:
    """Numbers of the plants that are matched with the document that they come from; for others, with any."""
    matcher: Matcher | PaperMatcher = (
        PaperMatcher(texts, config.rule, min_chars=config.paper_min_chars)
        if config.mode == "paper"
        else Matcher(texts, config.rule)
    )
    pairs = [pair for pair in matcher.pairs([row.record for row in plants]) if pair.rule]
    if config.mode != "paper":
        short = [place for place, row in enumerate(plants) if len(words(row.record)) < config.n]
        found = short_pairs(texts, [plants[place].record for place in short], config.rule)
        pairs += [replace(pair, scanned=short[pair.scanned]) for pair in found]
    return {p.scanned for p in pairs if p.item == plants[p.scanned].document or not plants[p.scanned].expected}


VERSION = 1
FINDINGS, SUMMARY, REPORT = "overlaps.parquet", "summary.json", "report.md"
_POLL_SECONDS = 0.5
_COUNTS = ("read", "texts", "empty", "short", "tiny", "sharing")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAudit:
    """The result."""

    mode: str
    """exact, paper or loose."""
    findings: list[Finding]
    """Matching pairs, and the closest of those that do not match."""
    shards: list[dict[str, Any]]
    """Per shard its name, digest and counts."""
    recalls: list[Recall]
    """Per kind of planted control, the share found by each mode."""
    counts: dict[str, int]
    """Totals."""


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
    config = config_of(cast(Any, mode))
    scanner = Scanner.of_pool(pool, config)
    shards = shards_of(references)
    base = digest_of([VERSION, NAME, scanner.digest, config_values(config)])
    work = out / WORK / "audit" / base[:16]
    work.mkdir(parents=True, exist_ok=True)
    found = scans(scanner, shards, work, workers, progress)
    recalls = measure(scanner.documents, config)
    findings = [row for scan in found for row in scan.findings]
    result = PoolAudit(
        mode=mode,
        findings=findings,
        shards=[{"shard": shard.name, **scan.counts} for shard, scan in zip(shards, found, strict=True)],
        recalls=recalls,
        counts=_totals(scanner, found, findings),
    )
    write_table(out / FINDINGS, findings, Finding)
    write_json(out / SUMMARY, as_json(result))
    durable.write(out / REPORT, _report(result, references).encode("utf-8", "replace"))
    return result


def config_values(config: OverlapConfig) -> dict[str, Any]:
    """What a scan depends on."""
    names = ("mode", "n", "containment", "run_words", "min_words", "paper_min_chars")
    return {name: getattr(config, name) for name in names}


def scans(
    scanner: Scanner, shards: Sequence[Shard], work: Path, workers: int, progress: Progress, *, least: int = 0
) -> list[Scan]:
    """One scan per shard, from the work folder where it was finished before.

    In processes where several shards are ahead, of more than `least` bytes together.
    """
    keys = {shard: work / f"{digest_of([shard.name, shard.digest()])[:32]}.json" for shard in shards}
    ahead = [shard for shard in shards if not keys[shard].is_file()]
    total = sum(shard.num_bytes for shard in shards)
    before = total - sum(shard.num_bytes for shard in ahead)

    def shown(done: int) -> None:
        progress((before + done) >> 20, max(total >> 20, 1), 0)

    shown(0)
    if min(workers, len(ahead)) > 1 and total - before > least:
        _in_processes(scanner, ahead, keys, min(workers, len(ahead)), shown)
    else:
        _in_turn(scanner, ahead, keys, shown)
    return [Scan.from_file(keys[shard]) for shard in shards]


def _in_turn(scanner: Scanner, ahead: Sequence[Shard], keys: dict[Shard, Path], shown: Callable[[int], None]) -> None:
    done = 0
    for shard in ahead:
        before = done

        def told(size: int, before: int = before) -> None:
            shown(before + size)

        write_json(keys[shard], scanner.scan(shard, told).as_json())
        faults.point("audit:shard")
        done += shard.num_bytes


def _in_processes(
    scanner: Scanner, ahead: Sequence[Shard], keys: dict[Shard, Path], workers: int, shown: Callable[[int], None]
) -> None:
    context = multiprocessing.get_context("spawn")
    done: Synchronized[int] = context.Value("q", 0)
    with scanner.on_disk() as folder:
        arguments = (str(scanner.pool), scanner.config, str(folder), done)
        with ProcessPoolExecutor(workers, context, initializer=shardscan.enter, initargs=arguments) as processes:
            running = {processes.submit(shardscan.scan_to, shard, keys[shard]) for shard in ahead}
            try:
                while running:
                    finished, running = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                    for future in finished:
                        future.result()
                    shown(done.value)
            finally:
                processes.shutdown(cancel_futures=True)


def _totals(scanner: Scanner, scans: Sequence[Scan], findings: Sequence[Finding]) -> dict[str, int]:
    counts = {name: sum(scan.counts[name] for scan in scans) for name in _COUNTS}
    matched = [row for row in findings if row.matched]
    return {
        "documents": len(scanner.documents),
        **counts,
        "matches": len(matched),
        "matched_documents": len({row.document_id for row in matched}),
        "matched_records": len({(row.shard, row.record) for row in matched}),
    }


def as_json(result: PoolAudit) -> dict[str, Any]:
    """The summary as JSON values."""
    return {
        "mode": result.mode,
        **result.counts,
        "controls": [
            {"kind": row.kind, "planted": row.planted, "expected": row.expected, **row.found} for row in result.recalls
        ],
        "shards": result.shards,
    }


def terminal(result: PoolAudit, out: Path) -> str:
    """A few lines for people."""
    counts = result.counts
    lines = [
        f"{counts['matches']} matches in {counts['matched_documents']} of {counts['documents']} documents and "
        f"{counts['matched_records']} of {counts['read']} records ({result.mode})",
        *_recall_table(result),
        f"written: {out / FINDINGS}, {out / REPORT}",
    ]
    return "\n".join(lines)


def _recall_table(result: PoolAudit) -> list[str]:
    modes = list(result.recalls[0].found) if result.recalls else []
    lines = [
        f"| planted | pairs | {' | '.join(f'found by {mode}' for mode in modes)} |",
        "|---" * (len(modes) + 2) + "|",
    ]
    for row in result.recalls:
        label = row.kind if row.expected else f"{row.kind} (should not be found)"
        lines.append(f"| {label} | {row.planted} | {' | '.join(f'{row.found[mode]:.2f}' for mode in modes)} |")
    return lines if result.recalls else ["no controls: the pool has no text long enough"]


def _report(result: PoolAudit, references: Sequence[Path]) -> str:
    counts = "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in result.counts.items())
    matched = sorted((row for row in result.findings if row.matched), key=lambda row: -row.longest_run)
    rows = "\n".join(
        f"| {row.document_id} | {row.shard} | {row.record} | {row.containment_document:.2f} | "
        f"{row.containment_reference:.2f} | {row.longest_run} | {row.rule} |"
        for row in matched[:50]
    )
    head = "| document | shard | record | document in record | record in document | longest run | rule |\n" + "|---" * 7
    shards = "\n".join(f"| {s['shard']} | {s['read']} | {s['texts']} | {s['short']} |" for s in result.shards)
    return "\n\n".join(
        [
            f"# Overlap audit ({result.mode})",
            "Compared with " + ", ".join(path.name for path in references) + ".",
            f"| | |\n|---|---|\n{counts}",
            "## Planted controls",
            "\n".join(_recall_table(result)),
            "## Matches",
            f"{head}|\n{rows}" if matched else "none",
            "## Shards",
            f"| shard | records | texts | short |\n|---|---|---|---|\n{shards}\n",
        ]
    )
