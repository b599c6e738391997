"""A trainer on several ranks, the driver's side: results of the local trainer, its state sharded by DeepSpeed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from importlib.util import find_spec
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any

import torch

from infuser_core.algorithm.preset import Objective
from infuser_core.config.optimizers import AdamWOptions, options_of
from infuser_core.engines.cluster.layout import Cluster
from infuser_core.engines.cluster.ranks import RankGroup
from infuser_core.engines.deepspeed.rank import RankOptions, RankProbed
from infuser_core.engines.deepspeed.split import Part, cut, split
from infuser_core.engines.hf.causal_lm import choose_device
from infuser_core.engines.probe.choice import ProbeChoice, UnknownLayerError
from infuser_core.engines.probe.reference import similarities
from infuser_core.engines.protocols import Probed, Progress, StepReport, TrainGroup, no_progress
from infuser_core.engines.service.checksum import whole
from infuser_core.engines.service.weight_transfer import Board
from infuser_core.engines.training.checkpoint import read_state, written
from infuser_core.engines.training.loss import in_order, merged
from infuser_core.engines.training.optimizer import Given
from infuser_core.engines.training.packing import Packer
from infuser_core.engines.training.tensor_files import Shapes
from infuser_core.errors import EngineError
from infuser_core.schemas import Checkpoint

HOST_SHARE = 0.5
"""Share of a machine's free memory that a waiting state may take."""
RANK = "infuser_core.engines.deepspeed.rank:DeepSpeedRank"


