"""The fast probe is the plain one up to rounding: scalars, every parameter's gradient, and what one pass yields."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from engine_tiny import VOCABULARY, make_checkpoint, make_groups
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from infuser_core.algorithm.influence import cosine
from infuser_core.engines.hf.causal_lm import load_model
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.probe.fast import FastProbe
from infuser_core.engines.probe.sums import Workspace
from infuser_core.engines.protocols import Objective, Similarity, TrainGroup
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

OBJECTIVE = Objective(length_norm=16.0, temperature=0.7)
SHAPES = [(5, [4, 7, 1]), (9, [3, 3]), (5, [6, 2, 2, 5]), (17, [11, 4, 8]), (3, [1, 1])]
LIMITS = {"float32": 1e-5, "float64": 1e-9}

Gradients = dict[tuple[int, str], Tensor]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probe")


@pytest.fixture(scope="module")
def engine(folder: Path):
    """Trainers with two steps behind them and a reference gradient, by model and options; made once each."""

    @cache
    def checkpoint(family: str, tied: bool) -> Checkpoint:
        return make_checkpoint(folder / f"{family}-{tied}", family=family, tied=tied)

    @cache
    def made(family: str = "qwen3", tied: bool = True, **options: object) -> LocalTrainer:
        found = LocalTrainer(device="cpu", **options)  # type: ignore[arg-type]
        found.load(checkpoint(family, tied))
        for seed in range(2):
            found.forward_backward(make_groups(SHAPES[:4], seed=seed), OBJECTIVE, denominator=4)
            found.optim_step(1e-2)
            found.zero_grad()
        return found

    return made


def reference(engine: LocalTrainer, folder: Path) -> Path:
    path = folder / "reference.safetensors"
    if not path.is_file():
        engine.zero_grad()
        engine.forward_backward(make_groups(SHAPES[:4], seed=9), OBJECTIVE, denominator=4)
        engine.keep_gradient(path)
        engine.zero_grad()
    return path


def fast_gradients(engine: LocalTrainer, groups: list[TrainGroup], path: Path) -> tuple[list[Similarity], Gradients]:
    """Similarities, and the gradient of -J by group and parameter, added up from the pieces the probe saw."""
    names = engine._flat.views(engine._flat.gradient)
    found: Gradients = {}

    def watch(name: str, place: int, rows: slice | Tensor, piece: Tensor) -> None:
        whole = found.setdefault((place, name), torch.zeros_like(names[name]))
        whole[rows] += piece

    assert isinstance(engine._probe, FastProbe)
    engine._probe.watch = watch
    try:
        return engine.probe(groups, OBJECTIVE, path), found
    finally:
        engine._probe.watch = None


def plain_gradient(engine: LocalTrainer, group: TrainGroup) -> dict[str, Tensor]:
    engine.zero_grad()
    engine.forward_backward([group], OBJECTIVE, denominator=1)
    kept = {name: view.clone() for name, view in engine._flat.views(engine._flat.gradient).items()}
    engine.zero_grad()
    return kept


def check_gradients(engine: LocalTrainer, groups: list[TrainGroup], found: Gradients, limit: float) -> None:
    # A group larger than the budget goes the plain way, and is seen by nobody.
    for place in {place for place, _ in found}:
        group = groups[place]
        expected = plain_gradient(engine, group)
        total = torch.stack([each.double().norm() for each in expected.values()]).norm()
        for name, plain in expected.items():
            error = (found[place, name] - plain).double().norm()
            # Deep parameters can cancel to far less than the whole: below a thousandth, rounding of the whole counts.
            assert error <= limit * max(plain.double().norm(), 1e-3 * total), (place, name)


def check_scalars(found: list[Similarity], expected: list[Similarity], limit: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.group_id == other.group_id
        assert one.direction_norm == pytest.approx(other.direction_norm, rel=limit, abs=1e-30)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=limit, abs=1e-30)
        assert one.reference_norm == other.reference_norm
        for dot, length in (("dot", "direction_norm"), ("raw_dot", "gradient_norm")):
            cosines = [cosine(getattr(each, dot), getattr(each, length), each.reference_norm) for each in (one, other)]
            assert cosines[0] == pytest.approx(cosines[1], abs=limit)


def agree(fast: LocalTrainer, plain: LocalTrainer, groups: list[TrainGroup], path: Path, limit: float) -> None:
    similarities, gradients = fast_gradients(fast, groups, path)
    check_scalars(similarities, plain.probe(groups, OBJECTIVE, path), limit)
    check_gradients(fast, groups, gradients, limit)


SHAPE = st.tuples(st.integers(1, 12), st.lists(st.integers(1, 8), min_size=1, max_size=4))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes=st.lists(SHAPE, min_size=1, max_size=6), seed=st.integers(0, 99), budget=st.sampled_from([30, 60, 512]))
def test_fast_is_plain(engine, folder, dtype: str, tied: bool, shapes: list, seed: int, budget: int) -> None:
    fast = engine(tied=tied, dtype=dtype, token_budget=budget)
    plain = engine(tied=tied, dtype=dtype, probe="reference")
    groups = make_groups(shapes, seed=seed)
    # The padding token counts as a word of the prompt and has no embedding gradient.
    groups[0] = replace(groups[0], prompt_token_ids=[0, *groups[0].prompt_token_ids[1:]])
    agree(fast, plain, groups, reference(plain, folder / f"qwen3-{tied}"), LIMITS[dtype])


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen3", {"gradient_checkpointing": True}),
        ("qwen3", {"gradient_checkpointing": True, "token_budget": 30}),
        ("qwen2", {}),
        ("llama", {}),
        ("olmo2", {}),
    ],
)
@pytest.mark.parametrize("tied", [True, False])
def test_fast_is_plain_for(engine, folder: Path, family: str, options: dict, tied: bool) -> None:
    for dtype, limit in LIMITS.items():
        fast = engine(family, tied, dtype=dtype, **options)
        plain = engine(family, tied, dtype=dtype, probe="reference")
        agree(fast, plain, make_groups(SHAPES, seed=3), reference(plain, folder / f"{family}-{tied}"), limit)


@pytest.mark.parametrize("kept_cells", [0, 1 << 20])
@pytest.mark.parametrize("tied", [True, False])
def test_small_pieces_change_nothing(
    engine, folder: Path, monkeypatch: pytest.MonkeyPatch, tied: bool, kept_cells: int
) -> None:
    sizes: list[int] = []
    room = Workspace._room

    def spy(self: Workspace, which: int, shape: tuple[int, ...]) -> Tensor:
        found = room(self, which, shape)
        sizes.append(self._buffers[which].numel())
        return found

    monkeypatch.setattr("infuser_core.engines.probe.sums.CPU_PIECE", 300)
    monkeypatch.setattr("infuser_core.engines.probe.target_head.CPU_ROWS", 3)
    monkeypatch.setattr(Workspace, "_room", spy)
    fast = engine(tied=tied, dtype="float64")
    plain = engine(tied=tied, dtype="float64", probe="reference")
    monkeypatch.setattr(fast._probe, "_head", replace(fast._probe._head, cells=40, kept_cells=kept_cells))
    agree(fast, plain, make_groups(SHAPES), reference(plain, folder / f"qwen3-{tied}"), 1e-9)
    # 8 groups of 32 elements are more than a piece holds; no buffer outgrows the largest of a piece and a norm.
    assert max(sizes) == 300


@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_with_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool) -> None:
    def with_bias(*arguments: object, **options: object) -> PreTrainedModel:
        model = load_model(*arguments, **options)  # type: ignore[arg-type]
        model.lm_head.bias = torch.nn.Parameter(torch.linspace(-1, 1, VOCABULARY, dtype=model.dtype))
        return model

    for module in ("local.hub", "local.trainer"):
        monkeypatch.setattr(f"infuser_core.engines.{module}.load_model", with_bias)
    checkpoint = make_checkpoint(tmp_path, tied=tied)
    fast, plain = (LocalTrainer(device="cpu", dtype="float64", probe=name) for name in ("fast", "reference"))
    for each in (fast, plain):
        each.load(checkpoint)
    agree(fast, plain, make_groups(SHAPES), reference(plain, tmp_path), 1e-9)


def test_budgets_leave_the_scores_alone(engine, folder: Path) -> None:
    groups = make_groups(SHAPES)
    plain = engine(dtype="float64", probe="reference")
    path = reference(plain, folder / "qwen3-True")
    expected = plain.probe(groups, OBJECTIVE, path)
    for budget in (28, 33, 48, 64, 4096):
        check_scalars(engine(dtype="float64", token_budget=budget).probe(groups, OBJECTIVE, path), expected, 1e-9)
    with pytest.raises(EngineError, match=r"'g3'.*28 tokens.*24"):
        engine(dtype="float64", token_budget=24).probe(groups, OBJECTIVE, path)


def test_bfloat16_scores_are_close(engine, folder: Path) -> None:
    groups = make_groups(SHAPES, seed=4)
    exact, rough = engine(dtype="float32"), engine(dtype="bfloat16")
    path = reference(exact, folder / "qwen3-True")
    plain = engine(dtype="bfloat16", probe="reference").probe(groups, OBJECTIVE, path)
    for one, other, third in zip(
        rough.probe(groups, OBJECTIVE, path), exact.probe(groups, OBJECTIVE, path), plain, strict=True
    ):
        values = [cosine(each.dot, each.direction_norm, each.reference_norm) for each in (one, other, third)]
        assert values[0] == pytest.approx(values[1], abs=0.03)
        assert values[0] == pytest.approx(values[2], abs=0.03)


@pytest.mark.parametrize("options", [{}, {"token_budget": 30}, {"probe": "reference"}])
def test_one_pass_yields_the_log_probabilities(engine, folder: Path, options: dict) -> None:
    groups = make_groups(SHAPES)
    silent = replace(groups[1], rows=[replace(row, advantage=0.0) for row in groups[1].rows])
    groups = [groups[0], silent, *groups[2:]]
    groups[2] = replace(groups[2], rows=[replace(groups[2].rows[0], advantage=0.0), *groups[2].rows[1:]])
    found = engine(**options)
    seen: list[tuple[int, int, int]] = []
    path = reference(found, folder / "qwen3-True")
    probed = found.probe_once(groups, OBJECTIVE, path, progress=lambda *numbers: seen.append(numbers))
    expected = found.logprobs(groups, temperature=OBJECTIVE.temperature)
    for group, rows, plain in zip(groups, probed.logprobs, expected, strict=True):
        for row, values, wanted in zip(group.rows, rows, plain, strict=True):
            assert values == (pytest.approx(wanted, abs=1e-5) if row.advantage else [])
    assert (probed.similarities[1].dot, probed.similarities[1].direction_norm) == (0.0, 0.0)
    assert seen[-1][:2] == (5, 5) and [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("options", [{}, {"token_budget": 30}, {"probe": "reference"}])
def test_scoring_and_a_single_step_share_one_backward(engine, folder: Path, options: dict, tied: bool) -> None:
    groups = make_groups(SHAPES[:4], seed=5)
    path = reference(engine(tied=tied), folder / f"qwen3-{tied}")
    shared, apart = fresh(folder, tied, **options), fresh(folder, tied, **options)
    expected = apart.probe(groups, OBJECTIVE, path)
    report = apart.forward_backward(groups, OBJECTIVE, denominator=7)
    probed = shared.probe_once(groups, OBJECTIVE, path, denominator=7)
    check_scalars(probed.similarities, expected, 1e-9)
    gradients = [each._flat.gradient for each in (shared, apart)]
    assert (gradients[0] - gradients[1]).norm() <= 1e-12 * gradients[1].norm()
    for name in ("loss", "num_tokens", "clip_fraction", "mean_ratio", "mean_tis"):
        assert getattr(probed.report, name) == pytest.approx(getattr(report, name), rel=1e-9)
    assert shared.optim_step(1e-2) == pytest.approx(apart.optim_step(1e-2), rel=1e-12)
    torch.testing.assert_close(shared._flat.data, apart._flat.data, rtol=1e-9, atol=1e-12)


def test_a_kept_gradient_comes_back(engine, tmp_path: Path) -> None:
    found = engine()
    found.zero_grad()
    found.forward_backward(make_groups(SHAPES[:2]), OBJECTIVE, denominator=2)
    gradient = found._flat.gradient.clone()
    found.keep_gradient(tmp_path / "kept.safetensors")
    found.zero_grad()
    found.add_gradient(tmp_path / "kept.safetensors")
    assert torch.equal(found._flat.gradient, gradient)
    found.zero_grad()


def fresh(folder: Path, tied: bool = True, **options: object) -> LocalTrainer:
    """A trainer of its own, in float64, at the anchor the fixture made."""
    anchor = str(folder / f"qwen3-{tied}" / "anchor")
    found = LocalTrainer(device="cpu", dtype="float64", **options)  # type: ignore[arg-type]
    found.load(Checkpoint(checkpoint_id="anchor", role="solver", path=anchor, step=0))
    return found


def test_the_score_predicts_the_change_of_the_dev_objective(tmp_path: Path) -> None:
    """(J(theta + h d) - J(theta - h d)) / 2h = <g_dev, d> for the direction d an AdamW step would take."""
    dev = make_groups([(7, [5, 4, 6]), (4, [6, 3])], seed=6)
    make_checkpoint(tmp_path / "qwen3-True")
    engine = fresh(tmp_path)
    report = engine.forward_backward(dev, OBJECTIVE, denominator=2)
    assert report.mean_ratio == pytest.approx(1.0)
    engine.keep_gradient(tmp_path / "dev.safetensors")
    ascent = -engine._flat.gradient.clone()
    engine.zero_grad()
    (question,) = make_groups([(6, [4, 5, 3])], seed=7)
    (found,) = engine.probe([question], OBJECTIVE, tmp_path / "dev.safetensors")
    engine.forward_backward([question], OBJECTIVE, denominator=1)
    gradient = engine._flat.gradient
    step = -gradient / (gradient.abs() + 1e-8)
    assert found.dot == pytest.approx(float(ascent @ step), rel=1e-6)
    old = engine.logprobs(dev, temperature=OBJECTIVE.temperature)
    fixed = [
        replace(group, rows=[replace(row, old_logprobs=values) for row, values in zip(group.rows, rows, strict=True)])
        for group, rows in zip(dev, old, strict=True)
    ]
    start, small = engine._flat.data.clone(), 1e-6
    losses = []
    for sign in (1.0, -1.0):
        engine._flat.data.copy_(start + sign * small * step)
        losses.append(engine.forward_backward(fixed, OBJECTIVE, denominator=2).loss)
    assert (losses[1] - losses[0]) / (2 * small) == pytest.approx(found.dot, rel=1e-5)
