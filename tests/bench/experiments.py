"""The paper's claims at nano scale: `make experiments-nano`. An interrupted pass goes on where it stopped.

Runs every sweep below in one store, where runs that two sweeps have in common are one run, writes `docs/claims.md`, and
prints a Markdown table per sweep: mean and deviation over seeds, the difference to the reference with its 95% t interval over
seeds, and whether the difference exceeds the noise of seeds and questions.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from infuser_core import settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "configs" / "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One table."""

    title: str
    """Heading."""
    file: str
    """Sweep file in `configs/sweep`."""
    reference: str
    """Variant that the others are compared with."""

    @property
    def path(self) -> str:
        """The sweep file's path."""
        return str(FOLDER / self.file)


EXPERIMENTS = (
    Experiment(title="The headline world", file="nano-headline.yaml", reference="nano-infuser"),
    Experiment(title="Ablations, the small world", file="nano-basic.yaml", reference="nano-basic-infuser"),
    Experiment(title="Baselines, the wide world", file="nano-baselines.yaml", reference="nano-wide-infuser"),
    Experiment(title="Hybrid with verifiable problems", file="nano-hybrid.yaml", reference="nano-wide-science-only"),
    Experiment(title="Ablations, the nano lab", file="nano.yaml", reference="nano-infuser"),
    Experiment(title="A narrow dev set", file="nano-narrow.yaml", reference="nano-narrow-infuser"),
    Experiment(title="A heavy tail of scores", file="nano-tail.yaml", reference="nano-tail-infuser"),
    Experiment(
        title="The headline on other targets",
        file="nano-elsewhere.yaml",
        reference="nano-elsewhere-growth-sail-infuser",
    ),
    Experiment(
        title="The headline from other anchors", file="nano-anchors.yaml", reference="nano-anchors-first-infuser"
    ),
    Experiment(title="A curriculum", file="nano-composed.yaml", reference="nano-composed-infuser"),
    Experiment(title="A target of many numbers", file="nano-broad.yaml", reference="nano-broad-infuser"),
    Experiment(title="Break-even of fixed generators", file="nano-break-even.yaml", reference="nano-even-infuser"),
)
KEEP = "store.keep={full: 1, weights_every: 0}"
"""A run's checkpoints that no table asks for are removed while it goes on: .04 GB of a run's .6 stay."""
SETTINGS = ("nano-dev-pays.yaml", "nano-generator-lr.yaml", "nano-budget.yaml")
"""Sweeps over a setting, for which no claim waits: `infuser sweep FILE`, then `infuser report compare`."""
STUDIED = ("nano-anisotropic.yaml", "nano-studies.yaml", "nano-scores.yaml", "nano-scores-worlds.yaml")
"""Sweeps without arms to compare: `infuser study` takes their runs, as the files say."""
AT_EQUAL_COMPUTE = ("nano-curricula.yaml", "nano-curricula-controls.yaml", "nano-curricula-worlds.yaml")
"""Sweeps whose arms are compared at equal compute: `make curricula`."""


def infuser(*arguments: str) -> str:
    """Standard output of an `infuser` command; its errors end the benchmark."""
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"infuser {arguments[0]} ended with {done.returncode}")
    return done.stdout


def main() -> None:
    """Run the sweeps that are asked for and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[e.file for e in EXPERIMENTS], help="sweep files")
    # One more than there are cores: a run waits for the disk a twentieth of its time.
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="runs at a time")
    chosen = parser.parse_args()
    asked = [experiment for experiment in EXPERIMENTS if experiment.file in chosen.only]
    began = time.monotonic()
    paths = [experiment.path for experiment in asked]
    infuser("sweep", *paths, "--set", KEEP, "--jobs", str(chosen.jobs), "--against", asked[0].reference, "--json")
    seconds = time.monotonic() - began
    if EXPERIMENTS[0] in asked:
        subprocess.run([sys.executable, HERE / "claims.py", "--store", settings.store_root()], cwd=ROOT, check=True)
    total = 0
    for experiment in asked:
        runs = [row["run"] for row in json.loads(infuser("sweep", experiment.path, "--dry-run", "--json"))]
        total += len(runs)
        compared = infuser("report", "compare", *runs, "--against", experiment.reference)
        print(f"### {experiment.title}\n\n```text\n{compared}\n```\n")
    print(json.dumps({"name": "experiments", "runs": total, "seconds": round(seconds, 1), "jobs": chosen.jobs}))


if __name__ == "__main__":
    main()
