"""How much cheaper the gradient work of an iteration is than its plain form, on one CPU thread: `make bench-influence`.

`plain` is the path everybody starts from: every response carries its own copy of the prompt, and a forward pass of its
own gives the update's old log-probabilities. Ratios alone are reported.
"""

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch
import transformers
from gradalign import PublicForm
from measure import Row, shown
from workload import MIDDLE, NANO, Shape, Trainers, make_groups, objective, seconds

from infuser_core.algorithm.preset import Objective
from infuser_core.algorithm.score import cosine
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.training.checkpoint import read_reference
from infuser_core.protocols import Similarity, TrainGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """The gradient work of one iteration, after zero-variance groups are gone."""

    dev: list[TrainGroup]
    questions: list[TrainGroup]
    documents: list[TrainGroup]
    minibatch: int
    """Groups per optimizer step of the solver; the generator takes half as many."""


def update(
    engine: LocalTrainer,
    objective: Objective,
    groups: list[TrainGroup],
    minibatch: int,
    logprobs: list[list[list[float]]] | None = None,
) -> None:
    """Steps of `minibatch` groups. Learning rate 0: the work of a step, and the same state for the next repeat."""
    if logprobs is None:
        logprobs = engine.logprobs(groups, temperature=objective.temperature)
    old = [_with_old(group, rows) for group, rows in zip(groups, logprobs, strict=True)]
    for start in range(0, len(old), minibatch):
        batch = old[start : start + minibatch]
        engine.zero_grad()
        engine.forward_backward(batch, objective, denominator=len(batch))
        engine.optim_step(0.0)


def _with_old(group: TrainGroup, logprobs: list[list[float]]) -> TrainGroup:
    # Rows of advantage 0 are not trained on, and the scoring pass has no log-probabilities for them.
    rows = [replace(row, old_logprobs=values or None) for row, values in zip(group.rows, logprobs, strict=True)]
    return replace(group, rows=rows)


