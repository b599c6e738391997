"""One GRPO update beside TRL's on the same tokens and weights, one thread each, turn by turn: `make bench-peers`."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
import transformers
from measure import Row, shown
from stock_engines import local_trainer
from workload import MIDDLE, NANO, Shape, make_checkpoint, make_groups, objective

from infuser_core.algorithm.preset import Objective
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.protocols import TrainGroup

PEER = Path(__file__).parent / "peers" / "trl_update.py"
SMALL = replace(MIDDLE, vocabulary=1230)
SIZES = (8, 16, 32)
"""Rows of a micro-batch that TRL may choose from; the fastest one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Groups of one update."""

    label: str
    """Parameters."""
    shape: Shape
    """Model."""
    groups: int
    """Prompts, of eight answers each."""
    prompt: int
    """Tokens of a prompt."""
    response: int
    """Tokens of an answer, at a fifth more or less."""
    most: float
    """Time of ours over TRL's that is asked for."""

    def __str__(self) -> str:
        return f"{self.label} parameters, {self.groups}x8 answers, {self.prompt}+{self.response} tokens"


WORKS = (
    Work(label="0.7M", shape=NANO, groups=64, prompt=33, response=12, most=0.5),
    Work(label="0.7M", shape=NANO, groups=16, prompt=190, response=38, most=0.5),
    Work(label="14.6M", shape=SMALL, groups=8, prompt=208, response=48, most=0.5),
    Work(label="14.6M", shape=SMALL, groups=4, prompt=100, response=700, most=0.75),
)


class Peer:
    """TRL in a process of its own environment."""

    def __init__(self, python: str, model: Path, work: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(PEER), str(model), str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while self._line() != "ready":
            pass

    def update(self, rows: int) -> dict[str, float]:
        """Seconds and gradient norm of one update in micro-batches of so many rows."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows}\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        return found

    def end(self) -> None:
        """Let it go."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer ended with {self._process.wait()}: run `make bench-peers`, which installs it")
        return line.strip()


def measured(work: Work, python: str, repeats: int) -> Iterator[Row]:
    """Ours over TRL's; refuses to compare different gradients."""
    constants = objective(length_norm=float(2 * work.response), tis_cap=None)
    groups = make_groups(
        work.groups,
        prompt=work.prompt,
        rows=8,
        response=work.response,
        vocabulary=work.shape.vocabulary,
        spread=work.response // 5,
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder), work.shape)
        trainer = local_trainer(dtype="float32")
        trainer.load(checkpoint)
        path = Path(folder) / "work.json"
        path.write_text(json.dumps(_told(groups, constants)))
        peer = Peer(python, Path(folder) / "source", path)
        try:
            peer.update(SIZES[0])
            _own(trainer, groups, constants)
            size = min(SIZES, key=lambda rows: peer.update(rows)["seconds"])
            turns = [(_own(trainer, groups, constants), peer.update(size)) for _ in range(repeats)]
        finally:
            peer.end()
    (_, norm), other = turns[0]
    if abs(norm - other["norm"]) > 1e-3 * norm:
        raise SystemExit(f"{work}: gradients differ: norm {norm} here, {other['norm']} there")
    own, peers = median(seconds for (seconds, _), _ in turns), median(found["seconds"] for _, found in turns)
    tokens = sum(len(row.token_ids) for group in groups for row in group.rows)
    yield Row(
        name=f"update beside TRL's: {work}",
        value=own / peers,
        unit="share",
        target=f"<= {work.most}",
        detail=f"{tokens / own:,.0f} and {tokens / peers:,.0f} answer tokens per CPU-s; TRL by {size} rows",
    )


def _own(trainer: LocalTrainer, groups: list[TrainGroup], objective: Objective) -> tuple[float, float]:
    start = time.process_time()
    trainer.zero_grad()
    trainer.forward_backward(groups, objective, denominator=len(groups))
    norm = trainer.optim_step(0.0)
    return time.process_time() - start, norm


def _told(groups: Sequence[TrainGroup], objective: Objective) -> dict:
    return {
        "temperature": objective.temperature,
        "length_norm": objective.length_norm,
        "groups": [
            {"prompt": group.prompt_token_ids, "rows": [[row.token_ids, row.advantage] for row in group.rows]}
            for group in groups
        ],
    }


def main(arguments: Sequence[str]) -> int:
    """Run the rows; returns 1 where a target is missed."""
    parser = argparse.ArgumentParser(description="one GRPO update beside TRL's")
    parser.add_argument("python", help="interpreter of an environment with TRL")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", type=int, help="number of one workload, from 0")
    parser.add_argument("--json", action="store_true", help="one JSON object for each measure instead of a table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    works = WORKS if options.only is None else WORKS[options.only : options.only + 1]
    return shown(
        (row for work in works for row in measured(work, options.python, options.repeats)), as_json=options.json
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
