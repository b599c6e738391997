"""The same settings give the same bits: in another store, from another folder, beside another process."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from launcher import ROOT, Launcher, SmallRun

from infuser_core.runs import Journal


def digests(launch: Launcher, root: Path, name: str) -> list[str]:
    ended = launch("digest", name, store=root)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


@pytest.mark.slow
def test_two_runs_side_by_side_in_one_store_give_the_digests_of_runs_alone(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = tmp_path / "store"
    together = [launch.start(*arguments, store=store) for arguments in (small_run.arguments, small_run.fixed_arguments)]
    for started in together:
        ended = started.wait()
        assert ended.code == 0, ended.err
    for name in (small_run.name, small_run.fixed):
        assert digests(launch, store, name) == digests(launch, small_run.root, name)

    # What both need was computed by one of them, and only once.
    shared = ("taxonomy", "textbooks", "search", "download", "convert", "chunk", "judge", "audit", "pool", "anchor")
    entries = [entry for name in (small_run.name, small_run.fixed) for entry in Journal(store, name).entries()]
    for phase in shared:
        states = [entry.state for entry in entries if entry.phase == phase]
        assert sorted(states) == ["cached", "ran"], phase


@pytest.mark.slow
def test_neither_place_nor_working_folder_enters_a_digest(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    """Another store, another folder to stand in, and the data moved."""
    exam = tmp_path / "moved.json"
    overlay = yaml.safe_load(Path(small_run.arguments[2]).read_text())
    shutil.copy(overlay["evaluate"]["benchmarks"][0]["path"], exam)
    overlay["evaluate"]["benchmarks"][0]["path"] = str(exam)
    (tmp_path / "overlay.yaml").write_text(json.dumps(overlay))
    store = tmp_path / "elsewhere" / "store"
    configs = [str(ROOT / small_run.arguments[1]), str(tmp_path / "overlay.yaml")]
    ended = launch("run", *configs, "--name", "moved", store=store, folder=tmp_path)
    assert ended.code == 0, ended.err
    assert digests(launch, store, "moved") == digests(launch, small_run.root, small_run.name)


def test_the_digest_says_what_was_made_and_nothing_of_when_and_where(launch: Launcher, small_run: SmallRun):
    *artifacts, last = digests(launch, small_run.root, small_run.name)
    assert artifacts == sorted(artifacts)
    store = small_run.store
    for line in artifacts:
        kind, key, digest = line.split()
        assert store.manifest(next(ref for ref in store.refs() if ref.key == key)).ref.digest == digest
        assert key.startswith(f"{kind}-")
    word, whole = last.split()
    assert word == "run" and len(whole) == 64
    kinds = {line.split()[0] for line in artifacts}
    assert kinds >= {"pool", "anchor", "validate", "rollout_dev", "update_solver", "select", "evaluate"}