def iteration(engine: LocalTrainer, objective: Objective, work: Iteration, path: Path, *, reuse: bool) -> None:
    """Dev gradient, scoring, both updates; `reuse` takes the solver's old log-probabilities from scoring."""
    engine.zero_grad()
    engine.forward_backward(work.dev, objective, denominator=len(work.dev))
    engine.keep_gradient(path)
    engine.zero_grad()
    probed = engine.probe(work.questions, objective, path)
    update(engine, objective, work.documents, max(1, work.minibatch // 2))
    update(engine, objective, work.questions, work.minibatch, probed.logprobs if reuse else None)


def cosines(found: Sequence[Similarity]) -> list[float]:
    pairs = [(each.dot, each.direction_norm) for each in found] + [(each.raw_dot, each.gradient_norm) for each in found]
    return [cosine(dot, length, found[0].reference_norm) for dot, length in pairs]


def probe_error(one: Sequence[Similarity], other: Sequence[Similarity]) -> str:
    """Largest difference of a cosine."""
    error = max(abs(left - right) for left, right in zip(cosines(one), cosines(other), strict=True))
    return f"error {error:.1e}"


def gradient_error(one: LocalTrainer, other: LocalTrainer) -> str:
    """Relative distance of the gradients."""
    left, right = one._flat.gradient, other._flat.gradient
    return f"error {float((left - right).norm() / right.norm()):.1e}"


def probe_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """(a) the nano anchor, (b) 15.7M parameters with prompts four times the responses."""
    nano = make_groups(35, prompt=33, rows=8, response=12, vocabulary=NANO.vocabulary, spread=2)
    yield from _probe_rows(folder / "nano", "nano", NANO, nano, repeats)
    middle = make_groups(2, prompt=192, rows=8, response=48, vocabulary=MIDDLE.vocabulary, spread=6)
    yield from _probe_rows(folder / "middle", "15.7M", MIDDLE, middle, max(1, repeats // 2))


def _probe_rows(folder: Path, label: str, shape: Shape, groups: list[TrainGroup], repeats: int) -> Iterator[Row]:
    made = Trainers(folder, shape, objective=objective(length_norm=16.0))
    engines = {"plain": made.make(repeated_prompts=True), "shared": made.make()}
    results: dict[str, list[Similarity]] = {}

    def score(name: str) -> Callable[[], None]:
        return lambda: results.update({name: engines[name].probe(groups, made.objective, made.reference).similarities})

    work: dict[str, Callable[[], object]] = {name: score(name) for name in engines}
    times = seconds(work, repeats=repeats)
    yield Row(
        name=f"scoring, {label}: prompts shared against repeated",
        value=times["plain"] / times["shared"],
        unit="times",
        detail=probe_error(results["shared"], results["plain"]),
    )


def gradalign_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """GradAlign's score and ours. First its idea on our trainer: one backward per question and one product with the dev
    gradient, each response with a prompt of its own, then in our packing; then as its public code does it."""
    shapes = {
        "nano": (NANO, 35, 33, 12, 2),
        "nano, short answers": (NANO, 35, 96, 6, 1),
        "15.7M": (MIDDLE, 2, 192, 48, 6),
        "15.7M, short answers": (MIDDLE, 2, 192, 6, 1),
    }
    for label, (shape, count, prompt, response, spread) in shapes.items():
        sizes = {"prompt": prompt, "rows": 8, "response": response, "spread": spread}
        groups = make_groups(count, vocabulary=shape.vocabulary, **sizes)
        made = Trainers(folder / f"gradalign-{label}", shape, objective=objective(length_norm=16.0))
        ours = made.make()
        now = folder / f"gradalign-{label}" / "now"
        now.mkdir()
        ours.save(now)
        work: dict[str, Callable[[], list[float]]] = {
            "ours": partial(_probed, ours, groups, made),
            "GradAlign's form": partial(_aligned, made.make(repeated_prompts=True), groups, made),
            "GradAlign's form, prompts shared": partial(_aligned, made.make(), groups, made),
        }
        for name, recompute in (("GradAlign's public code", False), ("GradAlign's public code, recomputing", True)):
            public = PublicForm(now, made.reference, made.objective, recompute=recompute)
            work[name] = partial(public.cosines, groups)
        results: dict[str, list[float]] = {}
        runs = {name: partial(_kept, results, name, run) for name, run in work.items()}
        times = seconds(runs, repeats=repeats if shape is NANO else max(1, repeats // 2))
        for name in list(work)[1:]:
            error = max(abs(left - right) for left, right in zip(results["ours"], results[name], strict=True))
            yield Row(
                name=f"scoring, {label}: ours against {name}",
                value=times[name] / times["ours"],
                unit="times",
                detail=f"error {error:.1e}",
            )


def _kept(results: dict[str, list[float]], name: str, run: Callable[[], list[float]]) -> None:
    results[name] = run()


def _probed(engine: LocalTrainer, groups: Sequence[TrainGroup], made: Trainers) -> list[float]:
    found = engine.probe(groups, made.objective, made.reference).similarities
    return [cosine(each.raw_dot, each.gradient_norm, each.reference_norm) for each in found]


def _aligned(engine: LocalTrainer, groups: Sequence[TrainGroup], made: Trainers) -> list[float]:
    reference = torch.zeros_like(engine._flat.gradient)
    read_reference(made.reference, engine._flat.views(reference))
    reference /= -reference.norm()
    found = []
    for group in groups:
        engine.zero_grad()
        engine.forward_backward([group], made.objective, denominator=1)
        gradient = engine._flat.gradient
        found.append(float(gradient @ reference / gradient.norm()))
    return found


def update_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """(c) the generator's update with prompts five times the responses."""
    groups = make_groups(2, prompt=240, rows=8, response=48, vocabulary=MIDDLE.vocabulary, spread=6, seed=1)
    made = Trainers(folder / "update", MIDDLE, objective=objective(length_norm=64.0))
    engines = {"plain": made.make(repeated_prompts=True), "shared": made.make()}

    def once(engine: LocalTrainer) -> Callable[[], None]:
        def run() -> None:
            engine.zero_grad()
            engine.forward_backward(groups, made.objective, denominator=len(groups))

        return run

    times = seconds({name: once(each) for name, each in engines.items()}, repeats=max(1, repeats // 2))
    yield Row(
        name="generator update, 15.7M: prompts shared against repeated",
        value=times["plain"] / times["shared"],
        unit="times",
        target=">= 2.5",
        detail=gradient_error(engines["shared"], engines["plain"]),
    )


def iteration_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """(d) the gradient work of a nano iteration: 16 dev questions, 35 of 64 generated ones varied, 8 documents."""
    sizes = {"vocabulary": NANO.vocabulary, "rows": 8, "spread": 2}
    work = Iteration(
        dev=make_groups(12, prompt=33, response=12, seed=2, **sizes),
        questions=make_groups(35, prompt=33, response=12, seed=3, **sizes),
        documents=make_groups(8, prompt=56, response=37, seed=4, **sizes),
        minibatch=16,
    )
    made = Trainers(folder / "iteration", NANO, objective=objective(length_norm=16.0))
    plain, ours = made.make(repeated_prompts=True), made.make()
    path = folder / "dev.safetensors"
    runs = {
        "plain": lambda: iteration(plain, made.objective, work, path, reuse=False),
        "ours": lambda: iteration(ours, made.objective, work, path, reuse=True),
    }
    times = seconds(runs, repeats=repeats)
    yield Row(
        name="all gradient work of an iteration, nano: share of the plain path",
        value=times["ours"] / times["plain"],
        unit="share",
        detail=gradient_error(ours, plain),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the rows; returns 1 where a target is missed."""
    parser = argparse.ArgumentParser(description="gradient work of an iteration against its plain form")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object for each measure instead of a table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        parts = (
            part(Path(folder), options.repeats) for part in (probe_rows, gradalign_rows, update_rows, iteration_rows)
        )
        missed = shown(chain(*parts), as_json=options.json)
    where = f"{platform.machine()}, torch {torch.__version__}, transformers {transformers.__version__}"
    print(where, file=sys.stderr)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
