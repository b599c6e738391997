"""A trainer that slept goes on as if it had not: weights, moments and half a gradient come back bit by bit."""

from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import OBJECTIVE, batch, saved, step
from engine_tiny import make_checkpoint

from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed


@pytest.fixture(autouse=True)
def _installed() -> None:
    tiny.deepspeed()


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


@pytest.mark.parametrize("stage", [2, 3])
def test_sleep_changes_no_bit(anchor: Checkpoint, tmp_path: Path, stage: int) -> None:
    for name, naps in (("awake", False), ("slept", True)):
        trainer = tiny.shared(2, stage, anchor)
        step(trainer, 0)
        trainer.forward_backward(batch(1), OBJECTIVE, denominator=4)
        if naps:
            trainer.sleep()
            trainer.sleep()
            trainer.wake()
        trainer.forward_backward(batch(2), OBJECTIVE, denominator=4)
        if naps:
            trainer.sleep()
        # Asked while asleep it wakes by itself.
        trainer.optim_step(1e-3)
        trainer.keep_gradient(tmp_path / f"gradient-{name}")
        trainer.probe(batch(3), OBJECTIVE, tmp_path / f"gradient-{name}")
        saved(trainer, tmp_path / name)
    assert (tmp_path / "gradient-awake").read_bytes() == (tmp_path / "gradient-slept").read_bytes()
    for path in (tmp_path / "awake").iterdir():
        assert path.read_bytes() == (tmp_path / "slept" / path.name).read_bytes(), path.name


def test_a_checkpoint_is_loaded_over_a_sleeping_one(anchor: Checkpoint, tmp_path: Path) -> None:
    trainer = tiny.shared(2, 3, anchor)
    start = saved(trainer, tmp_path / "start")
    step(trainer, 0)
    trainer.sleep()
    again = saved(tiny.shared(2, 3, anchor), tmp_path / "again")
    assert again.step == start.step == 0
    for path in Path(start.path).iterdir():
        assert path.read_bytes() == (Path(again.path) / path.name).read_bytes(), path.name


@pytest.mark.long
@pytest.mark.parametrize("stage", [2, 3])
def test_asleep_a_rank_holds_nothing_and_loads_leave_nothing_behind(anchor: Checkpoint, stage: int) -> None:
    group = RankGroup("rank_watched:Watched", tiny.rank_options(stage), ranks=1)
    try:
        held = []
        for _ in range(3):
            group.call("load", [(anchor.path,)])
            group.call("train", [()])
            held.append(group.call("held", [()])[0])
        # A flag here and there; a model is thousands of times as large.
        assert 0 < held[0] <= held[2] < 1.01 * held[0]
        group.call("sleep", [()])
        assert group.call("held", [()])[0] < held[0] / 100
        group.call("wake", [()])
        group.call("train", [()])
        assert group.call("held", [()])[0] == held[2]
    finally:
        group.close()
