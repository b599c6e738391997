"""CPU seconds of a short run that says nothing, that keeps log and metrics, and that has a tracker beside it.

`.venv/bin/python tests/bench/telling.py [TRACKER...]` runs four iterations of nano once per kind, in a new store each.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = ("nothing", "log and metrics")


def one(kind: str) -> None:
    """The run, in this process; ends it with a line of CPU seconds."""
    import tasks.run
    from flows.execute import execute
    from infuser_core.config.overlays import load
    from infuser_core.trackers.parts.run_log import RunLog

    class Silent(RunLog):
        """Says nothing and writes nothing."""

        def __init__(self, console=None, folder=None, *, attempt=0, track=()):
            super().__init__()

        def ran(self, record, *, seconds, tokens=0):
            return ""

        def found(self, record, iteration):
            pass

    if kind == "nothing":
        tasks.run.RunLog = Silent
    changes = ["cotrain.iterations=4", *([] if kind in KINDS else [f"track=[{kind}]"])]
    execute(load([ROOT / "configs" / "nano.yaml"], changes), "short")
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps([round(each.ru_utime + each.ru_stime, 2) for each in spent]))


def main(trackers: list[str]) -> None:
    print(f"{'run':20}  process  helpers and trackers, CPU-s")
    for kind in (*KINDS, *trackers):
        with tempfile.TemporaryDirectory() as folder:
            values = {**os.environ, "INFUSER_STORE": folder, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "--one", kind]
            done = subprocess.run(command, env=values, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            own, others = json.loads(done.stdout.splitlines()[-1])
            print(f"{kind:20}  {own:7.2f}  {others:.2f}", flush=True)
            log = Path(folder) / "runs" / "short" / "log.txt"
            print(f"  {log.read_text().splitlines()[-1]}" if log.is_file() else "  no log", flush=True)


if __name__ == "__main__":
    one(sys.argv[2]) if sys.argv[1:2] == ["--one"] else main(sys.argv[1:])
