"""The driver's side of a trainer on several ranks: the local trainer's results, with state sharded by DeepSpeed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from operator import add
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import AdamWOptions, options_of
from infuser_core.engines.cluster.machines import RayCluster
from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.engines.deepspeed.rank import RankMemoryError, RankOptions, RankProbed
from infuser_core.engines.deepspeed.split import RankRows, split, split_rows
from infuser_core.engines.hf.causal_lm import choose_device
from infuser_core.engines.local.memory import TokenBudget
from infuser_core.engines.service.checksum import whole
from infuser_core.engines.service.weight_transfer import Board
from infuser_core.engines.training.checkpoint import read_state, register_file
from infuser_core.engines.training.compute_clock import DeviceUse
from infuser_core.engines.training.loss import merge_logprobs, order_logprobs, probe_result
from infuser_core.engines.training.optimizer import OptimizerSetting
from infuser_core.engines.training.packing import Packer, longest_row
from infuser_core.engines.training.tensor_files import Shapes
from infuser_core.errors import EngineError
from infuser_core.memory.hardware import HOST_SHARE
from infuser_core.plugins import require_extra
from infuser_core.protocols import ProbeResult, Progress, StepReport, TrainGroup, no_progress
from infuser_core.schemas import Checkpoint
from infuser_core.system import fault_points as faults

RANK = "infuser_core.engines.deepspeed.rank:DeepSpeedRank"


class DeepSpeedTrainer:
    """protocols.Trainer and weight_transfer.WeightSource on `ranks` processes, equal to LocalTrainer up to rounding.

    `write_beside`: whether files are committed while later phases run. `options` are fields of RankOptions.

    If a rank runs out of memory, others wait for it in a collective. All are replaced by new ones that load the last
    checkpoint and repeat every call since then, with half the tokens per micro-batch: the bits of a trainer that had
    this budget from the checkpoint on. The role keeps the budget; below the least, EngineError is raised.
    """

    def __init__(
        self,
        *,
        ranks: int,
        device: str,
        optimizer: OptimizerSetting = None,
        cluster: RayCluster | None = None,
        board: Board | None = None,
        write_beside: bool = False,
        **options: Any,
    ) -> None:
        require_extra("the trainer `deepspeed`", "deepspeed")
        constants = options_of(optimizer)
        if not isinstance(constants, AdamWOptions) or "deepspeed" not in constants.trainers:
            raise EngineError(
                f"the trainer `deepspeed` shards AdamW's state, not that of {constants.name}",
                hint="set engine.trainer local, or cotrain.optimizer.name adamw",
            )
        kind = choose_device(device).type
        self._options = RankOptions(device=kind, optimizer=constants, **options)
        self._ranks, self._board, self._write_beside = ranks, board, write_beside
        self._asleep = False
        self._rank_facts: dict[str, Any] = {}
        self._budgets: dict[str, TokenBudget] = {}
        self._checkpoint: Checkpoint | None = None
        self._calls: list[tuple[str, Sequence[tuple[Any, ...]]]] = []
        self._parked: set[str] = set()
        environment = {
            "DS_ACCELERATOR": kind,
            "OMP_NUM_THREADS": str(self._options.threads),
            "TOKENIZERS_PARALLELISM": "false",
            **faults.variables(),
        }
        gpus = 0.0 if kind == "cpu" else 1.0
        self._new_group = partial(
            RankGroup, RANK, self._options, ranks=ranks, gpus=gpus, environment=environment, cluster=cluster
        )
        self._group = self._new_group()

    @property
    def failed(self) -> bool:
        """Whether the ranks have ended, so that a new trainer is needed."""
        return self._group.failed

    @property
    def pids(self) -> list[int]:
        """Process ids by rank; empty if the ranks are spread over machines."""
        return self._group.pids

    def alive(self) -> bool:
        """Whether every rank answers."""
        return self._group.alive()

    def close(self) -> None:
        """End the ranks."""
        self._group.close()

    def sleep(self) -> None:
        """Free the accelerators' memory until the next request: the loaded training state moves to the host."""
        if self._checkpoint is not None and not self._asleep and not self.failed:
            self._call_all("sleep")
            self._asleep = True

    def wake(self) -> None:
        """Do nothing: the next call restores the state, or replaces it if that call is a load."""

    def facts(self) -> dict[str, Any]:
        """Describe devices and kernels of the ranks, for an artifact's record."""
        options = self._options
        return {
            "engine": "deepspeed",
            "ranks": self._ranks,
            "zero_stage": options.zero_stage,
            "dtype": options.dtype,
            **({} if self._checkpoint is None else self._budget.facts()),
            **self._rank_facts,
        }

    def take_use(self) -> DeviceUse:
        """Return the mean over ranks of the time that they computed since the last call, and the largest memory."""
        uses: list[DeviceUse] = self._call_all("take_use")
        return DeviceUse(seconds=fmean(use.seconds for use in uses), peak_memory=max(use.peak_memory for use in uses))

    def load(self, checkpoint: Checkpoint) -> None:
        """Load weights, moments and step. Raises CheckpointError for a folder without optimizer state."""
        folder = Path(checkpoint.path)
        # A bad checkpoint is refused before any rank changes its state.
        read_state(folder, self._options.optimizer)
        self._asleep = False
        self.adopt(checkpoint)
        self._group.call("load", [(str(folder), self._budget.limits())] * self._ranks)
        self._rank_facts = dict(self._call_all("facts")[0])

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Note that the training state equals this checkpoint: it is what new ranks would load."""
        self._checkpoint, self._role = checkpoint, str(checkpoint.role)
        self._calls.clear()
        if self._role not in self._budgets:
            options = self._options
            self._budgets[self._role] = TokenBudget(
                options.token_budget, most=options.token_budget, checkpointing=options.gradient_checkpointing
            )

    @property
    def _budget(self) -> TokenBudget:
        return self._budgets[self._role]

    def park(self, name: str) -> bool:
        """Copy every rank's state to host memory under a name; False if there is no room."""
        rooms: list[tuple[str, int, int]] = self._call_all("room")
        for host in {host for host, *_ in rooms}:
            sizes, free = zip(*[(size, free) for where, size, free in rooms if where == host], strict=True)
            if sum(sizes) > HOST_SHARE * min(free):
                return False
        self._call_all("park", name)
        self._parked.add(name)
        return True

    def take(self, checkpoint: Checkpoint) -> None:
        """Load the state of the checkpoint's role that `park` copied, or the checkpoint if its ranks were replaced.

        Gradients are zero, as after `load`. It must be of the same model.
        """
        name = str(checkpoint.role)
        if name not in self._parked:
            self.load(checkpoint)
            return
        self._parked.remove(name)
        self.adopt(checkpoint)
        self._call_all("take", name, self._budget.limits())
        self.zero_grad()

    def drop(self, name: str) -> None:
        """Drop the state that `park` copied under a name, without waking the ranks."""
        self._parked.discard(name)
        self._group.call("drop", [(name,)] * self._ranks)

    def zero_grad(self) -> None:
        self._call_noted("zero_grad", [()] * self._ranks)

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        by_rank = split(groups, self._ranks, only_trained=objective.only_credited)
        arguments = [(parts, objective, denominator) for parts in by_rank]
        sums = reduce(add, self._run_pass("forward_backward", lambda: arguments, groups, progress))
        self._calls.append(("forward_backward", arguments))
        total = sum(len(group.rows) for group in groups)
        progress(total, total, sums.tokens)
        return sums.report(groups)

    def optim_step(self, learning_rate: float) -> float:
        norms: list[float] = self._call_noted("optim_step", [(learning_rate,)] * self._ranks)
        return norms[0]

    def below_epsilon(self) -> float:
        shares: list[float] = self._call_all("below_epsilon")
        return shares[0]

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[Sequence[float]]]:
        arguments = [(parts, temperature) for parts in split(groups, self._ranks, only_trained=False)]
        values = self._run_pass("logprobs", lambda: arguments, groups, progress)
        return order_logprobs(groups, merge_logprobs(values))

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> ProbeResult:
        def arguments() -> list[tuple[Any, ...]]:
            alone, together = self._assign_questions(groups)
            shared = [[parts[rank] for parts in together] for rank in range(self._ranks)]
            return [(own, parts, objective, str(reference)) for own, parts in zip(alone, shared, strict=True)]

        def report_groups(num_rows: int, total_rows: int, tokens: int) -> None:
            progress(num_rows * len(groups) // max(1, total_rows), len(groups), tokens)

        parts: list[RankProbed] = self._run_pass("probe", arguments, groups, report_groups)
        scores = torch.zeros(len(groups), 4, dtype=torch.float64)
        for part in parts:
            for place, sums in part.scores.items():
                scores[place] = torch.tensor(sums, dtype=torch.float64)
        progress(len(groups), len(groups), sum(part.tokens for part in parts))
        values = merge_logprobs(part.logprobs for part in parts)
        return probe_result(groups, scores, parts[0].reference_norm, values)

    def keep_gradient(self, path: Path) -> float:
        return float(self._write("keep_gradient", path))

    def save(self, path: Path) -> int:
        step = int(self._write("save", path))
        if self._board is not None:
            self._board.publish(path, self._role, self)
        return step

    def _write(self, method: str, path: Path) -> float:
        """Have the ranks write files, and register the files' digests for the commit.

        If commits run in parallel with the next stage and all ranks are on this machine, the commit computes digests.
        """
        answers = self._call_all(method, str(path), not (self._write_beside and self.pids))
        for file, sha256 in chain.from_iterable(digests.items() for _, digests in answers):
            register_file(Path(file), sha256)
        value: float = answers[0][0]
        return value

    def shapes(self) -> Shapes:
        shapes: Shapes = self._call_all("facts_of_weights")[0][0]
        return shapes

    def tied(self) -> Mapping[str, str]:
        names: Mapping[str, str] = self._call_all("facts_of_weights")[0][1]
        return names

    def machines(self) -> list[str]:
        return list(dict.fromkeys(self._group.machines))

    def fill_files(self, paths: Mapping[str, Path], dtype: str) -> None:
        """Write the weights to files in the memory of machines with engines: see WeightSource.

        If ranks are on several machines, all gather all weights, and those of one machine write a part each.
        """
        machines, arguments = self._group.machines, list[tuple[str, str, tuple[int, int] | None]]()
        for rank, machine in enumerate(machines):
            part = machines[:rank].count(machine), machines.count(machine)
            arguments.append((str(paths.get(machine, "")), dtype, part if len(set(machines)) > 1 else None))
        if failure := next(filter(None, self._call("fill_file", arguments)), ""):
            raise OSError(failure)

    def checksums(self, dtype: str) -> Mapping[str, int]:
        ranks = self._call_all("checksums", dtype)
        names = dict.fromkeys(chain.from_iterable(ranks))
        return {name: whole(chain.from_iterable(rank.get(name, ()) for rank in ranks)) for name in names}

    def _assign_questions(
        self, groups: Sequence[TrainGroup]
    ) -> tuple[list[list[RankRows]], list[list[list[RankRows]]]]:
        """Divide questions: those that fit into one rank's micro-batch, by rank; the others, by question and rank."""
        packer = Packer(device=torch.device("cpu"), dtype=torch.float32, **self._budget.limits() | {"kept_tokens": 0})
        places = {place for place, batches in packer.plan_alone(groups) if len(batches) > 1}
        small = [replace(group, rows=[]) if place in places else group for place, group in enumerate(groups)]
        together = []
        for place in sorted(places):
            group = groups[place]
            tokens = sum(len(row.token_ids) for row in group.rows if row.advantage)
            share = len(group.prompt_token_ids) + -(-tokens // self._ranks)
            parts = [RankRows(place=place, group=piece) for piece in split_rows(group, share)]
            together.append([parts[rank :: self._ranks] for rank in range(self._ranks)])
        return split(small, self._ranks, whole=True), together

    def _run_pass(
        self,
        method: str,
        arguments: Callable[[], Sequence[tuple[Any, ...]]],
        groups: Sequence[TrainGroup],
        progress: Progress,
    ) -> list[Any]:
        """Run a pass on every rank. If one runs out of memory, run it on new ranks with half the budget.

        `arguments` makes those of every rank for the present budget.
        """
        total, calls, lacked_memory = sum(len(group.rows) for group in groups), list(self._calls), False
        while True:
            try:
                if lacked_memory:
                    self._restart(calls)
                return self._call(method, arguments(), progress=progress, total=total)
            except RankMemoryError as error:
                self._budget.halve(error, place=method, longest=longest_row(groups))
                lacked_memory = True

    def _restart(self, calls: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]) -> None:
        """Start new ranks, load the checkpoint, and repeat the calls that have changed its state."""
        assert self._checkpoint is not None, "a pass needs a checkpoint"
        self._group.close()
        self._parked.clear()
        self._group = self._new_group()
        self.load(self._checkpoint)
        for method, arguments in calls:
            self._call_noted(method, arguments)

    def _call_noted(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method that changes the state, and note it for new ranks."""
        results = self._call(method, arguments)
        self._calls.append((method, arguments))
        return results

    def _call_all(self, method: str, *arguments: Any) -> list[Any]:
        return self._call(method, [arguments] * self._ranks)

    def _call(
        self, method: str, arguments: Sequence[tuple[Any, ...]], *, progress: Progress = no_progress, total: int = 0
    ) -> list[Any]:
        """Call a method on every rank, and wake the ranks first if they sleep; returns results by rank."""
        if self._checkpoint is None:
            raise EngineError("the trainer holds no checkpoint", hint="call load(checkpoint) first")
        if self._asleep:
            self._asleep = False
            self._call_all("wake")
        return self._group.call(method, arguments, progress=progress, total=total)
