"""States cross between numbers of ranks, ZeRO stages, the local trainer and samplers; options and sleep change memory
alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import LIMIT, QUESTIONS, batch, error, local, same_bytes, saved, state_error, step
from engine_tiny import OBJECTIVE, make_groups
from stock_engines import hf_sampler

from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.protocols import PromptGroup, SamplingParams, Trainer
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed

Ranks = Callable[..., Trainer]


@pytest.fixture
def ranks(anchor: Checkpoint) -> Iterator[Ranks]:
    """Makes trainers of two ranks at the anchor with options of their own, and ends them."""
    made: list[Trainer] = []

    def make(stage: int, **options: object) -> Trainer:
        made.append(tiny.ranks(2, stage, **options))
        made[-1].load(anchor)
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()


def greedy(checkpoint: Checkpoint) -> list[int]:
    sampler = hf_sampler()
    sampler.load(checkpoint)
    group = PromptGroup(group_id="g", token_ids=[5, 6, 7], seeds=[0])
    return sampler.sample([group], SamplingParams(max_tokens=8, temperature=0.0))[0][0].token_ids


def test_two_ranks_then_one_then_two_are_one_local_run(anchor: Checkpoint, tmp_path: Path) -> None:
    one = local(anchor)
    first = tiny.shared(2, 3, anchor)
    step(first, 0)
    second = tiny.shared(1, 2, saved(first, tmp_path / "first"))
    step(second, 1)
    third = tiny.shared(2, 3, saved(second, tmp_path / "second"))
    step(third, 2)
    for seed in range(3):
        step(one, seed)
    found, expected = saved(third, tmp_path / "third"), saved(one, tmp_path / "local")
    assert found.step == expected.step == 3
    assert state_error(found.path, expected.path) < LIMIT
    one.load(found)
    step(one, 3)
    step(third, 3)
    assert state_error(saved(third, tmp_path / "a").path, saved(one, tmp_path / "b").path) < LIMIT
    assert greedy(found) == greedy(expected)


@pytest.mark.parametrize("stage", [2, 3])
def test_resuming_with_as_many_ranks_is_exact(anchor: Checkpoint, tmp_path: Path, stage: int) -> None:
    going = tiny.shared(2, stage, anchor)
    step(going, 0)
    middle = saved(going, tmp_path / "middle")
    step(going, 1)
    end = saved(going, tmp_path / "end")
    resumed = tiny.shared(2, stage, middle)
    step(resumed, 1)
    same_bytes(end.path, saved(resumed, tmp_path / "again").path)


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
    same_bytes(tmp_path / "awake", tmp_path / "slept")
    # A checkpoint is loaded over a sleeping one.
    trainer.sleep()
    same_bytes(anchor.path, saved(tiny.shared(2, stage, anchor), tmp_path / "again").path)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_state_that_waited_goes_on_as_if_it_had_been_loaded(anchor: Checkpoint, tmp_path: Path, stage: int) -> None:
    trainer = tiny.shared(2, stage, anchor)
    step(trainer, 0)
    middle = saved(trainer, tmp_path / "middle")
    assert trainer.park("solver")  # type: ignore[attr-defined]
    trainer.load(anchor)
    step(trainer, 5)
    trainer.forward_backward(batch(5), OBJECTIVE, denominator=4)
    trainer.take(replace(middle, role="solver"))  # type: ignore[attr-defined]
    step(trainer, 1)
    waited = saved(trainer, tmp_path / "waited")
    trainer.load(middle)
    step(trainer, 1)
    same_bytes(waited.path, saved(trainer, tmp_path / "loaded").path)


def test_a_state_for_which_the_host_has_no_room_does_not_wait(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = tiny.shared(2, 2, anchor)
    monkeypatch.setattr("infuser_core.engines.deepspeed.trainer.HOST_SHARE", 1e-9)
    assert not trainer.park("solver")  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("stage", [2, 3])
def test_asleep_a_rank_holds_nothing_and_loads_leave_nothing_behind(anchor: Checkpoint, stage: int) -> None:
    group = RankGroup("rank_watched:Watched", tiny.rank_options(stage), ranks=1)
    try:
        held = []
        for _ in range(3):
            group.call("load", [(anchor.path, {})])
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("stage", "options"),
    [
        (2, {"offload": "optimizer"}),
        (3, {"offload": "optimizer"}),
        (3, {"offload": "all"}),
        (3, {"gradient_checkpointing": True}),
        (3, {"dtype": "bfloat16"}),
        (2, {"dtype": "bfloat16", "elementwise": "fused"}),
        (3, {"dtype": "bfloat16", "elementwise": "fused", "gradient_checkpointing": True}),
    ],
)
def test_offloading_changes_no_result_and_other_options_mean_what_they_do_locally(
    ranks: Ranks, anchor: Checkpoint, tmp_path: Path, stage: int, options: dict
) -> None:
    # bf16 products of other batches round differently; masters, sums and moments stay fp32.
    limit = 2e-2 if options.get("dtype") == "bfloat16" else LIMIT
    known = {name: value for name, value in options.items() if name != "offload"}
    pair = [ranks(stage, **options), local(anchor, **known)]
    if not known:
        for trainer in pair:
            step(trainer, 0)
        states = [saved(each, tmp_path / f"state-{name}").path for each, name in zip(pair, "ab", strict=True)]
        assert state_error(*states) < limit
    step(pair[1], 0)
    start = saved(pair[1], tmp_path / "start")
    pair[1].forward_backward(batch(9), OBJECTIVE, denominator=4)
    pair[1].keep_gradient(tmp_path / "reference")
    found = []
    for trainer, name in zip(pair, "ab", strict=True):
        trainer.load(start)
        trainer.zero_grad()
        questions = make_groups(QUESTIONS, seed=5)
        found.append(trainer.probe(questions, OBJECTIVE, tmp_path / "reference"))
        trainer.forward_backward(questions, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / name)
    assert error(tmp_path / "a", tmp_path / "b") < limit
    for one, other in zip(found[0].similarities, found[1].similarities, strict=True):
        scale = other.direction_norm * other.reference_norm
        assert one.dot / scale == pytest.approx(other.dot / scale, abs=limit)
