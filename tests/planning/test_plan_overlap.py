"""An iteration whose phases overlap takes as long as its critical path; without the setting it is the phases' sum."""

from pathlib import Path

import pytest

from infuser_core.capacity.forecast import Timed, ask, timed
from infuser_core.config.overlays import load

SPLIT = ["engine.trainer=deepspeed", "engine.ranks=4", "engine.sampler=vllm"]


def planned(*changes: str, schedule: str = "packed", gpus: str = "8xH100") -> Timed:
    config = load([Path("configs/qwen3-8b.yaml")], [*SPLIT, *changes])
    return timed(ask(config, gpus, model=None, tokens=[], disk=3.0), schedule)


def total(found: Timed) -> float:
    return sum(phase.seconds for phase in found.phases)


def gain(*changes: str, gpus: str) -> tuple[float, dict[str, float]]:
    """Seconds that overlap saves in an iteration, and those of the phases, which it leaves as they are."""
    together, alone = planned("engine.overlap=true", *changes, gpus=gpus), planned(*changes, gpus=gpus)
    assert together.phases == alone.phases
    assert alone.iteration == pytest.approx(total(alone))
    assert together.hours == pytest.approx(together.iteration * 100 / 3600)
    return alone.iteration - together.iteration, {phase.name: phase.seconds for phase in together.phases}


def test_a_short_dev_gradient_costs_nothing():
    saved, seconds = gain("engine.ranks=56", gpus="64xH100")
    assert seconds["dev_gradient"] < seconds["rollout_questions"]
    assert saved == pytest.approx(seconds["dev_gradient"])


def test_a_long_dev_gradient_hides_what_is_sampled_beside_it():
    saved, seconds = gain(gpus="8xH100")
    assert seconds["dev_gradient"] > seconds["rollout_questions"]
    assert seconds["rollout_dev"] > seconds["generate_questions"], "which end before there is a dev gradient"
    assert saved == pytest.approx(seconds["rollout_questions"])


@pytest.mark.parametrize(
    ("changes", "schedule"),
    [
        (["engine.overlap=true"], "published"),
        (["engine.overlap=true", "engine.ranks=8"], "packed"),
        (["engine.placement=colocated"], "packed"),
    ],
)
def test_nothing_is_hidden_where_phases_take_turns(changes: list[str], schedule: str):
    found = planned(*changes, schedule=schedule)
    assert found.iteration == pytest.approx(total(found))


def test_without_a_dev_gradient_there_is_nothing_to_hide():
    changes = ["cotrain.generator.update=false", "cotrain.solver.update=true"]
    found = planned("engine.overlap=true", *changes)
    assert found.iteration == pytest.approx(total(found))
