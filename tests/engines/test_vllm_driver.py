"""The sampler over engine processes, with a scripted engine in the place of vLLM: everything but vLLM itself."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from engine_tiny import END, make_checkpoint
from places import SUPPORT
from safetensors.torch import load_file, save_file
from scripted_engine import DIE, HANG, reply

from infuser_core.engines.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.engines.vllm.process import last_words
from infuser_core.engines.vllm.sampler import VLLMSampler
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

PARAMS = SamplingParams(temperature=1.0, max_tokens=30)
GROUPS = [
    PromptGroup(group_id=f"g{place}", token_ids=[2 + place, 5, 7], seeds=[10 * place + i for i in range(1 + place % 3)])
    for place in range(6)
]
NONE = PromptGroup(group_id="none", token_ids=[2], seeds=[])

Make = Callable[..., VLLMSampler]


def uniform(folder: Path) -> Checkpoint:
    """A checkpoint that gives every token the same probability: its last norm's scale is zero."""
    checkpoint = make_checkpoint(folder)
    weights = load_file(f"{checkpoint.path}/model.safetensors")
    weights["model.norm.weight"] = torch.zeros_like(weights["model.norm.weight"])
    save_file(weights, f"{checkpoint.path}/model.safetensors", metadata={"format": "pt"})
    return checkpoint


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return uniform(tmp_path_factory.mktemp("anchor"))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Samplers over scripted engines, closed at the end."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    made: list[VLLMSampler] = []

    def build(**options: object) -> VLLMSampler:
        defaults = {"dtype": "float32", "device": "cpu", "worker": "scripted_engine", "max_sequences": 4}
        made.append(VLLMSampler(**(defaults | options)))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for sampler in made:
        sampler.close()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_two_engines_answer_in_the_callers_order(make: Make, anchor: Checkpoint) -> None:
    sampler = make(engines=2)
    sampler.load(anchor)
    kept: dict[int, list[Completion]] = {}
    seen: list[tuple[int, int, int]] = []
    drawn = sampler.sample(
        [*GROUPS, NONE], PARAMS, progress=lambda *numbers: seen.append(numbers), keep=kept.__setitem__
    )
    expected = [[reply(seed, 30, [END]) for seed in group.seeds] for group in [*GROUPS, NONE]]
    assert [[(each.token_ids, each.finish_reason) for each in samples] for samples in drawn] == expected
    assert kept == {place: samples for place, samples in enumerate(drawn) if samples}
    assert seen[-1] == (12, 12, sum(len(tokens) for samples in expected for tokens, _ in samples))
    assert sampler.tokenizer.decode([5, END]) == "w5"
    assert [found.largest < 1e-4 for found in sampler.agreements] == [True, True]
    pids = sampler.pids
    sampler.close()
    assert not any(map(alive, pids))


def test_a_killed_engine_is_named_and_the_next_request_gets_fresh_ones(make: Make, anchor: Checkpoint) -> None:
    sampler = make(engines=2)
    sampler.load(anchor)
    expected, before = sampler.sample(GROUPS, PARAMS), sampler.pids
    kept: list[int] = []
    with pytest.raises(EngineError, match=r"vllm engine \d \(pid \d+\) was killed by signal 9 \(SIGKILL\)"):
        deadly = PromptGroup(group_id="deadly", token_ids=[DIE], seeds=[1])
        sampler.sample([*GROUPS, deadly], PARAMS, keep=lambda place, _: kept.append(place))
    assert kept
    assert not any(map(alive, before))
    assert sampler.sample(GROUPS, PARAMS) == expected
    assert set(sampler.pids).isdisjoint(before)


def test_an_engine_killed_between_requests_is_named(make: Make, anchor: Checkpoint) -> None:
    sampler = make()
    sampler.load(anchor)
    os.kill(sampler.pids[0], signal.SIGKILL)
    with pytest.raises(EngineError, match="SIGKILL"):
        sampler.sample(GROUPS, PARAMS)
    assert sampler.sample(GROUPS[:1], PARAMS)


