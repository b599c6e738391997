"""Loading a checkpoint for training takes little more memory than what the trainer then holds."""

import subprocess
import sys
from pathlib import Path

from engine_tiny import anchored, make_source
from places import ROOT

from infuser_core.schemas import Checkpoint

MEASURE = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/support")
from stock_engines import local_trainer
from infuser_core.schemas import Checkpoint

def resident(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))

def load(path):
    trainer = local_trainer()
    trainer.load(Checkpoint(checkpoint_id="anchor", role="solver", path=path, step=0))
    return trainer

load(sys.argv[1])
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
trainer = load(sys.argv[2])
print((resident("VmHWM") - before) / trainer._flat.data.numel())
"""
"""Prints the peak of the second load, bytes per parameter; the first one has brought the libraries in."""


def made(folder: Path, **sizes: int) -> Checkpoint:
    return anchored(make_source(folder / "source", **sizes))


def test_a_load_peaks_little_above_weights_gradient_and_moments(tmp_path: Path) -> None:
    tiny = made(tmp_path / "tiny")
    wide = made(tmp_path / "wide", hidden_size=384, intermediate_size=1152, head_dim=64, num_hidden_layers=10)
    command = [sys.executable, "-c", MEASURE, tiny.path, wide.path]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # Four buffers of four bytes; a mapped file of moments would add eight.
    assert 15 < float(ran.stdout) < 19
