"""Rehearse a configuration on its machine: run every engine once, with a random model and the longest batch."""

import gc
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from infuser_core import settings
from infuser_core.config.run import RunConfig
from infuser_core.cotrain.phases import dev_gradient, score_influence, update_solver
from infuser_core.engines.configured import run_pool
from infuser_core.engines.pool import record_engines
from infuser_core.engines.service.sync_check import FAR, LIMITS, Agreement, precision
from infuser_core.errors import ConfigError, EngineError, InfuserError
from infuser_core.evaluation.benchmarks.parts.loader import longest_sequence
from infuser_core.memory.shape import shape_of
from infuser_core.planning.hours import GroupWork
from infuser_core.protocols import Completion, PromptGroup, SamplingParams, TrainGroup, TrainRow
from infuser_core.schemas import Checkpoint, Rollout
from infuser_core.store import verify
from tasks.rehearsal.accelerators import Meter
from tasks.rehearsal.model import checkpoint_at, longest_rollouts, prompts, question_of, random_anchor
from tasks.rehearsal.table import FAILED, PASSED, UNREACHED, Extrapolation, Line, extrapolate, peak_memory

LEARNING_RATE = 1e-2
"""Learning rate of the rehearsed update: AdamW's first step moves every weight by this much, which makes it visible."""
ADAPTER_RATE = 1e-1
"""The same for adapters: the first step moves one of the two factors of a matrix, and the other one starts small."""
PROVED = 16
"""Tokens per response in the step that proves that the weights changed."""
WAYS = {
    "memory": ", handed over in memory while the engines ran",
    "files": ", from files while the engines ran",
    "fresh": ", by fresh engines",
}
"""Descriptions of the ways in which a sampler gets new weights."""
HINT = "a run would meet this as well: look at the engine's settings and versions"
FAULTS = (InfuserError, OSError, RuntimeError, ValueError, TypeError, MemoryError, ImportError, LookupError)
"""Errors of engines, reported in the table; others are bugs of the rehearsal."""


