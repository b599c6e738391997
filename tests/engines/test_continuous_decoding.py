"""Continuous decoding gives the plain path's responses, whatever memory there is and whether a step is captured."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_tiny import LATENT, ROUTED, VOCABULARY, WINDOW, make_family
from stock_engines import hf_sampler
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from infuser_core.engines.hf.causal_lm import load_model
from infuser_core.engines.hf.continuous import Decoder
from infuser_core.engines.hf.layouts import SlotCache
from infuser_core.engines.local.memory import SHARE
from infuser_core.errors import EngineError
from infuser_core.protocols import Completion, PromptGroup, SamplingParams, no_keep, no_progress
from infuser_core.schemas import Checkpoint
from infuser_core.system import fault_points as faults

PARAMS = SamplingParams(temperature=1.0, max_tokens=70)
LONG = SamplingParams(temperature=1.0, max_tokens=400)


def groups(count: int = 8, *, limits: tuple[int, ...] = (70,)) -> list[PromptGroup]:
    draw = np.random.default_rng(0)
    return [
        PromptGroup(
            group_id=str(place),
            token_ids=draw.integers(2, VOCABULARY, 1 + 4 * (place % 3)).tolist(),
            seeds=[100 * place + sample for sample in range(1 + place % 4)],
            max_tokens=limits[place % len(limits)],
        )
        for place in range(count)
    ]


def require_same(ours: list[list[Completion]], plain: list[list[Completion]]) -> None:
    assert [len(samples) for samples in ours] == [len(samples) for samples in plain]
    for left, right in zip(chain(*ours), chain(*plain), strict=True):
        assert (left.token_ids, left.finish_reason) == (right.token_ids, right.finish_reason)
        assert left.logprobs == pytest.approx(list(right.logprobs), abs=1e-4)


FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "olmo3": WINDOW,
    "mistral": WINDOW,
    "deepseek_v3": LATENT | ROUTED | {"head_dim": 8},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("params", [PARAMS, SamplingParams(temperature=0.7, top_p=0.9, top_k=20, max_tokens=30)])
def test_rows_are_those_of_the_plain_path(tmp_path: Path, family: str, params: SamplingParams) -> None:
    checkpoint = make_family(tmp_path, family, **FAMILIES[family])
    plain, ours = hf_sampler(), hf_sampler(continuous=True, prefill_tokens=10)
    plain.load(checkpoint)
    ours.load(checkpoint)
    seen: list[tuple[int, int, int]] = []
    kept: dict[tuple[int, int], Completion] = {}
    results = ours.sample(
        groups(),
        params,
        progress=lambda *numbers: seen.append(numbers),
        keep=lambda place, row, completion: kept.update({(place, row): completion}),
    )
    require_same(results, plain.sample(groups(), params))
    assert kept == {(place, row): each for place, samples in enumerate(results) for row, each in enumerate(samples)}
    assert seen[-1] == (len(kept), len(kept), sum(len(each.token_ids) for each in kept.values()))
    assert {each.finish_reason for each in kept.values()} == {"stop", "length"}
    assert ours.facts()["rows"] == len(kept)
    assert ours.sample([], params) == []
    assert ours.sample([PromptGroup(group_id="none", token_ids=[2], seeds=[])], params) == [[]]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_family(tmp_path_factory.mktemp("long"), "qwen3", max_position_embeddings=4096)


def decoder(checkpoint: Checkpoint, kind: type[Decoder] = Decoder, *, free: int = 1 << 40) -> Decoder:
    """A decoder of rows that end at their limits alone."""
    with torch.inference_mode():
        model = load_model(Path(checkpoint.path), dtype=torch.float32, device=torch.device("cpu"))
        return kind(model, LONG, [], prefill_tokens=64, free=lambda _: free)


@torch.inference_mode()
def decoded(engine: Decoder) -> list[list[Completion]]:
    return engine.run(groups(6, limits=(270, 20, 330)), no_progress, no_keep)


@pytest.fixture(scope="module")
def plain(long: Checkpoint) -> list[list[Completion]]:
    """Responses that a decoder with enough memory draws."""
    engine = decoder(long)
    completions = decoded(engine)
    assert [len(samples[0].token_ids) for samples in completions] == [270, 20, 330] * 2
    assert engine.facts() == {"decoding": "continuous", "rows": 13}
    return completions


def test_rows_that_no_longer_fit_wait_and_continue(long: Checkpoint, plain: list[list[Completion]]) -> None:
    whole = decoder(long)
    row = 512 * whole._token_bytes + whole._logit_bytes
    # Eight rows fit at 256 tokens and four at 512.
    narrow = decoder(long, free=int(4.5 * row / SHARE))
    require_same(decoded(narrow), plain)
    assert narrow.facts()["rows"] == 8


@pytest.mark.parametrize("burst", [1, 3, 36])
def test_if_memory_runs_out_half_of_the_rows_continue(
    long: Checkpoint, plain: list[list[Completion]], monkeypatch: pytest.MonkeyPatch, burst: int
) -> None:
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", f"memory@sampler:burst:{burst}")
    engine = decoder(long)
    require_same(decoded(engine), plain)
    assert engine.facts()["ran_out_of_memory"] == ["13 rows"] if burst < 36 else ["4 rows"]


def test_one_row_that_does_not_fit_is_an_error(long: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_passes", {})
    monkeypatch.setenv("INFUSER_CRASH_AT", "memory@sampler:burst")
    with pytest.raises(EngineError, match="one response does not fit into the memory"):
        decoded(decoder(long, free=0))


class Recorder(TorchDispatchMode):
    """A CUDA graph's stand-in: repeats the operators of a step on the same tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, ...]] = []
        self.devices: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a captured step asks the device")
        result = func(*args, **(kwargs or {}))
        self.devices |= {each.device.type for each in tree_leaves(result) if isinstance(each, Tensor)}
        self._calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self._calls:
            for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Recording(Decoder):
    """A decoder that captures its steps by a `Recorder`."""

    replayed = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._records = True

    def _capture(self) -> tuple[Callable[[], None], Tensor]:
        with Recorder() as recorder:
            logits = self._forward()

        def replay() -> None:
            self.replayed += 1
            recorder.replay()

        return replay, logits


