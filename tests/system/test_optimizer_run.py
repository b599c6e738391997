"""Runs under every optimizer: killed in an update and resumed, they end in the same bits; what cannot be is refused."""

import signal
from pathlib import Path

import pytest
from crash_points import begun, content, mismatches, orphans
from launcher import Launcher, SmallRun


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_a_killed_run_ends_in_the_same_bits(launch: Launcher, small_run: SmallRun, tmp_path: Path, name: str) -> None:
    arguments = [*small_run.arguments[:-1], name, "--set", f"cotrain.optimizer.name={name}"]
    stores = [begun(small_run, tmp_path / place) for place in ("whole", "killed")]
    assert (ended := launch(*arguments, store=stores[0])).code == 0, ended.err
    assert ("muon's direction" in ended.err + ended.told) == (name == "muon")
    for kill in ("score_influence:inside", "update_solver:inside:2", "update_generator:before_rename"):
        assert launch(*arguments, store=stores[1], INFUSER_CRASH_AT=kill).code == -signal.SIGKILL, kill
        arguments = ["resume", name]
    assert (ended := launch(*arguments, store=stores[1])).code == 0, ended.err
    assert list(orphans(stores[1])) == []
    assert mismatches(*(content(store, name) for store in stores)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("cotrain.optimizer.name=lion", "cotrain.optimizer.name: no optimizer 'lion'"),
        ("cotrain.optimizer.name=lion", "one of adamw, muon, sgd; or my_package.my_optimizer"),
        ("cotrain.optimizer.constants={blend: 0.5}", "cotrain.optimizer: constants.blend: adamw has only none"),
        ("cotrain.optimizer={name: outside.lion, constants: {blend: a}}", "constants.blend = 'a': expected a float"),
        ("cotrain.optimizer.momentum=0.5", "adamw has no momentum"),
        ("cotrain.optimizer={name: sgd, beta2: 0.5}", "sgd has no beta2"),
        ("cotrain.optimizer={name: sgd, momentum: 1}", "cotrain.optimizer.momentum"),
        ("cotrain.optimizer.name=muon engine.probe=fast", "engine.probe fast cannot score muon's directions"),
        ("cotrain.optimizer.name=muon engine.trainer=deepspeed", "needs engine.trainer local"),
    ],
)
def test_what_cannot_be_is_refused(
    launch: Launcher, small_run: SmallRun, tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "store").mkdir()
    # A space followed by a key begins the next setting.
    parts = settings.replace(" engine", "\nengine").split("\n")
    chosen = [word for setting in parts for word in ("--set", setting)]
    refused = launch(*small_run.arguments[:-1], "no", *chosen, store=tmp_path / "store")
    assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err
