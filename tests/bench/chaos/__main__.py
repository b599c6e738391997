"""Chaos: seeded faults done to a small store and to commands at work; every reader judges what came of them.

    python tests/bench/chaos --seed 1 --faults 100 [--only 'flip:manifest:0.5:0.25'] [--minutes 20]

Each fault must be survived: answers are the same or clearly refused, nothing that runs hold is lost, no traceback, and
a repair or a resume leads to the bits of the run that nobody disturbed. A failing script is shrunk, and the command that
repeats it is printed. The last line is `faults=N wrong=W lost=L tracebacks=T`.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "support"), str(Path(__file__).parents[3])]

import motion
import rest
from campaign import torment
from crash_points import NANO, overlay
from launcher import SmallRun, launcher
from readers import Readers
from script import parse, scripts
from world import World, world

FIXED = "configs/ablation/fixed_generator.yaml"


@contextmanager
def prepared() -> Iterator[World]:
    """A store made from nothing."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, launcher(Path(name) / "launcher") as launch:
        folder = Path(name)
        arguments = ["run", NANO, str(overlay(folder, 2))]
        small = SmallRun(
            root=folder / "made",
            name="small",
            fixed="fixed",
            arguments=[*arguments, "--name", "small"],
            fixed_arguments=[*arguments, FIXED, "--name", "fixed"],
        )
        for words in (small.arguments, small.fixed_arguments):
            ended = launch(*words, store=small.root)
            assert ended.code == 0, ended
        yield world(launch, small, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=600.0, help="start no further script after this long")
    parser.add_argument("--only", default="", help="repeat one script instead")
    parser.add_argument("--stopped", type=float, default=60.0, help="seconds that a stopped process stands still")
    asked = parser.parse_args()
    started = time.monotonic()
    with prepared() as made:
        print(f"undisturbed store: {time.monotonic() - started:.0f} s", flush=True)
        drawn = scripts(asked.seed, asked.faults, rest.kinds(made.run.root), motion.possible())
        chosen = iter([parse(asked.only)]) if asked.only else drawn
        tally = torment(Readers(world=made), chosen, seconds=60.0 * asked.minutes, stopped=asked.stopped)
    print(*tally.table(), sep="\n")
    print(*(f"not done: {kind}: {why}" for kind, why in motion.missing().items()), sep="\n")
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    print(tally.last_line)
    sys.exit(1 if tally.findings else 0)


if __name__ == "__main__":
    main()
