"""The local sampler draws what its seeds say from the model's distribution, also after it took another checkpoint."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_tiny import (
    END,
    ROUTED,
    SHAPES,
    TURN,
    VOCABULARY,
    WINDOW,
    make_checkpoint,
    make_family,
    make_groups,
    make_source,
    step,
    stock_logprobs,
    stock_model,
    trainer,
)
from safetensors.torch import load_file, save_file
from stock_engines import hf_sampler

from infuser_core.engines.deepspeed.zero import empty_model
from infuser_core.engines.draws import _largest, _largest_by_key, pick_tokens, uniforms
from infuser_core.engines.hf.causal_lm import saved_buffers
from infuser_core.engines.hf.output_head import OutputHead
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.pool import SamplerChat
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

PARAMS = SamplingParams(temperature=1.0, max_tokens=90)


def loaded(checkpoint: Checkpoint, **options: int) -> HFSampler:
    engine = hf_sampler(**options)
    engine.load(checkpoint)
    return engine


@pytest.fixture(scope="module")
def sampler(anchor: Checkpoint) -> HFSampler:
    return loaded(anchor)


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


def test_a_sample_depends_on_its_prompt_and_seed_alone(sampler: HFSampler, anchor: Checkpoint) -> None:
    seen: list[tuple[int, int, int]] = []
    together = sampler.sample(groups(), PARAMS, progress=lambda *numbers: seen.append(numbers))
    every = [each for samples in together for each in samples]
    assert {each.finish_reason for each in every} == {"stop", "length"}
    assert seen[-1] == (len(every), len(every), sum(len(each.token_ids) for each in every))
    for each in every:
        assert END not in each.token_ids[:-1] and len(each.token_ids) == len(each.logprobs) <= 90
        assert (each.finish_reason == "stop") == (each.token_ids[-1] == END)
    for group, samples in zip(groups(), together, strict=True):
        for seed, completion in zip(group.seeds, samples, strict=True):
            alone = PromptGroup(group_id="alone", token_ids=group.token_ids, seeds=[seed])
            ((single,),) = sampler.sample([alone], PARAMS)
            assert single.token_ids == completion.token_ids
            assert single.logprobs == pytest.approx(completion.logprobs, abs=1e-4)
    small = loaded(anchor, cache_tokens=150, prefill_tokens=10)
    drawn = [[each.token_ids for each in samples] for samples in small.sample(groups(), PARAMS)]
    assert drawn == [[each.token_ids for each in samples] for samples in together]


def test_a_groups_own_limit_cuts_its_responses_and_no_others(sampler: HFSampler) -> None:
    limits = [None, 1, 7, 40, 200, 12, None]
    own = [replace(group, max_tokens=limit) for group, limit in zip(groups(), limits, strict=True)]
    for group, cut, whole in zip(own, sampler.sample(own, PARAMS), sampler.sample(groups(), PARAMS), strict=True):
        most = group.limit(PARAMS)
        assert [each.token_ids for each in cut] == [list(each.token_ids)[:most] for each in whole]
        for part, every in zip(cut, whole, strict=True):
            assert part.finish_reason == ("length" if len(every.token_ids) > most else every.finish_reason)
            assert part.logprobs == pytest.approx(list(every.logprobs)[:most], abs=1e-4)


MODELS = {
    "tiny": None,
    "qwen3": ("qwen3", {}),
    "olmo3": ("olmo3", WINDOW),
    "olmo3, window of one": ("olmo3", {"sliding_window": 1}),
    "mistral": ("mistral", WINDOW),
}


@pytest.mark.parametrize("model", MODELS)
def test_log_probabilities_are_those_of_the_plain_model(tmp_path: Path, model: str) -> None:
    found = MODELS[model]
    checkpoint = make_checkpoint(tmp_path) if found is None else make_family(tmp_path, found[0], **found[1])
    plain, sampler = stock_model(checkpoint), loaded(checkpoint)
    prompts = [
        PromptGroup(group_id=str(n), token_ids=[2 + token % 60 for token in range(length)], seeds=[n, 50 + n])
        for n, length in enumerate([3, 9, 20, 20])
    ]
    restricted = SamplingParams(temperature=0.7, top_p=0.9, top_k=20, max_tokens=12)
    for params in (SamplingParams(temperature=0.7, max_tokens=40), restricted):
        drawn = sampler.sample(prompts, params)
        assert params is restricted or max(len(each.token_ids) for samples in drawn for each in samples) > 20
        for group, samples in zip(prompts, drawn, strict=True):
            for each in samples:
                wanted = stock_logprobs(plain, group.token_ids, each.token_ids, 0.7)
                assert each.logprobs == pytest.approx(wanted.tolist(), abs=1e-4)


def test_a_bf16_model_has_fp32_logits(tmp_path: Path) -> None:
    model = stock_model(make_checkpoint(tmp_path)).bfloat16()
    hidden = torch.randn(5, model.config.hidden_size).bfloat16()
    weight = model.get_output_embeddings().weight
    logits = OutputHead(model).logits(hidden)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), hidden.double() @ weight.double().t(), rtol=1e-5, atol=1e-6)


def test_greedy_follows_the_most_likely_token(sampler: HFSampler, anchor: Checkpoint) -> None:
    model = stock_model(anchor)
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    for group, samples in zip(groups(), sampler.sample(groups(), greedy), strict=True):
        ids = list(group.token_ids)
        for token in samples[0].token_ids:
            assert token == int(model(torch.tensor([ids])).logits[0, -1].argmax())
            ids.append(token)
        assert all(each.token_ids == samples[0].token_ids for each in samples)


def test_unusable_prompts_are_named_and_none_are_no_trouble(sampler: HFSampler) -> None:
    for prompt in ([], [2] * 200):
        with pytest.raises(EngineError, match="'bad'"):
            sampler.sample([PromptGroup(group_id="bad", token_ids=prompt, seeds=[1])], PARAMS)
    assert sampler.sample([], PARAMS) == []
    assert sampler.sample([PromptGroup(group_id="none", token_ids=[2], seeds=[])], PARAMS) == [[]]


def test_chat_and_renderer(sampler: HFSampler) -> None:
    renderer, turns = sampler.tokenizer, [{"role": "user", "content": "w7 w8"}]
    prompt = renderer.render(turns)
    assert prompt == [2, 7, 8, TURN, 3]
    assert (renderer.encode("w5 w6"), renderer.decode([5, 6, END])) == ([5, 6], "w5 w6")
    chat = SamplerChat(sampler, name="tiny")
    group = PromptGroup(group_id="c", token_ids=prompt, seeds=[9])
    ((greedy,),) = sampler.sample([group], SamplingParams(temperature=0.0, max_tokens=5))
    assert (chat.name, chat.complete([turns], max_tokens=5)) == ("tiny", [renderer.decode(greedy.token_ids)])


def test_uniforms_are_uniform_and_fixed() -> None:
    draws = np.stack([uniforms(torch.arange(2000), position).numpy() for position in range(20)])
    assert (draws.min() >= 0, draws.max() < 1) == (True, True)
    assert draws.mean() == pytest.approx(0.5, abs=0.01)
    assert np.histogram(draws, bins=10, range=(0, 1))[0] == pytest.approx([4000] * 10, rel=0.06)
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 0.08
    # A pinned value: stored rollouts can be drawn again only while this function stays as it is.
    assert uniforms(torch.tensor([42, 42]), torch.tensor([3, 3])).tolist() == [0.06735789320333596] * 2


def test_sampled_frequencies_match_the_distribution() -> None:
    logits, rows = torch.tensor([0.0, 1.0, 2.0, -1.0]), 40_000
    draws = uniforms(torch.arange(rows), 0)
    tokens, logprobs = pick_tokens(logits.expand(rows, -1), draws, SamplingParams(temperature=0.7, max_tokens=1))
    expected = torch.softmax(logits / 0.7, -1)
    frequencies = torch.bincount(tokens, minlength=4) / rows
    assert frequencies.tolist() == pytest.approx(expected.tolist(), abs=0.01)
    assert logprobs.tolist() == pytest.approx(expected.log()[tokens].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("top_p", "top_k", "kept"),
    [(1.0, 2, {1, 3}), (0.6, -1, {1, 3}), (0.4, -1, {1}), (0.5, 3, {1}), (1.0, 4, {0, 1, 2, 3}), (0.0, -1, {1})],
)
def test_restrictions_keep_the_right_tokens(top_p: float, top_k: int, kept: set[int]) -> None:
    logits = torch.tensor([0.05, 0.5, 0.15, 0.3]).log()
    draws = torch.linspace(0, 1 - 1e-9, 1000, dtype=torch.float64)
    params = SamplingParams(temperature=1.0, top_p=top_p, top_k=top_k, max_tokens=1)
    tokens, logprobs = pick_tokens(logits.expand(1000, -1), draws, params)
    assert set(tokens.tolist()) == kept
    assert logprobs.exp().tolist() == pytest.approx(logits.exp()[tokens].tolist(), abs=1e-6)


@pytest.mark.parametrize("step", [0.0, 0.5])  # 0.5: most rows have several tokens like their twentieth
def test_top_k_is_the_head_of_the_stable_order_ties_or_not(step: float) -> None:
    logits = 3 * torch.randn(200, 300, generator=torch.Generator().manual_seed(0))
    logits = (logits / step).round() * step if step else logits
    draws = uniforms(torch.arange(200), 0)
    tokens, _ = pick_tokens(logits, draws, SamplingParams(temperature=1.0, top_k=20, max_tokens=1))
    ordered, order = torch.log_softmax(logits, -1).sort(dim=-1, descending=True, stable=True)
    cumulative = ordered[:, :20].exp().cumsum(-1, dtype=torch.float64)
    places = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True)
    assert torch.equal(tokens, order.gather(1, places)[:, 0])
    for ours, plain in zip(_largest_by_key(logits, 20), _largest(logits, 20), strict=True):
        assert torch.equal(ours, plain)


ASKED = [PromptGroup(group_id="g", token_ids=[5, 6, 7], seeds=[1, 2, 3])]


def drawn(sampler: HFSampler) -> str:
    return repr(sampler.sample(ASKED, SamplingParams(temperature=0.7, max_tokens=20)))


def refilled(*checkpoints: Checkpoint) -> HFSampler:
    sampler = hf_sampler()
    for checkpoint in checkpoints:
        sampler.load(checkpoint)
    return sampler


@pytest.mark.parametrize("family", ["qwen3", "olmo2"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_second_checkpoint_of_the_model_is_sampled_as_if_it_were_the_first(
    tmp_path: Path, family: str, tied: bool
) -> None:
    first, second = (make_checkpoint(tmp_path / str(seed), seed=seed, tied=tied, family=family) for seed in (0, 1))
    sampler = refilled(first)
    before, places = drawn(sampler), {name: id(each) for name, each in sampler.weights().items()}
    sampler.load(second)
    assert {name: id(each) for name, each in sampler.weights().items()} == places
    assert drawn(sampler) == drawn(refilled(second)) != before


@pytest.mark.parametrize(("family", "sizes"), [("apertus", {"hidden_size": 32}), ("glm4_moe", ROUTED)])
def test_buffers_of_a_model_are_in_its_checkpoints_and_refilled_with_it(
    tmp_path: Path, family: str, sizes: dict[str, int]
) -> None:
    first = make_family(tmp_path, family, **sizes)
    engine = trainer(first)
    step(engine, make_groups(SHAPES[:2]), rate=1e-2)
    folder = tmp_path / "second"
    folder.mkdir()
    engine.save(folder)
    second = Checkpoint(checkpoint_id="second", role="solver", path=str(folder), step=1)
    fixed, kept = saved_buffers(stock_model(first)), saved_buffers(stock_model(second))
    assert fixed and all(torch.equal(kept[name], each) for name, each in fixed.items())
    sampler = refilled(first)
    places = {name: id(each) for name, each in sampler.weights().items()}
    sampler.load(second)
    assert {name: id(each) for name, each in sampler.weights().items()} == places
    assert drawn(sampler) == drawn(refilled(second))


def test_a_model_of_another_kind_is_built_anew(tmp_path: Path) -> None:
    first, second = (make_checkpoint(tmp_path / name, tied=name == "tied") for name in ("tied", "untied"))
    assert drawn(refilled(first, second)) == drawn(refilled(second))


def test_a_checkpoint_without_one_of_the_weights_is_refused_and_nothing_of_it_is_taken(tmp_path: Path) -> None:
    first, broken = (make_checkpoint(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    file = Path(broken.path) / "model.safetensors"
    weights = load_file(file)
    del weights["model.norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    sampler = refilled(first)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        sampler.load(broken)
    sampler.load(first)
    assert drawn(sampler) == drawn(refilled(first))


def test_sharded_training_refuses_a_model_with_buffers(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"sharded training.*act_fn"):
        empty_model(make_source(tmp_path, "apertus", hidden_size=32))
