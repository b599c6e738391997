"""What the commands print of a finished run agrees with its files."""

import json
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun

from infuser_core.schemas import BenchmarkScore, Selection
from infuser_core.store.journal import Journal

SEVEN = [
    "rollout_dev",
    "dev_gradient",
    "generate_questions",
    "rollout_questions",
    "score_influence",
    "update_generator",
    "update_solver",
]


@pytest.fixture
def said(launch: Launcher, small_run: SmallRun):
    """Standard output of a command on the small run's store."""

    def run(*arguments: str) -> str:
        ended = launch(*arguments, store=small_run.root)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    return run


def test_result_is_one_json_object_with_the_fixed_fields(said, small_run: SmallRun):
    result = json.loads(said("result", "small", "--json"))
    assert set(result) == {
        "run", "benchmarks", "selected_iteration", "seen_in_validation", "warnings", "phases", "seconds",
        "peak_memory_mb",
    }  # fmt: skip
    assert result["run"] == "small"
    assert set(result["benchmarks"]["exam"]) == {"anchor", "selected", "low", "high", "questions"}
    score = result["benchmarks"]["exam"]
    assert 0 <= score["low"] <= score["selected"] <= score["high"] <= 1 and score["questions"] == 8
    counts = {phase: (facts["ran"], facts["cached"]) for phase, facts in result["phases"].items()}
    assert {phase: counts[phase] for phase in SEVEN} == {phase: (2, 0) for phase in SEVEN}
    assert counts["pool"] == (1, 0)
    assert result["seconds"] > 0 and result["peak_memory_mb"] > 100


def test_result_agrees_with_the_artifacts(said, small_run: SmallRun):
    result = json.loads(said("result", "small", "--json"))
    store = small_run.store
    refs = {ref.key: ref for ref in store.refs()}
    entries = Journal(small_run.root, "small").latest()
    (selection,) = [
        row for e in entries if e.phase == "select" for row in store.rows(refs[e.key], "selections", Selection)
    ]
    scores = {
        e.iteration: store.rows(refs[e.key], "benchmark_scores", BenchmarkScore)[0]
        for e in entries
        if e.phase == "evaluate"
    }
    assert result["selected_iteration"] == selection.selected_iteration
    assert result["benchmarks"]["exam"]["anchor"] == scores[0].accuracy
    assert result["benchmarks"]["exam"]["selected"] == scores[selection.selected_iteration].accuracy


def test_status_lists_every_stage_with_the_key_of_its_artifact(said, small_run: SmallRun):
    status = json.loads(said("status", "small", "--json"))
    assert (status["run"], status["state"]) == ("small", "done")
    stages = [(stage["phase"], stage["iteration"]) for stage in status["stages"]]
    assert len(set(zip(stages, (stage["key"] for stage in status["stages"]), strict=True))) == len(stages)
    for iteration in (0, 1):
        assert [phase for phase, number in stages if number == iteration and phase in SEVEN] == SEVEN
    printed = said("status", "small", "--stages")
    assert printed.splitlines()[0] == "small: done"
    assert all(stage["key"] in printed for stage in status["stages"])


def test_status_has_a_line_per_iteration_with_the_accuracy_of_its_solver(said, small_run: SmallRun):
    parts = json.loads(said("status", "small", "--json"))["parts"]
    assert [part["part"] for part in parts] == ["preparation", "0", "1", "2", "evaluation"]
    assert {part["state"] for part in parts} == {"done"}
    store = small_run.store
    refs = {ref.key: ref for ref in store.refs()}
    scores = {
        e.iteration: store.rows(refs[e.key], "benchmark_scores", BenchmarkScore)[0].accuracy
        for e in Journal(small_run.root, "small").latest()
        if e.phase == "validate"
    }
    assert [part["accuracy"] for part in parts] == [None, scores[0], scores[1], scores[2], None]
    head, names, _, *rows = said("status", "small").splitlines()
    assert head == "small: done" and names.split() == ["iteration", "state", "ran", "cached", "seconds", "accuracy"]
    trend = f"validation accuracy: {scores[0]:.3f} after 0 iterations -> {scores[2]:.3f} after 2 iterations; best "
    assert rows.pop().startswith(trend)
    assert [row.split("  ")[0] for row in rows] == ["preparation", "0", "1", "after 2", "evaluation"]
    assert rows[1].split()[-1] == f"{scores[0]:.3f}" and rows[0].split()[-1] == "-"


