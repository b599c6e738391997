"""A run without a document or a question: computed again is what depends on it, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest
from launcher import Launcher, SmallRun, copy_store

from infuser_core.errors import UsageError
from infuser_core.lineage.graph import Graph, graph_of
from infuser_core.lineage.undo import plan
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.runs import Journal
from infuser_core.store.views import Lens, Rows


def query(root: Path, run: str, statement: str) -> Rows:
    lens = Lens(Catalogue(root), runs=[run])
    try:
        return lens.query(statement)
    finally:
        lens.close()


@pytest.fixture
def root(small_run: SmallRun, tmp_path: Path) -> Path:
    """A store of one's own with the same run."""
    target = copy_store(small_run.root, tmp_path / "store")
    shutil.copytree(small_run.root / "runs" / small_run.name, target / "runs" / small_run.name)
    return target


def graph(root: Path, run: str) -> Graph:
    return graph_of(Catalogue(root), run)


def last_document(root: Path, run: str) -> str:
    """A document that is drawn in the last iteration alone."""
    rows = query(
        root,
        run,
        "select group_id from rollouts where role = 'generator' group by 1 having min(iteration) = 1 order by 1",
    )
    return str(rows[0]["group_id"])


def ran(root: Path, run: str) -> set[str]:
    return {entry.key for entry in Journal(root, run).latest() if entry.state == "ran"}


def test_a_document_of_the_last_iteration_leaves_the_first_alone(small_run: SmallRun, root: Path, launch: Launcher):
    name = last_document(root, small_run.name)
    expected = plan(root, small_run.name, document=name)
    assert {record.iteration for record in expected.affected if record.phase == "generate_questions"} == {1}
    assert expected.seconds == sum(record.seconds for record in expected.affected) > 0
    assert expected.reused + len(expected.affected) == len(graph(root, small_run.name).records)

    done = launch("undo", "--document", name, "--run", small_run.name, "--apply", store=root)
    assert done.code == 0, done.err
    assert f"making run {expected.fork}" in done.out
    before, after = graph(root, small_run.name), graph(root, expected.fork)
    again = {record.key for record in expected.affected}
    assert set(before.records) - set(after.records) == again
    assert ran(root, expected.fork) == set(after.records) - set(before.records)
    assert len(after.records) == len(before.records)
    (found,) = query(root, expected.fork, f"select count(*) as n from rollouts where group_id = '{name}'")
    assert found["n"] == 0
    told = json.loads(launch("diff", small_run.name, expected.fork, "--json", store=root).out)
    assert (told["first_difference"]["phase"], told["first_difference"]["iteration"]) == ("generate_questions", 1)
    assert [row["key"] for row in told["config"]] == ["corpus.exclude.documents"]


def test_a_question_changes_the_two_updates_that_it_entered(small_run: SmallRun, root: Path, launch: Launcher):
    rows = query(root, small_run.name, "select question_id from question_history where iteration = 1 and score <> 0")
    name = str(rows[0]["question_id"])
    expected = plan(root, small_run.name, question=name)
    phases = [record.phase for record in expected.affected if record.iteration == 1]
    assert phases == ["update_generator", "update_solver"]

    done = launch("undo", "--question", name, "--run", small_run.name, "--apply", "--json", store=root)
    assert done.code == 0, done.err
    before, after = graph(root, small_run.name), graph(root, expected.fork)
    assert set(before.records) - set(after.records) == {record.key for record in expected.affected}
    assert ran(root, expected.fork) == set(after.records) - set(before.records)
    rollout = name.rpartition("-")[0]
    (found,) = query(root, expected.fork, f"select count(*) as n from generator_scores where rollout_id = '{rollout}'")
    assert found["n"] == 0


def test_a_textbook_takes_all_its_chunks(small_run: SmallRun):
    (book,) = query(
        small_run.root,
        small_run.name,
        "select source_id, count(*) as n from documents group by 1 order by 2 desc limit 1",
    )
    found = plan(small_run.root, small_run.name, source=book["source_id"])
    assert len(found.documents) == book["n"]
    assert found.config["corpus"]["exclude"]["sources"] == [book["source_id"]]


def test_what_was_never_drawn_costs_nothing(small_run: SmallRun):
    (row,) = query(
        small_run.root, small_run.name,
        "select document_id from documents where document_id not in "
        "(select group_id from rollouts where role = 'generator') order by 1 limit 1",
    )  # fmt: skip
    found = plan(small_run.root, small_run.name, document=row["document_id"])
    assert (list(found.affected), found.seconds) == ([], 0)
    assert "nothing of the run depends on it" in found.text(applied=False)


@pytest.mark.parametrize(
    "named",
    [{}, {"source": "a", "question": "b"}, {"source": "none"}, {"document": "none"}, {"question": "0/none/1-ab"}],
)
def test_what_the_run_does_not_know_is_wrong_use(small_run: SmallRun, named: dict[str, str]):
    with pytest.raises(UsageError) as caught:
        plan(small_run.root, small_run.name, **named)
    assert caught.value.hint