class Wrong(Recording):
    """A capture that computes something else."""

    def _capture(self) -> tuple[Callable[[], None], Tensor]:
        return lambda: None, self._forward() + 1.0


class Refused(Recording):
    """A capture that the device refuses."""

    def _capture(self) -> tuple[Callable[[], None], Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing")


def test_a_captured_step_is_repeated_with_the_rows_of_the_moment(
    long: Checkpoint, plain: list[list[Completion]]
) -> None:
    engine = decoder(long, Recording)
    require_same(decoded(engine), plain)
    assert engine.replayed > 200 and "not_captured" not in engine.facts()


@pytest.mark.parametrize(("kind", "reason"), [(Wrong, "logits differ by 1"), (Refused, "operation not permitted")])
def test_a_capture_that_fails_is_recorded_and_not_used(
    long: Checkpoint, plain: list[list[Completion]], kind: type[Decoder], reason: str
) -> None:
    engine = decoder(long, kind)
    require_same(decoded(engine), plain)
    assert engine.facts()["not_captured"].startswith(reason)


@pytest.mark.parametrize("family", [*FAMILIES, "gemma3_text", "phi3", "gpt_neox", "qwen3_moe"])
def test_a_step_copies_nothing_from_the_host_and_asks_the_device_nothing(tmp_path: Path, family: str) -> None:
    sizes = {"gemma3_text": WINDOW, "qwen3_moe": ROUTED | {"num_experts": 4}}
    checkpoint = make_family(tmp_path, family, **FAMILIES.get(family, sizes.get(family, {})))
    model = load_model(Path(checkpoint.path), dtype=torch.bfloat16, device=torch.device("cpu")).to("meta")
    engine = Decoder(model, PARAMS, [], prefill_tokens=64)
    engine._use(SlotCache(4, 64, engine._device), 4)
    with torch.inference_mode(), Recorder() as recorder:
        logits = engine._forward()
    assert (logits.shape, logits.dtype) == ((4, VOCABULARY), torch.float32)
    assert recorder.devices == {"meta"}
