"""One SQL statement follows a document through rollout, question, answers, score and update, over all iterations."""

from collections.abc import Iterator

import pytest
from launcher import SmallRun

from infuser_core.store.views import Lens

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
