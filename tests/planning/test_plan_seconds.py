"""Seconds of a plan: the paper's wall-clock table, the six constants, overlap, scaling and sampling."""

import csv
import random
from dataclasses import asdict, fields, replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from planner_fit import anchors, left_out, refit, residuals, root_mean_square
from published_schedule import published_phases
from torch.utils.flop_counter import FlopCounterMode

import infuser_core.memory
from infuser_core.capacity.asked import Asked
from infuser_core.capacity.forecast import SIZES, Timed, held, scale, timed
from infuser_core.capacity.phases import TERMS, phases_of
from infuser_core.capacity.sampling import Batch, Engine, Spread, _decode, sample
from infuser_core.config.overlays import load
from infuser_core.engines.training.optimizers.muon import scaled
from infuser_core.memory.hardware import Efficiency, calibrated, gpus
from infuser_core.memory.shape import Shape, shapes

FOUR, EIGHT = (Path(f"configs/qwen3-{size}.yaml") for size in ("4b", "8b"))


def eight(*changes: str, gpus: str = "8xH100") -> Asked:
    """A plan for the paper's 8B run."""
    return Asked.of(load([EIGHT], list(changes)), gpus)


@pytest.fixture(scope="module")
def paper():
    return anchors([FOUR, EIGHT])


def test_every_phase_is_within_a_quarter_of_the_paper(paper):
    cells = [row for row in residuals(paper, calibrated()) if row.phase != "total"]
    assert len(cells) == 16
    assert {(row.model, row.phase): row.error for row in cells if abs(row.error) > 0.25} == {}


def test_totals_are_within_a_tenth_of_the_paper(paper):
    totals = [row for row in residuals(paper, calibrated()) if row.phase == "total"]
    assert [row.paper for row in totals] == [1730, 2761]
    assert all(abs(row.error) < 0.10 for row in totals), totals


def test_gpu_hours_of_the_published_runs(paper):
    for anchor, hours in (("Qwen3-4B-Base", 384), ("Qwen3-8B-Base", 614)):
        plan = paper[anchor]
        seconds = sum(row.ours for row in residuals({anchor: plan}, calibrated()) if row.phase == "total")
        assert abs(seconds * 100 * 8 / 3600 / hours - 1) < 0.10


def test_the_constants_are_those_that_the_fit_finds(paper):
    found, kept = refit(paper), calibrated()
    for name, value in asdict(kept).items():
        assert value == pytest.approx(getattr(found, name), rel=0.03), name


def test_constants_of_one_model_predict_the_other(paper):
    cells = left_out(paper)
    assert root_mean_square(cells) < 0.20
    assert all(abs(row.error) < 0.10 for row in cells if row.phase == "total")
    assert all(abs(row.error) < 0.30 for row in cells)


ROOM = Path(infuser_core.memory.__file__).parent


