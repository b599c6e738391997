"""The local trainer computes what transformers' model and torch's AdamW compute, with anchor distance and entropy
bonus, resumes bit for bit, and loads in little more memory than it then holds.
"""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_tiny import (
    LATENT,
    OBJECTIVE,
    ROUTED,
    SHAPES,
    WINDOW,
    anchored,
    gradient,
    make_checkpoint,
    make_family,
    make_groups,
    make_source,
    step,
    stock_logprobs,
    stock_model,
    trainer,
)
from objectives import objective
from places import ROOT
from safetensors.torch import load_file
from solver_rows import answers, question
from stock_engines import local_trainer
from torch import Tensor
from transformers import AutoModelForCausalLM

from infuser_core.config import shipped
from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import update_solver as phase
from infuser_core.cotrain.phases.training import train_group
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.training.checkpoint import read_reference
from infuser_core.errors import CheckpointError, EngineError
from infuser_core.protocols import TrainGroup
from infuser_core.schemas import Checkpoint
from infuser_core.store.verify import describe_files

LAST = SHAPES[:4]
MODELS = {
    "qwen3": ("qwen3", {}),
    "qwen3, tied": ("qwen3", {"tied": True}),
    "olmo3": ("olmo3", WINDOW),
    "olmo3, window of one": ("olmo3", {"sliding_window": 1}),
    "mistral": ("mistral", WINDOW),
    "youtu, values wider than keys": ("youtu", LATENT | {"v_head_dim": 24}),
    "youtu, values narrower than keys": ("youtu", LATENT),
    "apertus, an activation with buffers": ("apertus", {"hidden_size": 32}),
    "glm4_moe, a router with a buffer": ("glm4_moe", ROUTED),
}


def written_down(
    checkpoint: Checkpoint, groups: list[TrainGroup], denominator: int
) -> tuple[list[list[float]], float, dict[str, Tensor]]:
    """Log-probabilities of all rows, loss and gradients of eq:unified_obj: one response after the other, the stock
    model, no packing."""
    model, total, logprobs = stock_model(checkpoint), torch.zeros(()), []
    for group in groups:
        for row in group.rows:
            current = stock_logprobs(model, group.prompt_token_ids, row.token_ids, OBJECTIVE.temperature)
            logprobs.append(current.tolist())
            old = current.detach() if row.old_logprobs is None else torch.tensor(row.old_logprobs, dtype=torch.float64)
            ratio = (current - old).exp()
            weight = (old - torch.tensor(row.sampler_logprobs, dtype=torch.float64)).exp().clamp(max=2.0)
            worth = torch.minimum(ratio * row.advantage, ratio.clamp(0.8, 1.2) * row.advantage)
            total = total - (weight * worth).sum() / (len(group.rows) * OBJECTIVE.length_norm * denominator)
    total.backward()
    return logprobs, float(total.detach()), {name: each.grad for name, each in model.named_parameters()}


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("model", MODELS)
def test_log_probabilities_and_gradients_are_those_of_the_stock_model(tmp_path: Path, model: str) -> None:
    family, changes = MODELS[model]
    checkpoint = make_family(tmp_path, family, **changes)
    shapes = [*SHAPES, (19, [3, 3]), (7, [6, 2, 22, 5])]
    for old in (False, True):
        groups = make_groups(shapes, old=old)
        logprobs, loss, expected = written_down(checkpoint, groups, 3)
        for budget in (48, 4096):
            engine = trainer(checkpoint, dtype="float64", token_budget=budget)
            found = [row for rows in engine.logprobs(groups, temperature=OBJECTIVE.temperature) for row in rows]
            for values, wanted in zip(found, logprobs, strict=True):
                assert values == pytest.approx(wanted, rel=1e-5, abs=1e-5)
            assert engine.forward_backward(groups, OBJECTIVE, denominator=3).loss == pytest.approx(loss, rel=1e-4)
            # Stock norms compute in fp32, whatever the model's dtype: agreement ends there.
            for name, view in engine._flat.views(engine._flat.gradient).items():
                assert float((view - expected[name]).norm()) <= 1e-5 * float(expected[name].norm()) + 1e-12, name


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 2e-6), ("float64", 1e-12)])
def test_budgets_checkpointing_and_chunks_of_logits_leave_the_gradient_alone(
    anchor: Checkpoint, dtype: str, limit: float
) -> None:
    groups = make_groups(SHAPES, old=True)
    expected = gradient(trainer(anchor, dtype=dtype), groups)
    for options in (
        {"token_budget": 28}, {"token_budget": 40}, {"token_budget": 64}, {"gradient_checkpointing": True},
        {"gradient_checkpointing": 24},
    ):  # fmt: skip
        assert distance(gradient(trainer(anchor, dtype=dtype, **options), groups), expected) < limit
    tiled = trainer(anchor, dtype=dtype)
    tiled._policy.output = replace(tiled._policy.output, kept_cells=0, cells=64 * 7)
    assert distance(gradient(tiled, groups), expected) < limit


