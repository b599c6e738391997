"""A corpus built over two Ray nodes, one of them killed: its rows are those of plain processes."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from corpus_books import BookPlan, write_book
from corpus_rows import document, writer
from launcher import Launcher, Started
from places import ROOT
from ray_nodes import Nodes
from reportlab.pdfgen.canvas import Canvas
from test_distributed_cluster import WORKER, running
from test_distributed_run import until
from test_worker_pool import ITEMS, task

from corpus.chunk.judge import judge_by_rules, rule_on
from corpus.pool import read_sources
from infuser_core.engines.cluster.machines import RayCluster
from infuser_core.engines.cluster.ray_pool import RayPool
from infuser_core.errors import KilledProcessError
from infuser_core.system.worker_pool import WorkerPool

pytestmark = pytest.mark.distributed

BUSY = "from infuser_core.system.worker_pool import serve"
TABLES = ("documents.parquet", "discarded.parquet", "sources.parquet", "overlaps.parquet")
MARKER = f"""#!{sys.executable}
import pathlib, sys
(pathlib.Path(sys.argv[3]) / "x.md").write_text("# Seen" + chr(10) * 2 + "word " * 300)
"""
SHARD_BYTES = 17 << 20
"""Two such shards are worth handing over."""


@pytest.fixture
def pool(nodes: Nodes) -> Iterator[WorkerPool]:
    """Workers of the nodes, whose Ray this process uses until the test ends.

    This file is the first one of the distributed tests by name: ranks of other files keep a Ray in their process,
    which would be used instead of the nodes, and which the shutdown here would end for them.
    """
    found = RayPool(RayCluster(address=nodes.address))
    yield found
    found.close()
    ray.shutdown()


def written(folder: Path) -> None:
    """Books with text layers, a scan that marker reads, and data of which one record is a book's own paragraph."""
    books = folder / "books"
    books.mkdir()
    for number in range(6):
        write_book(books / f"book-{number}.pdf", BookPlan(chapters=2 + number, seed=number))
    canvas = Canvas(str(books / "scan.pdf"))
    canvas.rect(100, 100, 200, 200, fill=1)
    canvas.save()
    (folder / "marker_single").write_text(MARKER)
    (folder / "marker_single").chmod(0o755)
    (folder / "data").mkdir()
    prose = writer(5)
    filling = "".join(json.dumps({"text": prose(2000)}) + "\n" for _ in range(100))
    for number in range(2):
        own = json.dumps({"text": "word " * 60}) + "\n"
        (folder / f"data/{number}.jsonl").write_text(own + filling * (1 + SHARD_BYTES // len(filling)))


def build(launch: Launcher, folder: Path, name: str, address: str = "") -> Started:
    cluster = {"cluster": {"address": address}} if address else {}
    settings = {"corpus": {"overlap": {"references": ["data"], "reference_matched": "report"}}, **cluster}
    (folder / f"{name}.yaml").write_text(json.dumps(settings))
    configs = ["--config", str(ROOT / "configs/nano.yaml"), "--config", f"{name}.yaml"]
    words = ["corpus", "build", "--source", "books", "--out", name, "--judge", "rules", *configs]
    own = {"INFUSER_MARKER": str(folder / "marker_single"), "PYTHONPATH": str(ROOT)}
    return launch.start(*words, store=folder / f"store-{name}", folder=folder, **own)


def test_chunks_are_judged_on_all_nodes_and_a_deadly_item_is_named(pool: WorkerPool, tmp_path: Path) -> None:
    prose = writer(3)
    chunks = [document(f"d{number}", prose(20)) for number in range(3000)]
    assert pool.size == 4
    assert judge_by_rules(chunks, pool) == rule_on(chunks)
    (tmp_path / "7").touch()
    assert dict(pool.each(task(tmp_path), ITEMS)) == {place: place * place for place in ITEMS}
    (tmp_path / "5").write_text("always")
    with pytest.raises(KilledProcessError, match="squaring: 5 lost its worker: "):
        list(pool.each(task(tmp_path), ITEMS))


def evaluate(launch: Launcher, folder: Path, name: str, address: str = "") -> Started:
    """Eight questions to a nano model."""
    cluster = {"cluster": {"address": address}} if address else {}
    (folder / f"{name}.yaml").write_text(json.dumps(cluster))
    words = ["eval", "--model", "nano", "--benchmarks", "nano_target", "--limit", "8", "--json", "--config"]
    store = folder / f"store-{name}"
    return launch.start(*words, f"{name}.yaml", store=store, folder=folder, PYTHONPATH=str(ROOT))


def test_an_evaluation_samples_on_the_cluster_and_scores_the_same(
    nodes: Nodes, launch: Launcher, tmp_path: Path
) -> None:
    spread = evaluate(launch, tmp_path, "spread", nodes.address)
    until(spread, lambda: any(running(WORKER, node) for node in nodes.raylets()))
    alone = evaluate(launch, tmp_path, "alone")
    ended = [each.wait() for each in (spread, alone)]
    assert [each.code for each in ended] == [0, 0], ended
    assert json.loads(ended[0].out) == json.loads(ended[1].out)


def test_a_node_dies_while_books_are_converted_and_the_pool_is_the_same(
    nodes: Nodes, launch: Launcher, tmp_path: Path
) -> None:
    written(tmp_path)
    spread = build(launch, tmp_path, "spread", nodes.address)
    killed = nodes.raylets()[1]
    busy = until(spread, lambda: running(BUSY, killed))
    # Stopped first, so that no item can end before its node does.
    for pid in busy:
        os.kill(pid, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    alone = build(launch, tmp_path, "alone")
    ended = [each.wait() for each in (spread, alone)]
    assert [each.code for each in ended] == [0, 0], ended
    for table in TABLES:
        assert (tmp_path / "spread" / table).read_bytes() == (tmp_path / "alone" / table).read_bytes(), table
    chosen = {row.title: row.chosen for row in read_sources(tmp_path / "spread")}
    assert len(chosen) == 7 and sum(text.startswith("marker: ") for text in chosen.values()) == 1
