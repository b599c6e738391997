"""Each baseline runs from its overlay to its end, and does what its name says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launcher import Launcher

from infuser_core.routes.program import evaluate
from infuser_core.store.store import Store
from infuser_core.store.views import Lens

WIDE = "configs/nano-wide.yaml"
ONCE = ["--set", "cotrain.iterations=1", "--set", "cotrain.documents=3"]
Run = Callable[[str, str], Lens]


@pytest.fixture(scope="module")
def run(launch: Launcher, small_overlay: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs an overlay once; all of them share one store."""
    store = tmp_path_factory.mktemp("baselines")

    def start(overlay: str, name: str) -> Lens:
        ended = launch("run", WIDE, str(small_overlay), overlay, *ONCE, "--name", name, store=store)
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


def test_absolute_zero_asks_for_the_values_of_programs(run: Run):
    with baseline(run, "absolute_zero") as lens:
        asked = lens.query("select text, answer from questions")
        assert not {"chunk", "judge"} & phases(lens)
        assert lens.query("select distinct reward from generator_scores where reward < 0") in ([], [{"reward": -1.0}])
    assert asked
    for row in asked:
        assert str(evaluate(row["text"].removeprefix("What is ").removesuffix("?"))) == row["answer"]


def test_r_zero_rewards_agreement_and_trains_on_middling_questions(run: Run):
    with baseline(run, "r_zero") as lens:
        assert not {"chunk", "judge", "dev_gradient"} & phases(lens)
        votes = lens.query(
            "select l.votes, sum(r.reward) as rewarded from pseudo_labels l "
            "join rollouts r on r.group_id = l.question_id group by l.question_id, l.votes"
        )
        (trained,) = lens.query("select sum(num_groups) as groups from updates where role = 'solver'")
        (middling,) = lens.query("select count(*) as groups from difficulties where accuracy between 0.25 and 0.75")
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
    assert max(row["n"] for row in prompts) > 60, "examples stand before the document"
    assert labelled == [], "answers by people stand"


@pytest.mark.long
def test_rlvr_has_no_generator(run: Run):
    with baseline(run, "rlvr") as lens:
        assert not {"chunk", "update_generator", "score_influence"} & phases(lens)
        (asked,) = lens.query("select count(*) as n, count(distinct document_id) as rows from questions")
    assert asked == {"n": 3, "rows": 3}
