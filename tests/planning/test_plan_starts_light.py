import json
import subprocess
import sys

HEAVY = ["torch", "transformers", "scipy", "numpy", "pyarrow", "duckdb", "prefect", "ray"]


def run(*words: str) -> dict:
    code = (
        "import json, sys, typer\nfrom flows.cli import main as cli\nsys.argv = ['infuser', *sys.argv[1:]]\n"
        "try:\n    cli.main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"sys.stderr.write(json.dumps(sorted(set({HEAVY}) & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr) == []
    return json.loads(done.stdout)


def test_a_plan_imports_nothing_heavy():
    found = run("plan", "configs/qwen3-8b.yaml", "--gpus", "8xH100", "--json", "--scale")
    assert [row["phase"] for row in found["phases"]][:2] == ["rollout_dev", "generate_questions"]
    assert found["scaling"]["stops_at"] >= 8
