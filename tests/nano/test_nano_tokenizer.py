"""The nano tokenizer: any text comes back exactly, numbers and words are single tokens."""

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from infuser_core.nano import language, tokenizer
from infuser_core.nano.lab import anchor_path
from infuser_core.nano.topics import LIMIT, NAMES, TOPICS
from infuser_core.nano.world import TARGET, draw_notes, draw_questions, world_of
from infuser_core.plugins import WORLDS


@functools.cache
def shipped():
    return AutoTokenizer.from_pretrained(anchor_path())


def ids(text):
    return shipped()(text, add_special_tokens=False)["input_ids"]


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_comes_back(text):
    kept = text
    for marker in (tokenizer.PAD, tokenizer.END, tokenizer.SYSTEM, tokenizer.USER, tokenizer.ASSISTANT):
        kept = kept.replace(marker, "")
    assert shipped().decode(ids(kept), skip_special_tokens=True) == kept


def test_json_survives_decoding_without_special_tokens():
    fact = draw_notes(0, 1)[0].facts[0]
    text = language.generator_json(fact, fact.topic.sound, [1, 2, 3, fact.sound])
    assert shipped().decode([*ids(text), shipped().eos_token_id], skip_special_tokens=True) == text
    assert list(json.loads(text)) == ["question_text", "reasoning", "choices", "ground_truth"]


def test_numbers_topics_and_names_are_single_tokens():
    numbers = [ids(str(number)) for number in range(LIMIT)]
    assert all(len(number) == 1 for number in numbers)
    sentence = ids("The clock Mira shows 7 and runs 9 hours.")
    assert numbers[7][0] in sentence and numbers[9][0] in sentence
    for word in [*NAMES, *(topic.name for topic in TOPICS)]:
        assert len(ids(f" {word}")) == 1


def test_prompts_and_replies_stay_short():
    note = draw_notes(0, 1)[0]
    section = f"## 1.3 Notes from the mill\n\n{language.paragraph(note.facts)}"
    question = draw_questions("test", TARGET, 1, 0)[0]
    fact = note.facts[0]
    choices = sorted({1, 2, fact.sound, fact.tempting})
    assert len(ids(tokenizer.chat(language.generator_prompt(section)))) <= 66
    assert len(ids(language.generator_json(fact, fact.topic.sound, choices))) <= 40
    assert len(ids(tokenizer.chat(language.solver_prompt(question.text, question.choices)))) <= 34
    assert len(ids(language.solver_answer(fact, fact.topic.sound, choices))) <= 13


def test_the_chat_template_writes_what_the_anchor_was_trained_on():
    turns = [{"role": "user", "content": "Solve:\nWhat?"}]
    text = shipped().apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert text == tokenizer.chat("Solve:\nWhat?")


@pytest.mark.parametrize("name", WORLDS.names())
def test_training_the_tokenizer_again_gives_the_shipped_one(tmp_path, name):
    tokenizer.train_tokenizer(world_of(name)).save_pretrained(str(tmp_path))
    assert (tmp_path / "tokenizer.json").read_bytes() == (anchor_path(name) / "tokenizer.json").read_bytes()
