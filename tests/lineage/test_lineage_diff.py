"""`infuser diff` and `infuser run --without`: two runs side by side, and a run without a document or a question."""

import json
import shutil
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun, copy_store
from small_store import query

from infuser_core.errors import UsageError
from infuser_core.planning.undo import plan_exclusion
from infuser_core.results.lineage.diff import compare, text
from infuser_core.results.lineage.graph import graph_of
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.journal import Journal
from infuser_core.store.runs import list_runs


def test_a_run_is_the_same_as_itself(small_run: SmallRun):
    found = compare(small_run.root, small_run.name, small_run.name)
    assert (list(found["config"]), list(found["versions"]), found["first_difference"]) == ([], [], None)
    assert found["metrics"] and all(row["b - a"] == 0 for row in found["metrics"])
    assert "none: every artifact is the same" in text(found)


def test_the_control_diverges_where_its_generator_is_not_updated(small_run: SmallRun):
    found = compare(small_run.root, small_run.name, small_run.fixed)
    assert {row["key"]: (row["a"], row["b"]) for row in found["config"]}["cotrain.generator.update"] == (True, False)
    assert found["first_difference"]["iteration"] == 0 and found["first_difference"]["why"] == ["only run a has it"]
    assert found["shared_artifacts"] > 10
    metrics = {row["metric"]: row for row in found["metrics"]}
    scores = query(small_run.root, "select * from benchmark_scores where phase = 'validate'")
    assert scores
    for row in scores:
        side = "a" if row["run"] == small_run.name else "b"
        assert metrics[f"validate validation @{row['iteration']}"][side] == row["accuracy"]


def test_the_command_prints_text_or_json(small_run: SmallRun, launch: Launcher):
    said = launch("diff", small_run.name, small_run.fixed, store=small_run.root)
    assert said.code == 0 and "first artifact that differs:" in said.out, said.err
    told = json.loads(launch("diff", small_run.name, small_run.fixed, "--json", store=small_run.root).out)
    assert told["runs"] == [small_run.name, small_run.fixed]
    assert launch("diff", small_run.name, "nowhere", store=small_run.root).code == 2


@pytest.fixture
def root(small_run: SmallRun, tmp_path: Path) -> Path:
    """A store of one's own with the same run."""
    target = copy_store(small_run.root, tmp_path / "store")
    shutil.copytree(small_run.root / "runs" / small_run.name, target / "runs" / small_run.name)
    return target


def keys(root: Path, run: str) -> set[str]:
    return set(graph_of(Catalogue(root), run).records)


DOCUMENTS = "select group_id from rollouts where role = 'generator' group by 1 having min(iteration) = 1 order by 1"
QUESTIONS = "select question_id from question_history where iteration = 1 and score <> 0 order by 1"


@pytest.mark.parametrize(("kind", "sql"), [("document", DOCUMENTS), ("question", QUESTIONS)])
def test_undo_computes_again_what_depends_on_it_and_nothing_else(
    small_run: SmallRun, root: Path, launch: Launcher, kind: str, sql: str
):
    name = str(next(iter(query(root, sql, run=small_run.name)[0].values())))
    expected = plan_exclusion(root, small_run.name, name)
    again = {record.key for record in expected.affected}
    last = [record.phase for record in expected.affected if record.iteration == 1]
    assert {r.iteration for r in expected.affected if r.phase == "generate_questions"} <= {1}
    assert last == ["update_generator", "update_solver"] or (kind, last[0]) == ("document", "generate_questions")
    before = keys(root, small_run.name)
    assert expected.seconds == sum(record.seconds for record in expected.affected) > 0
    assert expected.reused + len(again) == len(before)
    done = launch("run", "--without", name, "--fork", small_run.name, store=root)
    assert done.code == 0 and f"making run {expected.fork}" in done.out, done.err
    after = keys(root, expected.fork)
    assert before - after == again and len(after) == len(before)
    ran = {entry.key for entry in Journal(root, expected.fork).latest() if entry.state == "ran"}
    assert ran == after - before
    rollout = name if kind == "document" else name.rpartition("-")[0]
    used = "rollouts where group_id" if kind == "document" else "generator_scores where rollout_id"
    assert query(root, f"select 1 from {used} = '{rollout}'", run=expected.fork) == []
    if kind == "document":
        told = compare(root, small_run.name, expected.fork)
        assert (told["first_difference"]["phase"], told["first_difference"]["iteration"]) == ("generate_questions", 1)
        assert [row["key"] for row in told["config"]] == ["corpus.exclude.documents"]


def test_a_textbook_takes_all_its_chunks_and_what_was_never_drawn_costs_nothing(small_run: SmallRun):
    books = "select source_id, count(*) as n from documents group by 1 order by 2 desc, 1"
    book = query(small_run.root, books, run=small_run.name)[0]
    found = plan_exclusion(small_run.root, small_run.name, book["source_id"])
    assert len(found.documents) == book["n"]
    assert found.config["corpus"]["exclude"]["sources"] == [book["source_id"]]
    drawn = "select group_id from rollouts where role = 'generator'"
    unused = f"select document_id from documents where document_id not in ({drawn}) order by 1"
    found = plan_exclusion(small_run.root, small_run.name, query(small_run.root, unused)[0]["document_id"])
    assert (list(found.affected), found.seconds) == ([], 0)
    assert "nothing of the run depends on it" in found.text(applied=False)


@pytest.mark.parametrize("name", ["none", "0/none/1-ab"])
def test_what_the_run_does_not_know_is_wrong_use(small_run: SmallRun, name: str):
    with pytest.raises(UsageError) as caught:
        plan_exclusion(small_run.root, small_run.name, name)
    assert caught.value.hint


def test_what_would_be_left_out_is_only_shown_unless_it_is_to_be_done(small_run: SmallRun, launch: Launcher):
    book = "select source_id from documents group by 1 order by 1"
    name = str(query(small_run.root, book, run=small_run.name)[0]["source_id"])
    shown = launch("run", "--without", name, "--fork", small_run.name, "--dry-run", "--json", store=small_run.root)
    found = plan_exclusion(small_run.root, small_run.name, name)
    assert shown.code == 0 and json.loads(shown.out) == found.to_json(), shown.err
    assert found.fork not in list_runs(small_run.root)
