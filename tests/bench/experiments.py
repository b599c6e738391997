"""The paper's claims at nano scale: `make experiments-nano`. An interrupted pass continues where it stopped.

Runs every sweep of a claim in one store, where runs that two sweeps have in common are one run, measures the runs, writes
`docs/claims.md`, and prints mean and deviation of every arm.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import worlds

from infuser_core import settings
from infuser_core.planning.sweeps import read_sweeps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "configs" / "sweep"
CLAIMS = ("nano-headline", *worlds.SWEEPS)
"""Sweeps whose runs the table of claims is made from."""
SETTINGS = ("nano-dev-pays", "nano-budget", "nano-baselines", "nano-hybrid")
"""Sweeps for which no claim waits: `infuser sweep FILE`, then `infuser report compare`."""
STUDIED = ("nano-anisotropic", "nano-studies", "nano-scores", "nano-scores-worlds")
"""Sweeps without arms to compare: `infuser study` takes their runs, as the files say."""
AT_EQUAL_COMPUTE = ("nano-curricula", "nano-curricula-controls", "nano-curricula-worlds")
"""Sweeps whose arms are compared at equal compute: `make curricula`."""
KEEP = "store.keep={full: 1, weights_every: 0}"
"""A run's checkpoints that no table asks for are removed during the run: .04 GB of a run's .6 stay."""


def main() -> None:
    """Run the sweeps that are asked for, measure them, and print the table of arms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=CLAIMS, choices=CLAIMS, help="sweeps")
    # One more than there are cores: a run waits for the disk a twentieth of its time.
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="runs at a time")
    chosen = parser.parse_args()
    began = time.monotonic()
    paths = [FOLDER / f"{name}.yaml" for name in chosen.only]
    runs = read_sweeps(paths)
    sweep = [sys.executable, "-m", "flows.cli.main", "sweep", *map(str, paths), "--jobs", str(chosen.jobs)]
    options = ["--set", KEEP, "--against", runs[0].label, "--json"]
    subprocess.run([*sweep, *options], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    seconds = round(time.monotonic() - began, 1)
    subprocess.run([sys.executable, HERE / "claims.py", "--store", settings.store_root()], cwd=ROOT, check=True)
    print("\n".join(worlds.tables()))
    print(json.dumps({"name": "experiments", "runs": len(runs), "seconds": seconds, "jobs": chosen.jobs}))


if __name__ == "__main__":
    main()
