"""A run on chunks and given problems, and one on problems alone: rows, rewards, keys and stories fit together."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from launcher import Launcher, SmallRun, copy_store

from infuser_core.results.lineage.why import why
from infuser_core.store.catalogue import Catalogue
from infuser_core.store.store import Store
from infuser_core.store.views import Lens, Rows

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
