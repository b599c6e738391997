"""Whatever has a name in the store can be asked about; what has none is wrong use."""

import json

import pytest
from launcher import Launcher, SmallRun

from infuser_core.errors import UsageError
from infuser_core.lineage.why import why
from infuser_core.store.views import Lens, Rows


def query(small_run: SmallRun, statement: str) -> Rows:
    lens = Lens(small_run.store, runs=[small_run.name])
    try:
        return lens.query(statement)
    finally:
        lens.close()


def test_a_checkpoint_is_found_by_iteration_key_and_id(small_run: SmallRun):
    rows = query(small_run, "select artifact_key, after_iterations, step from checkpoints where role = 'solver'")
    for row in rows:
        by_place = why(small_run.root, f"{small_run.name}@{row['after_iterations']}")
        by_key = why(small_run.root, row["artifact_key"], run=small_run.name)
        by_id = why(small_run.root, by_key.id, run=small_run.name)
        assert by_place == by_key == by_id
        assert by_key.kind == "checkpoint"
        path = by_key.passage("updates").rows
        assert len(path) == row["after_iterations"] + 1 and path[-1]["step"] == row["step"]
        assert path[0]["checkpoint"].startswith("anchor-")


def test_a_checkpoint_knows_what_it_scored(small_run: SmallRun):
    (scored,) = query(small_run, "select accuracy from benchmark_scores where phase = 'validate' and iteration = 2")
    answer = why(small_run.root, f"{small_run.name}@2")
    told = {row["phase"]: row["accuracy"] for row in answer.passage("scores").rows}
    assert told["validate"] == scored["accuracy"]


def test_no_checkpoint_lies_beyond_the_last_iteration(small_run: SmallRun):
    with pytest.raises(UsageError, match="no checkpoint after 3 iterations"):
        why(small_run.root, f"{small_run.name}@3")


def test_a_benchmark_tells_both_scores_and_the_questions_that_moved(small_run: SmallRun):
    answer = why(small_run.root, f"{small_run.name}/exam")
    rows = query(
        small_run,
        "select iteration, accuracy from benchmark_scores where benchmark = 'exam' order by iteration",
    )
    told = [(row["after_iterations"], row["accuracy"]) for row in answer.passage("scores").rows]
    assert told == [(row["iteration"], row["accuracy"]) for row in rows]
    moved = answer.passage("moved")
    first, last = (row["accuracy"] for row in (rows[0], rows[-1]))
    assert sum(row["change"] for row in moved.rows) == pytest.approx((last - first) * moved.facts["questions_compared"])


def test_a_benchmark_question_shows_every_answer_with_its_verdict(small_run: SmallRun):
    (row,) = query(small_run, "select question_id from question_scores where benchmark = 'exam' order by 1 limit 1")
    answer = why(small_run.root, f"{small_run.name}/exam/{row['question_id']}")
    expected = query(
        small_run,
        "select iteration, verdict from benchmark_answers where phase = 'evaluate' "
        f"and question_id = '{row['question_id']}' order by iteration",
    )
    told = answer.passage("answers").rows
    assert [(line["iteration"], line["verdict"]) for line in told] == [tuple(line.values()) for line in expected]
    assert told


def test_a_dev_question_shows_the_gradients_it_entered(small_run: SmallRun):
    (row,) = query(small_run, "select group_id from rollouts where phase = 'rollout_dev' order by 1 limit 1")
    answer = why(small_run.root, row["group_id"], run=small_run.name)
    assert [line["iteration"] for line in answer.passage("dev_gradient").rows] == [0, 1]
    assert len(answer.passage("answers").rows) == 8
    one = why(small_run.root, f"{row['group_id']}/2", run=small_run.name)
    assert one.passage("answer").facts["rollout_id"] == f"{row['group_id']}/2"


def test_a_document_tells_every_text_written_from_it(small_run: SmallRun):
    for row in query(
        small_run, "select group_id, count(*) as n from rollouts where role = 'generator' group by 1 order by 1"
    ):
        answer = why(small_run.root, row["group_id"], run=small_run.name)
        assert answer.kind == "document"
        assert len(answer.passage("texts").rows) == row["n"]


def test_a_textbook_counts_the_questions_written_from_its_chunks(small_run: SmallRun):
    for row in query(small_run, "select source_id, count(*) as n from question_history group by 1"):
        answer = why(small_run.root, row["source_id"], run=small_run.name)
        assert sum(line["questions"] for line in answer.passage("documents").rows) == row["n"]


def test_any_other_artifact_tells_what_it_was_made_from(small_run: SmallRun):
    (row,) = query(
        small_run, "select artifact_key from run_artifacts where phase = 'score_influence' and iteration = 1"
    )
    answer = why(small_run.root, row["artifact_key"], run=small_run.name)
    above = {line["artifact"].rpartition("-")[0] for line in answer.passage("made_from").rows}
    assert {"questions", "pool", "anchor", "generate_questions", "update_solver", "dev_gradient"} <= above


@pytest.mark.parametrize("name", ["nothing", "9/none/1", "9/none/1-abcdef", "small/none", "update_"])
def test_a_name_of_nothing_is_wrong_use(small_run: SmallRun, name: str):
    with pytest.raises(UsageError) as caught:
        why(small_run.root, name, run=small_run.name)
    assert caught.value.hint


def test_an_unknown_run_is_wrong_use(small_run: SmallRun):
    with pytest.raises(UsageError, match="no run named nowhere"):
        why(small_run.root, "anything", run="nowhere")


def test_the_command_prints_text_json_or_a_page(small_run: SmallRun, launch: Launcher, tmp_path):
    name = f"{small_run.name}@1"
    text = launch("why", name, store=small_run.root)
    assert text.code == 0 and text.out.startswith("checkpoint update_solver-"), text.err
    told = launch("why", name, "--json", store=small_run.root)
    assert json.loads(told.out)["kind"] == "checkpoint"
    page = launch("why", name, "--html", str(tmp_path / "page.html"), store=small_run.root)
    assert page.code == 0 and page.out == ""
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    wrong = launch("why", "nothing", store=small_run.root)
    assert wrong.code == 2 and wrong.err.startswith("infuser: nothing: no question")
