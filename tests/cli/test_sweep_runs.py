"""`infuser sweep` runs a grid over one store: shared work once, a failing run alone fails, the same command goes on."""

import json
import time
from importlib.util import find_spec
from pathlib import Path

import yaml
from launcher import PATIENCE, ROOT, Launcher, SmallRun, copy_store

from flows.sweep import PRELOADED
from infuser_core.config.run import RunConfig
from infuser_core.planning.sweeps import read_sweep
from infuser_core.store.journal import Journal
from infuser_core.store.lease import is_held
from infuser_core.store.runs import report_folder, runs_folder

NANO = ROOT / "configs" / "nano.yaml"
FIXED = ROOT / "configs" / "ablation" / "fixed_generator.yaml"


def arms(folder: Path, small: Path, **more: str) -> tuple[str, list[RunConfig]]:
    """A sweep of the small run and its control, with further arms of one overlay each."""
    chosen = {"infuser": [], "fixed-generator": [str(FIXED)], **{name: [overlay] for name, overlay in more.items()}}
    path = folder / f"sweep-{len(chosen)}.yaml"
    values = {"base": [str(NANO), str(small)], "axes": {"arm": chosen, "seed": [42]}}
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path), read_sweep(path)


def test_runs_share_what_they_have_in_common_and_one_that_fails_does_not_stop_the_others(
    launch: Launcher, small_run: SmallRun, small_overlay: Path, tmp_path: Path
) -> None:
    store = copy_store(small_run.root, tmp_path / "store")
    hollow = tmp_path / "hollow"
    hollow.mkdir()
    (hollow / "config.json").write_text("{}")
    path, configs = arms(tmp_path, small_overlay, broken=f"anchor={{type: folder, path: {hollow}}}")
    failed = launch("sweep", path, "--jobs", "2", store=store)
    assert failed.code == 3
    assert "1 run failed" in failed.err and str(hollow) in failed.err and "Traceback" not in failed.err
    journals = [Journal(store, config.run_name()) for config in configs]
    assert [journal.is_finished() for journal in journals] == [True, True, False]
    assert {entry.state for journal in journals[:2] for entry in journal.last_attempt()} == {"cached"}
    control = configs[1].run_name()
    assert not (report_folder(store, control) / "report.html").exists()
    assert f"`infuser report {control}`" in (store / "sweeps" / f"{control}.log").read_text()
    listed = json.loads(launch("sweep", path, "--dry-run", "--json", store=store).out)
    assert [row["done"] for row in listed] == [True, True, False]

    sound, _ = arms(tmp_path, small_overlay)
    rows = json.loads(launch("sweep", sound, "--jobs", "1", "--json", store=store).out)
    assert [row["variant"] for row in rows] == ["nano-infuser", "nano-fixed-generator"]
    again = launch("sweep", sound, "--jobs", "1", "--against", "nano-infuser", store=store)
    assert again.code == 0 and "2 runs, 0 to do" in again.out
    assert "nano-fixed-generator minus nano-infuser" in again.out
    unknown = launch("sweep", sound, "--against", "infuser", store=store)
    assert unknown.code == 2 and "known: nano-infuser, nano-fixed-generator" in unknown.err


def test_what_one_run_lacks_is_said_before_any_starts(launch: Launcher, small_overlay: Path, tmp_path: Path) -> None:
    path, configs = arms(tmp_path, small_overlay, broken="anchor={type: folder, path: /nowhere}")
    refused = launch("sweep", path, store=tmp_path / "store")
    assert refused.code == 2
    assert f"run {configs[2].run_name()}: anchor.path = '/nowhere': no config.json there" in refused.err
    assert not any(Journal(tmp_path / "store", config.run_name()).is_known() for config in configs)


def test_a_killed_sweep_takes_its_runs_with_it(launch: Launcher, small_overlay: Path, tmp_path: Path) -> None:
    path, (config, _) = arms(tmp_path, small_overlay)
    started = launch.start("sweep", path, "--jobs", "1", store=tmp_path / "store")
    held = runs_folder(tmp_path / "store") / config.run_name()
    deadline = time.monotonic() + PATIENCE
    while not (held / "journal.jsonl").exists():
        assert time.monotonic() < deadline, started.err.read_text()
        time.sleep(0.05)
    started.kill()
    while is_held(held):
        assert time.monotonic() < deadline, "its run goes on"
        time.sleep(0.05)
    assert not Journal(tmp_path / "store", config.run_name()).is_finished()


def test_everything_that_is_loaded_beforehand_exists() -> None:
    """Python passes over a module that it cannot load beforehand: the sweep would only be slower."""
    assert [name for name in PRELOADED if find_spec(name) is None] == []
