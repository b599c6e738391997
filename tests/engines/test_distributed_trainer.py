"""Two ranks over gloo are the local trainer: gradient, AdamW step, files, log-probabilities and probe."""

from dataclasses import replace
from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import LIMIT, QUESTIONS, batch, error, local, same_bytes, saved, state_error, step
from engine_tiny import OBJECTIVE, SHAPES, make_groups

from infuser_core.algorithm.score import cosine
from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.protocols import Similarity, Trainer, TrainGroup
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed

Pair = tuple[Trainer, Trainer]


@pytest.fixture(params=[2, 3], ids=["zero2", "zero3"])
def pair(request: pytest.FixtureRequest, anchor: Checkpoint) -> Pair:
    """Two ranks and the local trainer, both at the anchor."""
    return tiny.shared(2, request.param, anchor), local(anchor)


def test_gradient_and_report_are_the_local_ones(pair: Pair, tmp_path: Path) -> None:
    (single,) = make_groups([(6, [9, 8, 9, 8, 7])], old=True)
    reports = []
    for trainer, name in zip(pair, "ab", strict=True):
        seen: list[tuple[int, int, int]] = []
        report = trainer.forward_backward(
            batch(), OBJECTIVE, denominator=3, progress=lambda *numbers, seen=seen: seen.append(numbers)
        )
        reports.append(report)
        # Accumulates: a second pass adds to the first.
        trainer.forward_backward(batch(1), OBJECTIVE, denominator=3)
        trainer.keep_gradient(tmp_path / name)
        assert seen[-1][:2] == (12, 12)
        # One group is cut and keeps its denominator.
        trainer.zero_grad()
        trainer.forward_backward([single], OBJECTIVE, denominator=1)
        trainer.keep_gradient(tmp_path / f"single-{name}")
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT
    assert error(tmp_path / "single-a", tmp_path / "single-b") < LIMIT
    found, expected = reports
    assert found.num_tokens == expected.num_tokens
    assert found.loss == pytest.approx(expected.loss, rel=LIMIT, abs=1e-9)
    assert found.means == pytest.approx(expected.means, rel=LIMIT, abs=1e-9)


def test_an_entropy_bonus_counts_every_row_once(pair: Pair, tmp_path: Path) -> None:
    # Ranks have unequal numbers of micro-batches: what keeps another one company has no bonus.
    objective, groups = replace(OBJECTIVE, entropy=0.3), make_groups([*SHAPES, (12, [20, 2])])
    groups[0] = replace(groups[0], rows=[replace(row, advantage=0.0) for row in groups[0].rows])
    for trainer, name in zip(pair, "ab", strict=True):
        trainer.zero_grad()
        trainer.forward_backward(groups, objective, denominator=3)
        trainer.keep_gradient(tmp_path / name)
        trainer.zero_grad()
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT


def test_steps_and_saved_state_are_the_local_ones(pair: Pair, tmp_path: Path) -> None:
    norms = [[step(trainer, seed) for seed in range(3)] for trainer in pair]
    assert norms[0] == pytest.approx(norms[1], rel=LIMIT)
    assert pair[0].below_epsilon() == pytest.approx(pair[1].below_epsilon(), abs=1e-3)
    two, one = (Path(saved(trainer, tmp_path / name).path) for trainer, name in zip(pair, "ab", strict=True))
    assert state_error(two, one) < LIMIT
    others = [path.name for path in one.iterdir() if path.suffix != ".safetensors"]
    assert "trainer.json" in others
    for name in others:
        assert (two / name).read_bytes() == (one / name).read_bytes(), name
    # A local checkpoint comes out byte for byte.
    given = saved(pair[1], tmp_path / "given")
    pair[0].load(given)
    again = saved(pair[0], tmp_path / "again")
    assert again.step == given.step == 3
    same_bytes(given.path, again.path)


