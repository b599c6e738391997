"""A running mean of dev gradients: killed and resumed bit for bit, under retention, and a pruned one comes back."""

import signal
from pathlib import Path

import pytest
from crash_points import CORPUS, PHASES, orphans
from launcher import Launcher, SmallRun, copy_store

from infuser_core.store.journal import Journal
from infuser_core.store.store import Store

MEAN = ("--set", "cotrain.dev_mean=0.6", "--set", "cotrain.iterations=3")
ROLLING = ("--set", "store.keep={full: 1, weights_every: 0}")


def gradients(store: Path) -> list[Path]:
    """Folders of the run's dev gradients by iteration."""
    found = {entry.iteration: entry for entry in Journal(store, "mean").latest() if entry.phase == "dev_gradient"}
    return [Store(store).folder(found[number].key) for number in sorted(found)]


@pytest.mark.slow
def test_each_goes_on_from_the_last_one_whatever_was_killed_or_pruned(
    launch: Launcher, small_run: SmallRun, tmp_path: Path
) -> None:
    whole, rolling = (
        copy_store(small_run.root, tmp_path / name, without=tuple(phase for phase in PHASES if phase not in CORPUS))
        for name in ("whole", "rolling")
    )
    arguments = [*small_run.arguments[:-1], "mean", *MEAN]
    assert (ended := launch(*arguments, store=whole)).code == 0, ended.err
    arguments += ROLLING
    for kill in ("dev_gradient:inside", "score_influence:inside", "update_solver:before_rename"):
        ended = launch(*arguments, store=rolling, INFUSER_CRASH_AT=kill)
        assert ended.code == -signal.SIGKILL, (kill, ended.err)
        arguments = ["resume", "mean"]
    assert (ended := launch(*arguments, store=rolling)).code == 0, ended.err
    assert launch("digest", "mean", store=rolling).out == launch("digest", "mean", store=whole).out
    assert list(orphans(rolling)) == []
    # The next iteration would go on from the last one.
    assert [(folder / "gradient.safetensors").exists() for folder in gradients(rolling)] == [False, False, True]
    assert (ended := launch("repair", "mean", "--iteration", "1", store=rolling)).code == 0, ended.err
    one, other = (gradients(store)[1] / "gradient.safetensors" for store in (whole, rolling))
    assert one.read_bytes() == other.read_bytes()
