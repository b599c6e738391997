"""`engine.deterministic`: the same bits twice."""

import subprocess
import sys
from pathlib import Path

import pytest
from engine_tiny import make_checkpoint
from places import ROOT

CODE = """
import hashlib, sys
from pathlib import Path
import torch
sys.path.insert(0, "tests/support")
from engine_tiny import make_groups
from infuser_core.engines.hf.sampler import HFSampler
from infuser_core.engines.local.trainer import LocalTrainer
from infuser_core.engines.protocols import Objective, PromptGroup, SamplingParams
from infuser_core.schemas import Checkpoint

folder, kept = Path(sys.argv[1]), Path(sys.argv[2])
anchor = Checkpoint(checkpoint_id="anchor", role="solver", path=str(folder), step=0)
trainer = LocalTrainer(device="cpu", deterministic=True)
trainer.load(anchor)
groups = make_groups([(9, [11, 5]), (7, [8, 8, 3])])
trainer.forward_backward(groups, Objective(), denominator=2)
trainer.keep_gradient(kept)
trainer.probe(groups, Objective(), kept)
trainer.optim_step(1e-3)
sampler = HFSampler(device="cpu", deterministic=True)
sampler.load(anchor)
asked = PromptGroup(group_id="g", token_ids=[5, 6], seeds=[1, 2])
drawn = sampler.sample([asked], SamplingParams(max_tokens=9, top_p=0.9))
assert torch.are_deterministic_algorithms_enabled()
content = trainer._flat.data.numpy().tobytes() + repr(drawn).encode()
print(trainer.facts()["deterministic"], hashlib.sha256(content).hexdigest())
"""


@pytest.mark.long
def test_two_processes_compute_the_same_bits(tmp_path: Path) -> None:
    anchor = make_checkpoint(tmp_path)
    said = [
        subprocess.run(
            [sys.executable, "-c", CODE, anchor.path, str(tmp_path / f"{turn}.safetensors")],
            capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout.split()
        for turn in (0, 1)
    ]  # fmt: skip
    assert said[0] == said[1]
    assert said[0][0] == "True"
