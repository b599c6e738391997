"""Memory and files of a plan: parts that add up, advice that helps, overlays that fit, adapters, optimizers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import infuser_core.nano
from infuser_core.config.overlays import load
from infuser_core.config.roles import AdapterSettings, OptimizerSettings
from infuser_core.config.run import KeepSettings, RunConfig
from infuser_core.engines.configured import options_of, run_pool, warm_trainers
from infuser_core.engines.hf.adapters import create_adapters
from infuser_core.engines.hf.causal_lm import build_meta_model, read_config
from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.evaluation.benchmarks.parts.loader import longest_sequence
from infuser_core.memory.parts import EngineLayout, host_bytes, trainer_memory
from infuser_core.memory.shape import Shape, find_shape, known_shapes, read_shape, shape_of
from infuser_core.memory.sizes import CHUNK
from infuser_core.nano.lab import anchor_path
from infuser_core.planning.advice import advice
from infuser_core.planning.answer import plan_as_json, plan_as_text
from infuser_core.planning.disk import run_files
from infuser_core.planning.setup import Setup
from infuser_core.store.retention import Extent, RunState, retention_of_checkpoints

CONFIG, NANO = Path("configs/qwen3-8b.yaml"), Path("configs/nano.yaml")
LAYOUTS = st.builds(
    EngineLayout,
    trainer_ranks=st.sampled_from([1, 2, 8, 64]),
    sampler_ranks=st.sampled_from([1, 8]),
    turns=st.booleans(),
    shared=st.just(False),
    zero_stage=st.sampled_from([0, 2, 3]),
    offload_optimizer=st.booleans(),
    offload_weights=st.just(False),
    gradient_checkpointing=st.sampled_from([True, False, 2048, 8192]),
    token_budget=st.sampled_from([4096, 16384, 65536]),
    tensor_parallel=st.just(1),
    sampler_share=st.just(0.85),
    warm_trainers=st.sampled_from([1, 2]),
    bytes_per_weight=st.sampled_from([2, 4]),
    optimizer=st.just("adamw"),
)


def planned(gpus: str, *changes: str) -> Setup:
    return Setup.of(load([CONFIG], list(changes)), gpus)


def test_parts_of_an_unsharded_trainer_are_eighteen_bytes_per_parameter_and_role():
    asked = planned("1xH100")
    parts = {part.name: part.bytes for part in asked.memory[0].parts}
    state = ("weights", "gradients (fp32)", "fp32 masters", "moments (fp32)")
    assert sum(parts[name] for name in state) == pytest.approx(2 * 18 * asked.shape.parameters)
    assert parts["reference gradient (fp32)"] == 4 * asked.shape.parameters


@given(layout=LAYOUTS)
def test_knobs_never_cost_memory(layout: EngineLayout):
    asked = planned("8xH100")

    def total(changed: EngineLayout) -> float:
        return trainer_memory(asked.shape, asked.cluster.gpu, changed, sequence=12_288).total

    here = total(layout)
    assert total(replace(layout, gradient_checkpointing=True)) <= here
    assert total(replace(layout, offload_optimizer=True)) <= here
    assert total(replace(layout, token_budget=4096)) <= here
    assert total(replace(layout, warm_trainers=1)) <= here
    if layout.zero_stage and layout.trainer_ranks > 1:
        assert total(replace(layout, trainer_ranks=2 * layout.trainer_ranks)) <= here
        assert total(replace(layout, zero_stage=3)) <= total(replace(layout, zero_stage=2)) * 1.05


@pytest.mark.parametrize("gpus", ["8xH100", "8xA100-40", "1xH200", "4xL40S", "2x8xRTX5090"])
def test_settings_that_are_said_to_fit_do_fit(gpus: str):
    asked = planned(gpus)
    knobs = [knob for knob in advice(asked) if knob.role == "trainer" and knob.fits]
    assert not asked.memory[0].fits
    assert knobs
    for knob in knobs:
        if knob.settings[0].startswith("--gpus"):
            again = planned(knob.settings[0].split()[1])
        else:
            again = planned(gpus, *knob.settings)
        assert again.memory[0].total == pytest.approx(knob.bytes), knob.settings
        assert again.memory[0].fits


def test_a_sampler_that_does_not_fit_is_told_to_use_more_gpus_per_engine():
    asked = replace(planned("8xRTX3090"), shape=known_shapes()["qwen3-32b"])
    knobs = [knob for knob in advice(asked) if knob.role == "sampler"]
    assert knobs[0].settings == ("engine.tensor_parallel=4",)
    assert knobs[0].fits


def test_what_leaves_the_gpu_is_in_the_hosts_memory():
    kept = planned("8xH100", "engine.trainer=deepspeed", "engine.ranks=8")
    moved = planned("8xH100", "engine.trainer=deepspeed", "engine.ranks=8", "engine.offload=optimizer")
    assert host_bytes(kept.shape, kept.layout, per_node=8) == 0
    assert host_bytes(moved.shape, moved.layout, per_node=8) == pytest.approx(2 * 16 * kept.shape.parameters)


def test_nothing_is_advised_where_everything_fits():
    asked = Setup.of(load([Path("configs/nano.yaml")]), "1xRTX4090")
    assert all(one.fits for one in asked.memory)
    assert advice(asked) == []


def test_a_trainer_beside_a_sampler_leaves_it_less():
    alone, turns = planned("1xH200"), planned("1xH200", "engine.placement=colocated")
    assert {part.name for part in alone.memory[1].parts} >= {"resting trainer"}
    assert turns.memory[1].total < alone.memory[1].total


CONFIGS = ("qwen3-4b", "qwen3-8b", "olmo3-7b-sft")


def config(name: str, engine: str = "") -> RunConfig:
    overlays = [Path(f"configs/engine/{engine}.yaml")] if engine else []
    return load([Path(f"configs/{name}.yaml"), *overlays])


def shipped(name: str, engine: str, gpus: str, model: str | None = None) -> dict[str, Any]:
    return plan_as_json(Setup.of(config(name, engine), gpus, shape=find_shape(model) if model else None), {})


@pytest.mark.parametrize("name", CONFIGS)
def test_the_papers_models_fit_on_eight_gpus(name: str) -> None:
    found = shipped(name, "eight-gpus", "8xH100")
    assert found["fits"]
    assert [note for note in found["notes"] if "GPUs" in note] == []


def test_other_overlays_fit_where_they_say() -> None:
    assert shipped("qwen3-4b", "eight-gpus-split", "8xH100")["fits"]
    assert shipped("qwen3-4b", "one-gpu", "1xH200")["fits"]
    assert shipped("qwen3-4b", "one-gpu", "1xH100", "qwen3-1.7b")["fits"]
    assert shipped("nano", "laptop", "1xRTX3090")["fits"]


@pytest.mark.parametrize("name", CONFIGS)
def test_without_an_overlay_the_plan_says_what_to_do(name: str) -> None:
    found = shipped(name, "", "8xH100")
    page = plan_as_text(found)
    assert "it does not fit: trainer" in page
    assert "engine.trainer=deepspeed engine.ranks=8 engine.placement=colocated" in page
    assert "configs/engine/one-gpu.yaml, eight-gpus.yaml" in page


def test_split_accelerators_are_the_trainers_or_the_samplers() -> None:
    engine = config("qwen3-4b", "eight-gpus-split").engine
    options = options_of("vllm", engine)
    assert (options["reserved"], options["memory"], options["sleep"]) == (4, 0.425, False)
    assert warm_trainers(engine) == 1
    for overlap, share in ((False, 0.85), (True, 0.425)):
        changed = {"engine": engine.model_copy(update={"overlap": overlap})}
        pooled = config("qwen3-4b", "eight-gpus-split").model_copy(update=changed)
        assert run_pool(pooled, longest_sequence=4096)._options["sampler"]["memory"] == share
        assert Setup.of(pooled, "8xH100").layout.sampler_share == share
    turns = config("qwen3-4b", "eight-gpus").engine
    options = options_of("vllm", turns)
    assert (options["reserved"], options["memory"], options["sleep"]) == (0, 0.85, True)
    assert "attention" not in options_of("deepspeed", turns)


def test_the_longest_sequence_counts_prompts_both_roles_and_benchmarks() -> None:
    paper = config("qwen3-4b")
    assert longest_sequence(paper) == 4096 + 16_384, "code benchmarks answer longest"
    bare = paper.model_copy(update={"evaluate": paper.evaluate.model_copy(update={"benchmarks": []})})
    assert longest_sequence(bare) == 4096 + 8192


NANO = Path("configs/nano.yaml")


def test_a_checkpoint_is_three_times_the_fp32_weights():
    config = load([NANO])
    stored = (Path(infuser_core.nano.__file__).parent / "anchor" / "model.safetensors").stat().st_size
    assert run_files(config, shape_of(config.anchor)).checkpoint == pytest.approx(3 * stored, rel=0.02)


def test_iterations_add_two_checkpoints_and_a_gradient():
    config = load([NANO])
    found = run_files(config, shape_of(config.anchor))
    assert found.per_iteration == pytest.approx(found.checkpoint * (2 + 1 / 3))
    assert found.in_all == pytest.approx(found.checkpoint + 30 * found.per_iteration)


def test_a_fixed_generator_writes_solvers_alone():
    config = load([NANO, Path("configs/ablation/fixed_generator.yaml")])
    found = run_files(config, shape_of(config.anchor))
    assert found.per_iteration == pytest.approx(found.checkpoint)


@pytest.mark.parametrize("iterations", [0, 1, 2, 3, 5, 7, 20, 100])
def test_what_stays_is_what_retention_keeps(iterations: int):
    config = load([NANO, Path("configs/ablation/fixed_generator.yaml")], [f"cotrain.iterations={iterations}"])
    found = run_files(config, shape_of(config.anchor))
    size = {Extent.WHOLE: 1.0, Extent.WEIGHTS: 1 / 3, Extent.FACTS: 0.0}
    kept = retention_of_checkpoints(
        RunState(iterations=range(iterations + 1), passed=iterations, selected=1, pinned=()),
        KeepSettings(full=2, weights_every=5),
    )
    total = found.checkpoint * sum(size[verdict[0]] for verdict in kept.values())
    assert found.after_gc == pytest.approx(total)


def test_tidying_up_leaves_less_and_never_more():
    for iterations in (0, 1, 2, 3, 20, 100):
        config = load([NANO], [f"cotrain.iterations={iterations}"])
        found = run_files(config, shape_of(config.anchor))
        assert found.after_gc <= found.in_all
    assert found.after_gc < 0.5 * found.in_all


@pytest.mark.parametrize("iterations", [0, 1, 2, 3, 5, 7, 20, 100])
@pytest.mark.parametrize(("full", "every"), [(2, 5), (1, 0), (3, 2)])
def test_the_peak_with_retention_is_that_of_the_rules_iteration_by_iteration(iterations: int, full: int, every: int):
    asked = [f"cotrain.iterations={iterations}", f"store.keep={{full: {full}, weights_every: {every}}}"]
    config = load([NANO], asked)
    found = run_files(config, shape_of(config.anchor))
    size = {Extent.WHOLE: 1.0, Extent.WEIGHTS: 1 / 3, Extent.FACTS: 0.0}
    peaks = [1.0]
    for done in range(iterations):
        # The best of those validated so far: where it is one of the newest, nothing more is kept.
        validated = [number for number in range(1, done + 1) if number % config.cotrain.validate_every == 0]
        for best in [(number,) for number in validated] or [()]:
            state = RunState(iterations=range(done + 1), passed=done, selected=None, pinned=(), candidates=best)
            kept = retention_of_checkpoints(state, KeepSettings(full=full, weights_every=every))
            roles = sum(size[kept[number][0]] for number in range(1, done + 1))
            peaks.append(1.0 + 2 * (roles + 1) + 1 / 3)
    assert found.peak == pytest.approx(found.checkpoint * max(peaks))


def test_without_retention_the_peak_is_everything_that_is_written():
    found = run_files(load([NANO]), shape_of(load([NANO]).anchor))
    assert found.peak == found.in_all


def test_scoring_holds_the_direction_of_a_matrix_for_muon_alone():
    overrides = ["engine.trainer=local", "engine.ranks=1", "engine.placement=split"]
    plans = [planned("1xH200", *overrides, f"cotrain.optimizer.name={name}") for name in ("adamw", "muon")]
    chunk, matrix = ([part.bytes for part in plan.memory[0].parts if part.name == "scoring"] for plan in plans)
    shape = plans[0].shape
    assert chunk == [4 * min(CHUNK, shape.trained)] and matrix == [16 * shape.hidden * shape.ffn]


# Peaks of processes that probed and trained models of such shapes in fp32, MiB.
@pytest.mark.parametrize(
    ("hidden", "layers", "ffn", "heads", "vocabulary", "tokens", "measured"),
    [(128, 4, 384, 8, 4096, 1024, 688), (512, 8, 1536, 8, 4096, 2048, 2518), (256, 6, 1024, 4, 20_000, 4096, 1828)],
)
def test_on_a_cpu_the_plan_is_never_under_what_was_measured(
    hidden: int, layers: int, ffn: int, heads: int, vocabulary: int, tokens: int, measured: float
):
    shape = Shape(
        name="", layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=heads // 2, head_dim=64,
        vocabulary=vocabulary, tied=True, window=0, windowed_layers=0,
    )  # fmt: skip
    asked = Setup.of(load([NANO], [f"engine.token_budget={tokens}"]), "cpu", shape=shape)
    layout = replace(asked.layout, warm_trainers=1)
    found = trainer_memory(shape, asked.cluster.gpu, layout, sequence=64).total / 2**20
    assert measured < found < 1.11 * measured


GIB = 2**30


def asked(*overlays: str) -> Setup:
    files = [f"configs/{name}.yaml" for name in ("qwen3-4b", "engine/one-gpu", *overlays)]
    return Setup.of(load(files), "1xRTX4090")


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"], ["down_proj"]])
def test_adapters_are_counted_as_peft_makes_them(tmp_path: Path, targets: list[str] | str) -> None:
    adapter = AdapterSettings(rank=3, targets=targets)
    made = create_adapters(build_meta_model(read_config(anchor_path())), adapter, tmp_path, base="", seed=0)
    shape = read_shape(anchor_path())
    assert shape.adapted(adapter).trained == sum(each.numel() for each in made.values())
    assert shape.adapted(adapter).adapted(None).trained == shape.trained == shape.parameters


def test_a_4b_model_trains_in_24_gb_with_adapters_alone() -> None:
    whole, small = asked(), asked("engine/lora")
    trainers = [each.memory[0] for each in (whole, small)]
    assert not trainers[0].fits and trainers[1].fits
    # Bytes that nothing less than the frozen weights could take.
    assert trainers[1].total > 2 * small.shape.parameters
    assert any("cotrain.adapter.type=lora" in knob.settings and knob.fits for knob in advice(whole))
    assert not advice(small)
    files = [run_files(each.config, each.shape) for each in (whole, small)]
    assert files[1].checkpoint == 12 * small.shape.trained < 0.01 * files[0].checkpoint
    assert files[1].in_all > 4 * small.shape.parameters


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_moments_are_counted_as_each_optimizer_keeps_them(tmp_path: Path, name: str) -> None:
    prepare_anchor(anchor_path(), tmp_path, optimizer={"name": name})
    kept = sum(each.numel() for each in load_file(tmp_path / "optimizer.safetensors").values())
    shape = read_shape(anchor_path())
    # The shape leaves out norms of a head's width.
    assert shape.moments(name) == pytest.approx(kept, rel=0.01)
    config = load([Path("configs/nano-basic.yaml")])
    settings = config.cotrain.model_copy(update={"optimizer": OptimizerSettings(name=name)})
    asked = Setup.of(config.model_copy(update={"cotrain": settings}), "1xRTX4090")
    (moments,) = [part.bytes for part in asked.memory[0].parts if part.name == "moments (fp32)"]
    assert moments == pytest.approx(4 * kept * asked.layout.warm_trainers, rel=0.01)
    files = sum((tmp_path / name).stat().st_size for name in ("model.safetensors", "optimizer.safetensors"))
    assert run_files(asked.config, asked.shape).checkpoint == pytest.approx(files, rel=0.02)
