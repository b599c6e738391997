"""Overlap audit measured: signatures beside datasketch's, shards on disk by every mode, a kill, recall of what was planted.

    .venv/bin/python tests/bench/corpus_audit.py                                    # small shards
    .venv/bin/python tests/bench/corpus_audit.py --records 143000 --chunks 12260    # a whole shard of the paper's data
    .venv/bin/python tests/bench/corpus_audit.py --pool POOL --negatives BOOK.tex...    # false matches beside a real pool

Shards of synthetic conversations are compared with synthetic chunks by the audit as a user runs it: a process of its
own, whose memory and that of its workers is watched and limited. What 2,152,112 records in 15 shards need follows from
that. Rates are processor seconds of one core. Ends with 1 where a bound is missed.
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus_synthetic import Prose, chunks, write_pool, write_shard
from datasketch import MinHash
from measure import Row, shown

from corpus.audit import audit, shingles
from corpus.audit.audit import SUMMARY, audit_pool
from corpus.audit.index import SHARED, Matcher
from corpus.audit.ngrams import grams, words
from corpus.audit.scan import PoolText, pool_texts
from corpus.audit.shingles import signatures
from corpus.pool import DOCUMENTS
from infuser_core.config.corpus import OverlapSettings
from infuser_core.system import child
from infuser_core.system.child import kill_group

RECORDS, SHARDS = 2_152_112, 15
RATE, RATIO, MEGABYTES = 15_000, 8, 4_000
WALL_SECONDS = 3600.0
NEGATIVES, PASSAGE = 1_000, 2_000
"""Records that quote nothing, and their least length, characters."""
CHANGED = ("one word in ten changed", "paraphrased by rules")
"""Kinds of plants that may leave no 13 words together."""
CONTROLS = 200
"""Planted pairs of each kind in a real pool: one miss in twenty says nothing about a bound of .98."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    records: int = 8_000
    """Records of each shard."""
    shards: int = 2
    """Shards of the scan that is killed after the first and resumed."""
    chars: int = 3_000
    """Mean length of a record, characters."""
    chunks: int = 6_000
    """Chunks of the pool; the paper has 12,260."""
    modes: tuple[str, ...] = ("exact", "paper")
    """Modes that scan a shard."""
    workers: int = 1
    """Processes of a scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One audit in a process of its own."""

    wall: float
    """Seconds."""
    cpu: float
    """Processor seconds of all its processes."""
    scan: float
    """Those between the end of its first batch and its last word of progress, one of which follows each batch."""
    reports: int
    """Words of progress: one for each batch, and one at the end."""
    peak: int
    """Largest resident memory of all its processes together, bytes; pages that they share count for each."""


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Least processor time of some attempts: other work on the machine counts less."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def signature_rows(texts: list[str], few: int) -> Iterator[Row]:
    """Equality with datasketch and the ratio of times from text to signature."""

    def theirs(text: str, **options: object) -> np.ndarray:
        made = MinHash(num_perm=128, seed=1, **options)
        made.update_batch([gram.encode() for gram in set(grams(words(text), 13))])
        return made.hashvalues

    ours = signatures(texts[:few], 13)
    equal = [np.array_equal(theirs(t, hashfunc=shingles.hash32), v) for t, v in zip(texts[:20], ours[:20], strict=True)]
    fast = seconds(lambda: signatures(texts, 13), 3) / len(texts)
    plain = seconds(lambda: [theirs(text) for text in texts[:few]], 3) / few
    legacy = seconds(lambda: [theirs(text, scheme="legacy") for text in texts[:few]], 1) / few
    yield Row(
        name="signatures equal to datasketch's", value=sum(equal) / len(equal), unit="share of texts", target=">= 1"
    )
    yield Row(
        name="signatures, text to signature, beside datasketch",
        value=plain / fast,
        unit="times",
        target=f">= {RATIO}",
        detail=f"{1 / fast:,.0f} texts/s, datasketch {1 / plain:,.0f}; its scheme of 1.x {1 / legacy:,.0f}",
    )


def memory_row(pool: list[str], texts: list[str]) -> Row:
    """The exact scan without reading: records that are in memory already."""
    begin = time.process_time()
    matcher = Matcher(pool, OverlapSettings().with_defaults())
    build = time.process_time() - begin
    rate = len(texts) / seconds(lambda: list(matcher.pairs(texts)), 3)
    mean = sum(map(len, texts)) / len(texts)
    return Row(
        name="exact audit, records in memory",
        value=rate,
        unit="records/s/core",
        target=f">= {RATE}",
        detail=f"{mean:,.0f} characters each, {rate * mean / 1e6:.0f} MB/s; index of {len(pool):,} chunks {build:.1f} s",
    )


