"""SQL reads the rows of committed artifacts with their run and iteration, and nothing else."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher import SmallRun
from places import ROOT

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


JOURNEY = """
select t.iteration, d.document_id, t.rollout_id, q.question_id, s.score, s.solver_accuracy, g.reward, g.advantage,
       count(*) as answers, avg(a.reward) as accuracy
from rollouts t
join documents d on d.document_id = t.group_id and d.run = t.run
join questions q on q.rollout_id = t.rollout_id and q.run = t.run
join scores s on s.question_id = q.question_id and s.run = t.run
join generator_scores g on g.rollout_id = t.rollout_id and g.run = t.run
join rollouts a on a.group_id = q.question_id and a.run = t.run and a.phase = 'rollout_questions'
where t.role = 'generator'
group by all order by t.iteration, t.rollout_id
"""


@pytest.fixture(scope="module")
def lens(small_run: SmallRun) -> Iterator[Lens]:
    found = Lens(small_run.store, runs=["small"])
    yield found
    found.close()


def test_every_question_of_every_iteration_is_joined_to_what_became_of_it(lens: Lens):
    rows = lens.query(JOURNEY)
    (questions,) = lens.query("select count(*) as n from questions")
    assert len(rows) == questions["n"] > 0
    assert {row["iteration"] for row in rows} == {0, 1}
    for row in rows:
        assert row["answers"] == 4
        assert row["accuracy"] == row["solver_accuracy"]
        assert row["reward"] == row["score"]


def test_steps_of_both_roles_add_up_over_iterations(lens: Lens):
    rows = lens.query("select role, iteration, step from updates where not skipped order by role, iteration, step")
    for role in ("generator", "solver"):
        steps = [row["step"] for row in rows if row["role"] == role]
        assert steps == list(range(1, len(steps) + 1))
    assert {row["role"] for row in rows} == {"generator", "solver"}


def test_every_stage_of_the_run_stands_in_one_table(lens: Lens):
    rows = lens.query("select phase, iteration, rows from run_artifacts where phase = 'rollout_dev' order by iteration")
    assert [(row["iteration"], row["rows"]) for row in rows] == [(0, 32), (1, 32)]


def test_a_run_filter_leaves_the_others_out(small_run: SmallRun):
    every = Lens(small_run.store)
    runs = {row["run"] for row in every.query("select distinct run from rollouts")}
    shared = every.query("select artifact_key from run_artifacts where phase = 'pool'")
    every.close()
    assert runs == {"small", "fixed"}
    assert len(shared) == 2 and len({row["artifact_key"] for row in shared}) == 1, "both runs have the one pool"


def test_every_discarded_span_has_its_reason(lens: Lens):
    (facts,) = lens.query(
        "select count(*) as dropped, count(*) filter (where reason = '') as silent from judgements where not keep"
    )
    assert facts["dropped"] > 0 and facts["silent"] == 0


QUESTIONS = "select count(*) as n from questions"


def asked(root: Path, statement: str) -> list[dict[str, object]]:
    lens = Lens(Store(root))
    try:
        return lens.query_untrusted(statement)
    finally:
        lens.close()


@pytest.mark.parametrize(
    "statement",
    [
        QUESTIONS,
        f"explain {QUESTIONS}",
        f"explain analyze {QUESTIONS}",
        "show tables",
        "describe questions",
        "summarize scores",
        "from questions limit 1",
        "pivot questions on iteration using count(*)",
    ],
)
def test_statements_that_read_are_answered(small_run: SmallRun, statement: str):
    assert len(asked(small_run.root, statement)) > 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("copy (select 1) to '{file}'", "COPY"),
        ("explain analyze copy (select 1) to '{file}'", "EXPLAIN COPY"),
        ("/* */ explain analyze copy (select 1) to '{file}'", "EXPLAIN"),
        ("select 1; copy (select 1) to '{file}'", "COPY"),
        ("export database '{file}'", "EXPORT"),
        ("attach '{file}'", "ATTACH"),
        ("install httpfs", "LOAD"),
        ("set enable_external_access = true", "SET"),
        ("select * from read_text('/etc/passwd')", "Permission Error"),
        ("select * from read_blob('/proc/self/environ')", "Permission Error"),
        ("select * from '{other}'", "Permission Error"),
        ("pragma enable_external_access = true", "SET"),
    ],
)
def test_no_statement_writes_or_reads_elsewhere(small_run: SmallRun, tmp_path: Path, statement: str, said: str):
    other = next(small_run.root.glob("artifacts/*/*/artifact.json"), None) or next(small_run.root.rglob("*.json"))
    file = next(small_run.root.rglob("questions.parquet"))
    before = file.read_bytes()
    with pytest.raises(UsageError, match=said):
        asked(small_run.root, f"{statement.format(file=file, other=other)}")
    assert file.read_bytes() == before


PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def page_lens(small_run: SmallRun) -> Iterator[Lens]:
    found = Lens(small_run.store)
    yield found
    found.close()


def test_there_are_five() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("number", range(5))
def test_every_example_answers_with_rows(page_lens: Lens, number: int) -> None:
    assert page_lens.query(EXAMPLES[number])


def test_every_view_of_the_page_exists_and_every_joined_view_stands_on_the_page(page_lens: Lens) -> None:
    tables = PAGE.partition("\n## Costs of passes\n")[0]
    named = {name for line in tables.splitlines() if line.startswith("| `") for name in re.findall(
        r"`([a-z_]+)`", line.split("|")[1]
    )}  # fmt: skip
    assert named <= set(page_lens.views())
    assert {
        "question_history",
        "solver_answers",
        "benchmark_answers",
        "checkpoints",
        "artifacts",
        "artifact_inputs",
    } <= named


def test_a_question_history_has_one_row_per_question(page_lens: Lens) -> None:
    counts = [page_lens.query(f"select count(*) as n from {view}") for view in ("question_history", "questions")]
    assert counts[0] == counts[1] != [{"n": 0}]


def test_every_benchmark_answer_has_one_verdict(page_lens: Lens) -> None:
    (row,) = page_lens.query("select count(*) as n, count(verdict) as judged from benchmark_answers")
    (tally,) = page_lens.query("select sum(num_samples) as n from question_scores")
    assert row["n"] == row["judged"] == tally["n"]


def test_a_listing_shows_every_view(page_lens: Lens) -> None:
    assert set(page_lens.views()) <= {row["name"] for row in page_lens.query("show tables")}
