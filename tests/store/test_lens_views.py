"""SQL sees the rows of committed artifacts with the run and iteration they belong to."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from infuser_core.errors import MissingArtifactError, UsageError
from infuser_core.schemas import AuditFact, Topic
from infuser_core.store.journal import Journal
from infuser_core.store.recipe import Recipe
from infuser_core.store.runs import create_run
from infuser_core.store.store import Outcome, Store, Table
from infuser_core.store.views import TABLES, Lens


def record(store: Store, run: str, iteration: int, values: list[float], *, state: str = "ran") -> str:
    """One artifact of a run, in the store and in its journal."""
    recipe = Recipe(phase="audit", version=1, config={"values": values}, seed=0, iteration=iteration)
    rows = [AuditFact(name=f"fact {number}", value=value) for number, value in enumerate(values)]
    with store.exclusive(recipe):
        ref = store.find(recipe)
        if ref is None:
            with store.workspace(recipe) as workspace:
                outcome = Outcome(tables={"audit_summary": Table(row_type=AuditFact, rows=rows)})
                ref = store.commit(recipe, workspace, outcome, seconds=0.0)
    if not (store.root / "runs" / run / "run.json").exists():
        create_run(store.root, run, {})
    journal = Journal(store.root, run)
    journal.start_attempt()
    journal.append(phase="audit", iteration=iteration, state=state, seconds=0.0, key=ref.key, digest=ref.digest)
    return ref.key


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderUpdate:
    """Columns that a store written before the others existed may hold of `updates`."""

    role: str
    step: int
    loss: float


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    record(store, "one", 0, [1.0, 2.0])
    record(store, "one", 1, [3.0])
    record(store, "other", 0, [4.0])
    return store


def query(store: Store, statement: str, *parameters: object, runs: list[str] | None = None) -> list[dict]:
    lens = Lens(store, runs=runs)
    try:
        return lens.query(statement, parameters)
    finally:
        lens.close()


def test_rows_carry_run_iteration_and_artifact(store: Store):
    rows = query(store, "select run, iteration, phase, value from audit_summary order by value")
    assert [tuple(row.values()) for row in rows] == [
        ("one", 0, "audit", 1.0),
        ("one", 0, "audit", 2.0),
        ("one", 1, "audit", 3.0),
        ("other", 0, "audit", 4.0),
    ]
    (key,) = {row["artifact_key"] for row in query(store, "select * from audit_summary where iteration = 1")}
    assert key.startswith("audit-")


def test_a_run_can_be_singled_out(store: Store):
    assert query(store, "select value from audit_summary", runs=["other"]) == [{"value": 4.0}]
    assert query(store, "select count(*) as n from run_artifacts", runs=["one"]) == [{"n": 2}]


def test_parameters_are_values_not_text(store: Store):
    assert query(store, "select run from audit_summary where run = ?", "x' or '1'='1") == []


def test_runs_that_share_an_artifact_both_see_its_rows(store: Store):
    record(store, "third", 0, [4.0], state="cached")
    rows = query(store, "select run from audit_summary where value = 4 order by run")
    assert [row["run"] for row in rows] == ["other", "third"]


def test_every_table_can_be_selected_from_an_empty_store(tmp_path: Path):
    lens = Lens(Store(tmp_path))
    for table in TABLES:
        assert lens.query(f'select run, iteration, phase, artifact_key, * from "{table}"') == []
    assert set(TABLES) <= set(lens.views())
    lens.close()


def test_a_failed_stage_has_no_rows(store: Store, tmp_path: Path):
    journal = Journal(tmp_path, "one")
    journal.start_attempt()
    journal.append(phase="audit", iteration=5, state="failed", seconds=0.0, key="audit-none", message="broken")
    assert query(store, "select max(iteration) as last from run_artifacts") == [{"last": 1}]


def test_a_lost_artifact_is_refused_unless_only_former_attempts_knew_it(store: Store, tmp_path: Path):
    journal = Journal(tmp_path, "one")
    journal.start_attempt()
    journal.append(phase="audit", iteration=6, state="ran", seconds=0.0, key="audit-removed", digest="00")
    with pytest.raises(MissingArtifactError, match="audit-removed"):
        query(store, "select max(iteration) as last from run_artifacts")
    record(store, "one", 1, [3.0], state="cached")
    assert query(store, "select max(iteration) as last from run_artifacts") == [{"last": 1}]


@pytest.mark.parametrize(
    "statement",
    ["select * from nowhere", "selec 1", "select cast('a' as int)", "select nothing from topics", "", "-- a comment"],
)
def test_a_statement_that_cannot_run_is_wrong_use(store: Store, statement: str):
    with pytest.raises(UsageError) as caught:
        query(store, statement)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_the_store_stays_as_it_was(store: Store, tmp_path: Path):
    before = sorted(path for path in tmp_path.rglob("*"))
    query(store, "create table scratch as select * from audit_summary")
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_columns_missing_in_older_artifacts_are_null(store: Store):
    recipe = Recipe(phase="taxonomy", version=1, config={}, seed=0)
    with store.workspace(recipe) as workspace:
        rows = [Topic(domain="Physics", subdomain="Optics", num_questions=1)]
        outcome = Outcome(tables={"audit_summary": Table(row_type=Topic, rows=rows)})
        ref = store.commit(recipe, workspace, outcome, seconds=0.0)
    journal = Journal(store.root, "one")
    journal.start_attempt()
    journal.append(phase="taxonomy", iteration=-1, state="ran", seconds=0.0, key=ref.key, digest=ref.digest)
    rows = query(store, "select value, domain from audit_summary where phase = 'taxonomy'")
    assert json.dumps(rows) == '[{"value": null, "domain": "Physics"}]'


def test_columns_that_older_files_lack_are_nulls(store: Store):
    recipe = Recipe(phase="update_solver", version=1, config={}, seed=0, iteration=0)
    rows = [OlderUpdate(role="solver", step=1, loss=0.5)]
    with store.exclusive(recipe), store.workspace(recipe) as workspace:
        outcome = Outcome(tables={"updates": Table(row_type=OlderUpdate, rows=rows)})
        ref = store.commit(recipe, workspace, outcome, seconds=0.0)
    journal = Journal(store.root, "one")
    journal.start_attempt()
    journal.append(phase="update_solver", iteration=0, state="ran", seconds=0.0, key=ref.key, digest=ref.digest)
    (row,) = query(store, "select role, loss, entropy, sampler_kl, skipped from updates")
    assert row == {"role": "solver", "loss": 0.5, "entropy": None, "sampler_kl": None, "skipped": None}


def test_a_statement_may_name_the_journals_beside_a_table_that_stands_on_them(store: Store):
    joined = "select count(*) as n from audit_summary s join run_artifacts l using (artifact_key)"
    assert query(store, joined) == [{"n": 4}]
