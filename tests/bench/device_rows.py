"""The benchmark's rows at a real model's shape, for an accelerator; with a small shape they run anywhere."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gradient_work import Iteration, dev_gradient, iteration, update
from result import Row, probe_error
from workload import PLAIN, SHAPES, Trainers, make_groups, num_tokens, seconds

from infuser_core.engines.protocols import Objective, Similarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of the accelerator's rows."""

    questions: int
    rows: int
    prompt: int
    response: int
    generator_prompt: int


SCALES = {
    "qwen3-0.6b": Scale(questions=64, rows=8, prompt=512, response=1024, generator_prompt=1536),
    "tiny": Scale(questions=4, rows=3, prompt=16, response=16, generator_prompt=40),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One form of the work."""

    seconds: dict[str, float]
    """Of `scoring`, `solver update` and `iteration`."""
    scores: list[Similarity]
    """Taken before any update."""
    peak: int
    """Most bytes allocated while scoring; 0 where nobody counts them."""


def device_rows(folder: Path, repeats: int, *, name: str, device: str, dtype: str) -> Iterator[Row]:
    """(e) scoring against the solver update, the whole iteration, FLOP/s and memory at a real model's shape."""
    shape = SHAPES[name]
    work = _work(shape.vocabulary, SCALES[name])
    made = Trainers(folder / "device", shape, objective=Objective(length_norm=1024.0), device=device, dtype=dtype)
    path = folder / "device-dev.safetensors"
    # One after the other: each holds weights, moments and gradients of the model in fp32.
    fast = _measure({}, made, work, path, repeats, device)
    plain = _measure(PLAIN, made, work, path, max(1, repeats // 2), device)

    def row(what: str, ratio: float, target: str = "", error: float = 0.0, detail: str = "") -> Row:
        title = f"{what}, {name} {dtype}"
        return Row(name=title, ratio=ratio, target=target, error=error, device=_name(device), detail=detail)

    ours, theirs = fast.seconds, plain.seconds
    error = probe_error(fast.scores, plain.scores)
    yield row("scoring: fast against plain", theirs["scoring"] / ours["scoring"], error=error)
    yield row("scoring / the plain path's solver update", ours["scoring"] / theirs["solver update"], "<= 0.6")
    yield row("scoring / our own solver update", ours["scoring"] / ours["solver update"])
    yield row("all gradient work of an iteration: share", ours["iteration"] / theirs["iteration"], "<= 0.5")
    rate = matrix_rate(device, dtype)
    # Of the matrices alone: six per parameter and token, attention left out.
    achieved = 6.0 * shape.parameters * num_tokens(work.questions, shared=True) / ours["scoring"]
    detail = f"{achieved / 1e12:.3g} of {rate / 1e12:.3g} TFLOP/s"
    yield row("scoring: FLOP/s over the measured matrix rate", achieved / rate, detail=detail)
    if plain.peak:
        detail = f"{fast.peak / 2**30:.1f} against {plain.peak / 2**30:.1f} GiB"
        yield row("scoring: peak memory against plain", fast.peak / plain.peak, detail=detail)


def _work(vocabulary: int, scale: Scale) -> Iteration:
    sizes = {"vocabulary": vocabulary, "rows": scale.rows, "response": scale.response, "spread": scale.response // 4}
    return Iteration(
        dev=make_groups(scale.questions // 2, prompt=scale.prompt, seed=2, **sizes),
        questions=make_groups(scale.questions, prompt=scale.prompt, seed=3, **sizes),
        documents=make_groups(max(1, scale.questions // 8), prompt=scale.generator_prompt, seed=4, **sizes),
        minibatch=min(32, scale.questions // 2),
    )


def _measure(
    options: dict[str, Any], made: Trainers, work: Iteration, path: Path, repeats: int, device: str
) -> Measured:
    engine = made.make(**options)
    dev_gradient(engine, made, work, path)
    scores = engine.probe(work.questions, made.objective, path)
    runs: dict[str, Callable[[], object]] = {
        "scoring": lambda: engine.probe(work.questions, made.objective, path),
        "solver update": lambda: update(engine, made, work.questions, work.minibatch),
        "iteration": lambda: iteration(engine, made, work, path, reuse=not options),
    }
    times = seconds(runs, repeats=repeats, device=device)
    return Measured(seconds=times, scores=scores, peak=_peak(runs["scoring"], device))


def matrix_rate(device: str, dtype: str) -> float:
    """FLOP/s of a square product, the best of three."""
    size = 8192 if device != "cpu" else 512
    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    times = [seconds({"product": lambda: left @ right}, repeats=3, device=device)["product"] for _ in range(3)]
    return 2.0 * size**3 / max(1e-9, min(times))


def _peak(run: Callable[[], object], device: str) -> int:
    if device == "cpu":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated()


def _name(device: str) -> str:
    return device if device == "cpu" else torch.cuda.get_device_name()
