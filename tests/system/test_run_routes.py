"""Runs by other routes and baselines through the whole pipeline."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from launcher import Launcher, SmallRun, copy_store

from infuser_core.results.lineage.why import why
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.store import Store
from infuser_core.store.views import Lens, Rows

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


NANO = "configs/nano.yaml"
PROBLEMS = {"problems": [{"source": {"type": "nano", "split": "train", "size": 12}, "count": 400}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Two finished runs in one store."""

    root: Path
    """The store."""
    lens: Lens
    """SQL over it."""

    def rows(self, sql: str, run: str = "hybrid") -> Rows:
        """Rows of one statement about a run."""
        return self.lens.query(sql, [run])


@pytest.fixture(scope="module")
def runs(launch: Launcher, small_run: SmallRun, small_overlay: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("hybrid")
    root = copy_store(small_run.root, folder / "store", without=("update_solver", "update_generator"))
    loops = {
        "hybrid": {"iterations": 1, "documents": 8, "mid_eos_penalty": -0.5},
        "alone": {"iterations": 1, "documents": 8, "route": "direct", "generator": {"update": False}},
    }
    for name, loop in loops.items():
        overlay = folder / f"{name}.yaml"
        overlay.write_text(yaml.safe_dump({"data": PROBLEMS, "cotrain": loop}))
        ended = launch("run", NANO, str(small_overlay), str(overlay), "--name", name, store=root)
        assert ended.code == 0, ended.err
    return Runs(root=root, lens=Lens(Store(root)))


def test_the_batch_has_chunks_and_problems(runs: Runs):
    (counts,) = runs.rows(
        "select count(*) filter (rollout_id = '') as given, count(distinct document_id) as documents "
        "from questions where run = ?"
    )
    assert 0 < counts["given"] < counts["documents"] <= 8


def test_every_question_is_answered_and_only_written_ones_are_scored(runs: Runs):
    answers = runs.rows(
        "select q.rollout_id = '' as given, count(*) as n, count(distinct q.question_id) as questions from questions q "
        "join solver_answers a on a.run = q.run and a.question_id = q.question_id where q.run = ? group by 1"
    )
    assert [row["n"] for row in answers] == [4 * row["questions"] for row in answers] and len(answers) == 2
    scored = runs.rows(
        "select q.rollout_id = '' as given, s.score from questions q "
        "left join scores s on s.run = q.run and s.question_id = q.question_id where q.run = ?"
    )
    assert {(row["given"], row["score"] is None) for row in scored} == {(True, True), (False, False)}


def test_given_problems_are_no_valid_texts_of_the_generator(runs: Runs):
    (counts,) = runs.rows("select count(*) filter (rollout_id <> '') as written from questions where run = ?")
    (key,) = runs.rows("select artifact_key from run_artifacts where run = ? and phase = 'generate_questions'")
    summary = Catalogue(runs.root).record(key["artifact_key"]).summary
    assert summary["valid"] == counts["written"] <= summary["written"]


def test_the_generators_groups_are_documents_alone(runs: Runs):
    groups = runs.rows("select distinct document_id from generator_scores where run = ?")
    written = runs.rows("select distinct group_id from rollouts where role = 'generator' and run = ?")
    assert {row["document_id"] for row in groups} == {row["group_id"] for row in written}
    assert not any(row["document_id"].startswith("p0-") for row in groups)


def test_a_chunk_stands_once_among_the_documents(runs: Runs):
    (counts,) = runs.rows("select count(*) as n, count(distinct document_id) as names from documents where run = ?")
    assert counts["n"] == counts["names"] > 400


def test_problems_alone_need_no_corpus(runs: Runs):
    phases = {row["phase"] for row in runs.rows("select distinct phase from run_artifacts where run = ?", "alone")}
    corpus = {"taxonomy", "textbooks", "search", "convert", "chunk", "judge", "audit", "pool"}
    assert not phases & {*corpus, "rollout_dev", "score_influence", "update_generator"}
    (update,) = runs.rows("select sum(num_groups) as groups from updates where run = ?", "alone")
    assert update["groups"] > 0


@pytest.mark.parametrize("run", ["hybrid", "alone"])
def test_a_given_question_has_its_story(runs: Runs, run: str):
    row = runs.rows("select question_id, document_id from questions where run = ? and rollout_id = ''", run)[0]
    answer = why(runs.root, row["question_id"], run=run)
    names = [passage.name for passage in answer.passages]
    assert names == ["document", "question", "answers", "influence", "updates", "validation"]
    assert f"given in iteration 0 by row {row['document_id']}" in answer.headline
    solver = why(runs.root, f"{row['question_id']}/0", run=run)
    assert solver.kind == "solver rollout"
    told = why(runs.root, row["document_id"], run=run)
    assert told.kind == "document" and "1 of them questions" in told.headline


def test_the_same_run_finds_everything_again(runs: Runs, launch: Launcher, small_overlay: Path):
    ended = launch("resume", "hybrid", store=runs.root)
    assert ended.code == 0, ended.err
    assert "0 ran" in ended.out
