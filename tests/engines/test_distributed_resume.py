"""States cross between numbers of ranks, ZeRO stages, the local trainer and samplers; options change memory alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import LIMIT, OBJECTIVE, batch, error, local, saved, state_error, step
from engine_tiny import make_checkpoint, make_groups

from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.protocols import PromptGroup, SamplingParams, Trainer
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed

Ranks = Callable[..., Trainer]


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


@pytest.fixture(autouse=True)
def _installed() -> None:
    tiny.deepspeed()


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """Makes trainers of several ranks with options of their own, and ends them."""
    made: list[Trainer] = []

    def make(number: int, stage: int, checkpoint: Checkpoint, **options: object) -> Trainer:
        made.append(tiny.ranks(number, stage, **options))
        made[-1].load(checkpoint)
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()


def test_two_ranks_then_one_then_two_are_one_local_run(anchor: Checkpoint, tmp_path: Path) -> None:
    one = local()
    one.load(anchor)
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
    assert state_error(Path(found.path), Path(expected.path)) < LIMIT
    one.load(found)
    step(one, 3)
    step(third, 3)
    assert state_error(Path(saved(third, tmp_path / "a").path), Path(saved(one, tmp_path / "b").path)) < LIMIT
    drawn = []
    for checkpoint in (found, expected):
        sampler = HFSampler(device="cpu")
        sampler.load(checkpoint)
        group = PromptGroup(group_id="g", token_ids=[5, 6, 7], seeds=[0])
        drawn.append(sampler.sample([group], SamplingParams(max_tokens=8, temperature=0.0))[0][0].token_ids)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("stage", [2, 3])
def test_resuming_with_as_many_ranks_is_exact(anchor: Checkpoint, tmp_path: Path, stage: int) -> None:
    going = tiny.shared(2, stage, anchor)
    step(going, 0)
    middle = saved(going, tmp_path / "middle")
    step(going, 1)
    end = saved(going, tmp_path / "end")
    resumed = tiny.shared(2, stage, middle)
    step(resumed, 1)
    again = saved(resumed, tmp_path / "again")
    for path in Path(end.path).iterdir():
        assert path.read_bytes() == (Path(again.path) / path.name).read_bytes(), path.name


@pytest.mark.long
@pytest.mark.parametrize(("stage", "offload"), [(2, "optimizer"), (3, "optimizer"), (3, "all")])
def test_offloading_changes_no_result(
    ranks: Ranks, anchor: Checkpoint, tmp_path: Path, stage: int, offload: str
) -> None:
    pair = [ranks(2, stage, anchor, offload=offload), local()]
    pair[1].load(anchor)
    for trainer, name in zip(pair, "ab", strict=True):
        step(trainer, 0)
        step(trainer, 1)
        trainer.forward_backward(batch(2), OBJECTIVE, denominator=4)
        trainer.keep_gradient(tmp_path / name)
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT
    found, expected = (trainer.probe(batch(3), OBJECTIVE, tmp_path / "b") for trainer in pair)
    for one, other in zip(found, expected, strict=True):
        assert one.dot == pytest.approx(other.dot, rel=1e-4, abs=1e-5 * other.direction_norm * other.reference_norm)
    states = [Path(saved(trainer, tmp_path / f"state-{name}").path) for trainer, name in zip(pair, "ab", strict=True)]
    assert state_error(*states) < LIMIT


@pytest.mark.long
@pytest.mark.parametrize("options", [{"gradient_checkpointing": True}, {"probe": "reference"}, {"dtype": "bfloat16"}])
def test_options_of_the_local_trainer_mean_the_same(
    ranks: Ranks, anchor: Checkpoint, tmp_path: Path, options: dict
) -> None:
    # bf16 products of other batches round differently; masters, sums and moments stay fp32.
    limit = 2e-2 if options.get("dtype") == "bfloat16" else LIMIT
    pair = [ranks(2, 3, anchor, **options), local(**options)]
    pair[1].load(anchor)
    step(pair[1], 0)
    start = saved(pair[1], tmp_path / "start")
    pair[1].forward_backward(batch(9), OBJECTIVE, denominator=4)
    pair[1].keep_gradient(tmp_path / "reference")
    found = []
    for trainer, name in zip(pair, "ab", strict=True):
        trainer.load(start)
        trainer.zero_grad()
        questions = make_groups([*tiny.SHAPES, (7, [9, 8, 9, 8, 7])], seed=5)
        found.append(trainer.probe_once(questions, OBJECTIVE, tmp_path / "reference", denominator=6))
        trainer.keep_gradient(tmp_path / name)
    assert error(tmp_path / "a", tmp_path / "b") < limit
    for one, other in zip(found[0].similarities, found[1].similarities, strict=True):
        scale = other.direction_norm * other.reference_norm
        assert one.dot / scale == pytest.approx(other.dot / scale, abs=limit)
