"""Weights that a trainer hands to living engines through memory, with what proves their arrival.

Whoever saves a checkpoint also lays its weights, in the engines' dtype, into a file that lies in the memory of every
machine with engines, and adds checksums of its own and its log-probabilities of fixed responses. Engines read that file
in the place of the checkpoint's when they are asked for it: by then the trainer may sleep, or serve another role. The
memory is a process's and goes with it; a kill leaves nothing behind. The fixed responses are what engines drew when
they started: of tokens that a model finds likely, rounding moves the log-probabilities least.
"""

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infuser_core.engines.protocols import PromptGroup, TrainGroup, TrainRow
from infuser_core.errors import CheckpointError, EngineError, EngineWarning

if TYPE_CHECKING:
    from infuser_core.engines.training.tensor_files import Shapes

HERE = ""
"""This process's machine. Others go by Ray's id of their node."""

SHARE = 0.5
"""Share of the free main memory that weights may take: a machine without memory kills whom it likes."""

PROMPTS, TOKENS, TEMPERATURE = 4, 12, 0.7
"""Fixed prompts, by whose responses a change of weights is proved: tokens of each and the most of a response."""

Identity = tuple[tuple[str, int, int, int, int], ...]
"""Files by name, device, inode, size and last change: a checkpoint keeps them when it moves into the store."""


class Giver(Protocol):
    """A trainer as the one who hands over."""

    def shapes(self) -> "Shapes":
        """Of every tensor that its checkpoints hold, by name."""

    def tied(self) -> Mapping[str, str]:
        """Other names of such tensors, by which a model knows them as well."""

    def machines(self) -> Sequence[str]:
        """Machines on which it fills files, and on no other."""

    def lay(self, paths: Mapping[str, Path], dtype: str) -> None:
        """Fill files of that dtype with room for every tensor, one on each of some of its machines. Raises OSError
        where it cannot."""

    def checksums(self, dtype: str) -> Mapping[str, int]:
        """Of every tensor as it is held, rounded to that dtype (service.checksum)."""

    def logprobs(self, groups: Sequence[TrainGroup], *, temperature: float) -> list[list[Sequence[float]]]:
        """See protocols.Trainer."""


class Laid(Protocol):
    """A file in the memory of a machine, that lives as long as this object."""

    @property
    def path(self) -> Path:
        """Path by which processes of the user open it on that machine."""


class Memory:
    """A memfd of this process with room for tensors: handover.Laid. Raises EngineError where main memory has none."""

    def __init__(self, shapes: "Shapes", dtype: str) -> None:
        if not hasattr(os, "memfd_create"):
            raise EngineError("this system has no files in memory", hint="sample on Linux")
        # Imported here: whoever only plans a run needs no torch.
        import torch

        from infuser_core.engines.local.memory import free_host_memory
        from infuser_core.engines.training.tensor_files import create

        kind = getattr(torch, dtype)
        needed, free = kind.itemsize * sum(map(prod, shapes.values())), free_host_memory()
        if needed > SHARE * free:
            raise EngineError(f"{needed:,} bytes are needed, and of main memory {free:,} are free", hint="free some")
        self._number = os.memfd_create("infuser-weights")
        self.path = Path(f"/proc/{os.getpid()}/fd/{self._number}")
        create(self.path, shapes, kind)

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            os.close(self._number)


Fill = Callable[[Giver, str, Collection[str]], Mapping[str, Laid]]
"""Makes a file of a giver's weights on each wanted machine. Raises OSError or EngineError if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Weights of one checkpoint, ready to be read."""

    files: Mapping[str, Laid]
    """Its file on every machine with engines."""
    shapes: Mapping[str, list[int]]
    """Of every tensor of the model by name, tied ones under each of theirs."""
    checksums: Mapping[str, int]
    """The trainer's own, by the same names."""
    logprobs: Sequence[Sequence[float]]
    """Of the fixed responses by the trainer, nats: [response][token]."""
    responses: Sequence[Sequence[int]]
    """Their tokens: two responses to each fixed prompt."""


