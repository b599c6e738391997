"""Two ranks of which one runs out of memory: both are replaced, and compute what ranks with half the budget compute."""

from collections.abc import Iterator
from pathlib import Path

import distributed_tiny as tiny
import pytest
from distributed_tiny import same_bytes, saved
from engine_tiny import OBJECTIVE, make_groups

from infuser_core.engines.deepspeed.trainer import DeepSpeedTrainer
from infuser_core.errors import EngineError
from infuser_core.protocols import ProbeResult
from infuser_core.schemas import Checkpoint

pytestmark = pytest.mark.distributed

HALF = 256
GROUPS = [make_groups([(50, [60, 70, 50]), (40, [80, 30]), (60, [90, 90]), (30, [40])], seed=seed) for seed in range(3)]


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DeepSpeedTrainer]]:
    """Two ranks with twice the budget, of which the second runs out of memory in its fourth pass; two with half."""
    # Steps, log-probabilities: the fourth is the second step's. New ranks have another budget, and pass.
    monkeypatch.setenv("INFUSER_CRASH_AT", f"memory@rank-1:{2 * HALF}-tokens:4")
    engines = [tiny.ranks(2, 3, token_budget=2 * HALF), tiny.ranks(2, 3, token_budget=HALF)]
    yield engines  # type: ignore[misc]
    for engine in engines:
        engine.close()  # type: ignore[attr-defined]


def test_every_rank_repeats_a_pass_with_half_its_tokens_if_one_has_no_memory(
    trainers: list[DeepSpeedTrainer], anchor: Checkpoint, tmp_path: Path
) -> None:
    logprobs, scores = list[list[list[list[float]]]](), list[ProbeResult]()
    for name, trainer in zip(("halved", "begun"), trainers, strict=True):
        trainer.load(anchor)
        trainer.forward_backward(GROUPS[0], OBJECTIVE, denominator=4)
        trainer.optim_step(1e-3)
        trainer.zero_grad()
        trainer.forward_backward(GROUPS[1], OBJECTIVE, denominator=4)
        trainer.logprobs(GROUPS[0], temperature=1.0)
        trainer.forward_backward(GROUPS[2], OBJECTIVE, denominator=4)
        trainer.keep_gradient(tmp_path / f"gradient-{name}")
        logprobs.append([[list(row) for row in rows] for rows in trainer.logprobs(GROUPS[0], temperature=1.0)])
        scores.append(trainer.probe(GROUPS[1], OBJECTIVE, tmp_path / f"gradient-{name}"))
        trainer.optim_step(1e-3)
        saved(trainer, tmp_path / name)
    assert trainers[0].facts()["ran_out_of_memory"] == ["512 tokens in forward_backward"]
    assert [trainer.facts()["token_budget"] for trainer in trainers] == [HALF, HALF]
    assert (tmp_path / "gradient-halved").read_bytes() == (tmp_path / "gradient-begun").read_bytes()
    assert logprobs[0] == logprobs[1] and scores[0].similarities == scores[1].similarities
    same_bytes(tmp_path / "halved", tmp_path / "begun")
    # Another role has its own budget, and this one keeps it.
    assert trainers[0].park("solver")
    generator = Checkpoint(checkpoint_id="g", role="generator", path=anchor.path, step=0)
    trainers[0].load(generator)
    assert trainers[0].facts()["token_budget"] == 2 * HALF
    trainers[0].take(Checkpoint(checkpoint_id="s", role="solver", path=str(tmp_path / "halved"), step=2))
    assert trainers[0].facts()["token_budget"] == HALF
    same_bytes(tmp_path / "halved", saved(trainers[0], tmp_path / "taken").path)


def test_below_the_least_budget_the_remedy_is_named(anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFUSER_CRASH_AT", f"memory@rank-0:{HALF}-tokens")
    trainer = tiny.ranks(1, 2, token_budget=HALF)
    try:
        trainer.load(anchor)
        with pytest.raises(EngineError, match="256 tokens does not fit into the memory") as caught:
            trainer.forward_backward(GROUPS[0], OBJECTIVE, denominator=4)
        assert "gradient_checkpointing" in caught.value.hint
    finally:
        trainer.close()  # type: ignore[attr-defined]