def test_six_constants_are_all_there_are():
    with (ROOM / "constants.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [field.name for field in fields(Efficiency)]
    assert len(rows) <= 6


def test_no_table_holds_a_measured_second():
    seconds = {"193", "341", "138", "131", "415", "668", "303", "547", "151", "245", "334", "619", "1730", "2761"}
    tables = list(ROOM.glob("*.csv"))
    assert len(tables) == 4
    for path in tables:
        with path.open() as file:
            assert not seconds & {value for row in csv.DictReader(file) for value in row.values()}, path.name


def test_a_models_name_decides_nothing_but_its_lengths():
    known = eight()
    renamed = replace(known, shape=replace(known.shape, name="somebody-elses"))
    assert phases_of(renamed) == phases_of(known)


def test_machines_with_engines_alone_get_the_weights_over_the_network():
    sharded = ("engine.sampler=vllm", "engine.trainer=deepspeed", "engine.ranks=8", "engine.placement=colocated")
    one, three = (eight(*sharded, gpus=gpus) for gpus in ("8xH100", "3x8xH100"))
    files = [{phase.name: phase.terms.get("files", 0.0) for phase in phases_of(asked)} for asked in (one, three)]
    sent = 2 * one.layout.bytes_per_weight * one.shape.parameters
    seconds = sent / (8 * one.cluster.gpu.network * one.efficiency.link)
    assert seconds > 0.05
    for name, before in files[0].items():
        after = before + seconds if name.startswith("update_") else before
        assert files[1][name] == pytest.approx(after), name


@pytest.mark.parametrize("name", [field.name for field in fields(Efficiency)])
def test_every_constant_moves_the_seconds_its_own_way(name: str):
    asked, base = eight(), calibrated()
    worse = getattr(base, name) * (0.5 if name in ("matmul", "memory", "link") else 2.0)
    changed = replace(base, **{name: worse})
    for phases in (published_phases, phases_of):
        pairs = list(zip(phases(asked), phases(replace(asked, efficiency=changed)), strict=True))
        assert all(after.seconds >= before.seconds - 1e-9 for before, after in pairs)
        assert any(after.seconds > before.seconds for before, after in pairs)


SPLIT = ["engine.trainer=deepspeed", "engine.ranks=4", "engine.sampler=vllm"]


def planned(*changes: str, gpus: str = "8xH100") -> Timed:
    return timed(eight(*SPLIT, *changes, gpus=gpus))


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


@pytest.mark.parametrize("changes", [["engine.overlap=true", "engine.ranks=8"], ["engine.placement=colocated"]])
def test_nothing_is_hidden_where_phases_take_turns(changes: list[str]):
    found = planned(*changes)
    assert found.iteration == pytest.approx(total(found))


def test_without_a_dev_gradient_there_is_nothing_to_hide():
    changes = ["cotrain.generator.update=false", "cotrain.solver.update=true"]
    found = planned("engine.overlap=true", *changes)
    assert found.iteration == pytest.approx(total(found))


ALL = ["engine.trainer=deepspeed", "engine.ranks=8", "engine.placement=colocated"]


def test_sizes_and_terms_add_up():
    found = scale(eight(*ALL))
    assert tuple(size.gpus for size in found.sizes) == SIZES
    for size in found.sizes:
        assert sum(size.terms.values()) == pytest.approx(size.iteration)
        assert sum(size.phases.values()) == pytest.approx(size.iteration)
    assert all(0.9 < size.speedup <= 2.05 for size in found.sizes)


def test_scaling_stops_and_names_what_no_longer_shrinks():
    found = scale(eight(*ALL))
    assert 8 <= found.stops_at < 512
    assert found.reason.startswith(f"at {2 * found.stops_at} GPUs")
    assert any(meaning in found.reason for meaning in TERMS.values())


def test_more_gpus_cost_more_gpu_hours():
    hours = [size.gpu_hours for size in scale(eight(*ALL)).sizes]
    assert hours == sorted(hours)


def test_the_longest_response_does_not_shrink():
    longest = [size.terms["longest"] for size in scale(eight(*ALL)).sizes]
    assert longest == pytest.approx([longest[0]] * len(longest), rel=0.05)


def test_a_local_trainer_gains_nothing_from_more_gpus():
    sizes = scale(eight()).sizes
    assert sizes[0].phases["update_solver"] == pytest.approx(sizes[-1].phases["update_solver"])


@pytest.mark.parametrize(("of", "rows"), [(1, 1), (8, 1), (8, 4), (64, 2)])
def test_the_longest_of_several_sums_is_as_far_out_as_in_a_draw(of: int, rows: int):
    spread = Spread(mean=700, deviation=0.7, limit=8192)
    draw = random.Random(1)
    drawn = [
        max(sum(spread.quantile(draw.random()) for _ in range(rows)) for _ in range(of)) for _ in range(200_00 // of)
    ]
    assert spread.longest(of, rows=rows) == pytest.approx(fmean(drawn), rel=0.05)


@given(mean=st.floats(2, 4000), deviation=st.floats(0, 2), of=st.integers(1, 64), rows=st.integers(1, 8))
def test_the_longest_lies_between_the_mean_and_the_limit(mean: float, deviation: float, of: int, rows: int):
    spread = Spread(mean=mean, deviation=deviation, limit=8192)
    assert rows * spread.mean_cut() * 0.98 <= spread.longest(of, rows=rows) * 1.02 + 1
    assert spread.longest(of, rows=rows) <= rows * 8192
    assert spread.longest(of + 1, rows=rows) >= spread.longest(of, rows=rows)


def test_equal_lengths_have_no_stragglers():
    spread = Spread(mean=500, deviation=0, limit=8192)
    assert spread.longest(64, rows=4) == 2000
    assert set(spread.lengths(10)) == {500}


@pytest.mark.parametrize("count", [1, 7, 100, 801])
def test_lengths_have_the_mean_of_the_distribution(count: int):
    spread = Spread(mean=700, deviation=0.7, limit=8192)
    lengths = spread.lengths(count)
    assert len(lengths) == count
    assert fmean(lengths) == pytest.approx(spread.mean_cut(), rel=0.03 if count >= 100 else 0.3)


ENGINE = Engine(
    shape=next(shape for shape in shapes().values() if shape.layers == 36 and not shape.tied),
    gpu=gpus()["H100"],
    parallel=1,
    cache_tokens=200_000,
    efficiency=calibrated(),
)


def token_by_token(parts: list[tuple[int, int]], prompt: int, width: int) -> float:
    """The plain loop: every step one token for everybody under way, then the finished make room."""
    per_token = ENGINE.moved(ENGINE.shape.cache_bytes)
    waiting, active, seconds = list(parts), [], 0.0
    while waiting or active:
        while waiting and len(active) < width:
            there, drawn = waiting.pop(0)
            active.append([there + drawn, there])
        held = sum(prompt + done + 0.5 for _, done in active)
        seconds += ENGINE.step(len(active)) + held * per_token
        active = [[length, done + 1] for length, done in active]
        active = [pair for pair in active if pair[1] < pair[0]]
    return seconds


@given(
    parts=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 60)), min_size=1, max_size=25),
    prompt=st.integers(0, 300),
    width=st.integers(1, 12),
)
def test_decoding_from_end_to_end_equals_token_by_token(parts: list[tuple[int, int]], prompt: int, width: int):
    fast = _decode(ENGINE, [(float(there), float(drawn)) for there, drawn in parts], prompt, width)
    assert abs(fast / token_by_token(parts, prompt, width) - 1) < 1e-9


