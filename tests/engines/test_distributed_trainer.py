"""Two ranks over gloo are the local trainer: gradient, AdamW step, files, probe, recomputation, a large vocabulary, and
the weights that they hand over.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import distributed_tiny as tiny
import pytest
import torch
from distributed_tiny import BUDGET, LIMIT, QUESTIONS, batch, error, local, ranks, same_bytes, saved, state_error, step
from engine_tiny import OBJECTIVE, SHAPES, anchored, make_groups, make_source
from file_rank import tensors

from infuser_core.algorithm.score import cosine
from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.engines.deepspeed.split import split
from infuser_core.engines.service.weight_transfer import HERE, Board
from infuser_core.engines.training.checkpoint import write_tensors
from infuser_core.engines.training.output_layer import LOGIT_CELLS
from infuser_core.engines.training.packing import Packer
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.protocols import Similarity, Trainer, TrainGroup
from infuser_core.schemas import Checkpoint
from infuser_core.store.verify import describe_files

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


def test_probing_changes_no_state_and_drops_the_gradient(pair: Pair, tmp_path: Path) -> None:
    two, _ = pair
    step(two, 0)
    before = saved(two, tmp_path / "before")
    two.forward_backward(batch(2), OBJECTIVE, denominator=4)
    assert two.keep_gradient(tmp_path / "reference") > 0
    two.probe(questions(), OBJECTIVE, tmp_path / "reference")
    assert two.keep_gradient(tmp_path / "none") == 0
    same_bytes(before.path, saved(two, tmp_path / "after").path)


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
        group.call("load", [(anchor.path, {})] * 2)
        narrow = group.call("train", [(str(tmp_path / "narrow"),)] * 2)[0]
        group.call("load", [(anchor.path, {})] * 2)
        group.call("widen", [()] * 2)
        wide = group.call("train", [(str(tmp_path / "wide"),)] * 2)[0]
    finally:
        group.close()
    assert (tmp_path / "narrow").read_bytes() == (tmp_path / "wide").read_bytes()
    assert narrow < 0.75 * wide


OWN = 512
"""Bytes that the question itself reads."""


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    found = RankGroup("file_rank:FileRank", None, ranks=2)
    yield found
    found.close()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("cap", [10**9, 3000, 90], ids=["whole", "halves", "tensors"])
@pytest.mark.parametrize("at_once", [True, False])
def test_files_of_any_number_are_those_of_one_process(
    group: RankGroup, tmp_path: Path, cap: int, at_once: bool
) -> None:
    expected, found = tmp_path / "expected", tmp_path / "found"
    expected.mkdir()
    found.mkdir()
    write_tensors(tensors(1.0), expected / "model.safetensors", cap=cap)
    write_tensors(
        {f"m.{name}": each for name, each in tensors(3.0).items()}, expected / "optimizer.safetensors", cap=cap
    )
    told = group.call("write", [(str(found), at_once, cap)] * 2)
    names = sorted(path.name for path in expected.iterdir())
    assert names == sorted(path.name for path in found.iterdir())
    assert {name: sha256(found / name) for name in names} == {name: sha256(expected / name) for name in names}
    digests = told[0] | told[1]
    wanted = {str(path): sha256(path) for path in found.glob("*.safetensors")}
    assert digests == (wanted if at_once else {}) and len(digests) == len(told[0]) + len(told[1])


def test_a_rank_that_cannot_write_is_told_of_and_nobody_waits(group: RankGroup, tmp_path: Path) -> None:
    # Last of those with this group, which ends here.
    with pytest.raises(EngineError, match="FileNotFoundError"):
        group.call("write", [(str(tmp_path / "nowhere"), True, 90)] * 2)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_commit_reads_nothing_of_what_was_written_at_once(stage: int, anchor: Checkpoint, tmp_path: Path) -> None:
    trainer, read, sizes = tiny.shared(2, stage, anchor), dict[bool, int](), dict[bool, int]()
    try:
        for beside in (True, False):
            trainer._write_beside = beside  # type: ignore[attr-defined]
            folder = Path(saved(trainer, tmp_path / str(beside)).path)
            trainer.keep_gradient(folder / "gradient")
            files = sorted([*folder.glob("*.safetensors"), folder / "gradient"])
            before = read_by_this_process()
            found = describe_files(files)
            read[beside] = read_by_this_process() - before
            sizes[beside] = sum(file.stat().st_size for file in files)
            assert [each["sha256"] for each in found] == [sha256(file) for file in files]
    finally:
        trainer._write_beside = False  # type: ignore[attr-defined]
    assert read[True] >= sizes[True] == sizes[False] > 100 * OWN
    assert read[False] <= OWN
    same_bytes(tmp_path / "True", tmp_path / "False")


def read_by_this_process() -> int:
    """Bytes so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


KEPT = 16
"""Tokens up to which a micro-batch keeps its matrix products: one rank's first batch is shorter, the other's is not."""


