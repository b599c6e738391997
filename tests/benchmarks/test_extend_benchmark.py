"""A benchmark of one's own is one small file, named in the configuration or to `infuser eval`."""

import json
from pathlib import Path

import pytest
from launcher import ROOT, Launcher, SmallRun, copy_store

from infuser_core.nano import world
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

FILE = ROOT / "examples" / "my_benchmark" / "my_benchmark.py"
NAME = "examples.my_benchmark.my_benchmark:load"


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    """Twelve questions, one per line."""
    questions = world.draw_questions("test", world.TARGET, 12, 0)
    rows = [{"question": each.text, "choices": each.choices, "answer": each.answer} for each in questions]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_file_is_short():
    assert len(FILE.read_text().splitlines()) <= 40


def test_a_model_answers_it(launch: Launcher, exam: Path, tmp_path: Path):
    ended = launch("eval", "--model", "nano", "--benchmarks", f"{NAME}={exam}", "--json", store=tmp_path / "store")
    assert ended.code == 0, ended.err
    row = json.loads(ended.out)["benchmarks"]["my_benchmark"]
    assert (row["name"], row["category"], row["questions"]) == (NAME, "other", 12)
    assert row["answered"] > 0


def test_a_run_ends_with_it(launch: Launcher, small_run: SmallRun, exam: Path, tmp_path: Path):
    store = copy_store(small_run.root, tmp_path / "store")
    asked = json.dumps([{"name": NAME, "label": "mine", "path": str(exam)}])
    own = ["--set", f"evaluate.benchmarks={asked}", "--set", "cotrain.iterations=1", "--name", "own"]
    ended = launch(*small_run.arguments[:3], *own, store=store)
    assert ended.code == 0, ended.err
    lens = Lens(Store(store), runs=["own"])
    scores = lens.query("select benchmark, num_questions from benchmark_scores where phase = 'evaluate'")
    lens.close()
    assert {(row["benchmark"], row["num_questions"]) for row in scores} == {("mine", 12)}
    assert "mine" in ended.out
