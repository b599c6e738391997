"""Conversion, chunking, judging and audit on the workers of a Ray, one of which dies: the rows of one machine."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from corpus_books import BookPlan, write_book
from corpus_rows import writer
from test_distributed_ranks import descendants

from corpus.audit.audit import scan_shards
from corpus.audit.references import shards_of
from corpus.audit.scan import PoolText, Scanner
from corpus.chunk.cut import LEAST_CHARS, ConvertedBook, cut_books
from corpus.chunk.judge import RULED_TOGETHER, judge_by_rules
from corpus.chunk.split import by_rule
from corpus.read.convert import SourceFile, convert
from corpus.read.page import ConversionJob
from infuser_core.config.corpus import ChunkSettings, CorpusSettings, OverlapSettings
from infuser_core.engines.cluster.machines import RayCluster, connected
from infuser_core.engines.cluster.ray_pool import RayPool
from infuser_core.schemas import Document, Judgement, Overlap, Page
from infuser_core.store.tables import write_rows
from infuser_core.system.sealed import digest_of_file
from infuser_core.system.worker_pool import LocalPool, WorkerPool

TABLES = ("Page", "Document", "Judgement", "Overlap")


@pytest.fixture
def ray_workers() -> Iterator[WorkerPool]:
    """Two workers of a Ray that this process starts."""
    ray = connected(None, cores=2)
    workers = RayPool(RayCluster(address="auto"))
    yield workers
    workers.close()
    ray.shutdown()


def busy_workers() -> set[int]:
    """Processes that serve a pool."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid())}
    return {pid for pid, command in commands.items() if b"worker_pool import serve" in command}


def write_tables(folder: Path, books: Sequence[Path], workers: WorkerPool, *, kill: bool) -> None:
    """Do the four stages and write their tables; with `kill`, end all workers at the first book and the first shard."""
    folder.mkdir()
    pages: dict[str, Page] = {}
    killed: dict[str, set[int]] = {}
    looks: list[tuple[int, ...]] = []

    def end_workers(stage: str) -> None:
        if kill and stage not in killed:
            killed[stage] = busy_workers()
            assert len(killed[stage]) >= 2
            for pid in killed[stage]:
                os.kill(pid, signal.SIGKILL)

    def keep(page: Page) -> None:
        pages[page.source_id] = page
        end_workers("convert")

    def watch(*counts: int) -> None:
        looks.append(counts)
        # The first look is before the first shard.
        if len(looks) == 2:
            end_workers("audit")

    convert([SourceFile(path=path, source_id=path.stem) for path in books], ConversionJob(), workers, keep)
    converted = [ConvertedBook(page=pages[path.stem], domain="") for path in books]
    settings = CorpusSettings(chunk=ChunkSettings(min_tokens=20, max_tokens=120))
    cut = dict(cut_books(converted, settings, by_rule, workers))
    chunks = [row for place in range(len(books)) for row in cut[place].candidates]
    # Otherwise these stages would need no worker.
    assert sum(len(page.markdown) for page in pages.values()) >= LEAST_CHARS and len(chunks) > RULED_TOGETHER
    shards = shards_of([books[0].parent / "data"])
    scanner = Scanner(
        [PoolText(document_id=row.document_id, text=row.text) for row in chunks], OverlapSettings().with_defaults()
    )
    digests = [digest_of_file(shard.path) for shard in shards]
    scans = scan_shards(scanner, shards, digests, folder, workers=workers, progress=watch)
    write_rows(folder / "Page", [book.page for book in converted], Page)
    write_rows(folder / "Document", chunks, Document)
    write_rows(folder / "Judgement", judge_by_rules(chunks, workers), Judgement)
    write_rows(folder / "Overlap", [row for scan in scans for row in scan.findings], Overlap)
    assert not kill or (len(killed) == 2 and not killed["convert"] & killed["audit"])


@pytest.mark.long
def test_rows_of_a_cluster_whose_workers_die_are_those_of_one_machine(tmp_path: Path, ray_workers: WorkerPool):
    books = [tmp_path / f"book-{number}.pdf" for number in range(5)]
    for number, path in enumerate(books):
        write_book(path, BookPlan(chapters=4, seed=number))
    (tmp_path / "data").mkdir()
    prose = writer(3)
    for number in range(6):
        records = [json.dumps({"text": prose(100)}) for _ in range(200)]
        (tmp_path / f"data/{number}.jsonl").write_text("\n".join(records))
    assert ray_workers.size == 2
    write_tables(tmp_path / "alone", books, LocalPool(1), kill=False)
    write_tables(tmp_path / "cluster", books, ray_workers, kill=True)
    for name in TABLES:
        assert (tmp_path / "cluster" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name
