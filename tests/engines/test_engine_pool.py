"""The pool loads once, shares samplers, lends trainers to one phase, and gives accelerators to whoever is asked for."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import napping_engines
import pytest
from engine_tiny import make_checkpoint, make_groups, step, trainer, uniform
from objectives import objective
from scripted_engine import DIE
from stock_engines import engine_pool

from infuser_core.engines.fake import END_TOKEN, ByteTokenizer, FakeTrainer, ScriptedChat, ScriptedSampler, fake_anchor
from infuser_core.engines.pool import EnginePool, Placement, facts_of, record_engines
from infuser_core.errors import CheckpointError, EngineError, EngineWarning
from infuser_core.protocols import Completion, PromptGroup, SamplingParams, Trainer, TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint, Document
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.recipe import Recipe
from infuser_core.store.store import Outcome, Store, Table

OBJECTIVE = objective(length_norm=4.0, temperature=1.0)
PARAMS = SamplingParams(temperature=1.0, max_tokens=12)
PROMPTS = [
    PromptGroup(group_id=f"g{place}", token_ids=[2 + place, 5, 7], seeds=[place, place + 9]) for place in range(4)
]

ROLES = ("solver", "generator", "judge")


def groups(shift: int = 0) -> list[TrainGroup]:
    rows = [
        TrainRow(token_ids=[3 + shift, 5, END_TOKEN], advantage=1.0, sampler_logprobs=[-2.7] * 3),
        TrainRow(token_ids=[7, 8], advantage=-1.0, sampler_logprobs=[-2.7] * 2),
    ]
    return [TrainGroup(group_id="g", prompt_token_ids=[1], rows=rows)]


@pytest.fixture
def scripted(tmp_path: Path) -> Checkpoint:
    """The anchor of the engines without a model."""
    fake_anchor(tmp_path / "fake")
    return Checkpoint(checkpoint_id="anchor", role="solver", path=str(tmp_path / "fake"), step=0)


@pytest.fixture
def pool() -> EnginePool:
    return engine_pool()


def trained(engine: Trainer) -> Trainer:
    engine.zero_grad()
    engine.forward_backward(groups(), OBJECTIVE, denominator=1)
    engine.optim_step(0.1)
    return engine


def weights(engine: Trainer) -> list[list[list[float]]]:
    return engine.logprobs(groups(), temperature=1.0)


def test_a_warm_sampler_loads_once(pool: EnginePool, scripted: Checkpoint) -> None:
    for name in ("anchor", "anchor", "next"):
        pool.sampler(replace(scripted, checkpoint_id=name))
    pool.sampler(replace(scripted, role="generator"))
    solver, generator = (pool._warm["sampler", role].engine for role in ("solver", "generator"))
    assert (solver.loaded, generator.loaded) == (["anchor", "next"], ["anchor"])


def test_a_trained_engine_is_loaded_again_unless_adopted(
    pool: EnginePool, scripted: Checkpoint, tmp_path: Path
) -> None:
    start = weights(pool.trainer(scripted))
    after = weights(trained(pool.trainer(scripted)))
    assert after != start == weights(pool.trainer(scripted))
    (tmp_path / "next").mkdir()
    number = trained(pool.trainer(scripted)).save(tmp_path / "next")
    saved = Checkpoint(checkpoint_id="next", role="solver", path="/nowhere", step=number)
    pool.adopt(saved)
    assert weights(pool.trainer(saved)) == after
    # What was not trained here is not believed.
    other = replace(scripted, checkpoint_id="from the store", path="/nowhere", step=5)
    pool.adopt(other)
    with pytest.raises(CheckpointError):
        pool.trainer(other)


def test_a_trainer_serves_only_whoever_asked_for_it_last(pool: EnginePool, scripted: Checkpoint) -> None:
    first, other = pool.trainer(scripted), pool.trainer(replace(scripted, role="generator"))
    first.zero_grad()
    second = pool.trainer(scripted)
    with pytest.raises(EngineError, match="another phase has taken over"):
        first.optim_step(0.1)
    with pytest.raises(EngineError, match="another phase has taken over"):
        first.zero_grad()
    second.zero_grad()
    other.zero_grad()


def test_one_trainer_at_a_time_on_a_small_accelerator(scripted: Checkpoint) -> None:
    small = engine_pool(max_trainers=1)
    small.trainer(scripted)
    small.trainer(replace(scripted, role="generator"))
    assert [key for key in small._warm if key[0] == "trainer"] == [("trainer", "generator")]


def test_engines_are_found_by_name_and_unknown_ones_are_named(scripted: Checkpoint) -> None:
    with pytest.raises(EngineError, match="unknown sampler 'vlllm'") as caught:
        engine_pool(sampler="vlllm").sampler(scripted)
    assert "hf, vllm, fake" in caught.value.hint
    pool = engine_pool(sampler="infuser_core.engines.fake:ScriptedSampler", trainer="fake")
    pool.sampler(scripted)
    assert isinstance(pool._warm["sampler", "solver"].engine, ScriptedSampler)
    assert pool.chat(scripted).name == "anchor"


TURNS = ["trainer loads a", "trainer sleeps", "sampler loads a", "sampler sleeps", "trainer wakes", "trainer sleeps"]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [("colocated", [*TURNS, "sampler wakes"]), ("split", ["trainer loads a", "sampler loads a"])],
)
def test_engines_take_turns(scripted: Checkpoint, placement: Placement, expected: list[str]) -> None:
    """On the same accelerators one sleeps before the other wakes, and neither loads what it still holds."""
    names = {"sampler": "napping_engines:Sampler", "trainer": "napping_engines:Trainer"}
    pool = engine_pool(**names, max_trainers=1, placement=placement)
    napping_engines.happened.clear()
    for _ in range(2):
        pool.trainer(replace(scripted, checkpoint_id="a"))
        pool.sampler(replace(scripted, checkpoint_id="a"))
    assert napping_engines.happened == expected


def test_a_state_that_waits_for_its_role_is_not_read_again(scripted: Checkpoint, tmp_path: Path) -> None:
    pool = engine_pool(trainer="napping_engines:Parking", max_trainers=1)
    generator, solver = replace(scripted, role="generator", checkpoint_id="g0"), replace(scripted, checkpoint_id="s0")
    napping_engines.happened.clear()
    pool.trainer(solver)
    ours = trained(pool.trainer(generator))
    (tmp_path / "g1").mkdir()
    number = ours.save(tmp_path / "g1")
    expected = weights(ours)
    pool.trainer(solver)
    # The generator's checkpoint is committed beside the solver's update; its files are gone.
    saved = Checkpoint(checkpoint_id="g1", role="generator", path="/nowhere", step=number)
    pool.adopt(saved)
    assert weights(pool.trainer(saved)) == expected
    # Another checkpoint than the one that waits is read.
    pool.trainer(replace(solver, checkpoint_id="s1"))
    takes = ["trainer takes solver", "trainer takes generator"]
    assert napping_engines.happened == ["trainer loads s0", "trainer loads g0", *takes, "trainer loads s1"]
    engine = pool._warm["trainer", "solver"].engine
    assert set(engine.waiting) == {"generator"}
    pool.close()
    with pytest.raises(CheckpointError):
        pool.trainer(saved)


def test_a_state_that_was_neither_saved_nor_loaded_does_not_wait(scripted: Checkpoint) -> None:
    pool = engine_pool(trainer="napping_engines:Parking", max_trainers=1)
    start = weights(pool.trainer(scripted))
    trained(pool.trainer(scripted))
    pool.trainer(replace(scripted, role="generator"))
    assert weights(pool.trainer(scripted)) == start


@pytest.mark.parametrize("has_room", [True, False])
def test_roles_take_turns_in_one_local_trainer_without_their_files_if_the_host_has_room(
    anchor: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    monkeypatch.setenv("INFUSER_POINTS", str(tmp_path / "points"))
    if not has_room:
        monkeypatch.setattr("infuser_core.engines.local.trainer.HOST_SHARE", 0.0)
    turns = engine_pool(sampler="hf", trainer="local", max_trainers=1, placement="colocated")
    apart = engine_pool(sampler="hf", trainer="local", max_trainers=2)
    weights = []
    for pool in (turns, apart):
        checkpoints = {role: replace(anchor, role=role) for role in ("generator", "solver")}
        for number in range(2):
            for role, checkpoint in checkpoints.items():
                pool.sampler(checkpoint)
                ours = pool.trainer(checkpoint)
                step(ours, make_groups([(5, [4, 7])], seed=number))  # type: ignore[arg-type]
                folder = tmp_path / f"{pool is turns}-{role}-{number}"
                folder.mkdir()
                count = ours.save(folder)
                checkpoints[role] = Checkpoint(checkpoint_id=folder.name, role=role, path=str(folder), step=count)
                pool.adopt(checkpoints[role])
        weights.append([Path(each.path, "model.safetensors").read_bytes() for each in checkpoints.values()])
    assert weights[0] == weights[1]
    loads = [line for line in (tmp_path / "points").read_text().split() if "load-trainer" in line]
    # Two of the pool without turns.
    assert len(loads) - 2 == (2 if has_room else 4)


def test_scripted_text() -> None:
    sampler, tokenizer = ScriptedSampler(reply=lambda prompt, seed: f"{prompt}{seed}"), ByteTokenizer()
    group = PromptGroup(group_id="g", token_ids=tokenizer.encode("ü?"), seeds=[7, 123])
    ((short, long),) = sampler.sample([group], SamplingParams(temperature=0.7, max_tokens=5))
    assert (tokenizer.decode(short.token_ids), short.finish_reason) == ("ü?7", "stop")
    assert (tokenizer.decode(long.token_ids), long.finish_reason) == ("ü?12", "length")
    assert tokenizer.decode(tokenizer.render([{"role": "user", "content": "hi"}])) == "user: hi\nassistant: "
    chat = ScriptedChat(reply=lambda messages: messages[0]["content"].upper())
    assert chat.complete([[{"role": "user", "content": "hi"}]], max_tokens=3) == ["HI"]


def test_the_fake_trainer_learns_saves_resumes_and_probes(scripted: Checkpoint, tmp_path: Path) -> None:
    engine, resumed = FakeTrainer(), FakeTrainer()
    engine.load(scripted)
    before = weights(engine)[0][0][0]
    engine.forward_backward(groups(), OBJECTIVE, denominator=1)
    norm = engine.keep_gradient(tmp_path / "g.safetensors")
    same, other = engine.probe([*groups(), *groups(shift=1)], OBJECTIVE, tmp_path / "g.safetensors").similarities
    assert same.raw_dot == pytest.approx(same.gradient_norm * norm, rel=1e-5) and same.dot > 0
    assert other.raw_dot < other.gradient_norm * norm * 0.99
    assert weights(trained(engine))[0][0][0] > before
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    assert engine.save(tmp_path / "a") == 1
    trained(engine).save(tmp_path / "b")
    resumed.load(replace(scripted, path=str(tmp_path / "a")))
    trained(resumed).save(tmp_path / "c")
    for name in ("model.safetensors", "optimizer.safetensors", "trainer.json"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


# Phases of two threads


def drawn(pool: EnginePool, checkpoint: Checkpoint) -> list[list[list[Completion]]]:
    """What a phase draws in several calls of one sampler."""
    sampler = pool.sampler(checkpoint)
    return [sampler.sample(PROMPTS, PARAMS) for _ in range(3)]


def test_phases_that_share_a_sampler_draw_each_from_their_own_checkpoint(tmp_path: Path):
    checkpoints = [
        replace(make_checkpoint(tmp_path / str(number), seed=number), checkpoint_id=str(number)) for number in (0, 1)
    ]
    pool = engine_pool(sampler="hf")
    alone = [drawn(pool, checkpoint) for checkpoint in checkpoints]
    assert alone[0] != alone[1]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(drawn, [pool, pool], checkpoints)) == alone


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[EnginePool]:
    """A pool whose samplers are processes."""
    monkeypatch.setenv("PYTHONPATH", str(Path(napping_engines.__file__).parent))
    options = {"dtype": "float32", "device": "cpu", "threads": 1, "worker": "scripted_engine", "max_num_seqs": 4}
    found = engine_pool(sampler="vllm", sampler_options=options)
    yield found
    found.close()


def test_an_engine_that_dies_ends_its_own_phase_and_the_retry_has_a_fresh_one(processes: EnginePool, tmp_path: Path):
    roles = ("solver", "generator")
    solver, generator = (replace(uniform(tmp_path / role), role=role) for role in roles)
    for checkpoint in (solver, generator):
        processes.sampler(checkpoint)
    before = {role: processes._warm["sampler", role].engine.pids for role in roles}
    undisturbed: list[list[list[Completion]]] = []
    beside = threading.Thread(target=lambda: undisturbed.extend(drawn(processes, generator)))
    beside.start()
    started = time.monotonic()
    deadly = PromptGroup(group_id="deadly", token_ids=[DIE], seeds=[1])
    with pytest.raises(EngineError, match=r"was killed by signal 9 \(SIGKILL\)"):
        processes.sampler(solver).sample([*PROMPTS, deadly], PARAMS)
    assert time.monotonic() - started < 15
    beside.join(60)
    assert undisturbed == [processes.sampler(solver).sample(PROMPTS, PARAMS)] * 3
    after = {role: processes._warm["sampler", role].engine.pids for role in roles}
    assert after["generator"] == before["generator"]
    assert set(after["solver"]).isdisjoint(before["solver"])


def test_both_roles_and_the_judge_take_turns_in_one_sampler(processes: EnginePool, tmp_path: Path):
    solver, generator, judge = (replace(uniform(tmp_path / role), role=role) for role in ROLES)
    named = [replace(each, checkpoint_id=each.role) for each in (solver, generator, solver, generator)]
    apart = [processes.sampler(each).sample(PROMPTS, PARAMS) for each in named]
    processes._one_sampler = True
    processes.close()
    assert [processes.sampler(each).sample(PROMPTS, PARAMS) for each in named] == apart
    (key,) = processes._warm
    both = processes._warm[key].engine
    assert (both.starts, both.channel) == (1, "files")
    os.kill(both.pids[0], signal.SIGKILL)
    with pytest.warns(EngineWarning, match="fresh engines are started.*was killed by signal 9"):
        assert processes.sampler(named[0]).sample(PROMPTS, PARAMS) == apart[0]
    processes.sampler(judge)
    assert [role for _, role in processes._warm] == ["solver"]
    assert processes.sampler(named[1]).sample(PROMPTS, PARAMS) == apart[1]


# Facts about engines


def test_engines_that_are_asked_for_are_noted_with_what_they_are_in_the_end(anchor: Checkpoint) -> None:
    pool = engine_pool(sampler="hf", trainer="local", trainer_options={"token_budget": 512})
    pool.trainer(anchor)
    with record_engines() as used:
        assert facts_of(used) == {}
        step(pool.trainer(anchor), make_groups([(5, [4, 7])]))  # type: ignore[arg-type]
    facts = facts_of(used)
    assert set(facts) == {"trainer"}
    assert facts["trainer"] == trainer(anchor, token_budget=512).facts()


def test_the_record_keeps_them_outside_of_key_and_digest(tmp_path: Path) -> None:
    recipe = Recipe(phase="dev_gradient", version=1, config={}, seed=0, inputs={}, iteration=0)
    refs = []
    for place, machine in enumerate([{}, {"trainer": {"engine": "local", "attention": "flash"}}]):
        store = Store(tmp_path / str(place))
        with store.workspace(recipe) as workspace:
            outcome = Outcome(tables={"documents": Table(row_type=Document, rows=[])}, machine=machine)
            refs.append(store.commit(recipe, workspace, outcome, seconds=1.0))
        assert store.manifest(refs[-1]).machine == machine
        (record,) = Catalogue(store.root).records.values()
        assert record.machine == machine
    assert refs[0] == refs[1]