def test_status_shows_the_last_iterations(said):
    assert [part["part"] for part in json.loads(said("status", "sm", "--last", "2", "--json"))["parts"]] == [
        "2", "evaluation",
    ]  # fmt: skip
    assert said("status", "small", "--last", "2").splitlines()[-1] == "3 earlier lines: --last 5"


def test_runs_lists_both_with_state_score_and_size(said, small_run: SmallRun):
    rows = {row["run"]: row for row in json.loads(said("runs", "--json"))}
    assert set(rows) == {"fixed", "small"}
    (selection,) = [
        small_run.store.rows(ref, "selections", Selection)[0]
        for ref in small_run.store.refs()
        for e in Journal(small_run.root, "small").latest()
        if e.key == ref.key and e.phase == "select"
    ]
    folders = [small_run.store.folder(e.key) for e in Journal(small_run.root, "small").latest()]
    files = {
        path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name != "artifact.json"
    }
    small = rows["small"]
    assert (small["state"], small["iterations_done"], small["iterations"]) == ("done", 2, 2)
    assert small["score"] == selection.accuracy
    assert small["bytes"] == sum(path.stat().st_size for path in files)
    names, _, *lines = said("runs").splitlines()
    assert names.split() == ["run", "created", "state", "iterations", "accuracy", "size", "origin"]
    assert sorted(line.split()[0] for line in lines) == ["fixed", "small"]
    assert all("  done   2/2 " in line and line.endswith("  -") for line in lines)


def test_show_gives_rows_recipe_lineage_and_the_sql_that_opens_it(said, small_run: SmallRun):
    score = next(e for e in Journal(small_run.root, "small").latest() if e.phase == "score_influence")
    page = said("show", score.key)
    assert page.startswith("# Influence scores, iteration 0")
    store = small_run.store
    recipe = store.manifest(next(ref for ref in store.refs() if ref.key == score.key)).recipe
    assert all(f"- {name}: `{identity}`" in page for name, identity in recipe["inputs"].items())
    assert "## Used by" in page and "`update_generator-" in page
    (statement,) = [
        line.split('"')[1] for line in page.splitlines() if line.startswith('`infuser sql "') and " scores " in line
    ]
    rows = json.loads(said("sql", statement, "--json"))
    assert {row["artifact_key"] for row in rows} == {score.key}
    assert len(rows) == store.manifest(next(ref for ref in store.refs() if ref.key == score.key)).rows["scores"]


def test_the_start_of_a_key_is_enough_if_it_is_the_only_one(said, launch: Launcher, small_run: SmallRun):
    assert said("show", "pool-").startswith("# Document pool")
    ended = launch("show", "rollout_dev", store=small_run.root)
    assert ended.code == 2 and ended.err.startswith("infuser: 2 artifacts start with rollout_dev")


def test_sql_prints_a_table_or_json(said):
    statement = "select run, count(*) as n from rollouts where phase = 'rollout_dev' group by run"
    assert said("sql", statement).splitlines() == ["run    n", "-----  --", "small  64"]
    assert json.loads(said("sql", statement, "--json")) == [{"run": "small", "n": 64}]
    assert said("sql", statement, "--run", "fixed") == "no rows\n"


def test_compare_puts_both_variants_side_by_side(said):
    rows = json.loads(said("report", "compare", "--json"))
    assert len(rows) == 2
    assert any("fixed-generator" in str(value) for row in rows for value in row.values())


def test_the_report_is_one_self_contained_page(said, small_run: SmallRun):
    page = Path(said("report", "small").strip())
    assert page == small_run.root / "runs" / "small" / "report" / "report.html"
    html = page.read_text(encoding="utf-8")
    assert "<script src" not in html and 'src="http' not in html and 'href="http' not in html
    assert page.with_suffix(".md").is_file()


def test_the_latest_run_is_meant_when_none_is_named(said, small_run: SmallRun):
    assert said("status", "--digest") in {said("status", "--digest", "small"), said("status", "--digest", "fixed")}
