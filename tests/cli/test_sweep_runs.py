"""`infuser sweep` runs a grid over one store: shared work once, a failing run alone fails, the same command goes on."""

import json
from importlib.util import find_spec
from pathlib import Path

import yaml
from launcher import ROOT, Finished, Launcher, SmallRun, copy_store

from flows.sweep import PRELOADED
from infuser_core.planning.sweeps import Member, read
from infuser_core.store.runs import Journal

NANO = ROOT / "configs" / "nano.yaml"
FIXED = ROOT / "configs" / "ablation" / "fixed_generator.yaml"


def two_arms(folder: Path, small: Path, broken: str = "") -> tuple[Path, list[Member]]:
    arms = {"infuser": [], "fixed-generator": [str(FIXED)], **({"broken": [broken]} if broken else {})}
    path = folder / "sweep.yaml"
    path.write_text(
        yaml.safe_dump({"base": [str(NANO), str(small)], "axes": {"arm": arms, "seed": [42]}}, sort_keys=False)
    )
    return path, read(path)


def stages(store: Path, run: str) -> dict[str, str]:
    return {f"{entry.phase}/{entry.iteration}": entry.state for entry in Journal(store, run).last_attempt()}


def test_runs_of_a_sweep_share_what_they_have_in_common(
    launch: Launcher, small_run: SmallRun, small_overlay: Path, tmp_path: Path
) -> None:
    store = copy_store(small_run.root, tmp_path / "store")
    path, members = two_arms(tmp_path, small_overlay)

    first = launch("sweep", str(path), "--jobs", "1", "--json", store=store)
    assert first.code == 0, first.err
    rows = json.loads(first.out)
    assert [row["variant"] for row in rows] == ["nano-infuser", "nano-fixed-generator"]
    assert all(set(stages(store, member.run).values()) == {"cached"} for member in members)

    listed = json.loads(launch("sweep", str(path), "--dry-run", "--json", store=store).out)
    assert [row["done"] for row in listed] == [True, True]
    again = launch("sweep", str(path), "--jobs", "1", "--against", "nano-infuser", store=store)
    assert again.code == 0 and "2 runs, 0 to do" in again.out
    assert "| nano-fixed-generator | 1 |" in again.out
    unknown = launch("sweep", str(path), "--against", "infuser", store=store)
    assert unknown.code == 2 and "variants: nano-infuser, nano-fixed-generator" in unknown.err


def test_a_run_that_fails_does_not_stop_the_others(
    launch: Launcher, small_run: SmallRun, small_overlay: Path, tmp_path: Path
) -> None:
    store = copy_store(small_run.root, tmp_path / "store")
    path, members = two_arms(tmp_path, small_overlay, broken="anchor={type: folder, path: /nowhere}")
    ended: Finished = launch("sweep", str(path), "--jobs", "2", store=store)
    assert ended.code == 3
    assert "1 runs failed" in ended.err and "/nowhere" in ended.err and "Traceback" not in ended.err
    finished = [Journal(store, member.run).is_finished() for member in members]
    assert finished == [True, True, False]


def test_everything_that_is_loaded_beforehand_exists() -> None:
    """Python passes over a module that it cannot load beforehand: the sweep would only be slower."""
    assert [name for name in PRELOADED if find_spec(name) is None] == []
