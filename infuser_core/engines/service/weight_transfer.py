"""Pass a trainer's weights to running sampling engines through memory, with checksums to prove that they arrived.

After saving a checkpoint, a trainer also writes its weights, in the engines' dtype, to a file in the memory of every
machine with engines, and adds checksums and its log-probabilities of fixed responses. Engines that load the checkpoint
read this file instead of the checkpoint's own; by then the trainer may sleep or serve another role. The memory belongs
to a process and is freed when the process ends, even by SIGKILL. The fixed responses are those that engines drew when
they started, because rounding changes log-probabilities least for tokens that a model finds likely.
"""

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infuser_core.errors import CheckpointError, EngineError, EngineWarning
from infuser_core.memory.hardware import free_host_memory
from infuser_core.protocols import PromptGroup, TrainGroup, TrainRow
from infuser_core.store import adapter_files

if TYPE_CHECKING:
    from infuser_core.engines.training.tensor_files import Shapes

HERE = ""
"""This process's machine. Others are known by Ray's id of their node."""

SHARE = 0.5
"""Share of the free main memory that weights may take: above it, the OOM killer may end any process."""

PROMPTS, TOKENS, TEMPERATURE = 4, 12, 0.7
"""Number of fixed prompts, tokens of each prompt and at most of each response, and the temperature."""

Identity = tuple[tuple[str, int, int, int, int], ...]
"""Files by name, device, inode, size and last change: a checkpoint keeps them when it moves into the store."""


class WeightSource(Protocol):
    """A trainer whose weights engines read from memory: those of a model, or of an adapter."""

    def shapes(self) -> "Shapes":
        """Return the shape of every tensor of its checkpoints' weights, by its name there."""

    def tied(self) -> Mapping[str, str]:
        """Return the second names of tied tensors, each with its first name."""

    def machines(self) -> Sequence[str]:
        """List the machines on which the trainer can fill files."""

    def fill_files(self, paths: Mapping[str, Path], dtype: str) -> None:
        """Write every tensor to allocated files of that dtype, at most one per machine. Raises OSError if it cannot."""

    def checksums(self, dtype: str) -> Mapping[str, int]:
        """Compute checksums (service.checksum) of all its tensors as engines hold them in that dtype."""

    def logprobs(self, groups: Sequence[TrainGroup], *, temperature: float) -> list[list[Sequence[float]]]:
        """Compute log-probabilities of all response tokens: see protocols.Trainer."""


class WeightFile(Protocol):
    """A file of weights in a machine's memory, which exists as long as this object."""

    @property
    def path(self) -> Path:
        """Path by which processes of the same user open it on that machine."""


class Memory:
    """A WeightFile of this process, a memfd with room for tensors. Raises EngineError if main memory is too small."""

    def __init__(self, shapes: "Shapes", dtype: str) -> None:
        if not hasattr(os, "memfd_create"):
            raise EngineError("this system has no files in memory", hint="sample on Linux")
        # Imported here: commands that only plan a run need no torch.
        import torch

        from infuser_core.engines.training.tensor_files import allocate_file

        kind = getattr(torch, dtype)
        needed, free = kind.itemsize * sum(map(prod, shapes.values())), free_host_memory()
        if needed > SHARE * free:
            raise EngineError(f"{needed:,} bytes are needed, and of main memory {free:,} are free", hint="free some")
        self._descriptor = os.memfd_create("infuser-weights")
        self.path = Path(f"/proc/{os.getpid()}/fd/{self._descriptor}")
        allocate_file(self.path, shapes, kind)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


Fill = Callable[[WeightSource, str, Collection[str]], Mapping[str, WeightFile]]
"""`fill(source, dtype, machines)`: a file of the source's weights on each machine. Raises OSError or EngineError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTransfer:
    """Weights of one checkpoint in memory, with the checksums and log-probabilities to check them by."""

    files: Mapping[str, WeightFile]
    """Files of the weights by machine."""
    shapes: Mapping[str, list[int]]
    """Shapes of every tensor of the model or adapter by name, tied ones under each of their names."""
    checksums: Mapping[str, int]
    """Computed by the trainer, by the same names."""
    logprobs: Sequence[Sequence[float]]
    """The trainer's log-probabilities of the fixed responses, nats: [response][token]."""
    responses: Sequence[Sequence[int]]
    """Tokens of the fixed responses: two to each fixed prompt."""


