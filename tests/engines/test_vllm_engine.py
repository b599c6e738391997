"""The real vLLM engine against the local sampler and the plain model: `make test-vllm`."""

import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_family import END, VOCABULARY, WINDOW, make_family
from transformers import AutoModelForCausalLM

from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.engines.vllm.sampler import VLLMSampler
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

WHERE = os.environ.get("INFUSER_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not WHERE, reason="no vllm: set INFUSER_VLLM_PYTHON, or `make test-vllm`"),
]

# A tied model, and one with sliding windows and an output layer of its own.
MODELS = {"tied": ("qwen3", {"tied": True}), "windows": ("olmo3", WINDOW)}
GREEDY = SamplingParams(temperature=0.0, max_tokens=40)
RESTRICTED = SamplingParams(temperature=0.7, top_p=0.9, top_k=20, max_tokens=40)
HOT = SamplingParams(temperature=1.3, max_tokens=60)

Tokens = list[list[list[int]]]


def checkpoint(model: str, folder: Path, *, seed: int = 0) -> Checkpoint:
    family, changes = MODELS[model]
    return make_family(folder / f"{model}-{seed}", family, seed=seed, **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def anchor(model: str, folder: Path) -> Checkpoint:
    return checkpoint(model, folder)


@pytest.fixture(scope="module")
def sampler(anchor: Checkpoint) -> Iterator[VLLMSampler]:
    engine = VLLMSampler(dtype="float32", device="cpu", python=WHERE, max_sequences=16, updates="in_place")
    engine.load(anchor)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def local(anchor: Checkpoint) -> HFSampler:
    engine = HFSampler(device="cpu")
    engine.load(anchor)
    return engine


def groups(count: int = 8) -> list[PromptGroup]:
    draw = np.random.default_rng(0)
    return [
        PromptGroup(
            group_id=f"g{place}",
            token_ids=draw.integers(2, VOCABULARY, 3 + 14 * (place % 3)).tolist(),
            seeds=[100 * place + sample for sample in range(1 + place % 4)],
        )
        for place in range(count)
    ]


def tokens(drawn: list[list[Completion]]) -> Tokens:
    return [[each.token_ids for each in samples] for samples in drawn]


def flat(drawn: list[list[Completion]]) -> list[Completion]:
    return [each for samples in drawn for each in samples]


def test_the_check_after_loading_is_exact(sampler: VLLMSampler) -> None:
    (found,) = sampler.agreements
    assert found.tokens > 20
    assert found.largest < 1e-4


def test_greedy_tokens_and_log_probabilities_are_the_local_samplers(sampler: VLLMSampler, local: HFSampler) -> None:
    drawn, expected = sampler.sample(groups(), GREEDY), local.sample(groups(), GREEDY)
    assert tokens(drawn) == tokens(expected)
    for one, other in zip(flat(drawn), flat(expected), strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.finish_reason == other.finish_reason


@pytest.mark.parametrize("params", [RESTRICTED, HOT, SamplingParams(temperature=1.0, top_k=5, max_tokens=30)])
def test_sampled_log_probabilities_are_those_before_restrictions(
    sampler: VLLMSampler, anchor: Checkpoint, params: SamplingParams
) -> None:
    plain = AutoModelForCausalLM.from_pretrained(anchor.path, dtype=torch.float32)
    for group, samples in zip(groups(), sampler.sample(groups(), params), strict=True):
        for each in samples:
            logits = plain(torch.tensor([group.token_ids + each.token_ids])).logits[0, len(group.token_ids) - 1 : -1]
            chosen = torch.tensor(each.token_ids)[:, None]
            expected = torch.log_softmax(logits / params.temperature, -1).gather(1, chosen)[:, 0]
            assert each.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
            if params.top_k > 0:
                assert bool((logits.gather(1, chosen) >= logits.topk(params.top_k).values[:, -1:] - 1e-4).all())


def test_responses_end_at_the_end_token_or_the_limit(sampler: VLLMSampler) -> None:
    drawn = flat(sampler.sample(groups(), HOT))
    assert {each.finish_reason for each in drawn} == {"stop", "length"}
    for each in drawn:
        assert END not in each.token_ids[:-1]
        assert (each.finish_reason == "stop") == (each.token_ids[-1] == END)
        assert len(each.token_ids) == len(each.logprobs) <= 60
        assert each.finish_reason == "stop" or len(each.token_ids) == 60


def test_a_sample_depends_on_its_prompt_and_seed_alone(sampler: VLLMSampler) -> None:
    together = tokens(sampler.sample(groups(), HOT))
    assert tokens(sampler.sample(groups(), HOT)) == together
    assert tokens(sampler.sample(groups()[::-1], HOT))[::-1] == together
    assert len({tuple(ids) for samples in together for ids in samples}) == sum(map(len, together))
    for group, samples in list(zip(groups(), together, strict=True))[:4]:
        for seed, ids in zip(group.seeds, samples, strict=True):
            alone = PromptGroup(group_id="alone", token_ids=group.token_ids, seeds=[seed])
            assert tokens(sampler.sample([alone], HOT)) == [[ids]]


def test_a_large_seed_is_a_seed(sampler: VLLMSampler) -> None:
    group = PromptGroup(group_id="g", token_ids=[5, 6], seeds=[2**63 - 1, 2**63 - 2])
    ((one, other),) = sampler.sample([group], HOT)
    assert tokens(sampler.sample([group], HOT)) == [[one.token_ids, other.token_ids]]
    assert one.token_ids != other.token_ids


def test_finished_groups_are_kept_as_they_end(sampler: VLLMSampler) -> None:
    kept: dict[int, list[Completion]] = {}
    seen: list[tuple[int, int, int]] = []
    drawn = sampler.sample(groups(), HOT, keep=kept.__setitem__, progress=lambda *numbers: seen.append(numbers))
    assert kept == dict(enumerate(drawn))
    rows = sum(map(len, drawn))
    assert seen[-1] == (rows, rows, sum(len(each.token_ids) for each in flat(drawn)))


def test_reloading_in_place_is_right_or_stops_the_run(
    sampler: VLLMSampler, model: str, anchor: Checkpoint, folder: Path
) -> None:
    other = checkpoint(model, folder, seed=7)
    before = tokens(sampler.sample(groups(), GREEDY))
    if model == "tied":
        # This build keeps a packed copy of the output layer, which a reload leaves as it was.
        with pytest.raises(EngineError, match="does not hold the weights"):
            sampler.load(other)
        # A request after the failure gets a fresh engine with what was asked for.
    else:
        pids = sampler.pids
        sampler.load(other)
        assert sampler.pids == pids
    local = HFSampler(device="cpu")
    local.load(other)
    drawn = tokens(sampler.sample(groups(), GREEDY))
    assert drawn == tokens(local.sample(groups(), GREEDY))
    assert drawn != before


def test_a_killed_engine_is_named_within_seconds(sampler: VLLMSampler) -> None:
    if not sampler.pids:
        sampler.sample(groups(1), GREEDY)

    def kill(done: int, total: int, tokens: int) -> None:
        if sampler.pids:
            os.kill(sampler.pids[0], signal.SIGKILL)

    long = SamplingParams(temperature=1.0, max_tokens=200)
    with pytest.raises(EngineError, match=r"vllm engine 0 \(pid \d+\) was killed by signal 9"):
        sampler.sample(groups() * 8, long, progress=kill)
    assert sampler.pids == []
