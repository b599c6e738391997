from pathlib import Path

import numpy as np
import pytest
import torch
from engine_tiny import END, VOCABULARY, make_checkpoint
from transformers import AutoModelForCausalLM

from infuser_core.engines.hf.sampler import HFSampler, pick, uniforms
from infuser_core.engines.pool import SamplerChat
from infuser_core.engines.protocols import PromptGroup, SamplingParams
from infuser_core.errors import EngineError


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> HFSampler:
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("sampler"))
    engine = HFSampler(device="cpu")
    engine.load(checkpoint)
    return engine


def groups(count: int = 7) -> list[PromptGroup]:
    draw = np.random.default_rng(0)
    return [
        PromptGroup(
            group_id=f"g{place}",
            token_ids=draw.integers(2, VOCABULARY, 3 + 4 * (place % 3)).tolist(),
            seeds=[100 * place + sample for sample in range(1 + place % 4)],
        )
        for place in range(count)
    ]


PARAMS = SamplingParams(temperature=1.0, max_tokens=90)


def test_a_sample_depends_on_its_prompt_and_seed_alone(sampler: HFSampler) -> None:
    together = sampler.sample(groups(), PARAMS)
    assert {each.finish_reason for samples in together for each in samples} == {"stop", "length"}
    for group, samples in zip(groups(), together, strict=True):
        for seed, completion in zip(group.seeds, samples, strict=True):
            alone = PromptGroup(group_id="alone", token_ids=group.token_ids, seeds=[seed])
            ((single,),) = sampler.sample([alone], PARAMS)
            assert single.token_ids == completion.token_ids
            assert single.logprobs == pytest.approx(completion.logprobs, abs=1e-4)


def test_budgets_change_nothing(sampler: HFSampler, tmp_path: Path) -> None:
    small = HFSampler(device="cpu", cache_tokens=150, prefill_tokens=10)
    small.load(make_checkpoint(tmp_path))
    for one, other in zip(sampler.sample(groups(), PARAMS), small.sample(groups(), PARAMS), strict=True):
        assert [each.token_ids for each in one] == [each.token_ids for each in other]


def test_logprobs_are_those_of_the_plain_model(sampler: HFSampler, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path).path)
    params = SamplingParams(temperature=0.7, top_p=0.9, top_k=20, max_tokens=12)
    for group, samples in zip(groups(), sampler.sample(groups(), params), strict=True):
        for each in samples:
            ids = torch.tensor([group.token_ids + each.token_ids])
            logits = model(ids).logits[0, len(group.token_ids) - 1 : -1] / 0.7
            expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(each.token_ids)[:, None])[:, 0]
            assert each.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_greedy_follows_the_most_likely_token(sampler: HFSampler, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path).path)
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    for group, samples in zip(groups(), sampler.sample(groups(), greedy), strict=True):
        ids = list(group.token_ids)
        for token in samples[0].token_ids:
            assert token == int(model(torch.tensor([ids])).logits[0, -1].argmax())
            ids.append(token)
        assert all(each.token_ids == samples[0].token_ids for each in samples)


def test_responses_end_at_the_end_token_or_the_limit(sampler: HFSampler) -> None:
    for samples in sampler.sample(groups(), PARAMS):
        for each in samples:
            assert END not in each.token_ids[:-1]
            assert len(each.token_ids) == len(each.logprobs) <= 90
            assert (each.finish_reason == "stop") == (each.token_ids[-1] == END)


def test_progress_counts_rows_and_tokens(sampler: HFSampler) -> None:
    seen: list[tuple[int, int, int]] = []
    result = sampler.sample(groups(), PARAMS, progress=lambda *numbers: seen.append(numbers))
    rows, tokens = sum(map(len, result)), sum(len(each.token_ids) for samples in result for each in samples)
    assert seen[-1] == (rows, rows, tokens)


@pytest.mark.parametrize("prompt", [[], [2] * 200])
def test_unusable_prompts_are_named(sampler: HFSampler, prompt: list[int]) -> None:
    with pytest.raises(EngineError, match="'bad'"):
        sampler.sample([PromptGroup(group_id="bad", token_ids=prompt, seeds=[1])], PARAMS)


def test_no_groups_give_no_completions(sampler: HFSampler) -> None:
    assert sampler.sample([], PARAMS) == []
    assert sampler.sample([PromptGroup(group_id="none", token_ids=[2], seeds=[])], PARAMS) == [[]]


def test_chat_and_renderer(sampler: HFSampler) -> None:
    renderer = sampler.tokenizer
    prompt = renderer.render([{"role": "user", "content": "w7 w8"}])
    assert prompt == [2, 7, 8, 3]
    assert renderer.encode("w5 w6") == [5, 6]
    assert renderer.decode([5, 6, END]) == "w5 w6"
    chat = SamplerChat(sampler, name="tiny")
    (reply,) = chat.complete([[{"role": "user", "content": "w7 w8"}]], max_tokens=5)
    ((greedy,),) = sampler.sample(
        [PromptGroup(group_id="c", token_ids=prompt, seeds=[9])], SamplingParams(temperature=0.0, max_tokens=5)
    )
    assert (chat.name, reply) == ("tiny", renderer.decode(greedy.token_ids))


def test_uniforms_are_uniform_and_fixed() -> None:
    draws = np.stack([uniforms(np.arange(2000, dtype=np.uint64), position) for position in range(20)])
    assert (draws.min() >= 0, draws.max() < 1) == (True, True)
    assert draws.mean() == pytest.approx(0.5, abs=0.01)
    assert np.histogram(draws, bins=10, range=(0, 1))[0] == pytest.approx([4000] * 10, rel=0.06)
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 0.08
    # A pinned value: stored rollouts can be drawn again only while this function stays as it is.
    assert uniforms(np.array([42], dtype=np.uint64), 3)[0] == 0.06735789320333596


def test_sampled_frequencies_match_the_distribution() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    rows = 40_000
    draws = torch.from_numpy(uniforms(np.arange(rows, dtype=np.uint64), 0))
    picked = pick(logits.expand(rows, -1), draws, SamplingParams(temperature=0.7, max_tokens=1))
    expected = torch.softmax(logits / 0.7, -1)
    frequencies = torch.bincount(picked.tokens_R, minlength=4) / rows
    assert frequencies.tolist() == pytest.approx(expected.tolist(), abs=0.01)
    assert picked.logprobs_R.tolist() == pytest.approx(expected.log()[picked.tokens_R].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("top_p", "top_k", "kept"),
    [(1.0, 2, {1, 3}), (0.6, -1, {1, 3}), (0.4, -1, {1}), (0.5, 3, {1}), (1.0, 4, {0, 1, 2, 3}), (0.0, -1, {1})],
)
def test_restrictions_keep_the_right_tokens(top_p: float, top_k: int, kept: set[int]) -> None:
    logits = torch.tensor([0.05, 0.5, 0.15, 0.3]).log()
    draws = torch.linspace(0, 1 - 1e-9, 1000, dtype=torch.float64)
    params = SamplingParams(temperature=1.0, top_p=top_p, top_k=top_k, max_tokens=1)
    picked = pick(logits.expand(1000, -1), draws, params)
    assert set(picked.tokens_R.tolist()) == kept
    assert picked.logprobs_R.exp().tolist() == pytest.approx(logits.exp()[picked.tokens_R].tolist(), abs=1e-6)
