"""`infuser why`: whatever has a name in the store can be asked about, and the answer is what the rows say."""

import json
from functools import partial

import pytest
from launcher import Launcher, SmallRun
from small_store import query

from infuser_core.errors import UsageError
from infuser_core.results.lineage.pages import to_html
from infuser_core.results.lineage.story import Passage, Story, to_text
from infuser_core.results.lineage.why import why
from infuser_core.schemas import Document, GeneratorScore, InfluenceScore, Page, Question, Rollout, Update
from infuser_core.store.views import Rows

PASSAGES = [
    "source", "document", "judgement", "generator", "question", "answers", "influence", "reward", "updates",
    "validation",
]  # fmt: skip


@pytest.fixture
def ask(small_run: SmallRun) -> partial[Story]:
    return partial(why, small_run.root, run=small_run.name)


@pytest.fixture
def sql(small_run: SmallRun) -> partial[Rows]:
    return partial(query, small_run.root, run=small_run.name)


def facts(answer: Story, name: str) -> dict:
    return dict(answer.passage(name).facts)


def rows_of(small_run: SmallRun, phase: str, iteration: int, table: str, row_type: type) -> list:
    (ref,) = [
        ref for ref in small_run.store.refs()
        if ref.kind == phase and small_run.store.manifest(ref).recipe["iteration"] == iteration
        and query(small_run.root, f"select 1 from run_artifacts where artifact_key = '{ref.key}'", run=small_run.name)
    ]  # fmt: skip
    return small_run.store.rows(ref, table, row_type)


@pytest.mark.parametrize("iteration", [0, 1])
def test_a_questions_story_is_whole_and_its_facts_are_the_rows_of_the_store(small_run: SmallRun, ask, iteration: int):
    questions = rows_of(small_run, "generate_questions", iteration, "questions", Question)
    written = rows_of(small_run, "generate_questions", iteration, "rollouts", Rollout)
    scores = rows_of(small_run, "score_influence", iteration, "scores", InfluenceScore)
    rewards = rows_of(small_run, "update_generator", iteration, "generator_scores", GeneratorScore)
    answered = rows_of(small_run, "rollout_questions", iteration, "rollouts", Rollout)
    updates = rows_of(small_run, "update_solver", iteration, "updates", Update)
    entered = 0
    assert questions
    for question, score in zip(questions, scores, strict=True):
        answer = ask(question.question_id)
        assert (answer.kind, [passage.name for passage in answer.passages]) == ("question", PASSAGES)
        (rollout,) = [row for row in written if row.rollout_id == question.rollout_id]
        (reward,) = [row for row in rewards if row.rollout_id == question.rollout_id]
        assert facts(answer, "question")["answer"] == question.answer
        assert facts(answer, "generator")["checkpoint_id"] == rollout.checkpoint_id
        assert answer.passage("generator").texts["text"] == rollout.text
        for name in ("score", "cosine", "direction_norm", "gradient_norm", "reference_norm", "status"):
            assert facts(answer, "influence")[name] == getattr(score, name)
        assert facts(answer, "reward") == {n: getattr(reward, n) for n in ("reward", "advantage", "trained")}
        mine = [row for row in answered if row.group_id == question.question_id]
        told = answer.passage("answers").rows
        assert [(row["rollout_id"], row["reward"], row["text"]) for row in told] == [
            (row.rollout_id, row.reward, row.text) for row in mine
        ]
        (used,) = [line for line in answer.passage("updates").rows if line["role"] == "solver"]
        entered += used["entered"]
        assert used["why_not"] == ("" if len({row.reward for row in mine}) > 1 else "all answers had the same reward")
    assert entered == sum(update.num_groups for update in updates)


def test_the_page_is_where_the_chunk_lies_in_the_book(small_run: SmallRun, ask, sql):
    row = sql("select question_id, document_id from questions order by 1")[0]
    answer = ask(row["question_id"])
    documents = rows_of(small_run, "pool", -1, "documents", Document)
    (document,) = [each for each in documents if each.document_id == row["document_id"]]
    pages = rows_of(small_run, "convert", -1, "pages", Page)
    (page,) = [each for each in pages if each.source_id == document.source_id]
    numbers = [n + 1 for n, start in enumerate(page.page_starts) if start <= document.start]
    assert str(facts(answer, "document")["page"]).split("-")[0] == str(numbers[-1])
    assert page.markdown[document.start : document.end] == answer.passage("document").texts["text"]
    assert facts(answer, "source")["source_id"] == document.source_id


