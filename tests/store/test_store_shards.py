"""Large checkpoints are several files and an index that every reader knows; small ones are the one file they were."""

import json
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from stock_engines import local_trainer

from infuser_core.engines.hf.causal_lm import load_model
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.training import checkpoint as files
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.errors import CheckpointError, StoreError
from infuser_core.nano.lab import anchor_path
from infuser_core.schemas import Checkpoint
from infuser_core.store import pruned

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def tensors(sizes: list[int]) -> dict[str, torch.Tensor]:
    return {f"layer.{number}": torch.arange(size, dtype=torch.float32) for number, size in enumerate(sizes)}


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a file or of its shards."""
    return {name: tensor for part in files.shards_of(path) for name, tensor in load_file(part).items()}


@given(SIZES, st.integers(1, 400))
def test_shards_hold_everything_once_in_order_and_stay_below_the_cap(sizes: list[int], cap: int):
    given_tensors = tensors(sizes)
    shards = list(files.shard(given_tensors, Path(files.WEIGHTS), cap).values())
    assert [name for part in shards for name in part] == list(given_tensors)
    for part in shards:
        assert len(part) == 1 or sum(tensor.nbytes for tensor in part.values()) <= cap
    for part, after in pairwise(shards):
        room = cap - sum(tensor.nbytes for tensor in part.values())
        assert next(iter(after.values())).nbytes > room, "a shard was begun too early"


@given(SIZES, st.integers(1, 400))
def test_what_is_written_in_shards_is_read_back(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cap: int):
    folder = tmp_path_factory.mktemp("checkpoint")
    files.write_tensors(tensors(sizes), folder / files.WEIGHTS, cap=cap)
    back = read_tensors(folder / files.WEIGHTS)
    assert back.keys() == tensors(sizes).keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors(sizes).items())


def test_a_small_checkpoint_is_one_file_with_the_bytes_of_the_format(tmp_path: Path):
    given_tensors = tensors([3, 5])
    files.write_tensors(given_tensors, tmp_path / files.WEIGHTS)
    save_file(given_tensors, tmp_path / "plain", metadata={"format": "pt"})
    assert [path.name for path in sorted(tmp_path.iterdir())] == [files.WEIGHTS, "plain"]
    assert (tmp_path / files.WEIGHTS).read_bytes() == (tmp_path / "plain").read_bytes()


def test_a_kept_gradient_is_never_split(tmp_path: Path):
    files.write_tensors(tensors([30, 30]), tmp_path / "gradient.safetensors", cap=1)
    assert [path.name for path in tmp_path.iterdir()] == ["gradient.safetensors"]


@pytest.fixture(scope="module")
def split_anchor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nano anchor with its files split at 300 kB."""
    whole, split = (tmp_path_factory.mktemp(name) for name in ("whole", "split"))
    prepare_anchor(anchor_path(), whole)
    for path in whole.iterdir():
        if path.name in files.SPLIT:
            files.write_tensors(read_tensors(path), split / path.name, cap=300_000)
        else:
            (split / path.name).write_bytes(path.read_bytes())
    (split / "whole").symlink_to(whole)
    return split


def test_a_split_checkpoint_has_the_hugging_face_layout(split_anchor: Path):
    index = json.loads((split_anchor / "model.safetensors.index.json").read_text())
    names = sorted(path.name for path in split_anchor.glob("model-*.safetensors"))
    assert len(names) > 3 and names[0] == f"model-00001-of-{len(names):05d}.safetensors"
    assert sorted(set(index["weight_map"].values())) == names
    weights = read_tensors(split_anchor / files.WEIGHTS)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in weights.values())


def test_model_and_trainer_load_a_split_checkpoint_as_the_whole_one(split_anchor: Path, tmp_path: Path):
    whole = split_anchor / "whole"
    device = torch.device("cpu")
    ours, theirs = (load_model(folder, dtype=torch.float32, device=device) for folder in (split_anchor, whole))
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    trainer = local_trainer()
    trainer.load(Checkpoint(checkpoint_id="split", role="solver", path=str(split_anchor), step=0))
    trainer.save(tmp_path)
    for name in files.SPLIT:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_a_lost_shard_is_named_and_a_pruned_one_is_said_to_be_so(tmp_path: Path):
    given_tensors = tensors([30, 30, 30])
    files.write_tensors({f"m.{n}": t for n, t in given_tensors.items()}, tmp_path / files.MOMENTS, cap=120)
    lost = tmp_path / "optimizer-00002-of-00003.safetensors"
    lost.unlink()
    with pytest.raises(CheckpointError, match=r"optimizer-00002-of-00003\.safetensors is missing") as missing:
        files.fill_tensors(named_moments(given_tensors, given_tensors), tmp_path / files.MOMENTS)
    assert missing.value.hint == "optimizer.safetensors.index.json names it: copy the folder again"
    pruned.write_removed(
        tmp_path,
        [pruned.Removed(file=lost.name, part="moments", sha256="0", bytes=1, rule="old", at="2026-01-01T00:00:00")],
    )
    with pytest.raises(StoreError, match="was pruned by gc on 2026-01-01") as caught:
        files.fill_tensors(named_moments(given_tensors, given_tensors), tmp_path / files.MOMENTS)
    assert "infuser doctor RUN --repair --iteration T" in caught.value.hint


def killed_while_saving(folder: Path, turn: int) -> int:
    """Save a checkpoint in another process that dies at a file's end; returns how it ended."""
    process = os.fork()
    if process == 0:
        os.environ["INFUSER_CRASH_AT"] = f"checkpoint:file:{turn}"
        files.write_tensors(tensors([30, 30]), folder / files.WEIGHTS, cap=120)
        files.write_tensors(named_moments(tensors([3]), tensors([4])), folder / files.MOMENTS)
        files.write_state(files.TrainerState(step=1, optimizer={}), folder)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("turn", range(1, 7))
def test_a_process_can_be_killed_between_any_two_files_of_a_checkpoint(tmp_path: Path, turn: int):
    order = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        files.MOMENTS,
        files.STATE,
    ]
    ended = killed_while_saving(tmp_path, turn)
    assert ended == (-signal.SIGKILL if turn <= len(order) else 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(order[:turn])
