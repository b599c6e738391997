"""Weights that go from a trainer to living engines through memory: what arrives, what is noticed, what falls back."""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint, make_groups, step, trainer
from places import SUPPORT
from safetensors.torch import load_file, save_file

from infuser_core.config.roles import AdapterSettings
from infuser_core.engines.hf.causal_lm import copy_model
from infuser_core.engines.local.hub import prepare_adapter
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.service import weight_transfer
from infuser_core.engines.service.checksum import of_tensors
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.engines.service.weight_transfer import HERE, Board
from infuser_core.engines.training.tensor_files import allocate_file, read_entries, write_run
from infuser_core.errors import EngineWarning
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

RESPONSES = [[2, 3, 4]] * 8
"""What engines would have drawn."""
Saved = Callable[..., Checkpoint]


@pytest.fixture(params=["float32", "bfloat16"])
def board(request: pytest.FixtureRequest) -> Board:
    return Board(str(request.param))


@pytest.fixture
def anchor(tmp_path: Path) -> Checkpoint:
    return make_checkpoint(tmp_path / "first")


@pytest.fixture
def saved(tmp_path: Path, anchor: Checkpoint, board: Board) -> Saved:
    """Saves the trainer's next state under a name."""
    engine = trainer(anchor, board=board)

    def save(name: str) -> Checkpoint:
        step(engine, make_groups([(4, [5, 6])]))
        folder = tmp_path / name
        folder.mkdir()
        engine.save(folder)
        return Checkpoint(checkpoint_id=name, role="solver", step=1, path=str(folder))

    return save


@pytest.fixture
def spoil() -> str:
    """What the engines do wrong with weights that come through memory: nothing, unless a test says so."""
    return ""


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch, board: Board, anchor: Checkpoint, spoil: str) -> Iterator[ServiceSampler]:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("PLAIN_SPOIL", spoil)
    engine = ServiceSampler(dtype=board._dtype, device="cpu", threads=1, worker="plain_engine", board=board)
    engine.load(anchor)
    yield engine
    engine.close()


def test_living_engines_take_them_from_memory_and_nobody_reads_the_files(sampler: ServiceSampler, saved: Saved) -> None:
    assert sampler.channel == "fresh"
    after, before = saved("second"), sampler.pids
    file = Path(after.path) / "model.safetensors"
    stat = file.stat()
    # Whoever read this would hold zeros.
    with file.open("r+b") as handle:
        handle.seek(8 + int.from_bytes(handle.read(8), "little"))
        handle.write(bytes(stat.st_size - handle.tell()))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    sampler.load(after)
    assert (sampler.channel, sampler.starts, sampler.pids) == ("memory", 1, before)
    (found,) = sampler.agreements
    assert found.tokens == 68 and found.tensors == 25
    assert found.mean < (1e-5 if sampler._dtype == "float32" else 0.05)
    assert sampler.facts()["weights"] == "memory"


def test_a_checkpoint_is_known_after_it_moved_and_a_copy_of_it_is_not(
    sampler: ServiceSampler, saved: Saved, board: Board, tmp_path: Path
) -> None:
    after = saved("second")
    moved = tmp_path / "committed"
    Path(after.path).rename(moved)
    assert board.find(moved) is not None
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in moved.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    assert board.find(copied) is None and board.find(tmp_path / "nowhere") is None
    sampler.load(Checkpoint(checkpoint_id="again", role="solver", step=1, path=str(copied)))
    assert (sampler.channel, sampler.starts) == ("files", 1)


def test_a_role_has_one_place_and_its_memory_is_free_when_nobody_needs_it(board: Board, saved: Saved) -> None:
    assert board.find(Path(saved("nobody-asks").path)) is None
    board.request([HERE], RESPONSES)
    first = saved("second")
    held = board.find(Path(first.path))
    assert held is not None
    path = held.files[HERE].path
    saved("third")
    assert board.find(Path(first.path)) is None and path.exists()
    del held
    assert not path.exists()