def again(groups: list[TrainGroup]) -> list[list[bool]]:
    """Whether each micro-batch of each rank is computed again."""
    packer = Packer(token_budget=BUDGET, kept_tokens=KEPT, device=torch.device("cpu"), dtype=torch.float32)
    batches = [packer.plan([part.group for part in parts]) for parts in split(groups, 2)]
    return [[sum(each.num_tokens for each in batch) > KEPT for batch in rank] for rank in batches]


@pytest.mark.parametrize("stage", [2, 3])
def test_ranks_that_recompute_unlike_micro_batches_are_the_local_trainer(
    anchor: Checkpoint, tmp_path: Path, stage: int
) -> None:
    groups = make_groups([*SHAPES, (12, [20, 2]), (4, [3])], old=True)
    first, second = again(groups)
    assert any(one != other for one, other in zip(first, second, strict=False)), (first, second)
    pair = ranks(2, stage, gradient_checkpointing=KEPT), local(anchor)
    pair[0].load(anchor)
    cosines = []
    for trainer, name in zip(pair, "ab", strict=True):
        # The first passes record the order of weights, later ones fetch ahead by it.
        for _ in range(3):
            trainer.forward_backward(groups, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / name)
        trainer.zero_grad()
        found = trainer.probe(groups, OBJECTIVE, tmp_path / "a").similarities
        trainer.forward_backward(groups, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / f"scored-{name}")
        cosines.append([cosine(each.dot, each.direction_norm, each.reference_norm) for each in found])
        trainer.optim_step(1e-3)
        trainer.zero_grad()
        trainer.forward_backward(groups, OBJECTIVE, denominator=6)
        trainer.keep_gradient(tmp_path / f"after-{name}")
    pair[0].close()
    for kind in ("", "scored-", "after-"):
        assert error(tmp_path / f"{kind}a", tmp_path / f"{kind}b") < LIMIT
    assert cosines[0] == pytest.approx(cosines[1], abs=LIMIT)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stage", [2, 3], ids=["zero2", "zero3"])
def test_file_and_sums_are_the_local_trainers(stage: int, dtype: str, anchor: Checkpoint, tmp_path: Path) -> None:
    ranks = tiny.shared(2, stage, anchor)
    step(ranks, 0)
    after = saved(ranks, tmp_path / "after")
    found = []
    for giver in (ranks, local(after)):
        board = Board(dtype)
        board.request([HERE], [[2 + row, 5, 7] for row in range(8)])
        board.publish(Path(after.path), "solver", giver)  # type: ignore[arg-type]
        made = board.find(Path(after.path))
        assert made is not None, board.refusal
        found.append(made)
    one, other = found
    assert one.files[HERE].path.read_bytes() == other.files[HERE].path.read_bytes()
    assert (one.checksums, one.shapes) == (other.checksums, other.shapes)
    for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
        assert list(mine) == pytest.approx(list(theirs), abs=1e-4)


QWEN3 = 151_936
"""Words of the vocabulary of Qwen3."""
LONG_SHAPES = [(3, [450, 40]), (5, [220]), (4, [30, 8])]
"""Rows of which no two ranks can have the same number of tokens."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A narrow model with Qwen3's vocabulary."""
    sizes = {"vocab_size": QWEN3, "hidden_size": 16, "head_dim": 4, "intermediate_size": 24, "num_hidden_layers": 2}
    return anchored(make_source(tmp_path_factory.mktemp("wide") / "source", **sizes, max_position_embeddings=1024))


@pytest.mark.parametrize("stage", [2, 3])
def test_unequal_rows_of_a_real_vocabulary_are_the_local_ones(wide: Checkpoint, tmp_path: Path, stage: int) -> None:
    groups = make_groups(LONG_SHAPES)
    assert len(groups[0].rows[0].token_ids) * QWEN3 > 2 * LOGIT_CELLS
    pair = ranks(2, stage, token_budget=800), local(wide, token_budget=800)
    pair[0].load(wide)
    losses, cosines = [], []
    for trainer, name in zip(pair, "ab", strict=True):
        losses.append(trainer.forward_backward(groups, OBJECTIVE, denominator=3).loss)
        trainer.keep_gradient(tmp_path / name)
        found = trainer.probe(groups, OBJECTIVE, tmp_path / "a").similarities
        cosines.append([cosine(each.dot, each.direction_norm, each.reference_norm) for each in found])
        trainer.optim_step(1e-3)
    assert error(tmp_path / "a", tmp_path / "b") < LIMIT
    assert losses[0] == pytest.approx(losses[1], rel=LIMIT)
    assert cosines[0] == pytest.approx(cosines[1], abs=LIMIT)
    found, expected = (trainer.logprobs(groups, temperature=0.7) for trainer in pair)
    for rows, wanted in zip(found, expected, strict=True):
        for values, others in zip(rows, wanted, strict=True):
            assert values == pytest.approx(others, abs=1e-4)
