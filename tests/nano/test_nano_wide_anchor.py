"""The wide world's shipped anchor does what its card says, and its questions are read by the project's own parser."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from infuser_core.nano import lab, language, measure, programs, tokenizer, world
from infuser_core.nano.build import build_anchor
from infuser_core.nano.topics import FAMILIES, LIMIT
from infuser_core.nano.world import TARGET, WIDE
from infuser_core.phases.parsing import ParsedQuestion, parse


@pytest.fixture(scope="module")
def anchor():
    folder = lab.anchor_path("wide")
    threads = torch.get_num_threads()
    # Tiny matrices on two threads of a busy machine wait for each other.
    torch.set_num_threads(1)
    yield AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def ask(anchor):
    temperature = lab.anchor_card("wide")["temperature"]

    def reply(users, max_tokens):
        return measure.sample(*anchor, users, temperature=temperature, max_tokens=max_tokens, seed=7)

    return reply


@pytest.fixture(scope="module")
def card():
    return lab.anchor_card("wide")["base_rates"]


def test_the_basic_roles_are_the_basic_anchors(anchor, card):
    basic = lab.anchor_card()["base_rates"]
    for role, rate in (("generator", "valid"), ("generator", "sound_keys"), ("solver_target", "sound")):
        assert card[role][rate] == pytest.approx(basic[role][rate], abs=0.08), (role, rate)
    assert card["generator"]["grounded_fact"] >= 0.9
    rates = measure.writer_rates(*anchor, count=144, temperature=1.0, seed=7, world=WIDE)
    # Three standard errors of a share of 144 samples are at most 0.125.
    assert rates.valid == pytest.approx(card["generator"]["valid"], abs=0.125)
    assert rates.sound_keys == pytest.approx(card["generator"]["sound_keys"], abs=0.125)
    answers = measure.solver_rates(*anchor, topics=TARGET, count=20, temperature=1.0, seed=7, world=WIDE)
    assert answers.sound == pytest.approx(card["solver_target"]["sound"], abs=0.12)
    judged = measure.judge_rates(*anchor, count=48, seed=7, world=WIDE)
    assert judged.keep_right >= 0.95 and judged.drop_right >= 0.95


@pytest.mark.parametrize(
    ("role", "questions"),
    [("solver_problems", world.problems("test", 24, 7)), ("solver_programs", programs.questions("test", 24, 7))],
)
def test_the_solver_wavers_on_free_form_questions(ask, card, role, questions):
    rates = measure.free_form_rates(ask, questions)
    assert rates.sound == pytest.approx(card[role]["sound"], abs=0.12) and 0.3 <= card[role]["sound"] <= 0.55
    assert rates.sound + rates.tempting >= 0.8 and rates.mixed >= 0.8


def test_challenges_and_programs_are_written_without_a_document(ask, card):
    challenges = measure.challenge_rates(ask, 96)
    assert challenges.valid >= 0.7 and card["challenger"]["valid"] >= 0.8 and len(challenges.topics) == 8
    assert 0.35 <= card["challenger"]["sound_keys"] <= 0.6
    written = measure.program_rates(ask, 96)
    assert written.valid >= 0.7 and card["programmer"]["valid"] >= 0.8
    assert 0.25 <= card["programmer"]["ordered"] <= 0.75 and written.different >= 70


def test_examples_lead_the_writer_and_the_document_grounds_it(ask, card):
    rates = measure.example_rates(ask, 64, seed=7, world=WIDE)
    assert rates.valid >= 0.75 and rates.grounded_fact >= 0.8
    # A writer that ignored its examples would follow them 0.31 of the time: two topics of eight, four in the document.
    assert card["generator_examples"]["followed"] >= 0.38 and card["generator_examples"]["valid"] >= 0.85


def test_the_projects_parser_reads_what_it_writes(ask):
    replies = ask([language.challenge_prompt()] * 32, 64)
    read = [parse(text, min_choices=4, max_choices=4) for text in replies]
    valid = [made for made in read if isinstance(made, ParsedQuestion)]
    assert len(valid) >= 24 and all(language.parse_question(made.text) for made in valid[:8])


def test_numbers_and_words_are_single_tokens_and_the_tokenizer_is_the_worlds(anchor):
    words = anchor[1]
    assert words.get_vocab() == tokenizer.train_tokenizer(WIDE).get_vocab()
    for word in [*(str(number) for number in range(LIMIT)), *(f" {family.name}" for family in FAMILIES)]:
        assert len(words(word, add_special_tokens=False)["input_ids"]) == 1
    for text, length in (('{"program": "7 + 3 * 5"}', 7), ("3 * 5 = 15, 7 + 15 = 22 \\boxed{22}", 14)):
        ids = words(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == length and words.decode(ids, skip_special_tokens=True) == text


def test_a_short_build_measures_every_role(tmp_path):
    made = build_anchor(tmp_path, steps_scale=0.002, seed=3, world="wide")
    shipped = lab.anchor_card("wide")
    assert made["base_rates"].keys() == shipped["base_rates"].keys()
    assert made["vocabulary"] == shipped["vocabulary"] and made["world"]["num_families"] == len(FAMILIES)
    assert (tmp_path / "tokenizer.json").read_bytes() == (lab.anchor_path("wide") / "tokenizer.json").read_bytes()
