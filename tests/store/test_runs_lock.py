"""One living process owns a run. The lock needs no cleaning up: it ends with its holder, however that ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infuser_core.errors import BusyRunError
from infuser_core.store.runs import create_run, holding, is_held

HOLDER = """
import sys
from pathlib import Path
from infuser_core.store.runs import holding
with holding(Path(sys.argv[1]), "run"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_living_process_is_refused_and_a_killed_holder_is_forgotten(tmp_path: Path):
    create_run(tmp_path, "run", {})
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(BusyRunError) as caught, holding(tmp_path, "run"):
        pass
    assert f"process {holder.pid}" in caught.value.message
    assert is_held(tmp_path, "run")

    holder.kill()
    holder.wait()
    assert not is_held(tmp_path, "run")
    with holding(tmp_path, "run"):
        assert is_held(tmp_path, "run")
        assert f"process {os.getpid()}" in (tmp_path / "runs" / "run" / "lock").read_text()
    assert not is_held(tmp_path, "run")


def test_runs_do_not_hold_each_other(tmp_path: Path):
    with holding(tmp_path, "one"), holding(tmp_path, "other"):
        assert is_held(tmp_path, "one") and is_held(tmp_path, "other")


def test_asking_does_not_take_the_lock(tmp_path: Path):
    assert not is_held(tmp_path, "nobody")
    assert not (tmp_path / "runs").exists()
