"""Ranks hand over the weights that they save as the local trainer does: the file, the checksums and the scores."""

from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import local, saved, step

from infuser_core.engines.service.weight_transfer import HERE, Board
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed


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
