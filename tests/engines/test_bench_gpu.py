"""The accelerator's benchmark runs end to end at a toy shape, and says in one line where it cannot."""

import importlib
import json
from collections.abc import Callable, Sequence

import pytest
import torch
from places import TESTS

PHASES = {
    "rollout_dev", "dev_gradient", "generate_questions", "rollout_questions", "score_influence", "update_generator",
    "update_solver", "log-probabilities", "long: sampling", "long: gradient", "long: scoring", "trainer",
}  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], int]:
    monkeypatch.syspath_prepend(str(TESTS / "bench"))
    run: Callable[[Sequence[str]], int] = importlib.import_module("gpu").main
    return run


def test_a_toy_shape_goes_through_every_phase_on_a_cpu(
    bench: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]
):
    assert bench(["--device", "cpu", "--tiny", "--sampler", "hf"]) == 0
    said = capsys.readouterr().out
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {line["phase"] for line in lines} == PHASES
    assert all(line["tokens"] > 0 and line["seconds"] > 0 for line in lines if line["phase"] != "trainer")
    (agreement,) = [line["detail"] for line in lines if line["phase"] == "log-probabilities"]
    assert float(agreement.split("largest ")[1].split()[0]) < 1e-4
    assert "| hf | score_influence |" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_an_accelerator_it_says_so(bench: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]):
    assert bench([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
