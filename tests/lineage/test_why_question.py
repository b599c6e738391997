"""A generated question is followed from the page of its textbook to the validation accuracy after its update."""

import json
from collections.abc import Iterator

import pytest
from launcher import SmallRun

from infuser_core.lineage.answer import Answer, to_text
from infuser_core.lineage.pages import to_html
from infuser_core.lineage.why import why
from infuser_core.schemas import Document, GeneratorScore, InfluenceScore, Page, Question, Rollout, Update
from infuser_core.store.views import Lens

PASSAGES = [
    "source", "document", "judgement", "generator", "question", "answers", "influence", "reward", "updates",
    "validation",
]  # fmt: skip


@pytest.fixture(scope="module")
def lens(small_run: SmallRun) -> Iterator[Lens]:
    found = Lens(small_run.store, runs=[small_run.name])
    yield found
    found.close()


def facts(answer: Answer, name: str) -> dict:
    passage = answer.passage(name)
    assert passage is not None, name
    return dict(passage.facts)


def rows_of(small_run: SmallRun, lens: Lens, phase: str, iteration: int, table: str, row_type: type) -> list:
    (found,) = lens.query(
        "select artifact_key from run_artifacts where phase = ? and iteration = ?", [phase, iteration]
    )
    ref = lens.catalogue.records[found["artifact_key"]].ref
    return small_run.store.rows(ref, table, row_type)


def test_every_question_of_the_run_has_its_whole_story(small_run: SmallRun, lens: Lens):
    names = [row["question_id"] for row in lens.query("select question_id from questions order by 1")]
    assert names
    for name in names:
        answer = why(small_run.root, name, run=small_run.name)
        assert (answer.kind, answer.run) == ("question", small_run.name)
        assert [passage.name for passage in answer.passages] == PASSAGES


def test_the_facts_are_the_rows_of_the_store(small_run: SmallRun, lens: Lens):
    for iteration in (0, 1):
        questions = rows_of(small_run, lens, "generate_questions", iteration, "questions", Question)
        written = rows_of(small_run, lens, "generate_questions", iteration, "rollouts", Rollout)
        scores = rows_of(small_run, lens, "score_influence", iteration, "scores", InfluenceScore)
        rewards = rows_of(small_run, lens, "update_generator", iteration, "generator_scores", GeneratorScore)
        answered = rows_of(small_run, lens, "rollout_questions", iteration, "rollouts", Rollout)
        for question, score in zip(questions, scores, strict=True):
            answer = why(small_run.root, question.question_id, run=small_run.name)
            (rollout,) = [row for row in written if row.rollout_id == question.rollout_id]
            (reward,) = [row for row in rewards if row.rollout_id == question.rollout_id]
            mine = [row for row in answered if row.group_id == question.question_id]
            assert facts(answer, "question")["answer"] == question.answer
            assert facts(answer, "generator")["checkpoint"] == rollout.checkpoint_id
            assert answer.passage("generator").texts["raw output"] == rollout.text
            for name in ("score", "cosine", "direction_norm", "gradient_norm", "reference_norm", "status"):
                assert facts(answer, "influence")[name] == getattr(score, name)
            assert facts(answer, "reward") == {
                "reward": reward.reward, "advantage": reward.advantage, "trained": reward.trained
            }  # fmt: skip
            told = answer.passage("answers").rows
            assert [(row["rollout_id"], row["reward"], row["text"]) for row in told] == [
                (row.rollout_id, row.reward, row.text) for row in mine
            ]


def test_the_page_is_where_the_chunk_lies_in_the_book(small_run: SmallRun, lens: Lens):
    (question,) = lens.query("select question_id, document_id from questions order by 1 limit 1")
    answer = why(small_run.root, question["question_id"], run=small_run.name)
    (document,) = [
        row for row in rows_of(small_run, lens, "pool", -1, "documents", Document)
        if row.document_id == question["document_id"]
    ]  # fmt: skip
    (page,) = [
        row for row in rows_of(small_run, lens, "convert", -1, "pages", Page) if row.source_id == document.source_id
    ]
    numbers = [n + 1 for n, start in enumerate(page.page_starts) if start <= document.start]
    assert str(facts(answer, "document")["page"]).split("-")[0] == str(numbers[-1])
    assert page.markdown[document.start : document.end] == answer.passage("document").texts["text"]
    assert facts(answer, "source")["source_id"] == document.source_id


def test_solver_advantages_of_a_question_add_up_to_nothing(small_run: SmallRun, lens: Lens):
    for row in lens.query("select question_id from questions"):
        told = why(small_run.root, row["question_id"], run=small_run.name).passage("answers").rows
        mean = sum(line["reward"] for line in told) / len(told)
        assert [line["advantage"] for line in told] == pytest.approx([line["reward"] - mean for line in told])


def test_questions_fill_the_minibatches_as_the_updates_counted_them(small_run: SmallRun, lens: Lens):
    """Every step has as many groups as questions say that they entered it."""
    for iteration in (0, 1):
        entered: dict[int, int] = {}
        for row in lens.query("select question_id from questions where iteration = ?", [iteration]):
            steps = why(small_run.root, row["question_id"], run=small_run.name).passage("updates").rows
            (solver,) = [step for step in steps if step["role"] == "solver"]
            if solver["step"] is not None:
                entered[solver["step"]] = entered.get(solver["step"], 0) + 1
            else:
                assert solver["why_not"] == "all answers had the same reward"
        updates = rows_of(small_run, lens, "update_solver", iteration, "updates", Update)
        assert entered == {update.step: update.num_groups for update in updates}


def test_a_text_that_is_no_question_says_why(small_run: SmallRun, lens: Lens):
    rows = lens.query("select rollout_id, malformed_reason from rollouts where malformed_reason <> ''")
    for row in rows:
        answer = why(small_run.root, row["rollout_id"], run=small_run.name)
        assert answer.kind == "generator rollout"
        assert answer.headline == f"no question: {row['malformed_reason']}"
        assert answer.passage("question") is None


def test_an_answer_is_told_with_its_question(small_run: SmallRun, lens: Lens):
    (row,) = lens.query("select rollout_id, question_id, verdict from solver_answers order by 1 limit 1")
    answer = why(small_run.root, row["rollout_id"], run=small_run.name)
    assert answer.kind == "solver rollout"
    assert facts(answer, "answer")["verdict"] == row["verdict"]
    assert facts(answer, "question")["question_id"] == row["question_id"]


def test_text_json_and_page_tell_the_same(small_run: SmallRun, lens: Lens):
    (row,) = lens.query("select question_id, text, answer from questions order by 1 limit 1")
    answer = why(small_run.root, row["question_id"], run=small_run.name)
    told = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert list(told["passages"]) == PASSAGES
    assert told["passages"]["question"]["texts"]["question"] == row["text"]
    text, page = to_text(answer), to_html(answer)
    for passage in answer.passages:
        assert passage.title in text
    assert "<script" not in page and "http-equiv" in page and "prefers-color-scheme" in page
    assert row["question_id"] in page


def test_the_other_run_with_the_same_artifact_is_named(small_run: SmallRun, lens: Lens):
    (row,) = lens.query("select question_id from questions where iteration = 0 order by 1 limit 1")
    answer = why(small_run.root, row["question_id"])
    assert {answer.run, *(line.split()[1] for line in answer.also)} == {small_run.name, small_run.fixed}
