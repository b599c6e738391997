"""Two processes started on one run at the same moment, many times: never two writers, never a wrong artifact.

    python tests/bench/crash_starts.py --times 50 --seed 0

A third of the time the first is killed soon after, so that the second may take over. The last line is
`starts=N double=D wrong=W`.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from crash_points import NANO, content, mismatches, orphans, overlay, repeated
from launcher import Launcher, copy_store, launcher

NAME = "twice"
AGAIN = ("judge", "select", "leakage")


def together(launch: Launcher, arguments: list[str], store: Path, draw: random.Random) -> list[int]:
    """Exit codes of two starts at once, one of them perhaps killed."""
    both = [launch.start(*arguments, store=store) for _ in range(2)]
    if draw.random() < 1 / 3:
        time.sleep(draw.uniform(0.0, 2.0))
        draw.choice(both).kill()
    return [process.wait().code for process in both]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw, ends, double, wrong = random.Random(asked.seed), Counter[tuple[int, ...]](), 0, 0
    with tempfile.TemporaryDirectory(prefix="starts-") as name, launcher(Path(name) / "launcher") as launch:
        folder = Path(name)
        arguments = ["run", NANO, str(overlay(folder, 1)), "--name", NAME]
        first = launch(*arguments, store=folder / "undisturbed")
        assert first.code == 0, first.err
        reference = content(folder / "undisturbed", NAME)
        for number in range(asked.times):
            store = copy_store(folder / "undisturbed", folder / f"store-{number}", without=AGAIN)
            codes = together(launch, arguments, store, draw)
            ends[tuple(sorted(codes))] += 1
            assert set(codes) <= {0, 2, -signal.SIGKILL}, codes
            if 0 not in codes:
                assert launch("resume", NAME, store=store).code == 0
            double += len(repeated(store, NAME))
            wrong += len(mismatches(reference, content(store, NAME))) + len(list(orphans(store)))
    for codes, count in sorted(ends.items()):
        print(f"exit codes {codes}: {count}")
    print(f"starts={2 * asked.times} double={double} wrong={wrong}")
    sys.exit(1 if double or wrong else 0)


if __name__ == "__main__":
    main()
