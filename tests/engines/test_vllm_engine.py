"""The real vLLM engine against the local sampler and the plain model: `make test-vllm`."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_tiny import (
    END,
    SHAPES,
    VOCABULARY,
    WINDOW,
    make_family,
    make_groups,
    step,
    stock_logprobs,
    stock_model,
    trainer,
)
from places import SUPPORT
from scipy.stats import chisquare
from spoiled_engines import SpoiledSampler, flipped, missing, nudged, wrong
from stock_engines import hf_sampler

from infuser_core.config.roles import AdapterSettings
from infuser_core.engines.hf.causal_lm import copy_model
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.hub import prepare_adapter
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.engines.service.sync_check import LIMITS
from infuser_core.engines.service.weight_transfer import Board
from infuser_core.errors import EngineError, EngineWarning
from infuser_core.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

WHERE = os.environ.get("INFUSER_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not WHERE, reason="no vllm: set INFUSER_VLLM_PYTHON, or `make test-vllm`"),
]

# A tied model, and one with sliding windows and an output layer of its own.
MODELS = {"tied": ("qwen3", {"tied": True}), "windows": ("olmo3", WINDOW)}
GREEDY = SamplingParams(temperature=0.0, max_tokens=40)
HOT = SamplingParams(temperature=1.3, max_tokens=60)


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
def sampler(anchor: Checkpoint) -> Iterator[ServiceSampler]:
    engine = ServiceSampler(dtype="float32", device="cpu", threads=1, max_num_seqs=16)
    engine.load(anchor)
    yield engine
    engine.close()


def local(anchor: Checkpoint) -> HFSampler:
    engine = hf_sampler()
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


def test_other_arguments_reach_the_engine_and_unknown_ones_are_named(folder: Path) -> None:
    arguments = {"max_num_seqs": 3, "enforce_eager": True, "block_size": 32}
    given, plain = (ServiceSampler(dtype="float32", device="cpu", threads=1, vllm=each) for each in (arguments, {}))
    for engine in (given, plain):
        engine.load(checkpoint("tied", folder))
    assert given._capacity == 3 != plain._capacity
    assert tokens(given.sample(groups(), GREEDY)) == tokens(plain.sample(groups(), GREEDY))
    given.close()
    plain.close()
    with pytest.raises(EngineError, match="no_such_argument"):
        ServiceSampler(dtype="float32", device="cpu", threads=1, vllm={"no_such_argument": 1}).load(
            checkpoint("tied", folder)
        )


def tokens(drawn: list[list[Completion]]) -> list[list[list[int]]]:
    return [[each.token_ids for each in samples] for samples in drawn]


def flat(drawn: list[list[Completion]]) -> list[Completion]:
    return [each for samples in drawn for each in samples]


def test_greedy_tokens_and_log_probabilities_are_the_local_samplers(
    sampler: ServiceSampler, anchor: Checkpoint
) -> None:
    (found,) = sampler.agreements
    names = dict(stock_model(anchor, torch.float32).named_parameters(remove_duplicate=False))
    assert found.tensors == len(names)
    assert found.tokens > 20 and found.largest < 1e-4
    drawn, expected = sampler.sample(groups(), GREEDY), local(anchor).sample(groups(), GREEDY)
    assert tokens(drawn) == tokens(expected)
    for one, other in zip(flat(drawn), flat(expected), strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.finish_reason == other.finish_reason


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7, top_p=0.9, top_k=20, max_tokens=40),
        HOT,
        SamplingParams(temperature=1.0, top_k=5, max_tokens=30),
    ],
)
def test_sampled_tokens_are_the_local_samplers_and_log_probabilities_those_before_restrictions(
    sampler: ServiceSampler, anchor: Checkpoint, params: SamplingParams
) -> None:
    plain, drawn = stock_model(anchor, torch.float32), sampler.sample(groups(), params)
    assert tokens(drawn) == tokens(local(anchor).sample(groups(), params))
    for group, samples in zip(groups(), drawn, strict=True):
        for each in samples:
            expected = stock_logprobs(plain, group.token_ids, each.token_ids, params.temperature)
            assert each.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
            if params.top_k > 0:
                logits = plain(torch.tensor([group.token_ids + each.token_ids])).logits[
                    0, len(group.token_ids) - 1 : -1
                ]
                chosen = logits.gather(1, torch.tensor(each.token_ids)[:, None])
                assert bool((chosen >= logits.topk(params.top_k).values[:, -1:] - 1e-4).all())


def test_a_sample_depends_on_its_prompt_and_seed_alone_and_ends_where_it_should(sampler: ServiceSampler) -> None:
    kept: dict[tuple[int, int], Completion] = {}
    seen: list[tuple[int, int, int]] = []
    drawn = sampler.sample(
        groups(),
        HOT,
        keep=lambda place, row, each: kept.update({(place, row): each}),
        progress=lambda *numbers: seen.append(numbers),
    )
    rows = len(flat(drawn))
    assert kept == {(place, row): each for place, samples in enumerate(drawn) for row, each in enumerate(samples)}
    assert seen[-1] == (rows, rows, sum(len(each.token_ids) for each in flat(drawn)))
    assert {each.finish_reason for each in flat(drawn)} == {"stop", "length"}
    for each in flat(drawn):
        assert END not in each.token_ids[:-1] and len(each.token_ids) == len(each.logprobs) <= 60
        assert (each.finish_reason == "stop") == (each.token_ids[-1] == END)
        assert each.finish_reason == "stop" or len(each.token_ids) == 60
    together = tokens(drawn)
    assert tokens(sampler.sample(groups()[::-1], HOT))[::-1] == together
    assert len({tuple(ids) for samples in together for ids in samples}) == rows
    for group, samples in list(zip(groups(), together, strict=True))[:4]:
        for seed, ids in zip(group.seeds, samples, strict=True):
            alone = PromptGroup(group_id="alone", token_ids=group.token_ids, seeds=[seed])
            assert tokens(sampler.sample([alone], HOT)) == [[ids]]
    large = PromptGroup(group_id="g", token_ids=[5, 6], seeds=[2**63 - 1, 2**63 - 2])
    ((one, other),) = sampler.sample([large], HOT)
    assert tokens(sampler.sample([large], HOT)) == [[one.token_ids, other.token_ids]]
    assert one.token_ids != other.token_ids


def test_many_seeds_give_the_models_distribution(sampler: ServiceSampler, anchor: Checkpoint) -> None:
    prompt, rows = [5, 6, 7], 3000
    many = PromptGroup(group_id="many", token_ids=prompt, seeds=list(range(rows)))
    (drawn,) = sampler.sample([many], replace(HOT, max_tokens=1))
    counts = np.bincount([each.token_ids[0] for each in drawn], minlength=VOCABULARY)
    logits = stock_model(anchor, torch.float32)(torch.tensor([prompt])).logits[0, -1]
    expected = rows * torch.softmax(logits.double() / HOT.temperature, -1).detach().numpy()
    # Rare tokens count as one.
    common = expected >= 5
    observed, wanted = ([*each[common], each[~common].sum()] for each in (counts, expected))
    assert chisquare(observed, wanted).pvalue > 0.001


def test_another_checkpoint_is_another_distribution_and_a_killed_engine_is_named(
    sampler: ServiceSampler, model: str, folder: Path
) -> None:
    other = checkpoint(model, folder, seed=7)
    before, pids = tokens(sampler.sample(groups(), GREEDY)), sampler.pids
    # A CPU's engine has nothing to free, and says how deeply it would sleep.
    sampler.sleep()
    assert sampler.facts()["sleep_levels"] == [1]
    sampler.load(other)
    assert sampler.pids == pids and sampler.agreements[0].largest < 1e-4
    drawn = tokens(sampler.sample(groups(), GREEDY))
    assert drawn == tokens(local(other).sample(groups(), GREEDY)) != before

    def kill(done: int, total: int, tokens: int) -> None:
        if sampler.pids:
            os.kill(sampler.pids[0], signal.SIGKILL)

    long = SamplingParams(temperature=1.0, max_tokens=200)
    with pytest.raises(EngineError, match=r"engine 0 \(pid \d+\) was killed by signal 9"):
        sampler.sample(groups() * 8, long, progress=kill)
    assert sampler.pids == []


@pytest.mark.parametrize(("spoil", "tensor"), [(wrong, "mlp.down"), (missing, "self_attn.o"), (nudged, "self_attn.k")])
def test_weights_that_a_running_engine_takes_badly_are_noticed(
    folder: Path, spoil: Callable[..., None], tensor: str
) -> None:
    width = 2 if spoil is nudged else 1
    sampler = SpoiledSampler(spoil, dtype="float32", device="cpu", threads=1, max_num_seqs=16, tensor_parallel=width)
    sampler.load(checkpoint("windows", folder, seed=11))
    with pytest.warns(EngineWarning, match=rf"checksums of 1 of \d+ tensors differ, e.g. model.layers.0.{tensor}_proj"):
        sampler.load(checkpoint("windows", folder, seed=12))
    assert sampler.starts == 2 and sampler.agreements[0].largest < 1e-4
    sampler.close()


@pytest.mark.parametrize(("name", "dtype"), [("tied", "float32"), ("windows", "bfloat16")])
def test_weights_from_a_trainers_memory_change_running_engines_without_a_restart(
    folder: Path, name: str, dtype: str
) -> None:
    board = Board(dtype)
    first = checkpoint(name, folder, seed=21)
    trained = trainer(first, board=board)
    sampler = SpoiledSampler(None, dtype=dtype, device="cpu", threads=1, max_num_seqs=16, board=board)
    sampler.load(first)
    assert sampler.facts()["head_dtype"] == "torch.float32"
    for number in range(3):
        step(trained, make_groups([(4, [5, 6])]))
        after = folder / f"{name}-{dtype}-{number}"
        after.mkdir()
        trained.save(after)
        # The second time the engines read the files of a copy.
        path = shutil.copytree(after, folder / f"copy-{name}") if number == 1 else after
        sampler.load(Checkpoint(checkpoint_id=str(number), role="solver", step=number, path=str(path)))
        assert (sampler.channel, sampler.starts) == ("files" if number == 1 else "memory", 1)
        (found,) = sampler.agreements
        assert found.tensors == len(trained.shapes()) + len(trained.tied())
        assert found.mean < (1e-4 if dtype == "float32" else 0.1)
    if dtype == "float32":
        last = Checkpoint(checkpoint_id="last", role="solver", step=3, path=str(after))
        assert tokens(sampler.sample(groups(), GREEDY)) == tokens(local(last).sample(groups(), GREEDY))
        sampler._hosts[0].spoil = wrong  # type: ignore[attr-defined]
        step(trained, make_groups([(4, [5, 6])]))
        trained.save(after)
        with pytest.warns(EngineWarning, match="checksums of 1 of .* tensors differ"):
            sampler.load(replace(last, checkpoint_id="spoiled"))
        assert (sampler.channel, sampler.starts) == ("fresh", 2)
    sampler.close()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adapters_change_in_an_engine_that_loaded_its_base_model_once(folder: Path, dtype: str) -> None:
    store = folder / f"adapters-{dtype}"
    base, anchor = store / "base" / "base-1", store / "anchor" / "anchor-1"
    for each in (base, anchor):
        each.mkdir(parents=True)
    copy_model(Path(checkpoint("tied", store).path), base)
    # No rank that vLLM reserves memory for, and no scale that is a power of two.
    prepare_adapter(base, anchor, adapter=AdapterSettings(rank=5, alpha=24), seed=0)
    first, board = Checkpoint(checkpoint_id="0", role="solver", path=str(anchor), step=0), Board(dtype)
    trained = trainer(first, board=board, dtype=dtype)
    sampler = SpoiledSampler(None, dtype=dtype, device="cpu", threads=1, max_num_seqs=16, board=board)
    sampler.load(first)
    # Layers of four, with seven matrices each: fused and packed ones are compared one by one.
    assert sampler.agreements[0].tensors == 4 * 11 + 3 + 2 * 4 * 7
    for number in range(3):
        for seed in range(3):
            step(trained, make_groups(SHAPES[:4], seed=10 * number + seed))
        after = store / "solver" / f"step-{number}"
        after.mkdir(parents=True)
        trained.save(after)
        # The second time the engines read the files of a copy.
        path = shutil.copytree(after, store / "solver" / "copy") if number == 1 else after
        last = Checkpoint(checkpoint_id=str(number), role="solver", step=number, path=str(path))
        sampler.load(last)
        assert (sampler.channel, sampler.starts) == ("files" if number == 1 else "memory", 1)
        (found,) = sampler.agreements
        assert found.tensors == (4 * 11 + 3 if number == 1 else 0) + 2 * 4 * 7
        assert found.mean < LIMITS[dtype][0]
        if dtype == "float32":
            merged, drawn = local(last).sample(groups(), HOT), sampler.sample(groups(), HOT)
            assert tokens(drawn) == tokens(merged)
            for one, other in zip(flat(drawn), flat(merged), strict=True):
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    if dtype == "float32":
        sampler._hosts[0].spoil = flipped  # type: ignore[attr-defined]
        step(trained, make_groups(SHAPES[:4]))
        trained.save(after)
        with pytest.warns(EngineWarning, match=r"checksums of 1 of 56 tensors differ, e.g. .*mlp.down_proj.lora_B"):
            sampler.load(replace(last, checkpoint_id="spoiled"))
        assert (sampler.channel, sampler.starts) == ("fresh", 2)
    sampler.close()


def test_a_tied_output_layer_that_stays_old_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An engine's own path holds this package alone: it would take libraries of another environment for its own.
    alone = folder / "alone"
    alone.mkdir()
    (alone / "spoiled_engines.py").symlink_to(SUPPORT / "spoiled_engines.py")
    monkeypatch.setenv("PYTHONPATH", str(alone))
    sampler = ServiceSampler(dtype="float32", device="cpu", threads=1, max_num_seqs=16, worker="spoiled_engines")
    sampler.load(checkpoint("tied", folder, seed=11))
    with pytest.warns(EngineWarning, match=r"checksums of 1 of \d+ tensors differ, e.g. lm_head.weight"):
        sampler.load(checkpoint("tied", folder, seed=12))
    assert sampler.starts == 2
    sampler.close()


def test_two_roles_take_turns_in_one_engine_and_get_what_two_engines_give(folder: Path) -> None:
    options = {"dtype": "float32", "device": "cpu", "threads": 1}
    solver, generator = (
        replace(checkpoint("tied", folder, seed=seed), role=role, checkpoint_id=role)
        for seed, role in ((31, "solver"), (32, "generator"))
    )
    turns, drawn = [solver, generator, solver, generator], []
    for one in (False, True):
        pool = EnginePool(
            sampler="vllm",
            trainer="fake",
            placement="split",
            max_trainers=0,
            one_sampler=one,
            sampler_options=options,
        )
        drawn.append([tokens(pool.sampler(each).sample(groups(), HOT)) for each in turns])
        engines = [warm.engine for warm in pool._warm.values()]
        assert len(engines) == (1 if one else 2) and [engine.starts for engine in engines] == [1] * len(engines)
        assert all(engine.agreements[0].largest < 1e-4 for engine in engines)
        if one:
            os.kill(engines[0].pids[0], signal.SIGKILL)
            with pytest.warns(EngineWarning, match="was killed by signal 9"):
                assert tokens(pool.sampler(solver).sample(groups(), HOT)) == drawn[0][0]
        pool.close()
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize(
    "limits", [{"max_num_batched_tokens": 256}, {"vllm": {"num_gpu_blocks_override": 14, "block_size": 32}}]
)
def test_prompts_longer_than_a_step_or_a_full_cache_give_what_each_gives_alone(
    folder: Path, limits: dict[str, Any]
) -> None:
    engine = ServiceSampler(dtype="float32", device="cpu", threads=1, **limits)
    prompts = [[2 + (place * token) % 60 for token in range(100)] for place in range(8)]
    asked = [PromptGroup(group_id=str(place), token_ids=ids, seeds=[place]) for place, ids in enumerate(prompts)]
    try:
        engine.load(checkpoint("tied", folder))
        together = tokens(engine.sample(asked, HOT))
        assert together == [tokens(engine.sample([each], HOT))[0] for each in asked]
    finally:
        engine.close()
