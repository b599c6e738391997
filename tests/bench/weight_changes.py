"""CPU and wall seconds of a change of weights in running engines, `load` to the end of the proof: memory beside files.

    INFUSER_VLLM_PYTHON=.venv-vllm/bin/python .venv/bin/python tests/bench/weight_changes.py MODEL... [--dtype bfloat16]

MODEL are folders; the trainer `local` takes a step before every change, in turn for memory and for files. `save` is the
trainer's, `handed` what the hand-over adds to it; a fresh start is the first load.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from objectives import objective

from infuser_core.engines.local.hub import prepare_anchor
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import TrainGroup, TrainRow
from infuser_core.engines.service.handover import Board, Giver
from infuser_core.engines.service.sampler import ServiceSampler
from infuser_core.schemas import Checkpoint

ROWS = [TrainRow(token_ids=[5, 6, 7], advantage=sign, sampler_logprobs=[-3.0] * 3) for sign in (1.0, -1.0)]
GROUPS = [TrainGroup(group_id="g", prompt_token_ids=[2, 3, 4], rows=ROWS)]


class TimedBoard(Board):
    """Counts the seconds of a hand-over."""

    seconds = np.zeros(2)

    def put(self, folder: Path, role: str, giver: Giver) -> None:
        self.seconds = timed(lambda: super(TimedBoard, self).put(folder, role, giver))


def timed(work: Callable[[], object], sampler: ServiceSampler | None = None) -> NDArray[np.float64]:
    """CPU seconds of this process and of the sampler's engines, and wall-clock seconds."""
    started = spent(sampler)
    work()
    return spent(sampler) - started


def spent(sampler: ServiceSampler | None) -> NDArray[np.float64]:
    """Both so far."""
    cpu = time.process_time()
    for pid in sampler.pids if sampler else []:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return np.array([cpu, time.monotonic()])


def measured(model: Path, folder: Path, *, dtype: str, repeats: int) -> str:
    """A row of the table."""
    anchor, board = folder / "anchor", TimedBoard(dtype)
    prepare_anchor(model, anchor)
    first = Checkpoint(checkpoint_id="anchor", role="solver", step=0, path=str(anchor))
    sampler = ServiceSampler(dtype=dtype, device="cpu", max_num_seqs=16, board=board)
    trainer = LocalTrainer(dtype=dtype, device="cpu", board=board)
    trainer.load(first)
    seconds: dict[str, list[NDArray[np.float64]]] = {"memory": [], "files": [], "save": [], "handed": []}
    fresh = timed(lambda: sampler.load(first))
    means = []
    for turn in range(2 * repeats):
        trainer.zero_grad()
        trainer.forward_backward(GROUPS, objective(length_norm=4.0), denominator=1)
        trainer.optim_step(1e-3)
        saved = folder / "saved"
        shutil.rmtree(saved, ignore_errors=True)
        saved.mkdir()
        seconds["save"].append(timed(lambda: trainer.save(saved)) - board.seconds)  # noqa: B023
        seconds["handed"].append(board.seconds)
        if turn % 2:
            # A copy is no file that the trainer wrote.
            shutil.copytree(saved, folder / "copy", dirs_exist_ok=True)
            saved = folder / "copy"
        loaded = Checkpoint(checkpoint_id=str(turn), role="solver", step=turn, path=str(saved))
        took = timed(lambda: sampler.load(loaded), sampler)  # noqa: B023
        seconds[sampler.channel].append(took)
        means.append(f"{sampler.agreements[0].mean:.3g}")
    medians = {name: np.median(np.array(found), 0) for name, found in seconds.items()}
    cells = [f"{name} {cpu:.2f} ({wall:.2f})" for name, (cpu, wall) in medians.items()]
    proved = f"{sampler.agreements[0].tensors} tensors, {', '.join(means)} nats"
    told = f"{model.name} {dtype}: fresh ({fresh[1]:.1f}), {', '.join(cells)} s; {proved}; {sampler.starts} start"
    sampler.close()
    return told


def main(arguments: Sequence[str]) -> int:
    """Measure every model."""
    parser = argparse.ArgumentParser(description="seconds of a change of weights")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            print(measured(model, Path(folder), dtype=options.dtype, repeats=options.repeats), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
