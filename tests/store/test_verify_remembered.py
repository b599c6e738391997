"""The digest of a large file is remembered in the store until the file changes; a damaged memory is no memory."""

import json
import time
from pathlib import Path

import pytest
from care_tools import WEIGHTS, artifact_of, copy_run, flip
from fault_tools import own_copy
from launcher import Finished, Launcher, SmallRun

from infuser_core.store.verify import REMEMBERED
from infuser_core.system import sealed


@pytest.fixture(scope="module")
def store(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose last checkpoint was read once, some time after it was written."""
    store = copy_run(small_run, tmp_path_factory.mktemp("remembered") / "store")
    # Another test's hard link would change an inode.
    own_copy(weights(store).parent, WEIGHTS)
    time.sleep(2.1)
    assert export(launch, store).code == 0
    return store


def export(launch: Launcher, store: Path, *options: str) -> Finished:
    out = store.with_name(f"out-{time.monotonic_ns()}")
    return launch(*options, "export", "small", "--iteration", "2", "--out", str(out), store=store)


def weights(store: Path) -> Path:
    return artifact_of(store, "small", "update_solver", 1) / WEIGHTS


def remembered(store: Path) -> list[object]:
    """Facts of the weights: the other files share their bytes with stores of other tests, which change their times."""
    return sealed.read(store / REMEMBERED)["files"][weights(store).relative_to(store).as_posix()]


def test_large_files_alone_are_remembered(store: Path):
    files = json.loads((store / REMEMBERED).read_text())["files"]
    assert weights(store).relative_to(store).as_posix() in files
    assert min((store / name).stat().st_size for name in files) >= 1 << 20


def test_damage_to_the_memory_changes_no_answer(launch: Launcher, store: Path):
    text, facts = (store / REMEMBERED).read_text(), remembered(store)
    for damaged in ("", "{", "[]", text.replace('"seal": "', '"seal": "0')):
        (store / REMEMBERED).write_text(damaged)
        assert export(launch, store).code == 0
        assert remembered(store) == facts


def test_a_changed_file_is_read_again_although_it_was_remembered(launch: Launcher, store: Path):
    path = weights(store)
    flip(path.parent, WEIGHTS)
    ended = export(launch, store)
    assert ended.code == 3 and str(path) in ended.err
    # A memory that says otherwise is believed: that is how one knows that it is used, and what it may not do.
    found, facts = path.stat(), json.loads((store / REMEMBERED).read_text())["files"]
    place = path.relative_to(store).as_posix()
    facts[place][:4] = [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    sealed.write(store / REMEMBERED, {"files": facts})
    assert export(launch, store).code == 0
    assert launch("doctor", store=store).code == 3


def test_whoever_trusts_a_store_gets_what_is_there(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    store = copy_run(small_run, tmp_path / "store")
    flip(weights(store).parent, WEIGHTS)
    assert export(launch, store).code == 3
    assert export(launch, store, "--trust").code == 0
    refused = launch("--trust", "resume", "small", store=store)
    assert refused.code == 2 and "--trust is for sql" in refused.err