class Rehearsal:
    """Runs the steps of a rehearsal in order and holds their results for later steps."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.lines: list[Line] = []
        self._config, self._folder = config, folder
        self._kind = precision(config.engine.dtype, config.engine.vllm)
        """Precision of the sampler's matrices."""
        self._pool = run_pool(config, longest_sequence=longest_sequence(config))
        self._engines: dict[str, Any] = {}
        self.sampled: GroupWork | None = None
        """Size of the generated batch; None before generation."""
        self.trained: GroupWork | None = None
        """Size of the batch of each of the trainer's steps."""
        self._passed: set[str] = set()
        self._meter = Meter()

    def run(self) -> list[Line]:
        """Run all steps whose prerequisites passed, and end the engines."""
        with self._meter:
            self._steps()
        return self.lines

    def _steps(self) -> None:
        try:
            self._step("model", (), self._make_model)
            self._step("sampler start", ("model",), self._start_sampler)
            self._step("generation", ("sampler start",), self._generate, self._warm_up)
            self._step("trainer start", ("model",), self._start_trainer)
            needs = ("trainer start", "generation")
            self._step("dev gradient", needs, self._dev_gradient, self._dev_gradient)
            self._step("scoring", ("dev gradient",), self._score, self._score)
            self._step("update", needs, self._update)
            self._step("save", ("update",), self._save)
            self._step("weight change", ("save",), self._change_weights)
            self._step("proof", ("weight change",), self._prove)
            self._step("kill and resume", ("save",), self._resume)
            for kind in ("trainer", "sampler"):
                if hasattr(self._engines.get(kind), "sleep"):
                    self._step(f"{kind} sleep", ("proof", "kill and resume"), partial(self._sleep, kind))
        finally:
            self._pool.close()

    def _step(
        self,
        name: str,
        needs: Sequence[str],
        work: Callable[[], tuple[int, str]],
        first: Callable[[], object] | None = None,
    ) -> None:
        """Run a step and record its line.

        The seconds exclude `first`: an accelerator's first use of a kernel takes seconds, once in a run.
        """
        absent = [need for need in needs if need not in self._passed]
        if absent:
            self.lines.append(Line(step=name, status=UNREACHED, told=f"needs {absent[0]}"))
            return
        started = time.monotonic()
        try:
            with self._meter.step() as device, record_engines() as engines:
                if first is not None:
                    first()
                started = time.monotonic()
                tokens, finding = work()
        except FAULTS as error:
            seconds = time.monotonic() - started
            finding = f"{type(error).__name__}: {error}"
            self.lines.append(Line(step=name, status=FAILED, seconds=seconds, told=finding))
            return
        finally:
            self._engines |= engines
        seconds = time.monotonic() - started
        memory = peak_memory([os.getpid(), *(pid for engine in self._engines.values() for pid in pids_of(engine))])
        self._passed.add(name)
        self.lines.append(
            Line(
                step=name,
                status=PASSED,
                seconds=seconds,
                tokens=tokens,
                gigabytes=memory,
                accelerator=next(iter(device), None),
                told=finding,
            )
        )

    def _make_model(self) -> tuple[int, str]:
        self._first, name, self._vocabulary = random_anchor(self._config, self._folder)
        gc.collect()
        return 0, f"{name}, random weights"

    def _start_sampler(self) -> tuple[int, str]:
        self._pool.sampler(self._first)
        return 0, self._config.engine.sampler

    def _warm_up(self) -> None:
        groups = prompts(self._config, self._vocabulary, groups=1)
        # Use other prompts than the timed ones, because engines cache prompts.
        self._sample(self._first, [replace(each, token_ids=each.token_ids[::-1]) for each in groups], PROVED)

    def _generate(self) -> tuple[int, str]:
        cotrain = self._config.cotrain
        longest = max(cotrain.generator_tokens, cotrain.solver_tokens)
        groups = prompts(self._config, self._vocabulary, groups=max(2, self._config.engine.ranks))
        self._groups = groups
        samples = self._sample(self._first, self._groups, longest)
        check_samples(groups, samples, vocabulary=self._vocabulary)
        self._rollouts: list[Rollout] = longest_rollouts(self._groups, samples, tokens=longest)
        tokens = [len(row.token_ids) for rows in samples for row in rows]
        self.sampled, self.trained = self._work(sum(tokens) / len(tokens)), self._work(longest)
        return self._count(sum(tokens)), f"{len(tokens)} responses, the longest {max(tokens)} of {longest} tokens"

    def _work(self, response: float) -> GroupWork:
        """Size of the batch with responses of this mean length."""
        cotrain = self._config.cotrain
        return GroupWork(
            groups=len(self._groups),
            rows=cotrain.group_size,
            prompt=cotrain.prompt_tokens,
            response=response,
        )

    def _count(self, responses: int) -> int:
        """Tokens of the batch, with every prompt counted once."""
        return responses + sum(len(group.token_ids) for group in self._groups)

    def _trained_tokens(self) -> int:
        return self._count(sum(len(row.token_ids) for row in self._rollouts))

    def _sample(self, checkpoint: Checkpoint, groups: Sequence[PromptGroup], tokens: int) -> list[list[Completion]]:
        params = SamplingParams(temperature=self._config.cotrain.sampling.temperature, max_tokens=tokens)
        return self._pool.sampler(checkpoint).sample(groups, params)

    def _start_trainer(self) -> tuple[int, str]:
        self._pool.trainer(self._first)
        return 0, self._config.engine.trainer

    def _dev_gradient(self) -> tuple[int, str]:
        trainer, settings = self._pool.trainer(self._first), dev_gradient.settings_of(self._config)
        facts, _ = dev_gradient.dev_gradient(self._rollouts, trainer, settings, workspace=self._folder)
        if not facts.norm > 0:
            raise EngineError(f"the dev gradient's norm is {facts.norm}, and rewards differ in every group", hint=HINT)
        self._norm = facts.norm
        return self._trained_tokens(), f"norm {self._norm:.3g}"

    def _score(self) -> tuple[int, str]:
        trainer = self._pool.trainer(self._first)
        settings = score_influence.settings_of(self._config, iteration=1, probe=True)
        result = score_influence.score_influence(
            [question_of(group.group_id) for group in self._groups],
            self._rollouts,
            trainer,
            settings,
            reference=self._folder / dev_gradient.FILE,
            reference_norm=self._norm,
            workspace=self._folder,
            dev=self._rollouts,
            checkpoint=self._first,
        )
        return self._trained_tokens(), f"score {result.scores[0].score:.3g}"

    def _update(self) -> tuple[int, str]:
        config, saved = self._config, self._folder / "updated"
        saved.mkdir()
        settings = update_solver.settings_of(config, iteration=1)
        rate = LEARNING_RATE if config.cotrain.adapter is None else ADAPTER_RATE
        whole = replace(settings, band=None, step=replace(settings.step, learning_rate=rate))
        result = update_solver.update_solver(
            [question_of(group.group_id) for group in self._groups],
            self._rollouts,
            self._pool.trainer(self._first),
            whole,
            workspace=saved,
            before=self._first,
            anchor=self._first,
        )
        if not result.updates:
            raise EngineError("the update took no optimizer step, and rewards differ in every group", hint=HINT)
        self._after = checkpoint_at(saved, step=self._first.step + len(result.updates))
        self._pool.adopt(self._after)
        return (
            self._trained_tokens(),
            f"{len(result.updates)} steps, gradient norm {result.updates[0].gradient_norm:.3g}",
        )

    def _save(self) -> tuple[int, str]:
        size = self._save_files("saved")
        # The trainer passes on the files that it wrote last.
        self._after = replace(self._after, path=str(self._folder / "saved"))
        return 0, f"{size / 1e6:,.1f} MB"

    def _save_files(self, name: str) -> int:
        """Write the trainer's state into a new folder; returns its bytes. Raises EngineError if the files changed."""
        folder = self._folder / name
        folder.mkdir()
        self._pool.trainer(self._after).save(folder)
        files = sorted(folder.glob("*.safetensors"))
        other = [self._folder / "updated" / file.name for file in files]
        if verify.digests_of_files(files) != verify.digests_of_files(other):
            raise EngineError(
                f"{folder} differs from what the update wrote, and nothing was trained between the two", hint=HINT
            )
        return sum(file.stat().st_size for file in files)

    def _change_weights(self) -> tuple[int, str]:
        self._before = self._sample(self._first, self._groups, PROVED)
        started = time.monotonic()
        self._pool.sampler(self._after)
        seconds = time.monotonic() - started
        channel = WAYS.get(getattr(self._engines["sampler"], "channel", ""), "")
        return 0, f"the load alone {seconds:.2f} s{channel}"

    def _prove(self) -> tuple[int, str]:
        kind = self._kind
        now = self._distance(self._sample(self._after, self._groups, PROVED))
        mean, largest = LIMITS[kind]
        if not now.holds(kind):
            raise EngineError(
                f"the sampler does not hold the trainer's weights: log-probabilities differ by {now.mean:.3g} nats "
                f"on average, {now.far:.0%} of them by more than {largest:g} (limits {mean:g} and {FAR:.0%})",
                hint=HINT,
            )
        old = self._distance(self._before).mean
        if not old > mean:
            raise EngineError(
                f"nothing is proved: the old weights are off by {old:.3g} nats, limit {mean:g}", hint=HINT
            )
        return 0, f"off by {now.mean:.1e} nats, {now.largest:.1e} at most; the old weights by {old:.2g}"

    def _distance(self, samples: Sequence[Sequence[Completion]]) -> Agreement:
        """Difference between the sampler's log-probabilities and those of the updated trainer."""
        groups = []
        for group, completions in zip(self._groups, samples, strict=True):
            rows = [TrainRow(token_ids=c.token_ids, advantage=1.0, sampler_logprobs=c.logprobs) for c in completions]
            groups.append(TrainGroup(group_id=group.group_id, prompt_token_ids=group.token_ids, rows=rows))
        temperature = self._config.cotrain.sampling.temperature
        logprobs = self._pool.trainer(self._after).logprobs(groups, temperature=temperature)
        gaps = [
            abs(sampled - trained)
            for group, values in zip(groups, logprobs, strict=True)
            for row, trainer_row in zip(group.rows, values, strict=True)
            for sampled, trained in zip(row.sampler_logprobs, trainer_row, strict=True)
        ]
        return Agreement.of(gaps, self._kind)

    def _resume(self) -> tuple[int, str]:
        self._pool.trainer(self._after)
        pids = pids_of(self._engines["trainer"])
        if pids:
            os.kill(pids[0], signal.SIGKILL)
            how = f"rank of process {pids[0]} killed"
        else:
            self._pool.close()
            how = "the trainer works in this process: dropped and loaded again"
        self._save_files("resumed")
        return 0, f"{how}; its files are the same bit for bit"

    def _sleep(self, kind: str) -> tuple[int, str]:
        engine = self._engines[kind]
        engine.sleep()
        engine.wake()
        if getattr(engine, "forgets", False):
            engine.load(self._after)
        agreement, limit = self._distance(self._sample(self._after, self._groups, PROVED)), LIMITS[self._kind]
        if not agreement.holds(self._kind):
            raise EngineError(
                f"after its sleep the {kind} is off by {agreement.mean:.3g} nats, limit {limit[0]:g}", hint=HINT
            )
        return 0, f"awake again, off by {agreement.mean:.1e} nats"