def test_a_text_that_is_no_question_says_why(ask, sql):
    rows = sql("select rollout_id, malformed_reason from rollouts where malformed_reason <> ''")
    assert rows
    for row in rows:
        answer = ask(row["rollout_id"])
        assert answer.kind == "generator rollout" and answer.passage("question") is None
        assert answer.headline == f"no question: {row['malformed_reason']}"


def test_an_answer_is_told_with_its_question(ask, sql):
    row = sql("select rollout_id, question_id, verdict from solver_answers order by 1")[0]
    answer = ask(row["rollout_id"])
    assert (answer.kind, facts(answer, "answer")["verdict"]) == ("solver rollout", row["verdict"])
    assert facts(answer, "question")["question_id"] == row["question_id"]
    with pytest.raises(UsageError, match="no run, question, rollout"):
        ask(f"{row['question_id']}/999")


def test_text_json_and_page_tell_the_same(ask, sql):
    row = sql("select question_id, text from questions order by 1")[0]
    answer = ask(row["question_id"])
    told = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert list(told["passages"]) == PASSAGES and told["passages"]["question"]["texts"]["text"] == row["text"]
    text, page = to_text(answer), to_html(answer)
    for passage in answer.passages:
        assert passage.title in text and f' id="{passage.name}"' in page
    assert "<script" not in page and "http-equiv" in page and "prefers-color-scheme" in page


def test_what_a_model_wrote_is_escaped_in_the_page():
    evil = "<script>alert(1)</script>"
    passage = Passage(name="x", title=evil, facts={evil: evil}, texts={evil: evil}, rows=[{evil: evil}], note=evil)
    page = to_html(Story(id=evil, kind="question", run=evil, headline=evil, passages=[passage], also=[evil]))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 12


def test_the_other_run_with_the_same_artifact_is_named(small_run: SmallRun, sql):
    answer = why(small_run.root, sql("select question_id from questions where iteration = 0")[0]["question_id"])
    assert {answer.run, *(line.split()[1] for line in answer.also)} == {small_run.name, small_run.fixed}


def test_a_checkpoint_is_found_by_iteration_key_and_id(small_run: SmallRun, ask, sql):
    rows = sql("select artifact_key, after_iterations, step from checkpoints where role = 'solver'")
    assert rows
    for row in rows:
        by_place = why(small_run.root, f"{small_run.name}@{row['after_iterations']}")
        assert by_place == ask(row["artifact_key"]) == ask(by_place.id)
        path = by_place.passage("updates").rows
        assert len(path) == row["after_iterations"] + 1 and path[-1]["step"] == row["step"]
        assert path[0]["checkpoint"].startswith("anchor-")
    (scored,) = sql("select accuracy from benchmark_scores where phase = 'validate' and iteration = 2")
    told = {row["phase"]: row["accuracy"] for row in ask(f"{small_run.name}@2").passage("scores").rows}
    assert told["validate"] == scored["accuracy"]


def test_a_benchmark_tells_both_scores_and_the_questions_that_moved(small_run: SmallRun, ask, sql):
    answer = ask(f"{small_run.name}/exam")
    rows = sql("select iteration, accuracy from benchmark_scores where benchmark = 'exam' order by iteration")
    told = [(row["after_iterations"], row["accuracy"]) for row in answer.passage("scores").rows]
    assert told and told == [(row["iteration"], row["accuracy"]) for row in rows]
    moved = answer.passage("moved")
    change = (told[-1][1] - told[0][1]) * moved.facts["questions_compared"]
    assert sum(row["change"] for row in moved.rows) == pytest.approx(change)


