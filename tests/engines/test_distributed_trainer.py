"""Two ranks over gloo are the local trainer: gradient, AdamW step, files, log-probabilities and probe."""

from dataclasses import replace
from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import LIMIT, OBJECTIVE, batch, error, local, saved, state_error, step
from engine_tiny import make_checkpoint, make_groups

from infuser_core.algorithm.influence import cosine
from infuser_core.engines.protocols import Similarity, Trainer, TrainGroup
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("anchor"))


@pytest.fixture(params=[2, 3], ids=["zero2", "zero3"])
def pair(request: pytest.FixtureRequest, anchor: Checkpoint) -> tuple[Trainer, Trainer]:
    """Two ranks and the local trainer, both at the anchor."""
    tiny.deepspeed()
    one = local()
    one.load(anchor)
    return tiny.shared(2, request.param, anchor), one


class Seen:
    """Remembers what a reporter was told last."""

    last = (0, 0, 0)

    def __call__(self, done: int, total: int, tokens: int) -> None:
        self.last = (done, total, tokens)


def test_gradient_and_report_are_the_local_ones(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    reports = []
    for trainer, name in zip(pair, "ab", strict=True):
        trainer.zero_grad()
        seen = Seen()
        reports.append(trainer.forward_backward(batch(), OBJECTIVE, denominator=3, progress=seen))
        # Accumulates: a second pass adds to the first.
        trainer.forward_backward(batch(1), OBJECTIVE, denominator=3)
        trainer.keep_gradient(tmp_path / name)
        assert seen.last[:2] == (12, 12)
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT
    for field in ("loss", "num_tokens", "clip_fraction", "mean_ratio", "mean_tis"):
        assert getattr(reports[0], field) == pytest.approx(getattr(reports[1], field), rel=LIMIT, abs=1e-9)


def test_one_group_is_cut_and_keeps_its_denominator(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    (group,) = make_groups([(6, [9, 8, 9, 8, 7])], old=True)
    for trainer, name in zip(pair, "ab", strict=True):
        trainer.zero_grad()
        trainer.forward_backward([group], OBJECTIVE, denominator=1)
        trainer.keep_gradient(tmp_path / name)
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT


def test_steps_and_saved_state_are_the_local_ones(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    norms = [[step(trainer, seed) for seed in range(3)] for trainer in pair]
    assert norms[0] == pytest.approx(norms[1], rel=LIMIT)
    folders = [Path(saved(trainer, tmp_path / name).path) for trainer, name in zip(pair, "ab", strict=True)]
    assert state_error(*folders) < LIMIT
    for name in sorted(path.name for path in folders[1].iterdir()):
        if not name.endswith(".safetensors"):
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_a_local_checkpoint_comes_out_byte_for_byte(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    two, one = pair
    step(one, 0)
    given = saved(one, tmp_path / "given")
    two.load(given)
    again = saved(two, tmp_path / "again")
    assert again.step == given.step == 1
    for path in sorted(Path(given.path).iterdir()):
        assert path.read_bytes() == (Path(again.path) / path.name).read_bytes(), path.name


def test_log_probabilities_are_the_local_ones(pair: tuple[Trainer, Trainer]) -> None:
    groups = make_groups(tiny.SHAPES, seed=3)
    found, expected = (trainer.logprobs(groups, temperature=0.7) for trainer in pair)
    for rows, wanted in zip(found, expected, strict=True):
        for values, others in zip(rows, wanted, strict=True):
            assert values == pytest.approx(others, abs=1e-5)


def cosines(similarities: list[Similarity]) -> list[float]:
    return [cosine(each.dot, each.direction_norm, each.reference_norm) for each in similarities]


def questions() -> list[TrainGroup]:
    """Questions of one rank, one over the budget that both share, and one without a direction."""
    groups = make_groups([*tiny.SHAPES, (7, [9, 8, 9, 8, 7])], seed=5)
    groups[1] = replace(groups[1], rows=[replace(row, advantage=0.0) for row in groups[1].rows])
    return groups


def test_scores_and_the_shared_backward_are_the_local_ones(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    for trainer in pair:
        step(trainer, 0)
        step(trainer, 1)
    pair[1].forward_backward(batch(9), OBJECTIVE, denominator=4)
    pair[1].keep_gradient(tmp_path / "reference")
    groups = questions()
    probed = []
    for trainer, name in zip(pair, "ab", strict=True):
        trainer.zero_grad()
        probed.append(trainer.probe_once(groups, OBJECTIVE, tmp_path / "reference", denominator=6))
        trainer.keep_gradient(tmp_path / name)
    found, expected = probed
    assert cosines(found.similarities) == pytest.approx(cosines(expected.similarities), abs=LIMIT)
    for one, other in zip(found.similarities, expected.similarities, strict=True):
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=LIMIT)
        assert one.reference_norm == pytest.approx(other.reference_norm, rel=1e-9)
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT
    assert found.report.loss == pytest.approx(expected.report.loss, rel=LIMIT)
    for rows, wanted in zip(found.logprobs, expected.logprobs, strict=True):
        assert [len(row) for row in rows] == [len(row) for row in wanted]
        assert [value for row in rows for value in row] == pytest.approx([v for row in wanted for v in row], abs=1e-5)


def test_probing_changes_nothing_and_a_kept_gradient_comes_back(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    two, _ = pair
    step(two, 0)
    two.forward_backward(batch(2), OBJECTIVE, denominator=4)
    norm = two.keep_gradient(tmp_path / "before")
    two.probe(questions(), OBJECTIVE, tmp_path / "before")
    assert two.keep_gradient(tmp_path / "after") == norm
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    two.zero_grad()
    two.add_gradient(tmp_path / "before")
    two.keep_gradient(tmp_path / "again")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "again").read_bytes()


def test_a_norm_that_is_not_finite_skips_the_step(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    two, _ = pair
    before = saved(two, tmp_path / "before")
    (group, *_) = batch()
    group = replace(group, rows=[replace(group.rows[0], advantage=float("nan")), *group.rows[1:]])
    two.zero_grad()
    two.forward_backward([group], OBJECTIVE, denominator=1)
    assert two.optim_step(1e-3) != two.optim_step(1e-3)
    after = saved(two, tmp_path / "after")
    assert after.step == before.step == 0
    assert state_error(Path(after.path), Path(before.path)) == 0.0


def test_errors_of_the_local_trainer_are_raised_here_too(pair: tuple[Trainer, Trainer], tmp_path: Path) -> None:
    two, _ = pair
    with pytest.raises(CheckpointError, match="no optimizer state"):
        two.load(Checkpoint(checkpoint_id="x", role="solver", path=str(tmp_path), step=0))
    with pytest.raises(EngineError, match="over the budget"):
        two.probe(make_groups([(40, [9, 9])]), OBJECTIVE, tmp_path / "none")