class Board:
    """The newest weights of every role in memory, in the engines' `dtype`; `fill` serves more than this machine."""

    def __init__(self, dtype: str, fill: Fill | None = None) -> None:
        self._dtype, self._fill = dtype, fill
        self._transfers: dict[str, tuple[Identity, WeightTransfer]] = {}
        self._machines: Collection[str] = ()
        self._responses: Sequence[Sequence[int]] = ()
        self.refusal = ""
        """Why the last weights were not transferred; empty if they were."""

    def request(self, machines: Collection[str], responses: Sequence[Sequence[int]]) -> None:
        """Transfer weights from now on to engines of these machines, which drew `responses` to the fixed prompts."""
        self._machines, self._responses = machines, responses

    def publish(self, folder: Path, role: str, source: WeightSource) -> None:
        """Replace the role's weights with those that a trainer has just saved into a folder.

        If that fails, it warns, and engines will read the checkpoint's files. Does nothing before engines have started.
        """
        if not self._machines:
            return
        # Dropped first, so that its memory is free for the new weights.
        self._transfers.pop(role, None)
        try:
            transfer = self._transfer(folder, source)
        except (OSError, EngineError) as error:
            self.refusal = str(error)
            text = f"weights are not transferred in memory, and engines read the checkpoint's files: {error}"
            warnings.warn(text, EngineWarning, stacklevel=2)
            return
        self.refusal = ""
        self._transfers[role] = (identity_of(folder), transfer)

    def find(self, folder: Path, machines: Collection[str] = (HERE,)) -> WeightTransfer | None:
        """Find the weights of a checkpoint; None unless they were transferred to all of these machines."""
        try:
            identity = identity_of(folder)
        except (OSError, CheckpointError):
            return None
        for other, transfer in self._transfers.values():
            if other == identity and transfer.files.keys() >= set(machines):
                return transfer
        return None

    def _transfer(self, folder: Path, source: WeightSource) -> WeightTransfer:
        # Imported here: commands that only plan a run need no torch.
        from infuser_core.engines.hf.causal_lm import read_config

        shapes = source.shapes()
        if self._fill is not None:
            files = self._fill(source, self._dtype, self._machines)
        else:
            memory = Memory(shapes, self._dtype)
            source.fill_files({HERE: memory.path}, self._dtype)
            files = {HERE: memory}
        names = {name: name for name in shapes} | dict(source.tied())
        checksums = source.checksums(self._dtype)
        rows = [
            TrainRow(token_ids=tokens, advantage=1.0, sampler_logprobs=[0.0] * len(tokens))
            for tokens in self._responses
        ]
        groups = [
            TrainGroup(
                group_id=prompt.group_id,
                prompt_token_ids=prompt.token_ids,
                rows=[rows[seed] for seed in prompt.seeds],
            )
            for prompt in fixed_prompts(int(read_config(folder).get_text_config().vocab_size))
        ]
        logprobs = source.logprobs(groups, temperature=TEMPERATURE)
        return WeightTransfer(
            files=files,
            shapes={name: list(shapes[first]) for name, first in names.items()},
            checksums={name: checksums[first] for name, first in names.items()},
            logprobs=[row for group in logprobs for row in group],
            responses=self._responses,
        )


def fixed_prompts(vocabulary: int) -> list[PromptGroup]:
    """Build the fixed prompts: tokens spread over the vocabulary, two responses to each."""
    return [
        PromptGroup(
            group_id=f"fixed/{place}",
            token_ids=[(7 + 1009 * place + 7919 * token) % vocabulary for token in range(TOKENS)],
            seeds=[2 * place, 2 * place + 1],
        )
        for place in range(PROMPTS)
    ]


def identity_of(folder: Path) -> Identity:
    """Identify a checkpoint's weights by their files. Raises CheckpointError or OSError if the folder has none."""
    from infuser_core.engines.training.checkpoint import WEIGHTS, shards_of

    name = WEIGHTS if adapter_files.read_adapter(folder) is None else adapter_files.WEIGHTS
    stats = [(path.name, path.stat()) for path in shards_of(folder / name)]
    return tuple((name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