@pytest.mark.parametrize("board", ["float32"], indirect=True)
@pytest.mark.parametrize(("spoil", "told"), [
    ("missing", r"checksums of 1 of 25 tensors differ, e.g. model.layers.0.self_attn.o_proj"),
    pytest.param(
        "wrong", r"checksums of 1 of 25 tensors differ, e.g. model.layers.0.self_attn.o_proj", marks=pytest.mark.long
    ),
    pytest.param("untied", r"checksums of 1 of 25 tensors differ, e.g. lm_head.weight", marks=pytest.mark.long),
    ("stale", r"log-probabilities of 68 sampled tokens differ"),
])  # fmt: skip
def test_weights_that_arrive_badly_are_noticed_and_fresh_engines_read_the_files(
    sampler: ServiceSampler, saved: Saved, told: str
) -> None:
    with pytest.warns(EngineWarning, match=told):
        sampler.load(saved("second"))
    assert (sampler.channel, sampler.starts) == ("fresh", 2)


@pytest.mark.parametrize("board", ["float32"], indirect=True)
@pytest.mark.parametrize("level", [1, pytest.param(2, marks=pytest.mark.long)])
def test_engines_that_slept_hold_the_weights_again_before_they_sample(
    monkeypatch: pytest.MonkeyPatch, board: Board, anchor: Checkpoint, level: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("PLAIN_LEVEL", str(level))
    options = {"dtype": "float32", "device": "cpu", "threads": 1, "worker": "plain_engine"}
    pool = EnginePool(sampler="vllm", trainer="fake", placement="colocated", max_trainers=1, sampler_options=options)
    prompt = [PromptGroup(group_id="g", token_ids=[2, 5, 7], seeds=[0, 1])]
    params = SamplingParams(temperature=1.0, max_tokens=6)
    drawn = pool.sampler(anchor).sample(prompt, params)
    engine = next(iter(pool._warm.values())).engine
    assert "sleep_levels" not in engine.facts()
    # Another engine's turn.
    pool._engine_of("trainer", "solver")
    assert (engine.forgets, engine.facts()["sleep_levels"]) == (level == 2, [level])
    assert pool.sampler(anchor).sample(prompt, params) == drawn
    # Level 2 reads the files again and proves them.
    assert (engine.channel, engine.starts, engine.forgets) == ("files" if level == 2 else "fresh", 1, False)
    engine.sleep()
    assert engine.sample(prompt, params) == drawn
    pool.close()


@pytest.fixture
def adapted(tmp_path: Path, anchor: Checkpoint) -> Checkpoint:
    """Adapters of the anchor's model, as a store holds them."""
    base, folder = tmp_path / "base" / "base-1", tmp_path / "anchor" / "anchor-1"
    for each in (base, folder):
        each.mkdir(parents=True)
    copy_model(Path(anchor.path), base)
    prepare_adapter(base, folder, adapter=AdapterSettings(rank=3, alpha=7), seed=0)
    return Checkpoint(checkpoint_id="adapted", role="solver", step=0, path=str(folder))


def train_adapter(board: Board, adapted: Checkpoint) -> Checkpoint:
    """Save a trainer's adapters after a step in which B leaves zero."""
    engine = trainer(adapted, board=board, dtype=board._dtype)
    step(engine, make_groups([(4, [5, 6])]))
    folder = Path(adapted.path).with_name("second")
    folder.mkdir()
    engine.save(folder)
    return Checkpoint(checkpoint_id="second", role="solver", step=1, path=str(folder))


def test_adapters_arrive_alone_and_the_base_model_is_read_once(
    monkeypatch: pytest.MonkeyPatch, board: Board, adapted: Checkpoint, tmp_path: Path
) -> None:
    reads = tmp_path / "reads"
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("PLAIN_READS", str(reads))
    sampler = ServiceSampler(dtype=board._dtype, device="cpu", threads=1, worker="plain_engine", board=board, engines=2)
    try:
        sampler.load(adapted)
        # 24 matrices and norms, the output layer tied to the first of them, and A and B of 14 layers.
        assert [found.tensors for found in sampler.agreements] == [25 + 28] * 2
        after = train_adapter(board, adapted)
        sampler.load(after)
        transfer = board.find(Path(after.path))
        assert transfer is not None
        assert reads.read_text().split()[-1] == str(transfer.files[HERE].path)
        # The header is of a few kilobytes.
        size = getattr(torch, board._dtype).itemsize * sum(map(prod, transfer.shapes.values()))
        assert size < transfer.files[HERE].path.stat().st_size < size + 8192
        copied = shutil.copytree(after.path, Path(after.path).with_name("copied"))
        for checkpoint, channel, tensors in ((after, "memory", 28), (replace(after, path=str(copied)), "files", 53)):
            sampler.load(checkpoint)
            assert (sampler.channel, sampler.starts) == (channel, 1)
            for found in sampler.agreements:
                assert (found.tensors, found.tokens) == (tensors, 68)
                assert found.mean < (1e-5 if board._dtype == "float32" else 0.05)
    finally:
        sampler.close()


@pytest.mark.parametrize("board", ["float32"], indirect=True)
@pytest.mark.parametrize(("spoil", "reason"), [
    ("wrong", r"checksums of 1 of 28 tensors differ, e.g. base_model.*layers.0.self_attn.o_proj.lora_A.weight"),
    ("stale", r"log-probabilities of 68 sampled tokens differ"),
])  # fmt: skip
def test_adapters_that_arrive_badly_are_noticed(
    monkeypatch: pytest.MonkeyPatch, board: Board, adapted: Checkpoint, spoil: str, reason: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("PLAIN_SPOIL", spoil)
    sampler = ServiceSampler(dtype=board._dtype, device="cpu", threads=1, worker="plain_engine", board=board)
    try:
        sampler.load(adapted)
        with pytest.warns(EngineWarning, match=reason):
            sampler.load(train_adapter(board, adapted))
        assert (sampler.channel, sampler.starts) == ("fresh", 2)
    finally:
        sampler.close()


@pytest.mark.parametrize("board", ["float32"], indirect=True)
def test_without_room_in_memory_files_are_read_and_the_reason_is_told(
    sampler: ServiceSampler, saved: Saved, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_transfer, "SHARE", 1e-9)
    with pytest.warns(EngineWarning, match=r"not transferred in memory.* bytes are needed, and of main memory"):
        after = saved("second")
    assert "are needed" in board.refusal
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.load(after)
    assert (sampler.channel, sampler.starts) == ("files", 1)


def test_the_memory_holds_the_checkpoint_rounded_and_the_trainers_sums_are_its_own(board: Board, saved: Saved) -> None:
    board.request([HERE], RESPONSES)
    after = saved("second")
    found = board.find(Path(after.path))
    assert found is not None
    written = load_file(Path(after.path) / "model.safetensors")
    dtype = getattr(torch, board._dtype)
    laid = load_file(found.files[HERE].path)
    assert {name: each.tolist() for name, each in laid.items()} == {
        name: each.to(dtype).tolist() for name, each in written.items()
    }
    tied = {"lm_head.weight": written["model.embed_tokens.weight"]}
    assert found.checksums == of_tensors(written | tied, board._dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_file_filled_in_runs_is_that_of_safetensors(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"b": torch.randn(3, 5).to(dtype), "a": torch.randn(7).to(dtype), "c": torch.randn(2, 2, 2).to(dtype)}
    save_file(tensors, tmp_path / "expected", metadata={"format": "pt"})
    allocate_file(tmp_path / "found", {name: each.shape for name, each in tensors.items()}, dtype)
    places = read_entries(tmp_path / "found")
    with (tmp_path / "found").open("r+b") as handle:
        for name, each in tensors.items():
            for start in range(0, each.numel(), 4):
                write_run(handle, places[name], start, each.flatten()[start : start + 4])
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
