"""Each baseline runs from its overlay to its end, and does what its name says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launcher import Launcher

from infuser_core.store.store import Store
from infuser_core.store.views import Lens

WIDE = "configs/nano-wide.yaml"
ONCE = ["--set", "cotrain.iterations=1", "--set", "cotrain.documents=3"]
LAB = {
    "r_zero": ["cotrain.turns=null"],
    "darc": ["cotrain.turns={generator: 1, solver: 1}", "cotrain.iterations=2"],
}
"""Turns are as short as the runs."""
Run = Callable[[str, str], Lens]


@pytest.fixture(scope="module")
def run(launch: Launcher, small_overlay: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs an overlay once; all of them share one store."""
    store = tmp_path_factory.mktemp("baselines")

    def start(overlay: str, name: str) -> Lens:
        own = [word for value in LAB.get(Path(overlay).stem, []) for word in ("--set", value)]
        ended = launch("run", WIDE, str(small_overlay), overlay, *ONCE, *own, "--name", name, store=store)
        assert ended.code == 0, ended.err
        return Lens(Store(store), runs=[name])

    yield start


@contextmanager
def baseline(run: Run, name: str) -> Iterator[Lens]:
    lens = run(f"configs/baseline/{name}.yaml", name.replace("_", "-"))
    yield lens
    lens.close()


def phases(lens: Lens) -> set[str]:
    return {row["phase"] for row in lens.query("select distinct phase from run_artifacts")}


def test_absolute_zero_poses_and_solves_its_three_tasks(run: Run):
    with baseline(run, "absolute_zero") as lens:
        asked = lens.query(
            "select q.verifier, sum(r.reward) as right, count(*) as answers from questions q "
            "join rollouts r on r.group_id = q.question_id group by q.verifier"
        )
        assert not {"chunk", "judge"} & phases(lens)
        assert lens.query("select distinct reward from generator_scores where reward < 0") in ([], [{"reward": -1.0}])
    assert {row["verifier"] for row in asked} == {"literal", "arguments", "code"}
    for row in asked:
        # The identity, which inputs are first written for, is no function that the anchor knows.
        assert 0 <= row["right"] < row["answers"] and (row["right"] or row["verifier"] == "code"), row


def test_r_zero_rewards_agreement_and_trains_on_middling_questions(run: Run):
    with baseline(run, "r_zero") as lens:
        assert not {"chunk", "judge", "dev_gradient"} & phases(lens)
        votes = lens.query(
            "select l.votes, sum(r.reward) as rewarded from pseudo_labels l "
            "join rollouts r on r.group_id = l.question_id group by l.question_id, l.votes"
        )
        (trained,) = lens.query("select sum(num_groups) as groups from updates where role = 'solver'")
        (middling,) = lens.query("select count(*) as groups from difficulties where accuracy between 0.3 and 0.8")
        (worth,) = lens.query("select max(reward) as most from generator_scores")
    assert votes
    assert all(row["votes"] == row["rewarded"] for row in votes)
    assert (trained["groups"] or 0) <= middling["groups"]
    assert worth["most"] < 1.0, "every question pays for itself at least"


@pytest.mark.long
def test_spice_rewards_the_variance_of_questions_from_documents(run: Run):
    with baseline(run, "spice") as lens:
        rewards = [row["reward"] for row in lens.query("select distinct reward from generator_scores")]
        assert "dev_gradient" not in phases(lens)
    assert all(reward == -0.1 or 0.04 < reward <= 1.0 for reward in rewards)


@pytest.mark.long
def test_r_few_mixes_problems_by_people_into_the_batch(run: Run):
    with baseline(run, "r_few") as lens:
        prompts = lens.query("select distinct len(prompt_token_ids) as n from rollouts where role = 'generator'")
        labelled = lens.query("select question_id from pseudo_labels where question_id like '0/p0-%'")
        assert not {"chunk", "judge"} & phases(lens)
        (inside,) = lens.query("select count(*) filter (inside) as n, count(*) as asked from difficulties")
    assert max(row["n"] for row in prompts) > 60, "examples stand before the task"
    assert labelled == [], "answers by people stand"
    assert 0 < inside["n"] <= inside["asked"]


@pytest.mark.long
def test_darc_updates_one_role_after_the_other_and_pays_for_the_accuracy_aimed_at(run: Run):
    with baseline(run, "darc") as lens:
        turns = lens.query("select distinct role, iteration from updates")
        paid = lens.query(
            "select g.reward, s.solver_accuracy as p, cast(q.grading::json->>'aim' as double) as aim from questions q "
            "join generator_scores g on g.rollout_id = q.rollout_id join scores s on s.question_id = q.question_id"
        )
        votes = lens.query("select votes, samples from pseudo_labels where label <> ''")
    assert {(row["role"], row["iteration"]) for row in turns} <= {("generator", 0), ("solver", 1)}
    assert len({row["aim"] for row in paid}) == 3
    for row in paid:
        assert row["reward"] == pytest.approx(1 - abs(row["p"] - row["aim"]) if row["p"] else -0.1)
    assert all(row["votes"] >= 0.3 * row["samples"] for row in votes)


@pytest.mark.long
def test_rlvr_has_no_generator(run: Run):
    with baseline(run, "rlvr") as lens:
        assert not {"chunk", "update_generator", "score_influence"} & phases(lens)
        (asked,) = lens.query("select count(*) as n, count(distinct document_id) as rows from questions")
    assert asked == {"n": 3, "rows": 3}
