"""Model files: several shards or one, the digest of all that loading reads, and the bytes that are written."""

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from engine_tiny import make_source
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from stock_engines import local_trainer
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.config.roles import AdapterSettings
from infuser_core.engines.hf.causal_lm import load_model
from infuser_core.engines.local.hub import prepare_adapter, prepare_anchor
from infuser_core.engines.model_files import weight_files
from infuser_core.engines.training import checkpoint as files
from infuser_core.engines.training import tensor_files
from infuser_core.engines.training.checkpoint import count_weights
from infuser_core.engines.training.optimizer import named_moments
from infuser_core.errors import CheckpointError, StoreError
from infuser_core.evaluation.anchors import anchor_digest
from infuser_core.nano.lab import anchor_path
from infuser_core.schemas import Checkpoint
from infuser_core.store import pruned


def pickled(folder: Path) -> None:
    """Other weights beside the safetensors, which come first."""
    weights = load_file(folder / "model.safetensors")
    torch.save({name: each + 1 for name, each in weights.items()}, folder / "pytorch_model.bin")


def pickle_alone(folder: Path) -> None:
    pickled(folder)
    (folder / "model.safetensors").unlink()


def sharded(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(folder.parent / "plain").save_pretrained(folder, max_shard_size="100KB")


def shards_below(folder: Path) -> None:
    sharded(folder)
    index = folder / "model.safetensors.index.json"
    (folder / "parts").mkdir()
    for shard in folder.glob("model-*.safetensors"):
        shard.rename(folder / "parts" / shard.name)
    index.write_text(index.read_text().replace('"model-', '"parts/model-'))


def pickle_shards(folder: Path) -> None:
    sharded(folder)
    for shard in folder.glob("model-*.safetensors"):
        torch.save(load_file(shard), folder / shard.name.replace("safetensors", "bin"))
        shard.unlink()
    index = folder / "model.safetensors.index.json"
    text = index.read_text().replace(".safetensors", ".bin")
    index.unlink()
    (folder / "pytorch_model.bin.index.json").write_text(text)


def named_by_config(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "model.safetensors").rename(folder / "own/weights.safetensors")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("{", '{"transformers_weights": "own/weights.safetensors",', 1))


def further_templates(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/tools.jinja").write_text("{{ messages[0]['content'] }} w9")


LAYOUTS = [pickled, pickle_alone, sharded, shards_below, pickle_shards, named_by_config, further_templates]


def content(folder: Path) -> str:
    """All that a model's folder decides: weights, configuration, templates; or that it cannot be loaded."""
    try:
        model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (CheckpointError, OSError, ValueError) as error:
        return type(error).__name__
    sums = {name: (each.sum().item(), each.square().sum().item()) for name, each in model.named_parameters()}
    words = (tokenizer.chat_template, sorted(tokenizer.get_vocab().items()), tokenizer.eos_token)
    return repr((sums, model.generation_config.to_dict(), words))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_without_which_the_model_is_another_is_in_its_digest(
    layout: Callable[[Path], None], tmp_path: Path
) -> None:
    make_source(tmp_path / "plain")
    folder = Path(shutil.copytree(tmp_path / "plain", tmp_path / "model"))
    layout(folder)
    (folder / "README.md").write_text("about it")
    whole, digest, seen = content(folder), anchor_digest(folder), set[str]()
    assert "Error" not in whole
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        kept = file.read_bytes()
        file.unlink()
        if content(folder) != whole:
            seen.add(file.name)
            assert anchor_digest(folder) != digest, file.name
        file.write_bytes(kept)
    assert anchor_digest(folder) == digest and "README.md" not in seen
    assert {file.name for file in weight_files(folder)} <= seen


def test_weights_in_a_folder_below_are_counted(tmp_path: Path) -> None:
    whole = make_source(tmp_path / "plain")
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    shards_below(folder)
    assert count_weights(folder) == count_weights(whole)


def test_weights_that_are_not_loaded_are_not_in_it(tmp_path: Path) -> None:
    folder = make_source(tmp_path / "plain")
    digest = anchor_digest(folder)
    pickled(folder)
    assert anchor_digest(folder) == digest


def test_pickles_with_other_weights_are_another_model(tmp_path: Path) -> None:
    folders = [make_source(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    for folder in folders:
        pickle_alone(folder)
    assert len({anchor_digest(folder) for folder in folders}) == 2


def test_an_adapter_of_another_base_is_another_model(tmp_path: Path) -> None:
    digests = []
    for seed in (0, 1):
        store = tmp_path / str(seed)
        base = make_source(store / "base/one", seed=seed)
        (store / "anchor/two").mkdir(parents=True)
        prepare_adapter(base, store / "anchor/two", adapter=AdapterSettings(rank=2), seed=0)
        digests.append(anchor_digest(store / "anchor/two"))
    assert digests[0] != digests[1]


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


KINDS = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16])
SHAPES = st.dictionaries(st.text('ab.\u00e4\u4e2d"0', max_size=6), st.lists(st.integers(0, 5), max_size=3), max_size=5)


def plain(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@given(SHAPES, KINDS)
def test_a_file_has_the_bytes_of_the_formats_own_writer(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]], kind: torch.dtype
):
    folder = tmp_path_factory.mktemp("files")
    tensors = {name: torch.randn(shape).to(kind) for name, shape in shapes.items()}
    sha256 = tensor_files.write_file(folder / "ours", tensors)
    save_file(tensors, folder / "theirs", metadata={"format": "pt"})
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
    assert sha256 == plain(folder / "ours")


@pytest.mark.parametrize("size", [tensor_files.LARGE, 3 * tensor_files.BLOCK - 64, 9 * tensor_files.BLOCK + 4])
def test_large_files_are_whole_and_come_in_order(tmp_path: Path, size: int):
    def tensors(number: int) -> dict[str, torch.Tensor]:
        # The second one is not in the order of memory.
        return {"b": torch.full((size // 4,), float(number)), "a": torch.randn(300, 7).T}

    files = {tmp_path / str(number): tensors(number) for number in range(3)}
    written = list(tensor_files.write_files(files))
    assert [path for path, _ in written] == list(files)
    for path, sha256 in written:
        save_file(
            {name: each.contiguous() for name, each in files[path].items()}, tmp_path / "theirs", {"format": "pt"}
        )
        assert sha256 == plain(path) == plain(tmp_path / "theirs")


@pytest.mark.parametrize("size", [2 << 20, tensor_files.LARGE])
def test_a_file_that_finds_no_room_ends_the_writing(tmp_path: Path, size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            tensor_files.write_file(tmp_path / "a", {"a": torch.zeros(size, dtype=torch.uint8).view(torch.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
