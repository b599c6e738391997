"""The generator's questions and update, problems that rows carry, an outside generator, examples in prompts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from launcher import SmallRun
from places import CONFIGS
from solver_rows import anchor, question
from test_endpoint_replies import said, server

from corpus.problems import problem_rows
from infuser_core.config.overlays import load
from infuser_core.config.roles import ProblemSettings
from infuser_core.config.sources import NanoQuestions
from infuser_core.cotrain.phases import generate_questions as generate_phase
from infuser_core.cotrain.phases import generate_questions as phase
from infuser_core.cotrain.phases import update_generator as update_phase
from infuser_core.cotrain.phases.generate_questions import GeneratedQuestions, generate_questions, settings_of
from infuser_core.cotrain.phases.parts.few_shot import ExamplePool, render_examples
from infuser_core.cotrain.phases.rollout_questions import rollout_questions
from infuser_core.cotrain.phases.rollout_questions import settings_of as answering_of
from infuser_core.cotrain.phases.update_generator import GeneratorUpdate, update_generator
from infuser_core.engines.endpoint import Address, ChatSampler, Endpoint, PackedText
from infuser_core.engines.fake import ByteTokenizer, FakeTrainer, ScriptedSampler, fake_anchor
from infuser_core.errors import DocumentError
from infuser_core.evaluation.benchmarks.parts.question_sets import load_questions
from infuser_core.protocols import PromptGroup, SamplingParams
from infuser_core.schemas import Document, InfluenceScore, ScoreStatus
from infuser_core.store.journal import Journal

NANO = CONFIGS / "nano.yaml"
SMALL = ["cotrain.prompt_tokens=200", "cotrain.generator_tokens=400", "cotrain.group_size=4", "cotrain.documents=3"]
VALID = json.dumps({"question_text": "What is 6 * 7?", "choices": ["41", "42", "43", "44"], "ground_truth": "42"})


def config_of(*overrides: str):
    return load([NANO], [*SMALL, "cotrain.question.labeller=''", *overrides])


def document(name: str, *, text: str = "six times seven") -> Document:
    return Document(
        document_id=name,
        source_id="s",
        header_path="",
        start=0,
        end=len(text),
        text=text,
        num_tokens=3,
        domain="Mathematics",
        prompt_type="mcq",
    )


def generate(
    *documents: Document, reply=lambda prompt, seed: VALID, iteration: int = 0, seed: int = 0
) -> GeneratedQuestions:
    return generate_questions(
        documents,
        ScriptedSampler(reply=reply),
        generate_phase.settings_of(config_of()),
        checkpoint_id="generator",
        seed=seed,
        iteration=iteration,
    )


def influence(question_id: str, score: float, *, status: str = ScoreStatus.SCORED) -> InfluenceScore:
    return InfluenceScore(
        question_id=question_id,
        status=status,
        score=score,
        cosine=score,
        dot=0.0,
        raw_cosine=0.0,
        direction_norm=1.0,
        gradient_norm=1.0,
        reference_norm=1.0,
        solver_accuracy=0.5,
    )


def update(
    tmp_path: Path,
    generated: GeneratedQuestions,
    scores: list[float],
    *overrides: str,
    status: str = ScoreStatus.SCORED,
) -> GeneratorUpdate:
    fake_anchor(tmp_path / "anchor")
    trainer = FakeTrainer()
    trainer.load(anchor(tmp_path, role="generator"))
    rows = [
        influence(question.question_id, score, status=status)
        for question, score in zip(generated.questions, scores, strict=True)
    ]
    (tmp_path / "out").mkdir()
    return update_generator(
        generated.rollouts,
        generated.questions,
        rows,
        trainer,
        update_phase.settings_of(config_of(*overrides), iteration=0),
        workspace=tmp_path / "out",
        before=anchor(tmp_path, role="generator"),
    )


def every_second(prompt: str, seed: int) -> str:
    return VALID if seed % 2 else "Let me think about the note."


def test_every_text_is_kept_and_every_valid_one_is_a_question():
    generated = generate(document("d1"), document("d2"), reply=every_second)
    assert [row.group_id for row in sorted(generated.rollouts, key=lambda row: row.rollout_id)] == ["d1"] * 4 + [
        "d2"
    ] * 4
    valid = {row.rollout_id for row in generated.rollouts if row.verdict == "valid"}
    assert {question.rollout_id for question in generated.questions} == valid
    assert 0 < len(valid) < 8
    for row in generated.rollouts:
        assert bool(row.malformed_reason) == (row.verdict == "invalid")
    assert {row.malformed_reason for row in generated.rollouts if row.verdict == "invalid"} == {"no_json_object"}


def test_questions_know_where_they_come_from():
    (question, *_) = generate(document("d1")).questions
    assert (question.document_id, question.domain, question.verifier) == ("d1", "Mathematics", "choice")
    assert question.choices[ord(question.answer) - ord("A")] == "42"


def test_identifiers_are_unique_over_iterations():
    ids = [
        question.question_id
        for iteration in (0, 1)
        for question in generate(document("d1"), document("d2"), iteration=iteration).questions
    ]
    assert len(set(ids)) == len(ids) == 16


def test_a_document_that_does_not_fit_has_rows_with_that_reason():
    generated = generate(document("d1"), document("long", text="word " * 100))
    lost = [row for row in generated.rollouts if row.group_id == "long"]
    assert len(lost) == 4
    assert {(row.finish_reason, row.verdict, row.malformed_reason) for row in lost} == {
        ("prompt_too_long", "invalid", "prompt_too_long")
    }
    assert {question.document_id for question in generated.questions} == {"d1"}


@pytest.mark.parametrize("penalty", [0.0, -0.25])
def test_invalid_texts_get_rho_inv_and_valid_ones_their_score(tmp_path: Path, penalty: float):
    generated = generate(document("d1"), document("d2"), reply=every_second)
    scores = [0.1 * (number + 1) for number in range(len(generated.questions))]
    done = update(tmp_path, generated, scores, f"cotrain.reward.invalid={penalty}")
    expected = {q.rollout_id: score for q, score in zip(generated.questions, scores, strict=True)}
    assert {row.rollout_id: row.reward for row in done.scores} == {
        row.rollout_id: expected.get(row.rollout_id, penalty) for row in generated.rollouts
    }
    best = max(done.scores, key=lambda row: row.reward)
    assert best.advantage > 0


def test_a_document_whose_texts_are_worth_the_same_is_not_trained_on(tmp_path: Path):
    generated = generate(document("d1"), document("d2"))
    by_document = {"d1": [0.1, 0.2, 0.3, 0.4], "d2": [0.2] * 4}
    order = [question.document_id for question in generated.questions]
    scores = [by_document[name][order[:place].count(name)] for place, name in enumerate(order)]
    done = update(tmp_path, generated, scores)
    assert {row.document_id: row.trained for row in done.scores} == {"d1": True, "d2": False}
    assert all(row.advantage == 0 for row in done.scores if row.document_id == "d2")
    assert [(row.num_groups, row.step) for row in done.updates] == [(1, 1)]


def test_without_a_dev_signal_the_generator_stays_as_it_is(tmp_path: Path):
    generated = generate(document("d1"), document("d2"), reply=every_second)
    scores = [0.0] * len(generated.questions)
    # Even where the penalty alone would tell texts apart.
    done = update(tmp_path, generated, scores, "cotrain.reward.invalid=-1", status=ScoreStatus.NO_DEV_SIGNAL)
    assert done.updates == []
    assert not any(row.trained for row in done.scores)
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "anchor" / name).read_bytes()


def test_an_iteration_without_a_valid_question_only_says_so(tmp_path: Path):
    generated = generate(document("d1"), reply=lambda prompt, seed: "no question at all")
    assert generated.questions == []
    done = update(tmp_path, generated, [])
    assert done.updates == [] and len(done.scores) == 4


# Rows that carry their question: one question each, no text of a generator, no group of its update


SOURCE = NanoQuestions(split="train", size=4)
OPEN = json.dumps({"question_text": "What is half of one?", "ground_truth": "\\frac{1}{2}"})


def rows(route: str = "direct", count: int = 4):
    settings = ProblemSettings(source=SOURCE, count=count, route=route)
    return problem_rows(0, load_questions(SOURCE, seed=0), settings, [])


def carry(documents, problems, *overrides: str, reply=lambda prompt, seed: VALID, route: str = "", iteration: int = 0):
    config = config_of("cotrain.documents=20", "cotrain.prompt_tokens=9000", *overrides)
    return generate_questions(
        documents, ScriptedSampler(reply=reply), replace(settings_of(config), route=route),
        checkpoint_id="g", seed=0, iteration=iteration,
        problems=problems,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mixed() -> GeneratedQuestions:
    added = rows()
    return carry([document("d1"), document("d2"), *added.documents], added.problems)


def test_a_row_gives_one_question_and_a_document_many(mixed: GeneratedQuestions):
    by_document = [question.document_id for question in mixed.questions]
    assert {name: by_document.count(name) for name in by_document} == {
        "d1": 4, "d2": 4, **{row.document_id: 1 for row in rows().documents},
    }  # fmt: skip


def test_given_questions_are_the_problems_themselves(mixed: GeneratedQuestions):
    problems = {problem.document_id: problem for problem in rows().problems}
    given = [question for question in mixed.questions if question.document_id in problems]
    for row in given:
        problem = problems[row.document_id]
        assert (row.text, row.choices, row.answer) == (problem.text, problem.choices, problem.answer)
        assert row.rollout_id == ""


def test_the_generator_has_rollouts_and_labels_of_its_own_texts_alone():
    added = rows()
    made = carry(
        [document("d1"), *added.documents], added.problems, "cotrain.question.labeller=infuser_core.nano.lab:label"
    )
    assert {row.group_id for row in made.rollouts} == {"d1"}
    assert {label.question_id for label in made.labels} == {q.question_id for q in made.questions if q.rollout_id}


def test_the_solver_answers_a_given_question_as_often_as_any_other(mixed: GeneratedQuestions):
    config = config_of("cotrain.prompt_tokens=9000")
    answers, _ = rollout_questions(
        mixed.questions, ScriptedSampler(reply=lambda prompt, seed: "\\boxed{A}"), answering_of(config),
        checkpoint_id="s", seed=0, iteration=0,
    )  # fmt: skip
    counts = [row.group_id for row in answers]
    assert {counts.count(question.question_id) for question in mixed.questions} == {4}


def test_a_row_has_another_identifier_every_time_it_is_asked():
    added = rows()
    names = [
        question.question_id
        for iteration in (0, 1)
        for question in carry(added.documents, added.problems, iteration=iteration).questions
    ]
    assert len(set(names)) == len(names) == 8


def test_a_run_of_given_problems_needs_no_generator():
    added = rows(count=8)
    made = generate_questions(
        added.documents, None, settings_of(config_of("cotrain.documents=8", "cotrain.route=direct")),
        checkpoint_id="g", seed=0, iteration=0, problems=added.problems,
    )  # fmt: skip
    assert made.rollouts == [] and len(made.questions) == 8


def test_problems_can_be_texts_to_write_new_ones_from():
    added = rows("free_form")
    made = carry(added.documents, added.problems, "prompts=paper", reply=lambda prompt, seed: OPEN)
    assert {row.group_id for row in made.rollouts} == {row.document_id for row in added.documents}
    assert {(question.verifier, question.answer) for question in made.questions} == {("math", "\\frac{1}{2}")}


def test_the_runs_route_is_for_documents_and_problems_keep_theirs():
    added = rows()
    made = carry(
        [document("d1"), *added.documents], added.problems, "prompts=paper", route="free_form",
        reply=lambda prompt, seed: OPEN,
    )  # fmt: skip
    assert {q.verifier for q in made.questions if q.document_id == "d1"} == {"math"}
    assert sum(not question.rollout_id for question in made.questions) == 4


def test_a_row_that_carries_nothing_is_refused_with_its_name():
    with pytest.raises(DocumentError, match=rows().documents[0].document_id):
        carry(rows().documents[:1], [])


def test_a_document_says_itself_which_template_it_is_for(tmp_path: Path):
    for name, text in (("generate_mcq", "Choices: {text}"), ("generate_free_form", "Value: {text}")):
        (tmp_path / f"{name}.txt").write_text(text)
    seen: list[str] = []

    def reply(prompt: str, seed: int) -> str:
        seen.append(prompt)
        return VALID

    added = rows("free_form", count=1)
    carry([document("d1"), *added.documents], added.problems, f"prompts={tmp_path}", reply=reply)
    assert sum("Choices: six times seven" in prompt for prompt in seen) == 4
    assert sum("Value: " in prompt and "Answer: " in prompt for prompt in seen) == 4


# Another model in the generator's place: a server that is asked, or files of its own. It is never updated


CONFIG = load([CONFIGS / "nano.yaml"])
DOCUMENT = Document(
    document_id="d", source_id="s", header_path="", start=0, end=4, text="Water boils: 100 °C.", num_tokens=4,
    domain="Physics", prompt_type="mcq",
)  # fmt: skip
WRITTEN = {"question_text": "At which?", "choices": ["10", "50", "75", "100"], "ground_truth": "100"}


def test_text_comes_back_from_its_tokens():
    tokenizer = PackedText()
    turns = [{"role": "user", "content": 'Ünïcode {braces} \\n "quotes" \U0001f9ea'}]
    assert tokenizer.messages(tokenizer.render(turns)) == turns
    for text in ("", "a", "four", "fives", "ä\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("x" * 401)) == 101


def test_a_server_writes_the_questions_and_its_thoughts_are_no_question():
    thoughts = json.dumps({**WRITTEN, "ground_truth": "10"})
    with server(lambda body, number: said(f"<think>{thoughts}</think>{json.dumps(WRITTEN)}")) as (url, log):
        endpoint = Endpoint(Address(model="m", url=url), concurrency=2)
        made = phase.generate_questions(
            [DOCUMENT], ChatSampler(endpoint.replies), phase.settings_of(CONFIG), checkpoint_id="openai:m", seed=1,
            iteration=0,
        )  # fmt: skip
        endpoint.close()
    assert len(made.questions) == len(made.rollouts) == CONFIG.cotrain.group_size
    assert {question.choices["ABCD".index(question.answer)] for question in made.questions} == {"100"}
    assert {row.checkpoint_id for row in made.rollouts} == {"openai:m"}
    assert "100 °C" in log.bodies[0]["messages"][-1]["content"]
    assert len({body["seed"] for body in log.bodies}) == CONFIG.cotrain.group_size


def test_replies_in_any_order_find_their_place():
    tokenizer = PackedText()
    turns = [[{"role": "user", "content": str(number)}] for number in range(3)]
    groups = [
        PromptGroup(group_id=str(place), token_ids=tokenizer.render(each), seeds=[10 * place, 10 * place + 1])
        for place, each in enumerate(turns)
    ]
    kept: list[tuple[int, int]] = []
    with server(lambda body, number: said(f"{body['messages'][0]['content']}/{body['seed']}")) as (url, _):
        endpoint = Endpoint(Address(model="m", url=url), concurrency=3)
        drawn = ChatSampler(endpoint.replies).sample(
            groups, SamplingParams(temperature=0.7, max_tokens=9), keep=lambda place, row, _: kept.append((place, row))
        )
        endpoint.close()
    texts = [[tokenizer.decode(each.token_ids) for each in group] for group in drawn]
    assert texts == [["0/0", "0/1"], ["1/10", "1/11"], ["2/20", "2/21"]]
    assert sorted(kept) == [(place, row) for place in range(3) for row in range(2)]


# Within an iteration everything reads one solver and one generator: those that the iteration before left


@pytest.fixture(scope="module")
def inputs(small_run: SmallRun) -> dict[tuple[str, int], dict[str, str]]:
    """Inputs of every stage of the run, and its own id as `self`, by phase and iteration."""
    store = small_run.store
    refs = {ref.key: ref for ref in store.refs()}
    return {
        (entry.phase, entry.iteration): {
            **store.manifest(refs[entry.key]).recipe["inputs"],
            "self": refs[entry.key].id,
        }
        for entry in Journal(small_run.root, small_run.name).latest()
    }


@pytest.mark.parametrize("iteration", [0, 1])
def test_every_phase_of_an_iteration_reads_the_same_solver(inputs: dict, iteration: int):
    readers = ["rollout_dev", "dev_gradient", "rollout_questions", "score_influence", "update_solver"]
    solvers = {inputs[phase, iteration]["solver"] for phase in readers}
    assert solvers == {inputs["update_solver", 0]["self"] if iteration else inputs["anchor", -1]["self"]}


@pytest.mark.parametrize("iteration", [0, 1])
def test_texts_and_update_of_the_generator_belong_to_the_same_generator(inputs: dict, iteration: int):
    generators = {inputs[phase, iteration]["generator"] for phase in ("generate_questions", "update_generator")}
    assert generators == {inputs["update_generator", 0]["self"] if iteration else inputs["anchor", -1]["self"]}


@pytest.mark.parametrize("iteration", [0, 1])
def test_the_updates_use_the_scores_and_answers_of_their_iteration(inputs: dict, iteration: int):
    questions = inputs["generate_questions", iteration]["self"]
    answers = inputs["rollout_questions", iteration]["self"]
    score, generator, solver = (
        inputs[phase, iteration] for phase in ("score_influence", "update_generator", "update_solver")
    )
    assert generator["scores"] == score["self"]
    assert {score["questions"], generator["questions"], solver["questions"]} == {questions}
    assert {score["rollouts"], solver["rollouts"]} == {answers}


def test_the_solver_is_not_updated_from_the_generators_update(inputs: dict):
    assert inputs["update_generator", 0]["self"] not in inputs["update_solver", 0].values()


# Questions by people stand in the generator's prompt, before the document, drawn anew for every document


PAPER = load([CONFIGS / "nano.yaml"], ["prompts=paper", "cotrain.prompt_tokens=9999"])
PEOPLES = [replace(question(f"h{n}", answer="A", verifier="choice"), text=f"Human question {n}") for n in range(6)]
DOCUMENTS = [
    Document(
        document_id=f"d{n}", source_id="s", header_path="", start=0, end=1, text=f"Text {n}.", num_tokens=2, domain="",
        prompt_type=route,
    )
    for n, route in enumerate(["mcq", "mcq", "free_form"])
]  # fmt: skip


def prompts(examples: ExamplePool | None, iteration: int = 0) -> dict[str, str]:
    made = phase.generate_questions(
        DOCUMENTS, ScriptedSampler(), phase.settings_of(PAPER), checkpoint_id="c", seed=1, iteration=iteration,
        examples=examples,
    )  # fmt: skip
    return {row.group_id: ByteTokenizer().decode(row.prompt_token_ids) for row in made.rollouts}


def test_examples_stand_before_the_document_with_their_answers():
    prompt = prompts(ExamplePool(questions=PEOPLES, count=2))["d0"]
    assert prompt.count("Human question") == prompt.count("Answer: A") == 2
    assert prompt.index("Human question") < prompt.index("Text 0.")


def test_other_routes_have_examples_too_and_runs_without_any_are_as_they_were():
    plain, with_examples = prompts(None), prompts(ExamplePool(questions=PEOPLES, count=2))
    assert "Human question" not in plain["d0"] + plain["d2"]
    assert with_examples["d2"].count("Human question") == 2


def test_every_document_and_iteration_draws_its_own():
    three = ExamplePool(questions=PEOPLES, count=3)
    drawn = [
        render_examples(three, name, seed=1, iteration=t, template="show_questions") for name in "aba" for t in (0, 1)
    ]
    assert len({*drawn}) == 4
    assert drawn[:2] == drawn[4:]


def test_no_question_stands_twice_in_a_prompt():
    text = render_examples(
        ExamplePool(questions=PEOPLES, count=99), "d", seed=1, iteration=0, template="show_questions"
    )
    assert sorted(line for line in text.splitlines() if line.startswith("Human")) == [q.text for q in PEOPLES]
