from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infuser_core.capacity.advice import advice
from infuser_core.capacity.forecast import Asked, ask, held
from infuser_core.capacity.memory import Layout, host, trainer
from infuser_core.capacity.shape import shapes
from infuser_core.config.overlays import load

CONFIG = Path("configs/qwen3-8b.yaml")
LAYOUTS = st.builds(
    Layout,
    trainer_ranks=st.sampled_from([1, 2, 8, 64]),
    sampler_ranks=st.sampled_from([1, 8]),
    turns=st.booleans(),
    shared=st.just(False),
    zero_stage=st.sampled_from([0, 2, 3]),
    offload_optimizer=st.booleans(),
    offload_weights=st.just(False),
    gradient_checkpointing=st.booleans(),
    token_budget=st.sampled_from([4096, 16384, 65536]),
    tensor_parallel=st.just(1),
    sampler_share=st.just(0.85),
    warm_trainers=st.sampled_from([1, 2]),
    bytes_per_weight=st.sampled_from([2, 4]),
)


def planned(gpus: str, *changes: str) -> Asked:
    return ask(load([CONFIG], list(changes)), gpus, model=None, tokens=[], disk=3.0)


def test_parts_of_an_unsharded_trainer_are_eighteen_bytes_per_parameter_and_role():
    asked = planned("1xH100")
    parts = {part.name: part.bytes for part in held(asked)[0].parts}
    state = ("weights", "gradients (fp32)", "fp32 masters", "both moments (fp32)")
    assert sum(parts[name] for name in state) == pytest.approx(2 * 18 * asked.shape.parameters)
    assert parts["reference gradient (fp32)"] == 4 * asked.shape.parameters


@given(layout=LAYOUTS)
def test_knobs_never_cost_memory(layout: Layout):
    asked = planned("8xH100")

    def total(changed: Layout) -> float:
        return trainer(asked.shape, asked.cluster.gpu, changed, sequence=12_288).total

    here = total(layout)
    assert total(replace(layout, gradient_checkpointing=True)) <= here
    assert total(replace(layout, offload_optimizer=True)) <= here
    assert total(replace(layout, token_budget=4096)) <= here
    assert total(replace(layout, warm_trainers=1)) <= here
    if layout.zero_stage and layout.trainer_ranks > 1:
        assert total(replace(layout, trainer_ranks=2 * layout.trainer_ranks)) <= here
        assert total(replace(layout, zero_stage=3)) <= total(replace(layout, zero_stage=2)) * 1.05


@pytest.mark.parametrize("gpus", ["8xH100", "8xA100-40", "1xH200", "4xL40S", "2x8xRTX4090"])
def test_settings_that_are_said_to_fit_do_fit(gpus: str):
    asked = planned(gpus)
    knobs = [knob for knob in advice(asked) if knob.role == "trainer" and knob.fits]
    assert not held(asked)[0].fits
    assert knobs
    for knob in knobs:
        if knob.settings[0].startswith("--gpus"):
            again = planned(knob.settings[0].split()[1])
        else:
            again = planned(gpus, *knob.settings)
        assert held(again)[0].total == pytest.approx(knob.bytes), knob.settings
        assert held(again)[0].fits


def test_a_sampler_that_does_not_fit_is_told_to_use_more_gpus_per_engine():
    asked = replace(planned("8xRTX3090"), shape=shapes()["qwen3-32b"])
    knobs = [knob for knob in advice(asked) if knob.role == "sampler"]
    assert knobs[0].settings == ("engine.tensor_parallel=4",)
    assert knobs[0].fits


def test_what_leaves_the_gpu_is_in_the_hosts_memory():
    kept = planned("8xH100", "engine.trainer=deepspeed", "engine.ranks=8")
    moved = planned("8xH100", "engine.trainer=deepspeed", "engine.ranks=8", "engine.offload=optimizer")
    assert host(kept.shape, kept.layout, per_node=8) == 0
    assert host(moved.shape, moved.layout, per_node=8) == pytest.approx(2 * 16 * kept.shape.parameters)


def test_nothing_is_advised_where_everything_fits():
    asked = ask(load([Path("configs/nano.yaml")]), "1xRTX4090", model=None, tokens=[], disk=3.0)
    assert all(one.fits for one in held(asked))
    assert advice(asked) == []


def test_a_trainer_beside_a_sampler_leaves_it_less():
    alone, turns = planned("1xH200"), planned("1xH200", "engine.placement=colocated")
    assert {part.name for part in held(alone)[1].parts} >= {"resting trainer"}
    assert held(turns)[1].total < held(alone)[1].total