@given(share=st.floats(0.5, 1.0), deviation=st.floats(0.1, 1.5))
def test_partial_rollouts_draw_the_same_tokens_in_less_time(share: float, deviation: float):
    response = Spread(mean=700, deviation=deviation, limit=8192)
    whole = Batch(groups=50, rows=400, prompt=300, response=response, of=3200)
    part = replace(whole, share=share)
    drawn = [sum(tokens for _, tokens in batch.segments()) for batch in (whole, part)]
    assert drawn[0] == pytest.approx(drawn[1])
    assert sample(ENGINE, part)["longest"] <= sample(ENGINE, whole)["longest"] * (1 + 1e-9)


def test_a_phase_never_ends_before_its_longest_response():
    response = Spread(mean=800, deviation=0.8, limit=8192)
    for rows in (1, 16, 400):
        done = sample(ENGINE, Batch(groups=rows / 8, rows=rows, prompt=300, response=response, of=6400))
        assert done["crowd"] >= 0
        assert done["longest"] > 5000 * ENGINE.efficiency.decode_step


def test_a_larger_cache_is_never_slower():
    response = Spread(mean=800, deviation=0.8, limit=8192)
    batch = Batch(groups=100, rows=800, prompt=300, response=response, of=800)
    done = [sample(replace(ENGINE, cache_tokens=size), batch) for size in (4_000, 20_000, 100_000, 500_000)]
    seconds = [sum(each.values()) for each in done]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 2 * seconds[-1]


def test_nothing_to_sample_takes_no_time():
    response = Spread(mean=800, deviation=0.8, limit=8192)
    done = sample(ENGINE, Batch(groups=0, rows=0, prompt=300, response=response, of=1))
    assert set(done.values()) == {0}


def test_muon_orthogonalises_every_questions_gradient():
    shape = Shape(
        name="small", layers=2, hidden=48, ffn=80, heads=6, kv_heads=3, head_dim=16, vocabulary=64, tied=True,
        window=0, windowed_layers=0,
    )  # fmt: skip
    sizes = [(96, 48), (48, 48), (48, 48), (48, 96), (80, 48), (80, 48), (48, 80)]
    with FlopCounterMode(display=False) as counted:
        for size in sizes * shape.layers:
            scaled(torch.randn(size))
    assert counted.get_total_flops() == shape.newton_schulz_flops


@pytest.mark.parametrize("change", ["engine.probe=reference", "cotrain.optimizer.name=muon"])
def test_questions_that_are_scored_one_by_one_take_longer_and_hold_a_whole_gradient(change: str):
    local = ("engine.trainer=local", "engine.ranks=1", "engine.placement=split")
    fast, slow = (eight(*local, *more, gpus="1xH200") for more in ((), (change,)))

    def scoring(asked: Asked) -> tuple[float, float]:
        (phase,) = [phase for phase in phases_of(asked) if phase.name == "score_influence"]
        (part,) = [part for part in held(asked)[0].parts if part.name == "scoring"]
        return phase.seconds, part.bytes

    assert scoring(slow)[0] > scoring(fast)[0] and scoring(slow)[1] > 4 * slow.shape.parameters
