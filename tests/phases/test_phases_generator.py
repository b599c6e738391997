"""The generator's texts become questions or keep the reason why not, and only useful ones are rewarded."""

import json
from pathlib import Path

import pytest
from places import CONFIGS
from solver_rows import anchor

from infuser_core.config.overlays import load
from infuser_core.cotrain.phases import generate_questions as generate_phase
from infuser_core.cotrain.phases import update_generator as update_phase
from infuser_core.cotrain.phases.generate_questions import GeneratedQuestions, generate_questions
from infuser_core.cotrain.phases.update_generator import GeneratorUpdate, update_generator
from infuser_core.engines.fake import FakeTrainer, ScriptedSampler, fake_anchor
from infuser_core.schemas import Document, InfluenceScore, ScoreStatus

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