def test_a_hung_engine_ends_the_request_within_its_limit(make: Make, anchor: Checkpoint) -> None:
    sampler = make(silent_seconds=2.0)
    sampler.load(anchor)
    pids, started = sampler.pids, time.monotonic()
    with pytest.raises(EngineError, match="has said nothing for 2 s with work to do"):
        sampler.sample([replace(GROUPS[0], token_ids=[HANG])], PARAMS)
    assert time.monotonic() - started < 30
    assert not any(map(alive, pids))


def test_whoever_stops_listening_ends_the_engines(make: Make, anchor: Checkpoint) -> None:
    sampler = make()
    sampler.load(anchor)
    pids = sampler.pids

    def overdue(done: int, total: int, tokens: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        sampler.sample(GROUPS, PARAMS, progress=overdue)
    assert not any(map(alive, pids))


@pytest.mark.parametrize("updates", ["fresh", "in_place"])
def test_an_update_is_made_as_asked_and_checked(make: Make, anchor: Checkpoint, tmp_path: Path, updates: str) -> None:
    (tmp_path / "uniform").mkdir()
    (tmp_path / "other").mkdir()
    sampler = make(updates=updates)
    sampler.load(anchor)
    before = sampler.pids
    sampler.load(uniform(tmp_path / "uniform"))
    assert (sampler.pids == before) == (updates == "in_place")
    with pytest.raises(EngineError, match=r"vllm engine 0 does not hold the weights of .*nats on average"):
        sampler.load(make_checkpoint(tmp_path / "other"))
    assert not any(map(alive, before))
    assert sampler.pids == []


@pytest.mark.parametrize("claimed", ["-5", "nan"])
def test_wrong_log_probabilities_stop_the_run(
    make: Make, anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch, claimed: str
) -> None:
    monkeypatch.setenv("SCRIPTED_LOGPROB", claimed)
    with pytest.raises(EngineError, match="does not hold the weights"):
        make().load(anchor)


def test_an_engine_that_cannot_start_says_why(make: Make, anchor: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be started with"):
        make(python=str(tmp_path / "python")).load(anchor)
    with pytest.raises(EngineError, match=r"ended with status 1: AssertionError"):
        make(max_sequences=0).load(anchor)


def test_a_sleeping_engine_wakes_for_the_next_request(make: Make, anchor: Checkpoint) -> None:
    sampler = make()
    sampler.load(anchor)
    expected = sampler.sample(GROUPS, PARAMS)
    sampler.sleep()
    sampler.sleep()
    assert sampler.sample(GROUPS, PARAMS) == expected


@pytest.mark.parametrize("prompt", [[], [2] * 250])
def test_unusable_prompts_are_named_and_harm_nobody(make: Make, anchor: Checkpoint, prompt: list[int]) -> None:
    sampler = make()
    with pytest.raises(EngineError, match="no checkpoint"):
        sampler.sample(GROUPS, PARAMS)
    sampler.load(anchor)
    before = sampler.pids
    with pytest.raises(EngineError, match="'bad'"):
        sampler.sample([PromptGroup(group_id="bad", token_ids=prompt, seeds=[1])], PARAMS)
    assert sampler.pids == before


def test_what_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="not in float64"):
        VLLMSampler(dtype="float64")
    monkeypatch.delenv("INFUSER_VLLM_PYTHON", raising=False)
    if find_spec("vllm") is None:
        with pytest.raises(EngineError, match="INFUSER_VLLM_PYTHON"):
            VLLMSampler(device="cpu")


def test_the_reason_of_a_death_is_its_last_exception() -> None:
    log = "INFO ready\nTraceback (most recent call last):\n  boom\ntorch.OutOfMemoryError: no memory\n[rank0] bye\n"
    assert last_words(log) == "torch.OutOfMemoryError: no memory"
    assert last_words("INFO ready\n") == ""