class DeepSpeedTrainer:
    """protocols.Trainer and weight_transfer.WeightSource on `ranks` processes, equal to LocalTrainer up to rounding.

    `write_beside`: whether somebody commits files while later phases run. `options` are fields of RankOptions.
    """

    def __init__(
        self,
        *,
        ranks: int,
        device: str,
        optimizer: Given = None,
        cluster: Cluster | None = None,
        board: Board | None = None,
        write_beside: bool = False,
        **options: Any,
    ) -> None:
        if find_spec("deepspeed") is None:
            raise EngineError(
                "the trainer `deepspeed` needs the package of that name", hint="pip install 'infuser[deepspeed]'"
            )
        constants = options_of(optimizer)
        if not isinstance(constants, AdamWOptions) or "deepspeed" not in constants.trainers:
            raise EngineError(
                f"the trainer `deepspeed` shards AdamW's state, and none of {constants.name}",
                hint="set engine.trainer local, or cotrain.optimizer.name adamw",
            )
        kind = choose_device(device).type
        self._options = RankOptions(device=kind, optimizer=constants, **options)
        self._ranks, self._board, self._write_beside = ranks, board, write_beside
        self._choice = ProbeChoice(self._options.probe)
        self._loaded = self._asleep = False
        self._refused: UnknownLayerError | None = None
        self._rank_facts: dict[str, Any] = {}
        environment = {
            "DS_ACCELERATOR": kind,
            "OMP_NUM_THREADS": str(self._options.threads),
            "TOKENIZERS_PARALLELISM": "false",
        }
        gpus = 0.0 if kind == "cpu" else 1.0
        self._group = RankGroup(RANK, self._options, ranks=ranks, gpus=gpus, environment=environment, cluster=cluster)

    @property
    def failed(self) -> bool:
        """Whether the ranks are gone: a new trainer is needed."""
        return self._group.failed

    @property
    def pids(self) -> list[int]:
        """Processes of the ranks, where all of them are on this machine; else none."""
        return self._group.pids

    def alive(self) -> bool:
        """Whether every rank answers."""
        return self._group.alive()

    def close(self) -> None:
        """End the ranks."""
        self._group.close()

    def sleep(self) -> None:
        """Free the accelerators' memory until the next request: what a checkpoint holds moves to the host."""
        if self._loaded and not self._asleep and not self.failed:
            self._everyone("sleep")
            self._asleep = True

    def wake(self) -> None:
        """Nothing yet: the memory comes back with the next request, and not at all where that is a load."""

    def facts(self) -> dict[str, Any]:
        """Devices and kernels of the ranks, for an artifact's record."""
        options = self._options
        return {
            "engine": "deepspeed",
            "ranks": self._ranks,
            "zero_stage": options.zero_stage,
            "dtype": options.dtype,
            "token_budget": options.token_budget,
            **self._rank_facts,
            **self._choice.facts(),
        }

    def load(self, checkpoint: Checkpoint) -> None:
        """Take weights, moments and step. Raises CheckpointError for a folder without optimizer state."""
        folder = Path(checkpoint.path)
        # Refused before any rank has touched what it holds.
        read_state(folder, self._options.optimizer)
        self._asleep = False
        self._group.call("load", [(str(folder),)] * self._ranks)
        self._loaded, self._role = True, str(checkpoint.role)
        self._rank_facts = dict(self._everyone("facts")[0])
        self._choice.renew()
        self._refused = self._everyone("refused")[0]

    def park(self, name: str) -> bool:
        """Keep a copy of the state in host memory under a name, each rank its part; False where that has no room."""
        rooms: list[tuple[str, int, int]] = self._everyone("room")
        for host in {host for host, *_ in rooms}:
            sizes, free = zip(*[(size, free) for where, size, free in rooms if where == host], strict=True)
            if sum(sizes) > HOST_SHARE * min(free):
                return False
        self._everyone("park", name)
        return True

    def take(self, name: str) -> None:
        """Hold the state of that name, a role, again, of the same model, as `load` would: without gradients."""
        self._everyone("take", name)
        self._role = name
        self.zero_grad()

    def drop(self, name: str) -> None:
        """Forget the state of that name; ranks that sleep sleep on."""
        self._group.call("drop", [(name,)] * self._ranks)

    def zero_grad(self) -> None:
        self._everyone("zero_grad")

    def forward_backward(
        self, groups: Sequence[TrainGroup], objective: Objective, *, denominator: int, progress: Progress = no_progress
    ) -> StepReport:
        dealt = split(groups, self._ranks, only_trained=objective.only_credited)
        arguments = [(parts, objective, denominator) for parts in dealt]
        total = sum(len(group.rows) for group in groups)
        shares = self._call("forward_backward", arguments, progress=progress, total=total)
        sums = reduce(add, shares)
        progress(total, total, sums.tokens)
        return sums.report(groups)

    def optim_step(self, learning_rate: float) -> float:
        norms: list[float] = self._everyone("optim_step", learning_rate)
        return norms[0]

    def below_epsilon(self) -> float:
        shares: list[float] = self._everyone("below_epsilon")
        return shares[0]

    def logprobs(
        self, groups: Sequence[TrainGroup], *, temperature: float, progress: Progress = no_progress
    ) -> list[list[Sequence[float]]]:
        arguments = [(parts, temperature) for parts in split(groups, self._ranks, only_trained=False)]
        total = sum(len(group.rows) for group in groups)
        found = self._call("logprobs", arguments, progress=progress, total=total)
        return in_order(groups, merged(found))

    def probe(
        self, groups: Sequence[TrainGroup], objective: Objective, reference: Path, *, progress: Progress = no_progress
    ) -> Probed:
        if self._choice.fast and self._refused is not None:
            self._choice.pass_over(self._refused)
        alone, together = self._deal(groups)
        arguments = [
            (alone[rank], [parts[rank] for parts in together], objective, str(reference)) for rank in range(self._ranks)
        ]
        total = sum(len(group.rows) for group in groups)
        found: list[RankProbed] = self._call(
            "probe", arguments, progress=_by_group(progress, len(groups), total), total=total
        )
        scores = torch.zeros(len(groups), 4, dtype=torch.float64)
        for each in found:
            for place, four in each.scores.items():
                scores[place] = torch.tensor(four, dtype=torch.float64)
        progress(len(groups), len(groups), sum(each.tokens for each in found))
        return Probed(
            similarities=similarities(groups, scores, found[0].reference_norm),
            logprobs=in_order(groups, merged(each.logprobs for each in found)),
        )

    def keep_gradient(self, path: Path) -> float:
        return float(self._written("keep_gradient", path))

    def save(self, path: Path) -> int:
        step = int(self._written("save", path))
        if self._board is not None:
            self._board.publish(path, self._role, self)
        return step

    def _written(self, method: str, path: Path) -> float:
        """The answer of ranks that have written files; a commit then knows the files' digests. Where a commit runs
        beside the next stage, ranks of this machine leave the digests to it."""
        found = self._everyone(method, str(path), not (self._write_beside and self.pids))
        for file, sha256 in chain.from_iterable(digests.items() for _, digests in found):
            written(Path(file), sha256)
        told: float = found[0][0]
        return told

    def shapes(self) -> Shapes:
        found: Shapes = self._everyone("facts_of_weights")[0][0]
        return found

    def tied(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._everyone("facts_of_weights")[0][1]
        return found

    def machines(self) -> list[str]:
        return list(dict.fromkeys(self._group.machines))

    def fill_files(self, paths: Mapping[str, Path], dtype: str) -> None:
        """See WeightSource. Ranks of several machines gather all weights, of which those of one fill in a part each."""
        found, arguments = self._group.machines, list[tuple[str, str, tuple[int, int] | None]]()
        for rank, machine in enumerate(found):
            part = found[:rank].count(machine), found.count(machine)
            arguments.append((str(paths.get(machine, "")), dtype, part if len(set(found)) > 1 else None))
        if told := next(filter(None, self._call("fill_file", arguments)), ""):
            raise OSError(told)

    def checksums(self, dtype: str) -> Mapping[str, int]:
        ranks = self._everyone("checksums", dtype)
        names = dict.fromkeys(chain.from_iterable(ranks))
        return {name: whole(chain.from_iterable(rank.get(name, ()) for rank in ranks)) for name in names}

    def _deal(self, groups: Sequence[TrainGroup]) -> tuple[list[list[Part]], list[list[list[Part]]]]:
        """Questions of one rank each, by rank; and questions of all ranks, by question and rank."""
        packer = Packer(token_budget=self._options.token_budget, device=torch.device("cpu"), dtype=torch.float32)
        _, large = packer.plan_whole(groups)
        places = set(large) if self._choice.fast else set(range(len(groups)))
        small = [replace(group, rows=[]) if place in places else group for place, group in enumerate(groups)]
        together = [self._share(place, groups[place]) for place in sorted(places)]
        return split(small, self._ranks, whole=True), [parts for parts in together if any(parts)]

    def _share(self, place: int, group: TrainGroup) -> list[list[Part]]:
        tokens = sum(len(row.token_ids) for row in group.rows if row.advantage)
        share = len(group.prompt_token_ids) + -(-tokens // self._ranks)
        pieces = cut(group, share) if tokens else []
        return [
            [Part(place=place, group=piece) for piece in pieces[rank :: self._ranks]] for rank in range(self._ranks)
        ]

    def _everyone(self, method: str, *arguments: Any) -> list[Any]:
        return self._call(method, [arguments] * self._ranks)

    def _call(
        self, method: str, arguments: Sequence[tuple[Any, ...]], *, progress: Progress = no_progress, total: int = 0
    ) -> list[Any]:
        """Results by rank. Whatever is asked of ranks that sleep wakes them."""
        if not self._loaded:
            raise EngineError("the trainer holds no checkpoint", hint="call load(checkpoint) first")
        if self._asleep:
            self._asleep = False
            self._everyone("wake")
        return self._group.call(method, arguments, progress=progress, total=total)


def _by_group(progress: Progress, groups: int, rows: int) -> Progress:
    """A reporter of groups that is told of rows."""

    def tell(done: int, total: int, tokens: int) -> None:
        progress(done * groups // max(1, rows), groups, tokens)

    return tell