def test_log_probabilities_are_the_local_ones(pair: Pair) -> None:
    groups = make_groups(SHAPES, seed=3)
    found, expected = (trainer.logprobs(groups, temperature=0.7) for trainer in pair)
    for rows, wanted in zip(found, expected, strict=True):
        for values, others in zip(rows, wanted, strict=True):
            assert values == pytest.approx(others, abs=1e-5)


def cosines(similarities: list[Similarity]) -> list[float]:
    return [cosine(each.dot, each.direction_norm, each.reference_norm) for each in similarities]


def questions() -> list[TrainGroup]:
    """Questions of one rank, one over the budget that both share, and one without a direction."""
    groups = make_groups(QUESTIONS, seed=5)
    groups[1] = replace(groups[1], rows=[replace(row, advantage=0.0) for row in groups[1].rows])
    return groups


def test_scores_and_log_probabilities_of_the_pass_are_the_local_ones(pair: Pair, tmp_path: Path) -> None:
    for trainer in pair:
        step(trainer, 0)
        step(trainer, 1)
    pair[1].forward_backward(batch(9), OBJECTIVE, denominator=4)
    pair[1].keep_gradient(tmp_path / "reference")
    found, expected = (trainer.probe(questions(), OBJECTIVE, tmp_path / "reference") for trainer in pair)
    assert cosines(found.similarities) == pytest.approx(cosines(expected.similarities), abs=LIMIT)
    for one, other in zip(found.similarities, expected.similarities, strict=True):
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=LIMIT)
        assert one.reference_norm == pytest.approx(other.reference_norm, rel=1e-9)
    for rows, wanted in zip(found.logprobs, expected.logprobs, strict=True):
        assert [len(row) for row in rows] == [len(row) for row in wanted]
        assert [value for row in rows for value in row] == pytest.approx([v for row in wanted for v in row], abs=1e-5)


def test_probing_changes_nothing(pair: Pair, tmp_path: Path) -> None:
    two, _ = pair
    step(two, 0)
    two.forward_backward(batch(2), OBJECTIVE, denominator=4)
    norm = two.keep_gradient(tmp_path / "before")
    two.probe(questions(), OBJECTIVE, tmp_path / "before")
    assert two.keep_gradient(tmp_path / "after") == norm
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_a_norm_that_is_not_finite_skips_the_step_and_errors_are_the_local_ones(pair: Pair, tmp_path: Path) -> None:
    two, _ = pair
    before = saved(two, tmp_path / "before")
    (group, *_) = batch()
    group = replace(group, rows=[replace(group.rows[0], advantage=float("nan")), *group.rows[1:]])
    two.forward_backward([group], OBJECTIVE, denominator=1)
    assert two.optim_step(1e-3) != two.optim_step(1e-3)
    after = saved(two, tmp_path / "after")
    assert after.step == before.step == 0
    assert state_error(after.path, before.path) == 0.0
    with pytest.raises(CheckpointError, match="no optimizer state"):
        two.load(Checkpoint(checkpoint_id="x", role="solver", path=str(tmp_path), step=0))
    with pytest.raises(EngineError, match="over the budget"):
        two.probe(make_groups([(40, [9, 9])]), OBJECTIVE, tmp_path / "none")


def test_weights_that_are_multiplied_in_bf16_are_gathered_so_and_no_bit_changes(
    anchor: Checkpoint, tmp_path: Path
) -> None:
    group = RankGroup("rank_gathers:Counting", replace(tiny.rank_options(3), dtype="bfloat16"), ranks=2)
    try:
        group.call("load", [(anchor.path,)] * 2)
        narrow = group.call("train", [(str(tmp_path / "narrow"),)] * 2)[0]
        group.call("load", [(anchor.path,)] * 2)
        group.call("widen", [()] * 2)
        wide = group.call("train", [(str(tmp_path / "wide"),)] * 2)[0]
    finally:
        group.close()
    assert (tmp_path / "narrow").read_bytes() == (tmp_path / "wide").read_bytes()
    assert narrow < 0.75 * wide