def test_bfloat16_points_the_same_way_from_fp32_state(anchor: Checkpoint) -> None:
    groups = make_groups(SHAPES)
    exact = gradient(trainer(anchor), groups)
    engine = trainer(anchor, dtype="bfloat16", gradient_checkpointing=True)
    assert torch.nn.functional.cosine_similarity(gradient(engine, groups), exact, dim=0) > 0.99
    before = engine._flat.data.clone()
    engine.optim_step(1e-6)
    state = [engine._flat.data, engine._flat.gradient, engine._optimizer.first, engine._optimizer.second]
    assert {each.dtype for each in state} == {torch.float32}
    # A step this small is lost where weights are bf16.
    assert 0 < float((engine._flat.data - before).abs().max()) < 1e-5


def test_flat_rows_cost_nothing_and_keep_their_place_in_the_group(anchor: Checkpoint) -> None:
    (group,) = make_groups([(5, [4, 3, 6])])
    silent = replace(group, rows=[*group.rows, replace(group.rows[0], advantage=0.0)])
    engine = trainer(anchor, dtype="float64")
    assert distance(gradient(engine, [silent]) * 4 / 3, gradient(engine, [group])) < 1e-6
    flat = replace(group, rows=[replace(row, advantage=0.0) for row in group.rows])
    seen: list[tuple[int, int, int]] = []
    engine.forward_backward([flat], OBJECTIVE, denominator=1, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(3, 3, 0)]


def test_a_response_over_the_budget_names_its_group(anchor: Checkpoint) -> None:
    with pytest.raises(EngineError, match=r"'g0'.*25 tokens.*24"):
        gradient(trainer(anchor, token_budget=24), make_groups([(5, [20, 2])]))