def test_a_benchmark_question_shows_every_answer_with_its_verdict(small_run: SmallRun, ask, sql):
    name = sql("select question_id from question_scores where benchmark = 'exam' order by 1")[0]["question_id"]
    where = f"phase = 'evaluate' and question_id = '{name}'"
    expected = sql(f"select iteration, verdict from benchmark_answers where {where} order by iteration")
    told = ask(f"{small_run.name}/exam/{name}").passage("answers").rows
    assert told and [(line["iteration"], line["verdict"]) for line in told] == [tuple(row.values()) for row in expected]


def test_a_dev_question_shows_the_gradients_it_entered(ask, sql):
    name = sql("select group_id from rollouts where phase = 'rollout_dev' order by 1")[0]["group_id"]
    answer = ask(name)
    assert [line["iteration"] for line in answer.passage("dev_gradient").rows] == [0, 1]
    assert len(answer.passage("answers").rows) == 8
    assert ask(f"{name}/2").passage("answer").facts["rollout_id"] == f"{name}/2"


def test_documents_and_textbooks_count_what_was_written_from_them(ask, sql):
    documents = sql("select group_id, count(*) as n from rollouts where role = 'generator' group by 1 order by 1")
    books = sql("select source_id, count(*) as n from question_history group by 1")
    assert documents and books
    for row in documents:
        assert (ask(row["group_id"]).kind, len(ask(row["group_id"]).passage("texts").rows)) == ("document", row["n"])
    for row in books:
        assert sum(line["questions"] for line in ask(row["source_id"]).passage("documents").rows) == row["n"]


@pytest.mark.parametrize("table", ["reference_questions", "asked_questions"])
def test_a_page_of_a_given_question_tells_right_answers_by_their_verdicts(ask, sql, table: str):
    answers = ask(sql(f"select question_id from {table} order by 1 limit 1")[0]["question_id"])
    page, rows = to_html(answers), answers.passage("answers").rows
    right = sum(row["verdict"] == "correct" for row in rows)
    assert rows and page.count('class="answer right"') == right
    assert page.count('class="answer wrong"') == len(rows) - right


def test_any_other_artifact_tells_what_it_was_made_from(ask, sql):
    (row,) = sql("select artifact_key from run_artifacts where phase = 'score_influence' and iteration = 1")
    above = {line["artifact"].rpartition("-")[0] for line in ask(row["artifact_key"]).passage("made_from").rows}
    assert {"questions", "pool", "anchor", "generate_questions", "update_solver", "dev_gradient"} <= above


@pytest.mark.parametrize("name", ["nothing", "9/none/1", "9/none/1-abcdef", "small/none", "update_", "small@3"])
def test_a_name_of_nothing_is_wrong_use(ask, name: str):
    with pytest.raises(UsageError) as caught:
        ask(name)
    assert caught.value.hint


def test_an_unknown_run_is_wrong_use(small_run: SmallRun):
    with pytest.raises(UsageError, match="no run named nowhere"):
        why(small_run.root, "anything", run="nowhere")


def test_the_command_prints_text_json_or_a_page(small_run: SmallRun, launch: Launcher, tmp_path):
    name = f"{small_run.name}@1"
    text = launch("why", name, store=small_run.root)
    assert text.code == 0 and text.out.startswith("checkpoint update_solver-"), text.err
    assert json.loads(launch("why", name, "--json", store=small_run.root).out)["kind"] == "checkpoint"
    page = launch("why", name, "--html", str(tmp_path / "page.html"), store=small_run.root)
    assert (page.code, page.out) == (0, "")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    wrong = launch("why", "nothing", store=small_run.root)
    assert wrong.code == 2 and wrong.err.startswith("infuser: nothing: no run, question")


def test_a_run_is_explained_by_its_result_its_questions_and_the_next_commands(small_run: SmallRun, launch: Launcher):
    story = why(small_run.root, small_run.name)
    assert story.kind == "run" and story.headline.endswith("from the anchor to the checkpoint after 2 iterations")
    scores = query(small_run.root, "select question_id, score from scores where status = 'scored'", run=small_run.name)
    best, worst = story.passage("best").rows[0], story.passage("worst").rows[0]
    assert best["score"] == max(row["score"] for row in scores) and best["text"]
    assert worst["score"] == min(row["score"] for row in scores)
    for row in story.passage("next").rows:
        command = row["command"].split()[1:]
        assert launch(*command, store=small_run.root).code == 0 or command[0] == "report"
