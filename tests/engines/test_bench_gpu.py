"""The accelerator's benchmark rehearses a layout end to end at a toy shape, and says in one line where it cannot."""

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from places import TESTS

from infuser_core.config.overlays import load

STEPS = {
    "model", "sampler start", "generation", "trainer start", "dev gradient", "scoring", "update", "save",
    "weight change", "proof", "kill and resume", "trainer sleep", "sampler sleep",
}  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], int]:
    monkeypatch.syspath_prepend(str(TESTS / "bench"))
    run: Callable[[Sequence[str]], int] = importlib.import_module("gpu").main
    return run


@pytest.mark.parametrize(("layout", "dtype"), [("hf-local", "float32"), ("lora", "bfloat16")])
def test_a_toy_shape_goes_through_every_step_on_a_cpu(
    bench: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str], layout: str, dtype: str
):
    words = ["--set", "cotrain.group_size=2", "--set", f"engine.dtype={dtype}"]
    assert bench(["--device", "cpu", "--tiny", "--only", layout, *words]) == 0
    said = capsys.readouterr().out
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {line["step"] for line in lines} == STEPS and "failed" not in {line["status"] for line in lines}
    assert "4 responses" in next(line["told"] for line in lines if line["step"] == "generation")
    assert f"| {layout} | update | passed |" in said


def test_every_layout_is_a_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TESTS / "bench"))
    gpu = importlib.import_module("gpu")
    for layout in (*gpu.GPU.values(), *gpu.CPU.values()):
        found = load([Path(name) for name in ("nano", *layout.configs)], [*layout.changes, *gpu.LENGTHS])
        assert found.engine.ranks <= 2 and found.cotrain.solver_tokens == 8192


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_an_accelerator_it_says_so(bench: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]):
    assert bench([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
