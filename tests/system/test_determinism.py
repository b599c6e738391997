"""The same settings give the same bits: in another store, from another folder, with moved data, beside a process."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from launcher import ROOT, Launcher, SmallRun

from infuser_core.store.journal import Journal


def digests(launch: Launcher, root: Path, name: str) -> list[str]:
    ended = launch("status", "--digest", "--verbose", name, store=root)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def moved(small_run: SmallRun, folder: Path) -> dict[str, list[str]]:
    """The arguments of both runs from another folder, with the data moved there."""
    overlay = yaml.safe_load(Path(small_run.arguments[2]).read_text())
    (benchmark,) = overlay["evaluate"]["benchmarks"]
    benchmark["path"] = shutil.copy(benchmark["path"], folder / "moved.json")
    (folder / "overlay.yaml").write_text(json.dumps(overlay, default=str))
    base = ["run", str(ROOT / small_run.arguments[1]), str(folder / "overlay.yaml")]
    return {
        small_run.name: [*base, "--name", small_run.name],
        small_run.fixed: [*base, str(ROOT / small_run.fixed_arguments[3]), "--name", small_run.fixed],
    }


@pytest.mark.slow
def test_two_runs_side_by_side_elsewhere_give_the_digests_of_runs_alone(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
):
    store = tmp_path / "elsewhere" / "store"
    commands = moved(small_run, tmp_path)
    together = [launch.start(*command, store=store, folder=tmp_path) for command in commands.values()]
    for started in together:
        ended = started.wait()
        assert ended.code == 0, ended.err
    for name in commands:
        assert digests(launch, store, name) == digests(launch, small_run.root, name)

    # What both need was computed by one of them, and only once.
    shared = [
        "taxonomy",
        "textbooks",
        "search",
        "choose",
        "download",
        "sources",
        "convert",
        "chunk",
        "judge",
        "audit",
        "pool",
        "anchor",
    ]
    entries = [entry for name in commands for entry in Journal(store, name).entries()]
    for phase in shared:
        states = [entry.state for entry in entries if entry.phase == phase]
        assert sorted(states) == ["cached", "ran"], phase


def test_the_digest_says_what_was_made_and_nothing_of_when_and_where(launch: Launcher, small_run: SmallRun):
    first, *artifacts = digests(launch, small_run.root, small_run.name)
    assert artifacts == sorted(artifacts)
    store = small_run.store
    for line in artifacts:
        kind, key, digest = line.split()
        assert store.manifest(next(ref for ref in store.refs() if ref.key == key)).ref.digest == digest
        assert key.startswith(f"{kind}-")
    word, whole = first.split()
    assert word == "run" and len(whole) == 64
    kinds = {line.split()[0] for line in artifacts}
    assert kinds >= {"pool", "anchor", "validate", "rollout_dev", "update_solver", "select", "evaluate"}