class Board:
    """The newest weights of every role, for engines that compute in `dtype`; `fill` serves more than this machine."""

    def __init__(self, dtype: str, fill: Fill | None = None) -> None:
        self._dtype, self._fill = dtype, fill
        self._held: dict[str, tuple[Identity, Handover]] = {}
        self._engines: Collection[str] = ()
        self._responses: Sequence[Sequence[int]] = ()
        self.refused = ""
        """Reason for which the last weights were not handed over; empty where they were."""

    def ask(self, machines: Collection[str], responses: Sequence[Sequence[int]]) -> None:
        """Engines of these machines, which drew these responses to the fixed prompts, want what is put from now on."""
        self._engines, self._responses = machines, responses

    def put(self, folder: Path, role: str, giver: Giver) -> None:
        """Take over what a trainer has just saved into a folder, in the place of the role's weights before.

        Where that cannot be, engines will read files: it warns of the reason and raises nothing. Before any engine has
        started there is nobody to hand anything to.
        """
        if not self._engines:
            return
        # First, so that its memory is free for them.
        self._held.pop(role, None)
        try:
            made = self._made(folder, giver)
        except (OSError, EngineError) as error:
            self.refused = str(error)
            text = f"weights are not handed over in memory, and engines read the checkpoint's files: {error}"
            warnings.warn(text, EngineWarning, stacklevel=2)
            return
        self.refused = ""
        self._held[role] = (identity_of(folder), made)

    def find(self, folder: Path, machines: Collection[str] = (HERE,)) -> Handover | None:
        """The weights of a checkpoint, where it is one that was handed over to all of these machines."""
        try:
            wanted = identity_of(folder)
        except (OSError, CheckpointError):
            return None
        found = [made for identity, made in self._held.values() if identity == wanted]
        return next((made for made in found if made.files.keys() >= set(machines)), None)

    def _made(self, folder: Path, giver: Giver) -> Handover:
        # Imported here: whoever only plans a run needs no torch.
        from infuser_core.engines.hf.causal_lm import read_config

        shapes, files = giver.shapes(), self._filled(giver)
        names = {name: name for name in shapes} | dict(giver.tied())
        sums = giver.checksums(self._dtype)
        rows = [TrainRow(token_ids=each, advantage=1.0, sampler_logprobs=[0.0] * len(each)) for each in self._responses]
        groups = [
            TrainGroup(
                group_id=each.group_id, prompt_token_ids=each.token_ids, rows=[rows[seed] for seed in each.seeds]
            )
            for each in fixed_prompts(int(read_config(folder).get_text_config().vocab_size))
        ]
        scores = giver.logprobs(groups, temperature=TEMPERATURE)
        return Handover(
            files=files,
            shapes={name: list(shapes[own]) for name, own in names.items()},
            checksums={name: sums[own] for name, own in names.items()},
            logprobs=[row for rows in scores for row in rows],
            responses=self._responses,
        )

    def _filled(self, giver: Giver) -> Mapping[str, Laid]:
        if self._fill is not None:
            return self._fill(giver, self._dtype, self._engines)
        memory = Memory(giver.shapes(), self._dtype)
        giver.lay({HERE: memory.path}, self._dtype)
        return {HERE: memory}


def fixed_prompts(vocabulary: int) -> list[PromptGroup]:
    """The fixed prompts: tokens spread over the vocabulary, two responses to each."""
    return [
        PromptGroup(
            group_id=f"fixed/{place}",
            token_ids=[(7 + 1009 * place + 7919 * token) % vocabulary for token in range(TOKENS)],
            seeds=[2 * place, 2 * place + 1],
        )
        for place in range(PROMPTS)
    ]


def identity_of(folder: Path) -> Identity:
    """Of a checkpoint's weights. Raises CheckpointError or OSError where there are none."""
    from infuser_core.engines.training.checkpoint import WEIGHTS, shards_of

    found = [(path.name, path.stat()) for path in shards_of(folder / WEIGHTS)]
    return tuple((name, each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for name, each in found)
