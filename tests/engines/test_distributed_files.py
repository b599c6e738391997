"""Ranks write files together: in one pass with their digests, or piece by piece for a commit that reads them again."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import same_bytes, saved
from file_rank import tensors

from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.engines.training.checkpoint import write_tensors
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint
from infuser_core.store.verify import describe_files

pytestmark = pytest.mark.distributed

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
