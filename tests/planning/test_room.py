"""A run that cannot fit is refused before anything starts, and one that may fit is not."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from infuser_core.config.overlays import load
from infuser_core.config.run import RunConfig
from infuser_core.errors import ConfigError
from infuser_core.memory.hardware import GIB
from infuser_core.planning.place import parse_places
from infuser_core.planning.room import MachineRoom, require_room, shortages, visible_accelerators
from infuser_core.store.journal import FINISHED, Journal

CONFIGS = ROOT / "configs"
SHAPE = {"num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32}
SHAPE |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False}


def config(*overlays: str, base: str = "qwen3-8b") -> RunConfig:
    files = [CONFIGS / f"{name}.yaml" for name in (base, *(f"engine/{each}" for each in overlays if "=" not in each))]
    return load(files, [each for each in overlays if "=" in each])


def machine(*gibibytes: float, memory: float = 1024, disk: float = math.inf) -> MachineRoom:
    return MachineRoom(cards=[each * GIB for each in gibibytes], memory=memory * GIB, disk=disk)


def told(*overlays: str, on: MachineRoom, base: str = "qwen3-8b") -> str:
    return "; ".join(what for what, _ in shortages(config(*overlays, base=base), on))


def test_accelerators_that_are_too_small_are_named_with_both_numbers():
    said = told("one-gpu", on=machine(8))
    assert "the trainer needs " in said and "the sampler needs 15." in said
    assert "an accelerator has 8.0" in said


@pytest.mark.parametrize(("overlay", "room"), [("eight-gpus", [80] * 8), ("one-gpu", [180])])
def test_what_the_plan_says_fits_is_not_refused(overlay: str, room: list[float]):
    assert told(overlay, on=machine(*room)) == ""


def test_absent_accelerators_are_named():
    assert told("one-gpu", on=machine()) == "engine.device = 'cuda', and this machine has no accelerator"
    assert told("eight-gpus", on=machine(80)) == "engine.ranks = 8, and the accelerators of this machine are 1"


def test_main_memory_that_is_too_small_for_what_moves_there_is_named():
    assert "move to the main memory, which has 64.0" in told("eight-gpus", on=machine(*[80] * 8, memory=64))


def test_nobody_knows_the_accelerators_so_only_the_disk_is_judged():
    on = MachineRoom(cards=None, memory=1024 * GIB, disk=1e9)
    assert told("one-gpu", on=on).startswith("the run keeps ")


def test_a_disk_that_is_too_small_is_named_unless_the_store_holds_the_run_already():
    small = machine(*[80] * 8, disk=1e11)
    found = shortages(config("eight-gpus"), small)
    assert [what.partition(" in ")[0] for what, _ in found] == ["the run keeps 2.0 TB"]
    assert "INFUSER_STORE" in found[0][1]
    assert shortages(config("eight-gpus"), small, stored=2e12) == []


def test_without_retention_the_remedy_is_retention():
    found = shortages(config("eight-gpus", "store.keep=null"), machine(*[80] * 8, disk=2e12))
    assert "store.keep={full: 2, weights_every: 5}" in found[0][1]


def test_a_processor_is_judged_by_its_main_memory():
    assert "the main memory has 16.0" in told(on=machine(memory=16))
    assert told(base="nano", on=machine(memory=2)) == ""


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of nvidia-smi, which lists two accelerators."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '0, GPU-aa11, 8192'\necho '1, GPU-bb22, 81559'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, [8192, 81559]),
        ("1", [81559]),
        ("GPU-aa", [8192]),
        ("1,0", [81559, 8192]),
        ("", []),
        ("-1", []),
        ("MIG-3", None),
    ],
)
def test_accelerators_are_those_that_programs_may_use(
    listed: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, found: list[int] | None
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_accelerators() == (None if found is None else [each * 2**20 for each in found])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFUSER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def test_a_part_of_a_run_needs_only_that_parts_room(store: Path):
    lacking = config("engine.device=cuda", base="nano")
    with pytest.raises(ConfigError):
        require_room(lacking, "lacking", parse_places(until="rollout_dev@0"))
    require_room(lacking, "lacking", parse_places(until="pool"))
    require_room(lacking, "lacking", parse_places(only="pool"))


def test_a_complete_run_is_not_refused(store: Path):
    journal = Journal(store, "done")
    journal.path.parent.mkdir(parents=True)
    journal.start_attempt()
    journal.append(phase=FINISHED, iteration=-1, state="ran", seconds=0.0)
    require_room(config("engine.device=cuda"), "done", parse_places())


def test_the_command_refuses_within_five_seconds(listed: Path, store: Path, tmp_path: Path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SHAPE))
    words = ["run", "nano", "engine/one-gpu", "--set", f"anchor={{type: folder, path: {model}}}"]
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *words],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"},
        capture_output=True,
        text=True,
    )
    after = os.times()
    # Seconds of its own: a machine may have others' work to do.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 5
    assert done.returncode == ConfigError.exit_code, done.stderr
    assert "an accelerator has 8.0" in done.stderr and "hint: " in done.stderr
    assert not list(store.glob("artifacts/*/*"))