def check_samples(groups: Sequence[PromptGroup], samples: Sequence[Sequence[Completion]], *, vocabulary: int) -> None:
    """Raise EngineError if responses are missing or empty, have unknown tokens or lack log-probabilities."""
    for group, rows in zip(groups, samples, strict=True):
        if len(rows) != len(group.seeds) or not all(row.token_ids for row in rows):
            raise EngineError(
                f"{group.group_id}: {len(rows)} responses to {len(group.seeds)} seeds, or empty ones", hint=HINT
            )
        for row in rows:
            if max(row.token_ids) >= vocabulary:
                raise EngineError(
                    f"token {max(row.token_ids)} was sampled, and the vocabulary has {vocabulary}", hint=HINT
                )
            if len(row.logprobs) != len(row.token_ids) or not all(map(math.isfinite, row.logprobs)):
                raise EngineError(f"{group.group_id}: log-probabilities are missing or not finite", hint=HINT)


def pids_of(engine: Any) -> list[int]:
    """Process ids of an engine on this machine; empty if it runs in this process."""
    return list(getattr(engine, "pids", ()))


def rehearse(config: RunConfig) -> tuple[list[Line], Extrapolation | None]:
    """Rehearse a configuration in a temporary folder of the store, on the same disk as later checkpoints.

    Returns the lines and the extrapolation to the run, None if a needed step failed or the model's shape is unknown.
    """
    root = settings.writable_store_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=root) as folder:
        rehearsal = Rehearsal(config, Path(folder))
        lines = rehearsal.run()
    if rehearsal.sampled is None or rehearsal.trained is None:
        return lines, None
    try:
        shape = shape_of(config.anchor).adapted(config.cotrain.adapter)
    except ConfigError:
        return lines, None
    return lines, extrapolate(config, shape, lines, sampled=rehearsal.sampled, trained=rehearsal.trained)
