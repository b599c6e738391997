"""A run with an adaptive budget: its stage reads the iterations before, survives a kill, and stands in the report."""

import signal
from pathlib import Path

import pytest
from crash_points import repeated
from launcher import Launcher, SmallRun, copy_store

from infuser_core.store.journal import Journal
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

BANDIT = ["--set", "cotrain.budget.mode=bandit", "--set", "cotrain.budget.by=source_id", "--name", "shared"]


@pytest.fixture(scope="module")
def store(launch: Launcher, small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's store; it was killed in the second allocation and resumed."""
    store = copy_store(small_run.root, tmp_path_factory.mktemp("budget") / "store")
    arguments = [*small_run.arguments[:3], "--set", "cotrain.iterations=3", *BANDIT]
    killed = launch(*arguments, store=store, INFUSER_CRASH_AT="allocate:before_commit")
    assert killed.code == -signal.SIGKILL, killed
    ended = launch(*arguments, store=store)
    assert ended.code == 0, ended.err
    return store


def rows(store: Path, sql: str) -> list[dict]:
    lens = Lens(Store(store), runs=["shared"])
    try:
        return lens.query(sql)
    finally:
        lens.close()


def test_every_batch_is_what_its_allocation_says(store: Path):
    planned = rows(store, "select iteration, arm, count as n from allocations where count > 0 order by all")
    drawn = rows(
        store,
        """select r.iteration, d.source_id as arm, count(distinct r.group_id) as n
        from rollouts r join documents d on d.document_id = r.group_id where r.role = 'generator' group by all
        order by all""",
    )
    assert planned == drawn
    assert {row["iteration"] for row in planned} == {0, 1, 2}


def test_an_allocation_reads_the_scores_before_it(store: Path):
    refs = {ref.key: ref for ref in Store(store).refs()}
    found = {(entry.phase, entry.iteration): refs[entry.key] for entry in Journal(store, "shared").latest()}
    inputs = Store(store).manifest(found["allocate", 2]).recipe["inputs"]
    assert set(inputs) == {"pool"} | {
        f"{name}{ago}" for name in ("allocation", "questions", "scores") for ago in (1, 2)
    }
    assert inputs["scores1"] == found["score_influence", 1].id
    assert inputs["scores2"] == found["score_influence", 0].id
    measured = rows(store, "select iteration, sum(pulls)::int as pulls from allocations group by all order by all")
    assert [row["pulls"] > 0 for row in measured] == [False, True, True]
    assert (
        Store(store).manifest(found["generate_questions", 2]).recipe["inputs"]["allocation"] == found["allocate", 2].id
    )


def test_nothing_is_computed_twice_after_a_kill(launch: Launcher, small_run: SmallRun, store: Path):
    assert repeated(store, "shared") == []
    told = launch("resume", "shared", "--dry-run", store=store)
    assert told.code == 0, told.err
    assert "stages are cached" in told.out.splitlines()[0]


def test_a_plan_knows_the_stage(launch: Launcher, small_run: SmallRun, store: Path):
    other = ["--set", "cotrain.iterations=3", *BANDIT[:-1], "other", "--set", "cotrain.budget.exploration=3"]
    told = launch(*small_run.arguments[:3], *other, "--dry-run", store=store)
    assert told.code == 0, told.err
    assert "allocate, iteration 0" in told.out
    assert "cotrain.budget.exploration" in told.out


def test_the_report_shows_the_shares(store: Path):
    report = (store / "runs" / "shared" / "report" / "report.md").read_text()
    assert "## Budget of documents" in report
    assert "doi:10.5555/nano.1" in report.partition("## Budget of documents")[2]


def test_why_explains_the_stage(launch: Launcher, store: Path):
    key = rows(store, "select artifact_key from run_artifacts where phase = 'allocate' and iteration = 2")
    told = launch("why", key[0]["artifact_key"], store=store)
    assert told.code == 0, told.err
    assert "score_influence" in told.out
