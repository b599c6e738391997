from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infuser_core.engines.fake import END_TOKEN, ByteTokenizer, FakeTrainer, ScriptedChat, ScriptedSampler, fake_anchor
from infuser_core.engines.pool import EnginePool
from infuser_core.engines.protocols import Objective, PromptGroup, SamplingParams, Trainer, TrainGroup, TrainRow
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.schemas import Checkpoint

OBJECTIVE = Objective(length_norm=4.0, temperature=1.0)


def groups(shift: int = 0) -> list[TrainGroup]:
    rows = [
        TrainRow(token_ids=[3 + shift, 5, END_TOKEN], advantage=1.0, sampler_logprobs=[-2.7] * 3),
        TrainRow(token_ids=[7, 8], advantage=-1.0, sampler_logprobs=[-2.7] * 2),
    ]
    return [TrainGroup(group_id="g", prompt_token_ids=[1], rows=rows)]


@pytest.fixture
def anchor(tmp_path: Path) -> Checkpoint:
    fake_anchor(tmp_path / "anchor")
    return Checkpoint(checkpoint_id="anchor", role="solver", path=str(tmp_path / "anchor"), step=0)


@pytest.fixture
def pool() -> EnginePool:
    return EnginePool(sampler="fake", trainer="fake")


def step(trainer: Trainer) -> None:
    trainer.zero_grad()
    trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
    trainer.optim_step(0.1)


def engine(pool: EnginePool, role: str) -> ScriptedSampler:
    """The warm sampler of a role."""
    found = pool._warm[("sampler", role)].engine
    assert isinstance(found, ScriptedSampler)
    return found


def weights(trainer: Trainer) -> list[list[list[float]]]:
    return trainer.logprobs(groups(), temperature=1.0)


def test_a_warm_sampler_loads_once(pool: EnginePool, anchor: Checkpoint) -> None:
    for name in ("anchor", "anchor", "next"):
        pool.sampler(replace(anchor, checkpoint_id=name))
    assert engine(pool, "solver").loaded == ["anchor", "next"]
    pool.sampler(replace(anchor, role="generator"))
    assert engine(pool, "generator").loaded == ["anchor"]
    assert engine(pool, "generator") is not engine(pool, "solver")


def test_a_trained_engine_is_loaded_again_unless_adopted(pool: EnginePool, anchor: Checkpoint, tmp_path: Path) -> None:
    trainer = pool.trainer(anchor)
    start = weights(trainer)
    step(trainer)
    trained = weights(trainer)
    assert trained != start
    assert weights(pool.trainer(anchor)) == start
    step(pool.trainer(anchor))
    warm = pool.trainer(anchor)
    step(warm)
    (tmp_path / "next").mkdir()
    number = warm.save(tmp_path / "next")
    saved = Checkpoint(checkpoint_id="next", role="solver", path="/nowhere", step=number)
    pool.adopt(saved)
    assert weights(pool.trainer(saved)) == trained


def test_adopting_what_was_not_trained_here_is_not_believed(pool: EnginePool, anchor: Checkpoint) -> None:
    pool.trainer(anchor)
    other = replace(anchor, checkpoint_id="from the store", path="/nowhere", step=5)
    pool.adopt(other)
    with pytest.raises(CheckpointError):
        pool.trainer(other)


def test_one_trainer_at_a_time_on_a_small_accelerator(anchor: Checkpoint) -> None:
    small = EnginePool(sampler="fake", trainer="fake", max_trainers=1)
    small.trainer(anchor)
    small.trainer(replace(anchor, role="generator"))
    assert [key for key in small._warm if key[0] == "trainer"] == [("trainer", "generator")]


def test_unknown_engines_are_named() -> None:
    with pytest.raises(EngineError, match="unknown sampler 'vlllm'"):
        EnginePool(sampler="vlllm").sampler(Checkpoint(checkpoint_id="a", role="solver", path="", step=0))


def test_engines_from_elsewhere(anchor: Checkpoint) -> None:
    pool = EnginePool(sampler="infuser_core.engines.fake:ScriptedSampler", trainer="fake")
    pool.sampler(anchor)
    assert isinstance(engine(pool, "solver"), ScriptedSampler)


def test_scripted_text(pool: EnginePool, anchor: Checkpoint) -> None:
    sampler = ScriptedSampler(reply=lambda prompt, seed: f"{prompt}{seed}")
    tokenizer = ByteTokenizer()
    group = PromptGroup(group_id="g", token_ids=tokenizer.encode("ü?"), seeds=[7, 123])
    ((short, long),) = sampler.sample([group], SamplingParams(max_tokens=5))
    assert (tokenizer.decode(short.token_ids), short.finish_reason) == ("ü?7", "stop")
    assert (tokenizer.decode(long.token_ids), long.finish_reason) == ("ü?12", "length")
    assert tokenizer.decode(tokenizer.render([{"role": "user", "content": "hi"}])) == "user: hi\nassistant: "
    chat = ScriptedChat(reply=lambda messages: messages[0]["content"].upper())
    assert chat.complete([[{"role": "user", "content": "hi"}]], max_tokens=3) == ["HI"]
    assert pool.chat(anchor).name == "anchor"


def test_the_fake_trainer_learns_saves_and_resumes(anchor: Checkpoint, tmp_path: Path) -> None:
    trainer = FakeTrainer()
    trainer.load(anchor)
    before = weights(trainer)[0][0][0]
    step(trainer)
    assert weights(trainer)[0][0][0] > before
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    assert trainer.save(tmp_path / "a") == 1
    step(trainer)
    trainer.save(tmp_path / "b")
    resumed = FakeTrainer()
    resumed.load(replace(anchor, path=str(tmp_path / "a")))
    step(resumed)
    resumed.save(tmp_path / "c")
    for name in ("model.safetensors", "optimizer.safetensors", "trainer.json"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


def test_the_fake_probe_scores_alike_groups_as_alike(anchor: Checkpoint, tmp_path: Path) -> None:
    trainer = FakeTrainer()
    trainer.load(anchor)
    trainer.forward_backward(groups(), OBJECTIVE, denominator=1)
    norm = trainer.keep_gradient(tmp_path / "g.safetensors")
    same, other = trainer.probe([*groups(), *groups(shift=1)], OBJECTIVE, tmp_path / "g.safetensors")
    assert same.raw_dot == pytest.approx(same.gradient_norm * norm, rel=1e-5)
    assert other.raw_dot < other.gradient_norm * norm * 0.99
    assert torch.isfinite(torch.tensor(same.dot))
