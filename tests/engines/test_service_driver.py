"""The sampler over engine processes, with a scripted engine in the place of vLLM: everything but vLLM itself."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest
from engine_tiny import END, make_checkpoint, uniform
from hypothesis import given
from hypothesis import strategies as st
from places import SUPPORT
from scripted_engine import DIE, HANG, TOGETHER, reply

from infuser_core.config.roles import AdapterSettings
from infuser_core.engines.hf.causal_lm import copy_model
from infuser_core.engines.local.hub import prepare_adapter
from infuser_core.engines.service.launch import Launch, ServiceOptions, engine_settings, launches, visible_cards
from infuser_core.engines.service.local_engines import start_engine
from infuser_core.engines.service.sample_call import GroupQueue
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.errors import EngineError, EngineWarning
from infuser_core.evaluation import resumable_sampling
from infuser_core.protocols import Completion, PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint, Role
from infuser_core.store.pieces import Pieces

PARAMS = SamplingParams(temperature=1.0, max_tokens=30)
GROUPS = [
    PromptGroup(group_id=f"g{place}", token_ids=[2 + place, 5, 7], seeds=[10 * place + i for i in range(1 + place % 3)])
    for place in range(6)
]
NONE = PromptGroup(group_id="none", token_ids=[2], seeds=[])
MODEL = "./model"

Make = Callable[..., ServiceSampler]


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The checkpoint that the scripted engine's answers belong to."""
    return uniform(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Samplers over scripted engines, with a checkpoint where one is given, closed at the end."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    made: list[ServiceSampler] = []

    def build(checkpoint: Checkpoint | None = None, **options: object) -> ServiceSampler:
        defaults = {"dtype": "float32", "device": "cpu", "threads": 1, "worker": "scripted_engine", "max_num_seqs": 4}
        made.append(ServiceSampler(**(defaults | options)))  # type: ignore[arg-type]
        if checkpoint is not None:
            made[-1].load(checkpoint)
        return made[-1]

    yield build
    for sampler in made:
        sampler.close()


def alive(pids: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_two_engines_answer_in_the_callers_order(make: Make, flat: Checkpoint) -> None:
    sampler = make(flat, engines=2)
    kept: dict[tuple[int, int], Completion] = {}
    seen: list[tuple[int, int, int]] = []
    groups = [*GROUPS, NONE]
    drawn = sampler.sample(
        groups,
        PARAMS,
        progress=lambda *numbers: seen.append(numbers),
        keep=lambda *said: kept.update({said[:2]: said[2]}),
    )
    expected = [[reply(seed, 30, [END]) for seed in group.seeds] for group in groups]
    assert [[(each.token_ids, each.finish_reason) for each in samples] for samples in drawn] == expected
    assert kept == {(place, row): each for place, samples in enumerate(drawn) for row, each in enumerate(samples)}
    assert seen[-1] == (12, 12, sum(len(tokens) for samples in expected for tokens, _ in samples))
    assert sampler.tokenizer.decode([5, END]) == "w5"
    assert [found.largest < 1e-4 for found in sampler.agreements] == [True, True]
    pids = sampler.pids
    sampler.close()
    assert len(pids) == 2 and not alive(pids)


def test_a_groups_own_limit_reaches_the_engine(make: Make, flat: Checkpoint) -> None:
    sampler = make(flat)
    whole = sampler.sample(GROUPS, PARAMS)
    cut = sampler.sample([replace(group, max_tokens=3 + place) for place, group in enumerate(GROUPS)], PARAMS)
    for place, (short, long) in enumerate(zip(cut, whole, strict=True)):
        assert [each.token_ids for each in short] == [list(each.token_ids)[: 3 + place] for each in long]


def test_a_killed_engine_is_named_and_the_next_request_gets_fresh_ones(make: Make, flat: Checkpoint) -> None:
    sampler = make(flat, engines=2)
    expected, before = sampler.sample(GROUPS, PARAMS), sampler.pids
    kept: list[int] = []
    deadly = PromptGroup(group_id="deadly", token_ids=[DIE], seeds=[1])
    with pytest.raises(EngineError, match=r"engine \d \(pid \d+\) was killed by signal 9 \(SIGKILL\)"):
        sampler.sample([*GROUPS, deadly], PARAMS, keep=lambda place, *_: kept.append(place))
    assert kept and not alive(before)
    assert sampler.sample(GROUPS, PARAMS) == expected
    assert set(sampler.pids).isdisjoint(before)
    os.kill(sampler.pids[0], signal.SIGKILL)
    with pytest.raises(EngineError, match="SIGKILL"):
        sampler.sample(GROUPS, PARAMS)
    assert sampler.sample(GROUPS[:1], PARAMS) == expected[:1]


class Asked:
    """A sampler that remembers what it was asked."""

    def __init__(self, sampler: ServiceSampler) -> None:
        self.names: list[tuple[str, int]] = []
        self._sampler, self.tokenizer, self.load = sampler, sampler.tokenizer, sampler.load

    def sample(self, groups: Sequence[PromptGroup], params: SamplingParams, **said: Any) -> list[list[Completion]]:
        self.names += [(group.group_id, seed) for group in groups for seed in group.seeds]
        return self._sampler.sample(groups, params, **said)


def test_a_killed_draw_goes_on_from_single_responses_and_asks_nothing_twice(
    make: Make, flat: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_sampling, "SAVE_SECONDS", 0.0)
    monkeypatch.setenv("SCRIPTED_SECONDS", "0.05")
    groups = [replace(group, seeds=[100 * place + i for i in range(5)]) for place, group in enumerate(GROUPS)]
    sampler = make(flat)
    expected = resumable_sampling.sample_resumably(groups, sampler, PARAMS)
    kept = Pieces(tmp_path / "kept", resumable_sampling.Drawn)

    def kill(*_: int) -> None:
        ended = Counter(row.group_id for row in kept.rows())
        if len(ended) > 1 and min(ended.values()) < 5:
            os.kill(sampler.pids[0], signal.SIGKILL)

    with pytest.raises(EngineError, match="SIGKILL"):
        resumable_sampling.sample_resumably(groups, sampler, PARAMS, saved_rows=kept, progress=kill)
    names = {(group.group_id, row): seed for group in groups for row, seed in enumerate(group.seeds)}
    left = {(name[0], seed) for name, seed in names.items()} - {
        (row.group_id, names[row.group_id, row.row]) for row in kept.rows()
    }
    again = Asked(sampler)
    assert resumable_sampling.sample_resumably(groups, again, PARAMS, saved_rows=kept) == expected
    assert sorted(again.names) == sorted(left) and 0 < len(left) < 30 and len(left) % 5
    found = f"select count(*), count(distinct (group_id, row)) from '{tmp_path}/kept/*.parquet'"
    assert duckdb.sql(found).fetchall() == [(30, 30)]


def test_a_hung_engine_or_a_lost_listener_ends_the_request_and_the_engines(make: Make, flat: Checkpoint) -> None:
    sampler = make(flat, silent_seconds=2.0)
    pids, started = sampler.pids, time.monotonic()
    with pytest.raises(EngineError, match="has sent nothing for 2 s with work to do"):
        sampler.sample([replace(GROUPS[0], token_ids=[HANG])], PARAMS)
    assert time.monotonic() - started < 30 and not alive(pids)

    def overdue(done: int, total: int, tokens: int) -> None:
        pids[:] = sampler.pids
        raise TimeoutError

    with pytest.raises(TimeoutError):
        sampler.sample(GROUPS, PARAMS, progress=overdue)
    assert not alive(pids)


@pytest.mark.parametrize("per_group", [1, 8])
def test_thousands_of_rows_that_end_in_one_step_do_not_block_the_pipe(
    make: Make, flat: Checkpoint, per_group: int
) -> None:
    # Both directions carry more than a pipe holds: rows come back while others are still being given.
    groups = [
        PromptGroup(
            group_id=f"g{place}", token_ids=[TOGETHER] * 200, seeds=[per_group * place + i for i in range(per_group)]
        )
        for place in range(2000 // per_group)
    ]
    sampler = make(flat, max_num_seqs=2000, silent_seconds=30.0)
    drawn = sampler.sample(groups, PARAMS)
    expected = [[reply(seed, 30, [END]) for seed in group.seeds] for group in groups]
    assert [[(each.token_ids, each.finish_reason) for each in samples] for samples in drawn] == expected


def test_an_engine_that_is_stopped_with_commands_before_it_is_named(make: Make, flat: Checkpoint) -> None:
    sampler = make(flat, engines=2, max_num_seqs=400, silent_seconds=2.0)
    groups = [PromptGroup(group_id=f"g{i}", token_ids=[5] * 200, seeds=[2 * i, 2 * i + 1]) for i in range(400)]
    pids, started = sampler.pids, time.monotonic()
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(EngineError, match=rf"engine 1 \(pid {pids[1]}\) has sent nothing for 2 s"):
        sampler.sample(groups, PARAMS)
    assert time.monotonic() - started < 30 and not alive(pids)


def test_running_engines_take_the_weights_of_another_checkpoint(make: Make, flat: Checkpoint, tmp_path: Path) -> None:
    sampler = make(flat, engines=2)
    before = sampler.pids
    sampler.sleep()
    sampler.load(uniform(tmp_path / "uniform"))
    assert sampler.pids == before and sampler.starts == 1 and len(sampler.agreements) == 2
    assert sampler.sample(GROUPS[:1], PARAMS)[0][0].finish_reason in ("stop", "length")


def test_another_checkpoint_gets_fresh_engines_where_that_is_asked_for_or_needed(
    make: Make, flat: Checkpoint, tmp_path: Path
) -> None:
    sampler = make(flat, in_place=False)
    before = sampler.pids
    sampler.load(uniform(tmp_path / "uniform"))
    assert sampler.pids != before and not alive(before)
    sampler = make(flat)
    before = sampler.pids
    with (
        pytest.warns(EngineWarning, match="failed to take the new weights"),
        pytest.raises(EngineError, match="does not hold the weights of"),
    ):
        sampler.load(make_checkpoint(tmp_path / "other"))
    assert sampler.pids == [] and not alive(before) and sampler.starts == 2
    # Of another shape: nothing that runs could take it.
    sampler.load(flat)
    with pytest.raises(EngineError, match=r"engine 0 does not hold the weights of .*nats on average"):
        sampler.load(make_checkpoint(tmp_path / "untied", tied=False))
    assert sampler.starts == 4


def test_engines_that_take_weights_badly_are_replaced_with_a_warning(
    make: Make, flat: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_RELOADED", "-5")
    sampler = make(flat)
    with pytest.warns(EngineWarning, match="failed to take the new weights: engine 0 does not hold the weights"):
        sampler.load(uniform(tmp_path / "uniform"))
    assert sampler.starts == 2 and sampler.agreements[0].largest < 1e-4


@pytest.mark.parametrize("claimed", ["-5", "nan"])
def test_wrong_log_probabilities_stop_the_run(
    make: Make, flat: Checkpoint, monkeypatch: pytest.MonkeyPatch, claimed: str
) -> None:
    monkeypatch.setenv("SCRIPTED_LOGPROB", claimed)
    with pytest.raises(EngineError, match="does not hold the weights"):
        make(flat)


def test_an_engine_that_cannot_start_says_why(
    make: Make, flat: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFUSER_VLLM_PYTHON", str(tmp_path / "python"))
    with pytest.raises(EngineError, match="cannot be started with"):
        make(flat)
    monkeypatch.delenv("INFUSER_VLLM_PYTHON")
    with pytest.raises(EngineError, match=r"ended with status 1: AssertionError"):
        make(flat, max_num_seqs=0)
    with pytest.raises(EngineError, match="not in float64"):
        ServiceSampler(dtype="float64", device="cpu", threads=1)
    if find_spec("vllm") is None:
        with pytest.raises(EngineError, match="INFUSER_VLLM_PYTHON"):
            ServiceSampler(dtype="bfloat16", device="cpu", threads=1)


def test_an_engines_python_sees_this_package_and_no_other_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nls "${PYTHONPATH%%:*}" && echo "${PYTHONPATH#*:} $PYTHONSAFEPATH"\n')
    python.chmod(0o755)
    launch = Launch(name="seen", python=str(python), module="any", settings={}, environment={}, folder=tmp_path)
    for _ in range(2):
        engine = start_engine(launch)
        with pytest.raises(EngineError, match="ended with status 0"):
            engine.receive(60.0)
        assert launch.log.read_text().split() == ["infuser_core", "mine", "1"]
        engine.close()


def test_a_sleeping_engine_wakes_and_unusable_prompts_harm_nobody(make: Make, flat: Checkpoint) -> None:
    sampler = make()
    with pytest.raises(EngineError, match="no checkpoint"):
        sampler.sample(GROUPS, PARAMS)
    sampler.load(flat)
    expected, before = sampler.sample(GROUPS, PARAMS), sampler.pids
    sampler.sleep()
    sampler.sleep()
    for prompt in ([], [2] * 250):
        with pytest.raises(EngineError, match="'bad'"):
            sampler.sample([PromptGroup(group_id="bad", token_ids=prompt, seeds=[1])], PARAMS)
    assert sampler.sample(GROUPS, PARAMS) == expected and sampler.pids == before


# How engines are started


def test_memory_and_sleep_are_those_of_the_configuration() -> None:
    settings = engine_settings(
        ServiceOptions(dtype="bfloat16", threads=1, device="cuda", memory=0.4, sleep=True), model=MODEL
    )
    assert settings["gpu_memory_utilization"] == 0.4
    assert settings["enable_sleep_mode"] is True and settings["enforce_eager"] is False
    on_cpu = engine_settings(ServiceOptions(dtype="float32", device="cpu", threads=1), model=MODEL)
    assert on_cpu["enable_sleep_mode"] is False and on_cpu["enforce_eager"] is True


def test_engines_leave_the_trainers_accelerators_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(**options: int) -> list[str]:
        asked = ServiceOptions(worker="scripted_engine", dtype="bfloat16", threads=1, device="cuda", **options)  # type: ignore[arg-type]
        made = launches(asked, model=MODEL, scratch=tmp_path, cards=visible_cards())
        return [each.environment["CUDA_VISIBLE_DEVICES"] for each in made]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    assert started(reserved=4, tensor_parallel=2) == ["4,5", "6,7"]
    assert len(started()) == 8
    with pytest.raises(EngineError, match="in addition to the 6 of the trainer") as caught:
        started(reserved=6, engines=4)
    assert caught.value.hint


@pytest.mark.parametrize(("role", "asked", "limit"), [
    (Role.SOLVER, 100, 100),
    (Role.GENERATOR, 10_000, 256),
    (Role.SOLVER, None, 256),
    (Role.JUDGE, 100, 256),
])  # fmt: skip
def test_sequences_are_as_long_as_the_run_needs_and_never_longer_than_the_models(
    make: Make, flat: Checkpoint, role: str, asked: int | None, limit: int
) -> None:
    sampler = make(worker="missing_engine", max_model_len=asked)
    with pytest.raises(EngineError):
        # Nobody answers; what it was to be started with is known by then.
        sampler.load(replace(flat, role=role))
    assert sampler.facts()["max_model_len"] == limit
    assert sampler._longest == (limit if asked and role != Role.JUDGE else None)


# The queue of groups: longest first, to whoever has least left to do, each exactly once


def queue(sizes: list[tuple[int, int]], max_tokens: int, *, engines: int, capacity: int) -> GroupQueue:
    groups = [
        PromptGroup(group_id=str(place), token_ids=[1] * prompt, seeds=list(range(rows)))
        for place, (prompt, rows) in enumerate(sizes)
    ]
    return GroupQueue(
        groups, SamplingParams(temperature=0.7, max_tokens=max_tokens), engines=engines, capacity=capacity
    )


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)), max_size=20),
    st.integers(1, 4),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_every_group_is_given_once_and_no_engine_too_much(sizes, engines, capacity, draw) -> None:
    waiting = queue(sizes, 8, engines=engines, capacity=capacity)
    left: list[list[int]] = [[] for _ in range(engines)]
    given: list[int] = []
    while True:
        for engine, place in waiting.assign():
            given.append(place)
            rows = sizes[place][1]
            # A group larger than the capacity gets an engine of its own.
            assert len(left[engine]) + rows <= capacity or not left[engine]
            left[engine] += [place] * rows
        assert waiting.busy() == [engine for engine in range(engines) if left[engine]]
        if not waiting.busy():
            break
        engine = draw.choice(waiting.busy())
        waiting.finish_row(engine, left[engine].pop(draw.randrange(len(left[engine]))))
    assert sorted(given) == [place for place, (_, rows) in enumerate(sizes) if rows]


def test_the_longest_come_first_and_who_is_done_takes_what_others_could_not_start() -> None:
    even = queue([(5, 1), (20, 1), (10, 1), (15, 1)], 1, engines=2, capacity=10)
    assert even.assign() == [(0, 1), (1, 3), (1, 2), (0, 0)]
    full = queue([(9, 2), (8, 2), (7, 2)], 4, engines=2, capacity=2)
    assert full.assign() == [(0, 0), (1, 1)]
    full.finish_row(1, 1)
    assert full.assign() == []
    full.finish_row(1, 1)
    assert full.assign() == [(1, 2)]


def test_a_group_with_an_owner_waits_for_it() -> None:
    groups = [PromptGroup(group_id=str(place), token_ids=[1], seeds=[0, 1]) for place in range(6)]
    waiting = GroupQueue(groups, PARAMS, engines=3, capacity=2, owners=[2, 1, 2, 0, 0, 1])
    assert waiting.assign() == [(2, 0), (1, 1)]
    for engine, place, following in ((1, 1, []), (2, 0, [(2, 2), (0, 3)]), (0, 3, [(0, 4), (1, 5)])):
        waiting.finish_row(engine, place)
        waiting.finish_row(engine, place)
        assert waiting.assign() == following


def test_engines_get_adapters_merged_into_their_base(make: Make, flat: Checkpoint, tmp_path: Path) -> None:
    base, adapted = tmp_path / "base" / "base-1", tmp_path / "anchor" / "anchor-1"
    for folder in (base, adapted):
        folder.mkdir(parents=True)
    copy_model(Path(flat.path), base)
    prepare_adapter(base, adapted, adapter=AdapterSettings(rank=2), seed=0)
    with pytest.raises(EngineError, match="ended with status 1") as refused:
        make(replace(flat, path=str(adapted)), max_num_seqs=0)
    assert "weight_updates: fresh merges adapters" in refused.value.hint
    # Engines that start anew for other weights take no adapters.
    assert not (adapted / "model.safetensors").exists()
    # The scripted engine wants the weights of a whole model, and answers as this one does.
    drawn = make(replace(flat, path=str(adapted)), in_place=False).sample(GROUPS, PARAMS)
    expected = [[reply(seed, 30, [END]) for seed in group.seeds] for group in GROUPS]
    assert [[(each.token_ids, each.finish_reason) for each in samples] for samples in drawn] == expected