def test_a_loaded_checkpoint_continues_bit_for_bit(anchor: Checkpoint, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("whole", "half", "resumed")]
    for folder in folders:
        folder.mkdir()
    whole, first = trainer(anchor), trainer(anchor)
    for seed in range(4):
        step(whole, make_groups(LAST, seed=seed))
    for seed in range(2):
        step(first, make_groups(LAST, seed=seed))
    assert (whole.save(folders[0]), first.save(folders[1])) == (4, 2)
    second = trainer(Checkpoint(checkpoint_id="h", role="solver", path=str(folders[1]), step=2))
    for seed in range(2, 4):
        step(second, make_groups(LAST, seed=seed))
    second.save(folders[2])
    names = sorted(each.name for each in folders[0].iterdir())
    assert names == sorted(each.name for each in folders[2].iterdir()) and len(names) > 3
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[2] / name).read_bytes(), name


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o700])
def test_who_may_read_its_folder_may_read_a_checkpoint(anchor: Checkpoint, tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    trainer(anchor).save(tmp_path)
    weights = tmp_path / "model.safetensors"
    assert weights.stat().st_mode & 0o666 == mode & 0o666


def test_steps_are_those_of_torch_adamw_and_transformers_loads_them(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    model = AutoModelForCausalLM.from_pretrained(anchor.path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, foreach=False)
    for seed in range(3):
        engine.zero_grad()
        engine.forward_backward(make_groups(LAST, seed=seed), objective(length_norm=0.1), denominator=1)
        for name, view in engine._flat.views(engine._flat.gradient).items():
            model.get_parameter(name).grad = view.clone()
        norm = engine.optim_step(1e-2)
        assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)), rel=1e-5)
        assert norm > 1.0
        optimizer.step()
    engine.save(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    for name, parameter in AutoModelForCausalLM.from_pretrained(tmp_path).named_parameters():
        assert torch.equal(parameter, stored[name])
        torch.testing.assert_close(parameter.data, model.get_parameter(name).data, rtol=1e-5, atol=1e-6)


def test_a_non_finite_gradient_skips_the_step(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    before = engine._flat.data.clone()
    (group,) = make_groups([(5, [4, 3])])
    gradient(engine, [replace(group, rows=[replace(group.rows[0], advantage=float("inf")), group.rows[1]])])
    assert not torch.isfinite(torch.tensor(engine.optim_step(1e-2)))
    assert torch.equal(engine._flat.data, before)
    assert engine.save(tmp_path) == 0


def test_what_cannot_be_trained_from_is_refused(anchor: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no optimizer state"):
        trainer(replace(anchor, path=str(Path(anchor.path).parent / "source")))
    with pytest.raises(EngineError, match="no checkpoint"):
        local_trainer().zero_grad()
    engine = trainer(anchor)
    step(engine, make_groups(LAST))
    engine.save(tmp_path)
    # Moments of other decay rates mean something else; before the first step there are none.
    other = trainer(anchor, optimizer={"beta2": 0.95})
    with pytest.raises(CheckpointError, match="beta2"):
        other.load(replace(anchor, path=str(tmp_path)))


def test_without_room_on_the_host_it_holds_nothing_asleep_and_a_load_brings_it_back(
    anchor: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infuser_core.engines.local.trainer.HOST_SHARE", 0.0)
    engine, groups = trainer(anchor), make_groups(LAST)
    expected = gradient(engine, groups)
    engine.sleep()
    assert not hasattr(engine, "_flat") and engine.forgets and not engine.park("solver")
    with pytest.raises(EngineError, match="holds no checkpoint"):
        engine.zero_grad()
    engine.wake()
    engine.load(anchor)
    assert torch.equal(gradient(engine, groups), expected)


def test_asleep_the_state_is_in_host_memory_and_the_next_call_has_it(anchor: Checkpoint, tmp_path: Path) -> None:
    engines, groups = [trainer(anchor), trainer(anchor)], make_groups(LAST)
    for engine in engines:
        step(engine, groups)
        engine.zero_grad()
        engine.forward_backward(groups, OBJECTIVE, denominator=2)
    buffers = [*engines[0]._state(), engines[0]._flat.gradient]
    engines[0].sleep()
    assert sum(each.untyped_storage().nbytes() for each in buffers) == 0 and not engines[0].forgets
    engines[0].sleep()
    for engine, name in zip(engines, ("slept", "awake"), strict=True):
        # The gradient of the first pass is among what comes back.
        engine.forward_backward(groups, OBJECTIVE, denominator=2)
        engine.optim_step(1e-3)
        (tmp_path / name).mkdir()
        engine.save(tmp_path / name)
    assert_same_files(tmp_path / "slept", tmp_path / "awake")


def test_files_left_to_the_commit_are_the_same_and_it_reads_them(anchor: Checkpoint, tmp_path: Path) -> None:
    for name, beside in (("flushed", False), ("left", True)):
        engine = trainer(anchor, write_beside=beside)
        step(engine, make_groups(LAST))
        (tmp_path / name).mkdir()
        engine.save(tmp_path / name)
        engine.keep_gradient(tmp_path / name / "gradient.safetensors")
        files = sorted((tmp_path / name).glob("*.safetensors"))
        before, size = read_by_this_process(), sum(file.stat().st_size for file in files)
        assert len(describe_files(files)) == 3 and size > 1 << 16
        assert (read_by_this_process() - before >= size) == beside
    assert_same_files(tmp_path / "flushed", tmp_path / "left")


def read_by_this_process() -> int:
    """Bytes so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def assert_same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir()) and len(names) > 3
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_a_kept_gradient_comes_back_as_the_ascent_direction(anchor: Checkpoint, tmp_path: Path) -> None:
    engine = trainer(anchor)
    expected = gradient(engine, make_groups(LAST))
    norm = engine.keep_gradient(tmp_path / "kept.safetensors")
    kept = torch.zeros_like(expected)
    read_reference(tmp_path / "kept.safetensors", engine._flat.views(kept))
    assert torch.equal(kept, -expected)
    assert norm == pytest.approx(float(expected.norm()), rel=1e-6)


CODE = """
import hashlib, sys
from pathlib import Path
import torch
sys.path.insert(0, "tests/support")
from engine_tiny import OBJECTIVE, make_groups, trainer
from stock_engines import hf_sampler
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint
from infuser_core.store.verify import describe_files

anchor = Checkpoint(checkpoint_id="anchor", role="solver", path=sys.argv[1], step=0)
engine = trainer(anchor, deterministic=True)
groups = make_groups([(9, [11, 5]), (7, [8, 8, 3])])
engine.forward_backward(groups, OBJECTIVE, denominator=2)
engine.keep_gradient(Path(sys.argv[2]))
engine.probe(groups, OBJECTIVE, Path(sys.argv[2]))
engine.optim_step(1e-3)
sampler = hf_sampler(deterministic=True)
sampler.load(anchor)
asked = PromptGroup(group_id="g", token_ids=[5, 6], seeds=[1, 2])
drawn = sampler.sample([asked], SamplingParams(temperature=0.7, max_tokens=9, top_p=0.9))
assert torch.are_deterministic_algorithms_enabled()
content = engine._flat.data.numpy().tobytes() + repr(drawn).encode()
print(engine.facts()["deterministic"], hashlib.sha256(content).hexdigest())
"""


@pytest.mark.long
def test_two_deterministic_processes_compute_the_same_bits(tmp_path: Path) -> None:
    anchor = make_checkpoint(tmp_path)
    said = [
        subprocess.run(
            [sys.executable, "-c", CODE, anchor.path, str(tmp_path / f"{turn}.safetensors")],
            capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout.split()
        for turn in (0, 1)
    ]  # fmt: skip
    assert said[0] == said[1] and said[0][0] == "True"


CONFIG = load([shipped.find_data_file("configs/nano.yaml")])


def with_anchor(groups: list[TrainGroup], values: list[list[list[float]]]) -> list[TrainGroup]:
    return [
        replace(group, rows=[replace(row, anchor_logprobs=each) for row, each in zip(group.rows, rows, strict=True)])
        for group, rows in zip(groups, values, strict=True)
    ]


@pytest.mark.parametrize("budget", [40, 4096])
def test_loss_and_gradient_are_those_of_the_stock_models(anchor: Checkpoint, tmp_path: Path, budget: int) -> None:
    engine, groups = trainer(anchor, dtype="float64", token_budget=budget), make_groups(SHAPES)
    start = engine.logprobs(groups, temperature=OBJECTIVE.temperature)
    for seed in range(3):
        step(engine, make_groups(SHAPES[:4], seed=seed))
    (tmp_path / "moved").mkdir()
    engine.save(tmp_path / "moved")
    given, objective = with_anchor(groups, start), replace(OBJECTIVE, kl=0.7)
    engine.zero_grad()
    report = engine.forward_backward(given, objective, denominator=3)
    found = engine._flat.gradient.clone()
    bare = gradient(engine, groups, denominator=3)
    models = [
        stock_model(Checkpoint(checkpoint_id="m", role="solver", path=str(p), step=0))
        for p in (tmp_path / "moved", anchor.path)
    ]
    total, divergence, tokens = torch.zeros((), dtype=torch.float64), 0.0, 0
    for group in groups:
        for row in group.rows:
            asked = (group.prompt_token_ids, row.token_ids, OBJECTIVE.temperature)
            current, fixed = stock_logprobs(models[0], *asked), stock_logprobs(models[1], *asked).detach()
            k3 = (fixed - current).exp() - (fixed - current) - 1
            total = total + 0.7 * k3.sum() / (len(group.rows) * OBJECTIVE.length_norm * 3)
            divergence, tokens = divergence + float(k3.sum().detach()), tokens + len(row.token_ids)
    total.backward()
    assert report.means["anchor_kl"] == pytest.approx(divergence / tokens, rel=1e-4)
    expected = {name: each.grad for name, each in models[0].named_parameters()}
    for name, view in engine._flat.views(found - bare).items():
        # Stock norms compute in fp32.
        assert float((view - expected[name]).norm()) <= 1e-4 * float(expected[name].norm()) + 1e-12, name


def test_a_row_without_it_among_others_is_refused(anchor: Checkpoint) -> None:
    engine, groups = trainer(anchor), make_groups(SHAPES[:2])
    given = with_anchor(groups, engine.logprobs(groups, temperature=0.7))
    given[0] = groups[0]
    with pytest.raises(EngineError, match="lacks anchor_logprobs"):
        engine.forward_backward(given, replace(OBJECTIVE, kl=0.1), denominator=1)


class Watched(LocalTrainer):
    """A trainer that keeps a list of what it loaded."""

    def load(self, checkpoint: Checkpoint) -> None:
        super().load(checkpoint)
        self.__dict__.setdefault("seen", []).append(checkpoint.checkpoint_id)


def anchor_gap(engine: LocalTrainer, groups: list[TrainGroup], fixed: list[list[list[float]]]) -> float:
    """Mean k3 of KL(current || anchor)."""
    found = engine.logprobs(groups, temperature=CONFIG.cotrain.sampling.temperature)
    gaps = [b - a for one, two in zip(found, fixed, strict=True) for x, y in zip(one, two, strict=True)
            for a, b in zip(x, y, strict=True)]  # fmt: skip
    return sum(math.exp(gap) - gap - 1 for gap in gaps) / len(gaps)


def test_an_update_loads_the_anchor_only_for_it_and_stays_nearer(anchor: Checkpoint, tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(12)]
    rows = {name: answers(name, ["w5"] * 4, correct=[True, False, True, False]) for name in names}
    first = trainer(anchor)
    groups = [train_group(own, [1.0] * 4) for own in rows.values()]
    fixed = first.logprobs(groups, temperature=CONFIG.cotrain.sampling.temperature)
    for seed in range(3):
        step(first, make_groups(SHAPES[:4], seed=seed))
    (tmp_path / "moved").mkdir()
    first.save(tmp_path / "moved")
    moved = replace(anchor, checkpoint_id="moved", path=str(tmp_path / "moved"))
    after = []
    for kl in (0.0, 50.0):
        settings = phase.settings_of(CONFIG, iteration=0)
        settings = replace(settings, step=replace(settings.step, learning_rate=3e-3, minibatch=1, kl=kl))
        engine, out = local_trainer(Watched), tmp_path / f"out-{kl}"
        engine.load(moved)
        out.mkdir()
        done = phase.update_solver(
            [question(name) for name in names], [row for own in rows.values() for row in own], engine, settings,
            workspace=out, before=moved, anchor=anchor,
        )  # fmt: skip
        assert engine.__dict__["seen"] == ["moved", *(["anchor", "moved"] if kl else [])]
        assert [update.anchor_kl > 0 for update in done.updates] == [kl > 0] * len(names)
        after.append(anchor_gap(engine, groups, fixed))
    assert after[1] < 0.5 * min(after[0], anchor_gap(first, groups, fixed))


def stock_entropy(model: torch.nn.Module, prompt: list[int], response: list[int], temperature: float) -> torch.Tensor:
    """Entropy of the distribution that every response token is drawn from, nats, [tokens]."""
    tokens = torch.tensor([[*prompt, *response]])
    logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.distributions.Categorical(logits=logits).entropy()


@pytest.mark.parametrize("budget", [40, 4096])
def test_loss_and_gradient_are_those_of_the_stock_model(anchor: Checkpoint, budget: int) -> None:
    engine, groups = trainer(anchor, dtype="float64", token_budget=budget), make_groups(SHAPES)
    # Rows without credit count too.
    groups[0] = replace(groups[0], rows=[replace(row, advantage=0.0) for row in groups[0].rows])
    bare = engine.forward_backward(groups, OBJECTIVE, denominator=3)
    plain = gradient(engine, groups, denominator=3)
    engine.zero_grad()
    report = engine.forward_backward(groups, replace(OBJECTIVE, entropy=0.3), denominator=3)
    found = engine._flat.gradient.clone()
    model, bonus = stock_model(anchor), torch.zeros((), dtype=torch.float64)
    for group in groups:
        for row in group.rows:
            entropy = stock_entropy(model, list(group.prompt_token_ids), list(row.token_ids), OBJECTIVE.temperature)
            bonus = bonus + 0.3 * entropy.sum() / (len(group.rows) * OBJECTIVE.length_norm * 3)
    (-bonus).backward()
    assert report.loss - bare.loss == pytest.approx(-float(bonus.detach()), rel=1e-4)
    expected = {name: each.grad for name, each in model.named_parameters()}
    # Stock norms compute in fp32.
    for name, view in engine._flat.views(found - plain).items():
        assert float((view - expected[name]).norm()) <= 1e-4 * float(expected[name].norm()) + 1e-12, name


def test_updates_with_a_bonus_leave_a_broader_policy(anchor: Checkpoint, tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(8)]
    rows = {name: answers(name, ["w5"] * 4, correct=[True, False, True, False]) for name in names}
    entropies = []
    for bonus in (0.0, 5.0):
        settings = phase.settings_of(CONFIG, iteration=0)
        settings = replace(settings, step=replace(settings.step, learning_rate=3e-3, minibatch=1, entropy=bonus))
        engine, out = trainer(anchor), tmp_path / f"out-{bonus}"
        out.mkdir()
        phase.update_solver(
            [question(name) for name in names], [row for own in rows.values() for row in own], engine, settings,
            workspace=out, before=anchor,
        )  # fmt: skip
        model = stock_model(replace(anchor, path=str(out)))
        answer = rows[names[0]][0]
        with torch.no_grad():
            found = stock_entropy(model, list(answer.prompt_token_ids), list(answer.token_ids), 1.0)
        entropies.append(float(found.mean()))
    assert entropies[1] > entropies[0] + 0.05


MEASURE = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/support")
from stock_engines import local_trainer
from infuser_core.schemas import Checkpoint
from infuser_core.store.verify import describe_files

def resident(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))

def load(path):
    trainer = local_trainer()
    trainer.load(Checkpoint(checkpoint_id="anchor", role="solver", path=path, step=0))
    return trainer

load(sys.argv[1])
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
trainer = load(sys.argv[2])
print((resident("VmHWM") - before) / trainer._flat.data.numel())
"""
"""Prints the peak of the second load, bytes per parameter; the first one has brought the libraries in."""


def made(folder: Path, **sizes: int) -> Checkpoint:
    return anchored(make_source(folder / "source", **sizes))


def test_a_load_peaks_little_above_weights_gradient_and_moments(tmp_path: Path) -> None:
    tiny = made(tmp_path / "tiny")
    wide = made(tmp_path / "wide", hidden_size=384, intermediate_size=1152, head_dim=64, num_hidden_layers=10)
    command = [sys.executable, "-c", MEASURE, tiny.path, wide.path]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # Four buffers of four bytes; a mapped file of moments would add eight.
    assert 15 < float(ran.stdout) < 19
