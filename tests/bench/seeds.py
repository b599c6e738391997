"""Several seeds of INFUSER against the fixed generator at the same iterations: `make bench-seeds`.

One-thread processes, two at a time unless `--workers` says otherwise. `a+b` joins two overlays into one arm, as in
`--base configs/nano-hard.yaml --overlays "" perfect_keys fixed_generator+perfect_keys`. Prints the table of
`infuser compare` and one JSON line per variant.
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
    overlays, seed = arm
    files = [base, *(f"configs/ablation/{overlay}.yaml" for overlay in overlays.split("+") if overlay)]
    variant = overlays.replace("_", "-").replace("+", "-")
    # Of joined overlays the last would name the arm alone.
    joined = ["--set", f"variant={variant}"] if "+" in overlays else []
    name = f"seeds-{Path(base).stem}-{variant or 'infuser'}-t{iterations}-s{seed}"
    infuser("run", *files, "--set", f"cotrain.iterations={iterations}", *joined, "--seed", str(seed), "--name", name)
    return name


def main() -> None:
    """Run all arms and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="configs/nano.yaml")
    parser.add_argument("--overlays", nargs="+", default=["", "fixed_generator"], help="'' is INFUSER itself")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 123, 456])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    arms = [(overlay, seed) for seed in options.seeds for overlay in options.overlays]
    with ThreadPoolExecutor(max_workers=options.workers) as workers:
        names = list(workers.map(lambda arm: one(arm, base=options.base, iterations=options.iterations), arms))
    print(infuser("compare", *names))
    for row in json.loads(infuser("compare", *names, "--json")):
        print(json.dumps({"name": "seeds", **row}))


if __name__ == "__main__":
    main()
