"""A run that does not wait for every answer: killed and resumed it has the same bits, every token drawn once."""

import signal
from contextlib import closing
from pathlib import Path

from fault_tools import store_without
from launcher import Launcher, SmallRun

from infuser_core.store.store import Store
from infuser_core.store.views import Lens

PARTIAL = ("--set", "cotrain.rollout_share=0.6", "--set", "cotrain.iterations=3")
ONCE = """
    with drawn as (
        select rollout_id, sum(tokens) as tokens, count(*) as parts, count(distinct start) as starts
        from segments group by rollout_id
    ), answers as (
        select rollout_id, len(token_ids) as tokens from rollouts where phase = 'rollout_questions'
        union all
        select rollout_id, len(token_ids) from waiting_rollouts where iteration = 2
    )
    select count(*) as answers, count(distinct a.rollout_id) as different,
           count(*) filter (where d.tokens = a.tokens and d.parts = d.starts) as whole
    from answers a left join drawn d using (rollout_id)
"""
ASKED = "select count(*) * 4 as asked from questions"


def test_a_killed_run_goes_on_and_draws_every_token_once(launch: Launcher, small_run: SmallRun, tmp_path: Path):
    stores = [store_without(small_run, tmp_path / name, "rollout_questions") for name in ("whole", "killed")]
    ended = launch(*small_run.arguments, *PARTIAL, store=stores[0])
    assert ended.code == 0, ended.err
    first = launch(*small_run.arguments, *PARTIAL, "--until", "update_solver@1", store=stores[1])
    assert first.code == 0, first.err
    for point in ("rollout_questions:inside", "rollout_questions:before_rename", "update_generator:after_rename"):
        killed = launch("resume", "small", store=stores[1], INFUSER_CRASH_AT=point)
        assert killed.code == -signal.SIGKILL, killed
    resumed = launch("resume", "small", store=stores[1])
    assert resumed.code == 0, resumed.err
    assert launch("digest", "small", store=stores[0]).out == launch("digest", "small", store=stores[1]).out

    with closing(Lens(Store(stores[1]), runs=["small"])) as lens:
        ((found,), (asked,)) = lens.query(ONCE), lens.query(ASKED)
        waited = lens.query("select count(*) as late from segments where start > 0")
    assert found["answers"] == found["different"] == found["whole"] == asked["asked"]
    assert waited[0]["late"] > 0
