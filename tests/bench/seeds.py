"""Several seeds of INFUSER against the fixed generator at the same iterations: `make bench-seeds`.

Two one-thread processes at a time. Prints the table of `infuser compare` and one JSON line per variant.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def infuser(*arguments: str) -> str:
    """Standard output of an `infuser` command; its errors end the benchmark."""
    command = [sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"infuser {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def one(arm: tuple[str, int], *, base: str, iterations: int) -> str:
    """Run one arm; returns the run's name."""
    overlay, seed = arm
    files = [base, *([f"configs/ablation/{overlay}.yaml"] if overlay else [])]
    name = f"seeds-{overlay.replace('_', '-') or 'infuser'}-t{iterations}-s{seed}"
    infuser("run", *files, "--set", f"cotrain.iterations={iterations}", "--seed", str(seed), "--name", name)
    return name


def main() -> None:
    """Run all arms and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="configs/nano.yaml")
    parser.add_argument("--overlays", nargs="+", default=["", "fixed_generator"], help="'' is INFUSER itself")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 123, 456])
    parser.add_argument("--iterations", type=int, default=20)
    options = parser.parse_args()
    arms = [(overlay, seed) for seed in options.seeds for overlay in options.overlays]
    with ThreadPoolExecutor(max_workers=2) as workers:
        names = list(workers.map(lambda arm: one(arm, base=options.base, iterations=options.iterations), arms))
    print(infuser("compare", *names))
    for row in json.loads(infuser("compare", *names, "--json")):
        print(json.dumps({"name": "seeds", **row}))


if __name__ == "__main__":
    main()