def run_audit(pool: Path, reference: Path, mode: str, out: Path, workers: int) -> Ran:
    """The audit of a folder in a process group that may take 4 GB, measured."""
    arguments = [sys.executable, __file__, "--audit", str(pool), str(reference), mode, str(out), str(workers)]
    before, start = _children(), time.monotonic()
    ended = child.run(arguments, wall_seconds=WALL_SECONDS, resident_bytes=MEGABYTES * 10**6)
    if ended.fault or ended.status:
        raise SystemExit(f"audit in mode {mode}: {ended.fault or ended.tail}")
    told = json.loads(ended.tail)
    return Ran(wall=time.monotonic() - start, cpu=_children() - before, peak=ended.peak_bytes, **told)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def audit_here(pool: Path, reference: Path, mode: str, out: Path, workers: int) -> None:
    """Run inside that process: the audit, and when it spoke of progress."""
    times: list[float] = []
    audit_pool(pool, [reference], mode, out, workers=workers, progress=lambda *_: times.append(time.process_time()))
    # The first word comes before the pool is indexed.
    times = times[1:]
    print(json.dumps({"scan": times[-1] - times[0], "reports": len(times)}))


def shard_rows(folder: Path, plan: Plan, mode: str, planted: Sequence[int]) -> Iterator[Row]:
    """One whole shard, from parquet to the report."""
    out = folder / f"out-{mode}"
    ran = run_audit(folder / "pool", folder / "one", mode, out, plan.workers)
    summary = json.loads((out / SUMMARY).read_text())
    label = f"{mode}: {plan.records:,} records from parquet against {plan.chunks:,} chunks"
    if plan.workers == 1 and ran.reports > 2:
        # The first report comes when the first batch is done, the last two when the last is.
        scan = ran.scan * (ran.reports - 1) / (ran.reports - 2)
        minutes = (scan * RECORDS / plan.records + ran.cpu - scan) / 60
        detail = f"{ran.cpu - scan:.0f} s more to read and index the pool and to search for controls; "
        detail += f"{RECORDS:,} records in {SHARDS} shards: {minutes:.1f} minutes of one core by extrapolation"
        yield Row(name=f"{label}: scan", value=plan.records / scan, unit="records/s/core", detail=detail)
    detail = f"{ran.cpu:.0f} processor seconds with {plan.workers} scanning process(es)"
    yield Row(name=f"{label}: time of everything", value=ran.wall, unit="s", detail=detail)
    yield Row(name=f"{label}: peak memory", value=ran.peak / 1e6, unit="MB", target=f"<= {MEGABYTES}")
    # A chunk behind a long record is what the paper's direction cannot see.
    share = summary["matched_records"] / len(planted)
    target = ">= 1" if mode == "exact" else ""
    yield Row(name=f"{label}: records that quote a whole chunk found", value=share, unit="share", target=target)


