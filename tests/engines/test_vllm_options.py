"""What vLLM engines are started with, as far as the configuration decides it."""

from pathlib import Path

import pytest
import torch
from engine_tiny import make_checkpoint
from places import SUPPORT

from infuser_core.engines.vllm.process import VLLMOptions, engine_settings, launches
from infuser_core.engines.vllm.sampler import VLLMSampler
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint, Role

CUDA = torch.device("cuda")
MODEL = Path("model")


def started(options: VLLMOptions, scratch: Path) -> list[str]:
    """CUDA_VISIBLE_DEVICES of every engine."""
    made = launches(options, model=MODEL, scratch=scratch, dtype="bfloat16", device=CUDA, threads=1)
    return [each.environment["CUDA_VISIBLE_DEVICES"] for each in made]


def test_memory_and_sleep_are_those_of_the_configuration() -> None:
    settings = engine_settings(VLLMOptions(memory=0.4, sleep=True), model=MODEL, dtype="bfloat16", device=CUDA)
    assert settings["gpu_memory_utilization"] == 0.4
    assert settings["enable_sleep_mode"] is True and settings["enforce_eager"] is False
    on_cpu = engine_settings(VLLMOptions(), model=MODEL, dtype="float32", device=torch.device("cpu"))
    assert on_cpu["enable_sleep_mode"] is False and on_cpu["enforce_eager"] is True


def test_engines_leave_the_trainers_accelerators_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    scripted = {"worker": "scripted_engine"}
    assert started(VLLMOptions(reserved=4, tensor_parallel=2, **scripted), tmp_path) == ["4,5", "6,7"]
    assert len(started(VLLMOptions(**scripted), tmp_path)) == 8
    with pytest.raises(EngineError, match="beside the 6 of the trainer") as caught:
        started(VLLMOptions(reserved=6, engines=4, **scripted), tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(("role", "asked", "limit"), [
    (Role.SOLVER, 100, 100),
    (Role.GENERATOR, 10_000, 256),
    (Role.SOLVER, None, 256),
    (Role.JUDGE, 100, 256),
])  # fmt: skip
def test_sequences_are_as_long_as_the_run_needs_and_never_longer_than_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, asked: int | None, limit: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    anchor = make_checkpoint(tmp_path)
    sampler = VLLMSampler(dtype="float32", device="cpu", worker="missing_engine", max_model_len=asked)
    with pytest.raises(EngineError):
        # Nobody answers; what it was to be started with is known by then.
        sampler.load(Checkpoint(checkpoint_id="a", role=role, path=anchor.path, step=0))
    assert sampler.facts()["max_model_len"] == limit
    assert sampler._longest == (limit if asked and role != Role.JUDGE else None)
