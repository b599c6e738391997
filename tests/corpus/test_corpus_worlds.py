"""Micro-worlds print other books under the same names: in one store each keeps its own."""

from pathlib import Path

from launcher import Launcher, SmallRun, copy_store

from infuser_core.store.store import Store
from infuser_core.store.views import Lens


def digests(store: Path, run: str) -> dict[str, str]:
    lens = Lens(Store(store), runs=[run])
    rows = lens.query("select source_id, sha256 from sources where phase = 'sources' and status = 'admitted'")
    lens.close()
    return {row["source_id"]: row["sha256"] for row in rows}


def test_worlds_and_shelves_do_not_share_books(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_store(small_run.root, tmp_path / "store", without=("download", "sources"))
    kinds = {
        "basic": ["configs/nano.yaml"],
        "hard": ["configs/nano-hard.yaml"],
        "shelf": ["configs/nano-hard.yaml", "--set", "corpus.catalogue.shelf=by_domain"],
    }
    for name, arguments in kinds.items():
        ended = launch("run", *arguments, "--until", "sources", "--name", name, store=store)
        assert ended.code == 0, ended.err
    books = {name: digests(store, name) for name in kinds}
    assert len({frozenset(each) for each in books.values()}) == 1, "the names are the same"
    assert len({digest for each in books.values() for digest in each.values()}) == 12