def kill_row(folder: Path, plan: Plan) -> Row:
    """An audit killed in the middle of a shard: finished shards stay, the result is that of an audit left alone."""
    whole, out = folder / "out-whole", folder / "out-killed"
    alone = run_audit(folder / "pool", folder / "all", "exact", whole, plan.workers)
    arguments = [sys.executable, __file__, "--audit"]
    arguments += [str(folder / "pool"), str(folder / "all"), "exact", str(out), str(plan.workers)]
    process = subprocess.Popen(arguments, start_new_session=True, stdout=subprocess.DEVNULL)
    while process.poll() is None and len(_kept(out)) < plan.shards // 2:
        time.sleep(0.02)
    time.sleep(min(1.0, alone.wall / plan.shards / 4))
    ended = process.poll()
    kill_group(process)
    stamps = {path: path.stat().st_mtime_ns for path in _kept(out)}
    again = run_audit(folder / "pool", folder / "all", "exact", out, plan.workers)
    same = [(out / name).read_bytes() == (whole / name).read_bytes() for name in ("overlaps.parquet", "report.md")]
    kept = sum(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    fine = ended is None and all(same) and 0 < kept == len(stamps) < plan.shards
    return Row(
        name="exact audit killed (SIGKILL) in the middle of a shard and started again",
        value=float(fine),
        unit="same result, nothing repeated",
        target=">= 1",
        detail=f"{kept} of {plan.shards} shards of {plan.records:,} records were finished; {again.cpu:.0f} processor "
        f"seconds afterwards, {alone.cpu:.0f} for all at once",
    )


def _kept(out: Path) -> list[Path]:
    return sorted((out / ".work").rglob("*.json"))


def recall_rows(pool: Sequence[str]) -> Iterator[Row]:
    """Every kind of control by every mode, one line each."""
    documents = [PoolText(document_id=str(number), text=text) for number, text in enumerate(pool)]
    for row in audit.measure_recall(documents, OverlapSettings().with_defaults()):
        found = ", ".join(f"{mode} {row.shares[mode]:.2f}" for mode in audit.MODES)
        label = "13 words reported" if row.expected else "false matches"
        yield Row(
            name=f"planted: {row.kind}: {label}",
            value=row.shares[SHARED],
            unit="share",
            target="<= 0" if not row.expected else "" if row.kind in CHANGED else ">= 0.98",
            detail=f"matched: {found}; {row.planted} pairs",
        )


def negative_rows(pool: Path, files: Sequence[Path]) -> Iterator[Row]:
    """Passages of other books beside a real pool, none of which quotes it: false matches, and common passages."""
    documents = pool_texts(pool)
    passages = [part for file in files for part in _passages(file.read_text(encoding="utf-8", errors="replace"))]
    records = random.Random(7).sample(passages, min(NEGATIVES, len(passages)))
    matcher = Matcher([row.text for row in documents], OverlapSettings().with_defaults())
    pairs = list(matcher.pairs(records, every=True))
    wrong = {pair.scanned for pair in pairs if pair.rule}
    told = ", ".join(repr(" ".join(records[number][:60].split())) for number in sorted(wrong)[:5])
    longest = max((pair.shared.run.length for pair in pairs), default=0)
    detail = (
        f"{len(records)} records beside {len(documents)} chunks; {len({p.scanned for p in pairs})} share 13 words, "
    )
    yield Row(
        name="false matches",
        value=len(wrong),
        unit="records",
        target="<= 0",
        detail=f"{detail}{longest} at most {told}",
    )
    for row in audit.measure_recall(documents, OverlapSettings().with_defaults(), per_kind=CONTROLS):
        name = f"real pool, planted: {row.kind}: {'13 words reported' if row.expected else 'false matches'}"
        matched = f"{row.shares['exact']:.2f} matched by exact; {row.planted} pairs"
        yield Row(name=name, value=row.shares[SHARED], unit="share", detail=matched)


def _passages(text: str) -> Iterator[str]:
    """Neighbouring paragraphs of about 2,000 characters."""
    part = ""
    for paragraph in text.split("\n\n"):
        part += f"{paragraph}\n\n"
        if len(part) >= PASSAGE:
            yield part
            part = ""


def rows(plan: Plan, progress: Callable[[str], None]) -> Iterator[Row]:
    """Everything."""
    prose = Prose(5)
    pool = chunks(prose, plan.chunks)
    progress("signatures")
    texts = list(prose.texts(prose.lengths(8_000, plan.chars)))
    yield from signature_rows(texts[:1000], 150)
    progress("records in memory")
    yield memory_row(pool, texts)
    del texts
    with tempfile.TemporaryDirectory(prefix="infuser-bench-") as place:
        folder = Path(place)
        write_pool(folder / "pool" / DOCUMENTS, pool)
        progress(f"{plan.shards} shards of {plan.records:,} records")
        planted: list[int] = []
        for number in range(plan.shards):
            name = f"train-{number:05}-of-{SHARDS:05}.parquet"
            planted = write_shard(folder / "all" / name, prose, pool, records=plan.records, chars=plan.chars)
        (folder / "one").mkdir()
        shutil.copy(folder / "all" / name, folder / "one" / name)
        for mode in plan.modes:
            progress(f"one shard, {mode}")
            yield from shard_rows(folder, plan, mode, planted)
        progress("kill")
        yield kill_row(folder, plan)
    progress("controls")
    yield from recall_rows(pool)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    usual = Plan()
    parser.add_argument("--records", type=int, default=usual.records, help="records of each measured shard")
    parser.add_argument("--shards", type=int, default=usual.shards, help="shards of the audit that is killed")
    parser.add_argument("--chars", type=int, default=usual.chars, help="mean length of a record, characters")
    parser.add_argument("--chunks", type=int, default=usual.chunks, help="chunks of the pool")
    parser.add_argument("--modes", default=",".join(usual.modes), help="modes that scan a shard")
    parser.add_argument("--workers", type=int, default=usual.workers, help="processes of a scan")


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan that the options describe."""
    names = ("records", "shards", "chars", "chunks", "workers")
    return Plan(modes=tuple(given.modes.split(",")), **{name: getattr(given, name) for name in names})


def said(what: str) -> None:
    """Progress for people."""
    print(f"audit: {what} ...", file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    """Make the data, measure, compare with the bounds; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each measure instead of a table")
    parser.add_argument("--pool", type=Path, help="a real pool: false matches and planted passages in it, nothing else")
    parser.add_argument("--negatives", nargs="*", type=Path, default=[], help="texts that do not quote that pool")
    parser.add_argument("--audit", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.pool:
        return shown(negative_rows(given.pool, given.negatives), as_json=given.json)
    if given.audit:
        pool, reference, mode, out, workers = given.audit
        audit_here(Path(pool), Path(reference), mode, Path(out), int(workers))
        return 0
    return shown(rows(plan_of(given), said), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
