"""Commands that answer from the store import nothing that takes seconds: modules are counted, not time."""

import json
import os
import subprocess
import sys
from pathlib import Path

from places import CONFIGS, ROOT
from planned_run import fill, short_config
from report_runs import make

HEAVY = {"torch", "transformers", "prefect", "scipy", "matplotlib", "ray", "vllm", "httpx", "sympy", "PIL"}
STORED = HEAVY | {"numpy", "pyarrow"}
"""Where no rows are read but through SQL."""
EARLY = STORED | {"duckdb", "jinja2", "yaml"}
"""Where nothing but journals and commit records are read."""
# All commands in one process: the first that imports a module is named.
PROGRAM = """
import contextlib, io, json, sys
from flows.cli import main as cli
for words, heavy in json.load(sys.stdin):
    sys.argv = ["infuser", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            cli.main()
        except SystemExit as stop:
            assert not stop.code, (words, stop.code)
    assert said.getvalue().strip(), words
    found = sorted(set(heavy) & set(sys.modules))
    assert not found, f"infuser {' '.join(words)} imports {', '.join(found)}"
"""


def looks(commands: list[tuple[list[str], set[str]]], root: Path) -> None:
    given = json.dumps([(words, sorted(heavy)) for words, heavy in commands])
    environment = {**os.environ, "INFUSER_STORE": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, input=given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_looking_at_runs_imports_nothing_heavy(tmp_path: Path):
    make(tmp_path, "one")
    make(tmp_path, "other", seed=2)
    key = next((tmp_path / "artifacts" / "select").iterdir()).name
    commands = [
        (["--help"], EARLY),
        (["runs"], EARLY),
        (["status", "one"], EARLY),
        (["status", "one", "--digest"], EARLY),
        (["gc"], EARLY),
        (["doctor", "one"], EARLY),
        (["result", "one"], STORED),
        (["sql", "select count(*) from selections"], STORED),
        (["diff", "one", "other"], STORED),
        (["why", "one/medqa"], STORED),
        (["why", "--graph", "one"], STORED),
        (["plan", str(CONFIGS / "nano.yaml"), "--gpus", "cpu"], HEAVY),
        (["show", key], HEAVY),
        (["report", "compare"], HEAVY - {"scipy"}),
    ]
    looks(commands, tmp_path)


def test_the_plan_of_a_finished_run_imports_nothing_heavy(tmp_path: Path):
    fill(tmp_path, "one", short_config())
    looks([(["resume", "one", "--dry-run"], HEAVY), (["run", "nano", "--dry-run"], HEAVY)], tmp_path)
